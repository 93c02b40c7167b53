"""What bounds and construction need to know of a problem's shape, derived from its raw arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schedopt.jit import kernel
from schedopt.problem import Ints, Problem

__all__ = ["Shape", "shape_of"]


@dataclass(frozen=True)
class Shape:
    """Queues by resource, ancestors on the own resource, and which fall ends which rise.

    Ops outside every queue are put into queues of their own, so that each op has one. The queues
    of a resource are its *columns*.

    Attributes
    ----------
    queue, position : array, shape (ops,)
        Queue of each op and its place in it.
    queue_at, queue_op : array
        The queues in compressed rows.
    column : array, shape (queues,)
        Number of the queue on its resource.
    resource_at, resource_queue : array
        Queues of each resource in compressed rows, by column.
    ancestors : array of int32, shape (ops, columns)
        How many ops of each queue of the op's own resource must end before it starts.
    rise, fall, pool : array, shape (ops,)
        What the op raises and lowers, and the pool (-1: none that has a capacity).
    undone : array, shape (ops, columns)
        How much of the rise of the op at the same place of each column the op's fall undoes.
    exact_pool : array of bool, shape (pools,)
        Whether the pool has a capacity, one resource makes all its changes and changes no other
        pool with a capacity, and every fall undoes rises at its own place that must come before
        it: what the memory bounds rely on.
    """

    queue: Ints
    position: Ints
    queue_at: Ints
    queue_op: Ints
    column: Ints
    resource_at: Ints
    resource_queue: Ints
    ancestors: npt.NDArray[np.int32]
    rise: Ints
    fall: Ints
    pool: Ints
    undone: Ints
    exact_pool: npt.NDArray[np.bool_]


def shape_of(problem: Problem) -> Shape:
    """Derive the shape of a problem without choices."""
    n = problem.size
    queue = np.full(n, -1, np.int64)
    counts = np.diff(problem.queue_at)
    queue[problem.queue_op] = np.repeat(np.arange(len(counts)), counts)
    alone = np.flatnonzero(queue < 0)
    queue[alone] = len(counts) + np.arange(len(alone))
    queue_op = np.concatenate([problem.queue_op, alone])
    queue_at = np.concatenate([problem.queue_at, len(problem.queue_op) + 1 + np.arange(len(alone))])
    position = np.empty(n, np.int64)
    position[queue_op] = np.arange(n) - np.repeat(queue_at[:-1], np.diff(queue_at))
    filled = np.diff(queue_at) > 0
    first = queue_op[np.minimum(queue_at[:-1], max(n - 1, 0))] if n else queue_at[:-1]
    owner = np.where(filled, problem.resource[first], -1) if n else np.empty(0, np.int64)
    by_resource = np.argsort(owner, kind="stable")
    by_resource = by_resource[owner[by_resource] >= 0]
    resources = len(problem.resources)
    resource_at = np.searchsorted(owner[by_resource], np.arange(resources + 1))
    column = np.zeros(len(owner), np.int64)
    column[by_resource] = np.arange(len(by_resource)) - resource_at[owner[by_resource]]
    graph = problem.graph
    width = int(np.diff(resource_at).max(initial=0))
    ancestors = _ancestors(
        problem.resource, queue, position, column, resource_at, width, graph.pred_at, graph.pred
    )
    rise, fall, pool, undone, exact = _match(problem, queue, column, position, ancestors)
    return Shape(
        queue, position, queue_at, queue_op, column, resource_at, by_resource,
        ancestors, rise, fall, pool, undone, exact,
    )  # fmt: skip


@kernel
def _ancestors(  # type: ignore[no-untyped-def]
    resource, queue, position, column, resource_at, width, pred_at, pred
):
    n = len(resource)
    result = np.zeros((n, width), np.int32)
    if width > 64:  # many ops without queues: only chains along edges on one resource
        return result
    reach = np.zeros((n, width), np.int32)
    for r in range(len(resource_at) - 1):
        columns = resource_at[r + 1] - resource_at[r]
        if columns == 0:
            continue
        for i in range(n):
            for c in range(columns):
                reach[i, c] = 0
            for k in range(pred_at[i], pred_at[i + 1]):
                p = pred[k]
                for c in range(columns):
                    if reach[p, c] > reach[i, c]:
                        reach[i, c] = reach[p, c]
                if resource[p] == r:
                    c = column[queue[p]]
                    if position[p] + 1 > reach[i, c]:
                        reach[i, c] = position[p] + 1
            if resource[i] == r:
                for c in range(columns):
                    result[i, c] = reach[i, c]
    return result


def _match(
    problem: Problem,
    queue: Ints,
    column: Ints,
    position: Ints,
    ancestors: npt.NDArray[np.int32],
) -> tuple[Ints, Ints, Ints, Ints, npt.NDArray[np.bool_]]:
    """Pair falls with rises, last in first out along the sequential order.

    Any pairing where the fall must come after its rise is a valid decomposition of the level into
    parts that never go below zero, which is all that the bounds use.
    """
    n = problem.size
    rise, fall = np.zeros(n, np.int64), np.zeros(n, np.int64)
    pool, undone = np.full(n, -1, np.int64), np.zeros(ancestors.shape, np.int64)
    exact = np.array([p.capacity is not None for p in problem.pools], np.bool_)
    limited = exact[problem.change_pool]
    op, amount, target = (
        x[limited] for x in (problem.change_op, problem.change_amount, problem.change_pool)
    )
    used = np.unique(np.stack([problem.resource[op], target]), axis=1)
    several = np.bincount(used[0], minlength=len(problem.resources)) > 1
    exact[used[1, several[used[0]]]] = False
    twice = np.flatnonzero(np.diff(op) == 0)
    for k in twice.tolist():
        exact[target[k]] = exact[target[k + 1]] = False
    np.maximum.at(rise, op, amount)
    np.maximum.at(fall, op, -amount)
    pool[op] = target
    owner = np.full(len(problem.pools), -1, np.int64)
    _pair(
        op, target, amount, problem.resource, column[queue], position, ancestors,
        owner, exact, undone, len(problem.pools),
    )  # fmt: skip
    return rise, fall, pool, undone, exact


@kernel
def _pair(  # type: ignore[no-untyped-def]
    op, target, amount, resource, column, position, ancestors, owner, exact, undone, pools
):
    n = len(op)
    # One stack per pool, threaded through `below`; `left` is what of a rise is not yet undone.
    top = np.full(pools, -1, np.int64)
    below = np.full(n, -1, np.int64)
    left = amount.copy()
    for k in range(n):
        p, i = target[k], op[k]
        if owner[p] == -1:
            owner[p] = resource[i]
        if owner[p] != resource[i]:
            exact[p] = False
        if not exact[p]:
            continue
        if amount[k] > 0:
            below[k] = top[p]
            top[p] = k
            continue
        while amount[k] + undone[i].sum() < 0:
            t = top[p]
            j = op[t] if t >= 0 else -1
            # Not known to come after a rise at its own place: no decomposition.
            if j < 0 or position[j] != position[i] or ancestors[i, column[j]] <= position[j]:
                exact[p] = False
                break
            part = min(left[t], -amount[k] - undone[i].sum())
            undone[i, column[j]] += part
            left[t] -= part
            if left[t] == 0:
                top[p] = below[t]
