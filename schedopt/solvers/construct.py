"""Chronological list scheduling that looks ahead and never deadlocks on memory.

Every resource proposes, among the heads of its queues whose start is already known, the one with
the smallest *score*: its start plus a key given by the caller, so that an important op may be
waited for. The earliest proposal is committed, and the proposals it touches are made anew.

An op that raises a pool is admitted only into a *safe* state (Dijkstra's banker): one from which
the rest can still be run, one op after another in the sequential order, within every capacity.
Since ops only ever act on their own pools, a segment tree per pool, holding the sum and the
largest prefix of the changes still to come, answers that in logarithmic time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from schedopt.jit import kernel
from schedopt.problem import FREE, Ints, Problem
from schedopt.solvers.shape import Shape

__all__ = ["Floats", "ListScheduler"]

Floats = npt.NDArray[np.float64]
NONE = 2**62


@dataclass(frozen=True)
class ListScheduler:
    """List scheduling on one problem without choices, for any number of keys."""

    problem: Problem
    shape: Shape

    def run(self, key: Floats) -> Ints | None:
        """Return the starts that a key leads to, or None where it gets stuck (possible only
        with pins, or when the sequential order itself does not fit) or nothing can help.

        Parameters
        ----------
        key : array, shape (ops,), ns
            Added to an op's start when ops of one resource compete; the smallest sum wins.
        """
        if self._hopeless:
            return None
        problem, shape, graph = self.problem, self.shape, self.problem.graph
        starts = _run(
            np.asarray(key, np.float64),
            problem.duration, problem.resource, problem.release, problem.pinned,
            graph.pred_at, graph.succ_at, graph.succ, graph.succ_lag,
            shape.queue, shape.queue_at, shape.queue_op, shape.resource_at, shape.resource_queue,
            *self._closed, *self._pools,
        )  # fmt: skip
        return starts if starts.min(initial=0) >= 0 else None

    @cached_property
    def _hopeless(self) -> bool:
        """Whether a pool is too high from the start, or a pinned op lies in a closed window."""
        problem = self.problem
        if any(p.capacity is not None and p.initial > p.capacity for p in problem.pools):
            return True
        pins = np.flatnonzero(problem.pinned != FREE)
        return any(
            problem.pinned[i] < closes and problem.pinned[i] + problem.duration[i] > opens
            for i in pins.tolist()
            for opens, closes in problem.resources[problem.resource[i]].closed
        )

    @cached_property
    def _closed(self) -> tuple[Ints, Ints]:
        """Closed windows of every resource; the time of pinned ops is closed to all others."""
        problem = self.problem
        rows = [list(r.closed) for r in problem.resources]
        for i in np.flatnonzero(problem.pinned != FREE).tolist():
            start = int(problem.pinned[i])
            rows[problem.resource[i]].append((start, start + int(problem.duration[i])))
        at = np.cumsum([0, *map(len, rows)])
        return at, np.array([w for row in rows for w in sorted(row)], np.int64).reshape(-1, 2)

    @cached_property
    def _pools(self) -> tuple[Ints, ...]:
        """Changes of pools with a capacity, by op, and the place of each in its pool's tree.

        Rises of one op on one pool are added up, and so are falls.
        """
        problem = self.problem
        limited = np.array([p.capacity is not None for p in problem.pools], np.bool_)
        keep = limited[problem.change_pool] if len(limited) else np.empty(0, np.bool_)
        parts = problem.change_amount[keep]
        (op, pool, _), row = np.unique(
            np.stack([problem.change_op[keep], problem.change_pool[keep], parts > 0]),
            axis=1,
            return_inverse=True,
        )
        amount = np.zeros(len(op), np.int64)
        np.add.at(amount, row.ravel(), parts)
        at = np.searchsorted(op, np.arange(problem.size + 1))
        leaf = np.zeros(len(op), np.int64)
        depth = np.zeros(len(problem.pools), np.int64)
        for p in range(len(problem.pools)):
            mine = np.flatnonzero(pool == p)
            _, leaf[mine] = np.unique(op[mine], return_inverse=True)
            depth[p] = max(1, int(leaf[mine].max(initial=0)).bit_length())
        tree_at = np.cumsum(np.concatenate([[0], 2 ** (depth + 1)]))
        capacity = np.array([p.capacity or 0 for p in problem.pools], np.int64)
        initial = np.array([p.initial for p in problem.pools], np.int64)
        falls = np.bincount(pool[amount < 0], minlength=len(problem.pools))
        fall_at = np.cumsum(np.concatenate([[0], falls]))
        touched = np.unique(np.stack([pool, problem.resource[op]]), axis=1)
        user_at = np.searchsorted(touched[0], np.arange(len(problem.pools) + 1))
        return (
            at, pool, amount, leaf, depth, tree_at, capacity, initial, fall_at,
            user_at, touched[1].copy(),
        )  # fmt: skip


@kernel
def _run(  # type: ignore[no-untyped-def]
    key, duration, resource, release, pinned, pred_at, succ_at, succ, succ_lag,
    queue, queue_at, queue_op, resource_at, resource_queue, closed_at, closed,
    change_at, change_pool, change_amount, leaf, depth, tree_at, capacity, initial, fall_at,
    user_at, users,
):  # fmt: skip
    n, resources, pools = len(duration), len(resource_at) - 1, len(depth)
    starts = np.full(n, -1, np.int64)
    ready = release.copy()
    waits = pred_at[1:] - pred_at[:-1]
    at = queue_at[:-1].copy()
    free = np.zeros(resources, np.int64)
    proposal = np.full(resources, -1, np.int64)
    when = np.full(resources, NONE, np.int64)
    stale = np.ones(resources, np.bool_)
    settled = initial.copy()  # level once all committed ops have ended
    level = initial.copy()  # level now: committed rises, falls that have happened
    fall_time = np.zeros(fall_at[pools], np.int64)
    fall_size = np.zeros(fall_at[pools], np.int64)
    fall_head, fall_tail = fall_at[:-1].copy(), fall_at[:-1].copy()
    total, prefix = _plant(n, change_at, change_pool, change_amount, leaf, depth, tree_at, pools)
    now = 0
    for _ in range(n):
        chosen = -1
        for r in range(resources):
            if stale[r]:
                stale[r] = False
                _propose(
                    r, now, key, duration, release, pinned, ready, waits, free, proposal, when,
                    at, queue_at, queue_op, resource_at, resource_queue, closed_at, closed,
                    change_at, change_pool, change_amount, leaf, depth, tree_at, capacity,
                    level, settled, fall_time, fall_size, fall_head, fall_tail, total, prefix,
                )  # fmt: skip
            if proposal[r] >= 0 and (chosen < 0 or when[r] < when[chosen]):
                chosen = r
        if chosen < 0:
            return starts
        i, now = proposal[chosen], when[chosen]
        starts[i] = now
        end = now + duration[i]
        free[chosen] = end
        at[queue[i]] += 1
        stale[chosen] = True
        for k in range(succ_at[i], succ_at[i + 1]):
            j = succ[k]
            waits[j] -= 1
            ready[j] = max(ready[j], end + succ_lag[k])
            if waits[j] == 0:
                stale[resource[j]] = True
        for k in range(change_at[i], change_at[i + 1]):
            p, amount = change_pool[k], change_amount[k]
            settled[p] += amount
            if amount > 0:
                level[p] += amount
            else:
                t = fall_tail[p]
                while t > fall_head[p] and fall_time[t - 1] > end:
                    fall_time[t], fall_size[t] = fall_time[t - 1], fall_size[t - 1]
                    t -= 1
                fall_time[t], fall_size[t] = end, amount
                fall_tail[p] += 1
            _clear(p, leaf[k], depth, tree_at, total, prefix)
            for u in range(user_at[p], user_at[p + 1]):
                stale[users[u]] = True
        for k in range(change_at[i], change_at[i + 1]):
            p = change_pool[k]
            while fall_head[p] < fall_tail[p] and fall_time[fall_head[p]] <= now:
                level[p] += fall_size[fall_head[p]]
                fall_head[p] += 1
    return starts


@kernel
def _propose(  # type: ignore[no-untyped-def]
    r, now, key, duration, release, pinned, ready, waits, free, proposal, when,
    at, queue_at, queue_op, resource_at, resource_queue, closed_at, closed,
    change_at, change_pool, change_amount, leaf, depth, tree_at, capacity,
    level, settled, fall_time, fall_size, fall_head, fall_tail, total, prefix,
):  # fmt: skip
    """Choose the resource's next op among the heads of its queues."""
    proposal[r], when[r] = -1, NONE
    best = np.inf
    for c in range(resource_at[r], resource_at[r + 1]):
        q = resource_queue[c]
        if at[q] == queue_at[q + 1]:
            continue
        i = queue_op[at[q]]
        if waits[i] > 0:
            continue
        start = max(ready[i], free[r], now)
        if pinned[i] >= 0:
            if start > pinned[i]:
                continue
            start = pinned[i]
        if start + key[i] > best:
            continue
        start = _admitted(
            i, start, change_at, change_pool, change_amount, leaf, depth, tree_at, capacity,
            level, settled, fall_time, fall_size, fall_head, fall_tail, total, prefix,
        )  # fmt: skip
        if start < 0:
            continue
        if pinned[i] < 0:
            for w in range(closed_at[r], closed_at[r + 1]):
                if start < closed[w, 1] and start + duration[i] > closed[w, 0]:
                    start = closed[w, 1]
        elif start > pinned[i]:
            continue
        score = start + key[i]
        if score < best or (
            score == best and (start < when[r] or (start == when[r] and i < proposal[r]))
        ):
            best = score
            proposal[r], when[r] = i, start


@kernel
def _admitted(  # type: ignore[no-untyped-def]
    i, start, change_at, change_pool, change_amount, leaf, depth, tree_at, capacity,
    level, settled, fall_time, fall_size, fall_head, fall_tail, total, prefix,
):  # fmt: skip
    """Return the earliest start at which the pools take op i, or -1 if not yet or not safely."""
    for k in range(change_at[i], change_at[i + 1]):
        p, amount = change_pool[k], change_amount[k]
        if amount <= 0:
            continue
        here = level[p] + amount
        t = fall_head[p]
        while here > capacity[p] or (t < fall_tail[p] and fall_time[t] <= start):
            if t == fall_tail[p]:
                return -1
            here += fall_size[t]
            start = max(start, fall_time[t])
            t += 1
        net = amount
        for other in range(change_at[i], change_at[i + 1]):
            if other != k and change_pool[other] == p:
                net += change_amount[other]
        if settled[p] + net + _without(p, leaf[k], depth, tree_at, total, prefix) > capacity[p]:
            return -1
    return start


@kernel
def _plant(n, change_at, change_pool, change_amount, leaf, depth, tree_at, pools):  # type: ignore[no-untyped-def]
    """Build the trees: `total` and largest `prefix` of the changes in sequential order."""
    total = np.zeros(tree_at[pools], np.int64)
    prefix = np.zeros(tree_at[pools], np.int64)
    for i in range(n):
        for k in range(change_at[i], change_at[i + 1]):
            p = change_pool[k]
            node = tree_at[p] + (1 << depth[p]) + leaf[k]
            total[node] += change_amount[k]
            prefix[node] = max(prefix[node], change_amount[k])
    for p in range(pools):
        for node in range((1 << depth[p]) - 1, 0, -1):
            a, b = tree_at[p] + 2 * node, tree_at[p] + 2 * node + 1
            total[tree_at[p] + node] = total[a] + total[b]
            prefix[tree_at[p] + node] = max(prefix[a], total[a] + prefix[b])
    return total, prefix


@kernel
def _clear(p, leaf, depth, tree_at, total, prefix):  # type: ignore[no-untyped-def]
    node = (1 << depth[p]) + leaf
    total[tree_at[p] + node] = prefix[tree_at[p] + node] = 0
    node >>= 1
    while node:
        a, b = tree_at[p] + 2 * node, tree_at[p] + 2 * node + 1
        total[tree_at[p] + node] = total[a] + total[b]
        prefix[tree_at[p] + node] = max(prefix[a], total[a] + prefix[b])
        node >>= 1


@kernel
def _without(p, leaf, depth, tree_at, total, prefix):  # type: ignore[no-untyped-def]
    """Largest prefix of the changes to come, as if this leaf had come already."""
    node = (1 << depth[p]) + leaf
    here, high = 0, 0
    while node > 1:
        sibling = tree_at[p] + (node ^ 1)
        if node & 1:
            high = max(prefix[sibling], total[sibling] + high)
        else:
            high = max(high, here + prefix[sibling])
        here += total[sibling]
        node >>= 1
    return high
