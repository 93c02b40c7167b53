"""Earliest starts that hold in every schedule.

Along the sequential order, three arguments are combined, each using the others' results:

* *chains*: an op waits for its predecessors (and thereby for its queue);
* *load*: all its ancestors on its own resource run one after another before it;
* *memory*: an op that raises a pool waits until enough of what certainly was acquired before it
  can have been released, each release at its own earliest end (Little's law, op by op).

Tails are the heads of the reversed problem.
"""

from __future__ import annotations

import numpy as np

from schedopt.jit import kernel
from schedopt.problem import FREE, Ints, Problem
from schedopt.solvers.shape import Shape

__all__ = ["NEVER", "UNKNOWN", "heads"]

UNKNOWN = -(2**61)
"""Head of an op that nothing ties to the origin."""
NEVER = 2**61
"""Head of an op that can't start at all: its pool is too small."""


def heads(problem: Problem, shape: Shape, origin: int | None = None) -> Ints:
    """Return a lower bound on the start of every op.

    Parameters
    ----------
    problem : Problem
        Without choices.
    shape : Shape
        Of that problem.
    origin : int, optional
        Measure from the start of this op instead of from time 0; ops that don't descend from it
        are `UNKNOWN`.

    Returns
    -------
    array, shape (ops,), ns
        `NEVER` where no schedule exists.
    """
    graph = problem.graph
    release = np.where(problem.pinned == FREE, problem.release, problem.pinned)
    capacity = np.array(
        [-1 if p.capacity is None else p.capacity - p.initial for p in problem.pools] or [0],
        np.int64,
    )
    exact = shape.exact_pool if len(shape.exact_pool) else np.zeros(1, np.bool_)
    result: Ints = _heads(
        problem.duration, problem.resource, release, -1 if origin is None else origin,
        graph.pred_at, graph.pred, graph.pred_lag,
        shape.queue, shape.position, shape.column, shape.queue_at, shape.queue_op,
        shape.resource_at, shape.resource_queue, shape.ancestors,
        shape.rise, shape.pool, shape.undone, exact, capacity,
    )  # fmt: skip
    return result


@kernel
def _heads(  # type: ignore[no-untyped-def]
    duration, resource, release, origin, pred_at, pred, pred_lag,
    queue, position, column, queue_at, queue_op, resource_at, resource_queue, ancestors,
    rise, pool, undone, exact, capacity,
):  # fmt: skip
    n = len(duration)
    width = ancestors.shape[1]
    head = np.full(n, UNKNOWN, np.int64)
    work = _prefix_sums(duration, queue_at, queue_op)
    held = _prefix_sums(rise, queue_at, queue_op)
    freed = np.empty((width, len(work)), np.int64)
    for c in range(width):
        freed[c] = _prefix_sums(undone[:, c], queue_at, queue_op)
    # Released prefix of every queue of the resource, remembered per raising queue: it only grows.
    pointer = np.zeros((len(queue_at) - 1, width), np.int64)
    for i in range(n):
        h = release[i] if origin < 0 else (0 if i == origin else UNKNOWN)
        for k in range(pred_at[i], pred_at[i + 1]):
            p = pred[k]
            if head[p] > UNKNOWN:
                h = max(h, head[p] + duration[p] + pred_lag[k])
        r = resource[i]
        base = resource_at[r]
        load, first = 0, NEVER
        for c in range(resource_at[r + 1] - base):
            count = ancestors[i, c]
            if count > 0:
                q = resource_queue[base + c]
                load += work[queue_at[q] + q + count]
                first = min(first, head[queue_op[queue_at[q]]])
        if load > 0 and first > UNKNOWN:
            h = max(h, first + load)
        # An op of no length can rise at the very instant at which its successors' falls count.
        if rise[i] > 0 and exact[pool[i]] and duration[i] > 0:
            t = _memory(
                i, rise[i] - capacity[pool[i]], base, resource_at[r + 1] - base, resource_queue,
                queue_at, queue_op, position[i], column[queue[i]], ancestors, undone,
                held, freed, head, duration, pointer[queue[i]],
            )  # fmt: skip
            h = max(h, t)
        head[i] = min(h, NEVER) if h > UNKNOWN // 2 else UNKNOWN
    return head


@kernel
def _prefix_sums(values, queue_at, queue_op):  # type: ignore[no-untyped-def]
    """Sums of the first k ops of queue q at ``queue_at[q] + q + k``."""
    queues = len(queue_at) - 1
    result = np.zeros(len(queue_op) + queues, np.int64)
    for q in range(queues):
        for k in range(queue_at[q], queue_at[q + 1]):
            result[k + q + 1] = result[k + q] + values[queue_op[k]]
    return result


@kernel
def _memory(  # type: ignore[no-untyped-def]
    i, needed, base, columns, resource_queue, queue_at, queue_op, place, own,
    ancestors, undone, held, freed, head, duration, pointer,
):  # fmt: skip
    """Earliest time at which `needed` plus what was acquired before op i can have been freed.

    What was released for an earlier op of the same queue keeps its place in `pointer`; its time
    reaches op i along the queue.
    """
    for c in range(columns):
        q = resource_queue[base + c]
        needed += held[queue_at[q] + q + ancestors[i, c]]
        for d in range(columns):
            needed -= freed[d, queue_at[q] + q + min(pointer[c], ancestors[i, d])]
    time = UNKNOWN
    while needed > 0:
        best, soonest, most = -1, NEVER, 0
        for c in range(columns):
            q = resource_queue[base + c]
            k = queue_at[q] + pointer[c]
            if k == queue_at[q + 1]:
                continue
            f = queue_op[k]
            if ancestors[f, own] > place:
                continue  # can only come after op i
            gain, total = 0, 0
            for d in range(columns):
                total += undone[f, d]
                if pointer[c] < ancestors[i, d]:  # certainly acquired before op i
                    gain += undone[f, d]
            if total > 0 and gain == 0:
                continue
            end = head[f] + duration[f] if f < i and total > 0 else UNKNOWN
            if end < soonest:
                best, soonest, most = c, end, gain
        if best < 0:
            return NEVER
        needed -= most
        pointer[best] += 1
        time = max(time, soonest)
    return time
