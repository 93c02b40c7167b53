"""Earliest times of ops whose order on every resource is given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schedopt.errors import InfeasibleError
from schedopt.jit import kernel
from schedopt.problem import FREE, Ints, Problem

__all__ = ["Deadlock", "earliest", "fits", "orders_of", "peaks"]


class Deadlock(InfeasibleError):
    """Ops wait for each other in a circle; `waiting` holds the first that can't start on each
    resource.
    """

    def __init__(self, waiting: Sequence[int]) -> None:
        self.waiting = tuple(waiting)
        super().__init__(f"ops {list(self.waiting)} wait for each other: the orders deadlock")


def earliest(
    problem: Problem,
    orders: Sequence[Ints],
    duration: Ints | None = None,
    release: Ints | None = None,
) -> Ints:
    """Start every op as early as the precedences and the orders allow.

    Pools are not looked at: whether an order fits memory does not depend on time where all
    changes of a pool come from one resource.

    Parameters
    ----------
    problem : Problem
        Without choices, or with an order that leaves out what is absent.
    orders : sequence of array, one per resource
        The ops of each resource in the order in which they run.
    duration, release : array, shape (ops,), optional
        Durations and earliest starts to use instead of the problem's, ns.

    Returns
    -------
    array, shape (ops,)
        Starts, ns; -1 for ops in no order.

    Raises
    ------
    Deadlock
        When orders and precedences form a cycle.
    """
    graph = problem.graph
    windows = [resource.closed for resource in problem.resources]
    closed_at = np.cumsum([0, *map(len, windows)])
    closed = np.array([w for row in windows for w in row], np.int64).reshape(-1, 2)
    starts: Ints = _earliest(
        problem.duration if duration is None else np.asarray(duration, np.int64),
        np.where(
            problem.pinned == FREE,
            problem.release if release is None else release,
            problem.pinned,
        ),
        np.concatenate([*orders, np.empty(0, np.int64)]),
        np.cumsum([0, *map(len, orders)]),
        graph.pred_at,
        graph.pred,
        graph.pred_lag,
        closed_at,
        closed,
    )
    listed = np.concatenate([*orders, np.empty(0, np.int64)])
    stuck = listed[starts[listed] < 0]
    if len(stuck):
        first = [next((int(i) for i in order if starts[i] < 0), -1) for order in orders]
        raise Deadlock([i for i in first if i >= 0])
    return starts


@kernel
def _earliest(  # type: ignore[no-untyped-def]
    duration, release, listed, order_at, pred_at, pred, pred_lag, closed_at, closed
):
    """Run round the resources, each as far as it gets, until nothing moves."""
    n = len(duration)
    resources = len(order_at) - 1
    starts = np.full(n, -1, np.int64)
    in_order = np.zeros(n, np.bool_)
    in_order[listed] = True
    at = order_at[:-1].copy()
    free = np.zeros(resources, np.int64)
    moved = True
    while moved:
        moved = False
        for r in range(resources):
            while at[r] < order_at[r + 1]:
                i = listed[at[r]]
                t = max(free[r], release[i])
                ready = True
                for k in range(pred_at[i], pred_at[i + 1]):
                    p = pred[k]
                    if starts[p] < 0:
                        if in_order[p]:
                            ready = False
                            break
                        continue
                    t = max(t, starts[p] + duration[p] + pred_lag[k])
                if not ready:
                    break
                for w in range(closed_at[r], closed_at[r + 1]):
                    if t < closed[w, 1] and t + duration[i] > closed[w, 0]:
                        t = closed[w, 1]
                starts[i] = t
                free[r] = t + duration[i]
                at[r] += 1
                moved = True
    return starts


def orders_of(problem: Problem, starts: Ints) -> list[Ints]:
    """Return the ops of each resource in the order of their starts (ties: by number)."""
    order = np.lexsort((np.arange(problem.size), starts + problem.duration, starts))
    order = order[starts[order] >= 0]
    by_resource = order[np.argsort(problem.resource[order], kind="stable")]
    cuts = np.searchsorted(problem.resource[by_resource], np.arange(1, len(problem.resources)))
    return np.split(by_resource, cuts)


def fits(problem: Problem, orders: Sequence[Ints]) -> bool:
    """Return whether orders keep the pools within their capacities whatever the times, where each
    pool is changed by one resource.

    A schedule may keep them although its orders don't: ops without duration that stand at one
    time count as falls first, then rises.
    """
    place = np.full(problem.size, -1, np.int64)
    listed = np.concatenate([*orders, np.empty(0, np.int64)])
    place[listed] = np.arange(len(listed))
    top = peaks(problem, place, np.ones(problem.size, np.int64))
    return all(
        pool.capacity is None or level <= pool.capacity
        for pool, level in zip(problem.pools, top.tolist(), strict=True)
    )


def peaks(problem: Problem, starts: Ints, duration: Ints | None = None) -> Ints:
    """Return the highest level that each pool reaches; a fall at t comes before a rise at t.

    Parameters
    ----------
    duration : array, shape (ops,), optional
        To use instead of the problem's.
    """
    duration = problem.duration if duration is None else duration
    op, amount = problem.change_op, problem.change_amount
    here = starts[op] >= 0
    time = np.where(amount > 0, starts[op], starts[op] + duration[op])
    top = np.array([pool.initial for pool in problem.pools], np.int64)
    order = np.lexsort((amount > 0, time, problem.change_pool))
    order = order[here[order]]
    pools, first = np.unique(problem.change_pool[order], return_index=True)
    if len(pools):
        level = np.cumsum(amount[order])
        before = np.concatenate([[0], level])[first]  # what other pools add to the running sum
        top[pools] += np.maximum(np.maximum.reduceat(level, first) - before, 0)
    return top
