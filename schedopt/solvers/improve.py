"""Simulated annealing of the order of ops on every resource.

A state is an order per resource; its value that of the earliest schedule. A move takes two
neighbours on a critical path and lets one pass the other, or a few more. Since the random number
that decides on acceptance is drawn first, a move is dropped at the first op whose end and least
tail exceed what would be accepted, which most do at once.

Pools must each belong to one resource: then the order alone decides whether they suffice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from schedopt.jit import kernel
from schedopt.problem import FREE, Ints, Objective, Problem
from schedopt.solvers.shape import Shape
from schedopt.timing import fits, orders_of

__all__ = ["Annealer", "can_anneal", "levels_of"]


def can_anneal(problem: Problem) -> bool:
    """Whether the order on each resource decides everything: no pool is shared between
    resources, no resource changes several pools, no pool is too high from the start, and nothing
    is pinned or closed.
    """
    if np.any(problem.pinned != FREE) or any(r.closed for r in problem.resources):
        return False
    if any(p.capacity is not None and p.initial > p.capacity for p in problem.pools):
        return False
    limited = [k for k, pool in enumerate(problem.pools) if pool.capacity is not None]
    owners = [
        np.unique(problem.resource[problem.change_op[problem.change_pool == k]]) for k in limited
    ]
    listed = np.concatenate([*owners, np.empty(0, np.int64)])
    return all(len(owner) <= 1 for owner in owners) and len(np.unique(listed)) == len(listed)


@dataclass(frozen=True)
class Annealer:
    """Annealing on one problem without choices.

    Attributes
    ----------
    tail : array, shape (ops,), ns
        Least time from the end of each op to the end of everything.
    """

    problem: Problem
    shape: Shape
    tail: Ints
    objective: Objective

    def run(
        self,
        starts: Ints,
        moves: int,
        hot: float,
        cold: float,
        seed: int,
        target: int,
        stop: npt.NDArray[np.uint8],
    ) -> Ints:
        """Anneal from a schedule.

        Parameters
        ----------
        starts : array, shape (ops,), ns
            Where to begin.
        moves : int
            Moves to try.
        hot, cold : float
            First and last temperature, ns; both 0: nothing longer is ever accepted.
        target : int
            Stop when this value is reached.
        stop : array of uint8, shape (1,)
            Set it to 1 from another thread to stop at once.

        Returns
        -------
        array, shape (ops,), ns
            The best schedule met, every op at its earliest; the first one where its orders don't
            fit the pools at other times.
        """
        problem, shape = self.problem, self.shape
        orders = orders_of(problem, starts)
        if not fits(problem, orders):
            return starts
        listed = np.concatenate(orders)
        at = np.cumsum([0, *map(len, orders)])
        best = np.zeros(problem.size, np.int64)
        group = np.array([r.group for r in problem.resources], np.int64)
        _anneal(
            problem.duration, problem.resource, problem.release, *self._edges,
            shape.queue, shape.position, shape.column, shape.ancestors, *levels_of(problem),
            self.tail, group, int(self.objective == "device-span"),
            listed, at, best, moves, hot, cold, seed, target, stop,
        )  # fmt: skip
        return best

    @cached_property
    def _edges(self) -> tuple[Ints, ...]:
        """Edges between ops, both ways, without the queues, which the orders contain."""
        problem = self.problem
        rows = []
        for key, other in (
            (problem.edge_to, problem.edge_from),
            (problem.edge_from, problem.edge_to),
        ):
            order = np.argsort(key, kind="stable")
            at = np.searchsorted(key[order], np.arange(problem.size + 1))
            rows += [at, other[order], problem.edge_lag[order]]
        return tuple(rows)


def levels_of(problem: Problem) -> tuple[Ints, Ints, Ints]:
    """Return what each op raises and lowers (negative) on its resource's pool, and what that pool
    has room for (-1: no limit), where every pool belongs to one resource.
    """
    rise, fall = (np.zeros(problem.size, np.int64) for _ in range(2))
    room = np.full(len(problem.resources), -1, np.int64)
    for k, pool in enumerate(problem.pools):
        mine = problem.change_pool == k
        if pool.capacity is None or not mine.any():
            continue
        op, amount = problem.change_op[mine], problem.change_amount[mine]
        np.add.at(rise, op, np.maximum(amount, 0))
        np.add.at(fall, op, np.minimum(amount, 0))
        room[problem.resource[op[0]]] = pool.capacity - pool.initial
    return rise, fall, room


@kernel
def _anneal(  # type: ignore[no-untyped-def]
    duration, resource, release, pred_at, pred, pred_lag, succ_at, succ, succ_lag,
    queue, position, column, ancestors, rise, fall, room, tail, group, span,
    listed, at, best_starts, moves, hot, cold, seed, target, stop,
):  # fmt: skip
    np.random.seed(seed)
    n, resources = len(duration), len(at) - 1
    place = np.empty(n, np.int64)
    for k in range(n):
        place[listed[k]] = k
    starts, trial = np.zeros(n, np.int64), np.zeros(n, np.int64)
    stamp = np.zeros(n, np.int64)
    waiter = np.full(n, -1, np.int64)
    next_waiter = np.full(resources, -1, np.int64)
    head, stack = np.zeros(resources, np.int64), np.zeros(resources, np.int64)
    level = np.zeros(n + 1, np.int64)  # of the resource's pool, before each place
    for r in range(resources):
        _relevel(at[r], at[r + 1], at[r], listed, rise, fall, level)
    path = np.empty(n, np.int64)
    limit = 2**62
    value = _evaluate(
        0, limit, duration, resource, release, pred_at, pred, pred_lag, tail, group, span,
        listed, at, starts, trial, stamp, 1, waiter, next_waiter, head, stack,
    )  # fmt: skip
    if value < 0:
        return
    starts[:] = trial
    best = value
    best_starts[:] = starts
    length = _critical(starts, duration, resource, pred_at, pred, pred_lag, listed, at, place,
                       group, span, path)  # fmt: skip
    cooling = (cold / hot) ** (1.0 / max(moves, 1)) if hot > 0 else 1.0
    temperature = hot
    for move in range(moves):
        if best <= target or stop[0]:
            return
        temperature *= cooling
        if length == 0:
            length = _critical(starts, duration, resource, pred_at, pred, pred_lag, listed, at,
                               place, group, span, path)  # fmt: skip
            if length == 0:
                return  # one chain decides: no order does better
        # `path` holds ops whose predecessor on the resource is critical too.
        v = path[np.random.randint(length)]
        source = place[v]
        reach = 1
        while np.random.random() < 0.4 and reach < 12:
            reach += 1
        if np.random.random() < 0.5:
            source -= 1
            to = min(source + reach, at[resource[v] + 1] - 1)
        else:
            to = max(source - reach, at[resource[v]])
        to = _reachable(source, to, listed, queue, position, column, ancestors)
        if to == source or not _fits(source, to, listed, room[resource[v]], rise, fall, level):
            continue
        low = min(source, to)
        since = 0
        if low > at[resource[v]]:
            before = listed[low - 1]
            since = starts[before] + duration[before]
        first = at[resource[v]]
        _shift(listed, place, source, to)
        _relevel(low, max(source, to) + 1, first, listed, rise, fall, level)
        limit = value - temperature * np.log(1.0 - np.random.random())
        new = _evaluate(
            since, np.int64(min(limit, 2.0**61)), duration, resource, release,
            pred_at, pred, pred_lag, tail, group, span,
            listed, at, starts, trial, stamp, move + 2, waiter, next_waiter, head, stack,
        )  # fmt: skip
        if new < 0:
            _shift(listed, place, to, source)
            _relevel(low, max(source, to) + 1, first, listed, rise, fall, level)
            continue
        value = new
        for r in range(resources):
            for k in range(at[r + 1] - 1, at[r] - 1, -1):
                i = listed[k]
                if stamp[i] != move + 2:
                    break
                starts[i] = trial[i]
        length = 0
        if value < best:
            best = value
            best_starts[:] = starts


@kernel
def _evaluate(  # type: ignore[no-untyped-def]
    since, limit, duration, resource, release, pred_at, pred, pred_lag, tail, group, span,
    listed, at, starts, trial, stamp, mark, waiter, next_waiter, head, stack,
):  # fmt: skip
    """Return the value of the orders, or -1 if it exceeds `limit` or they deadlock.

    Ops that start before `since` keep their `starts`; the others are timed into `trial` and
    marked. A resource that has to wait for an op is parked on it and woken when it is timed.
    """
    resources = len(at) - 1
    value, left, depth = 0, 0, 0
    for r in range(resources):
        low, high = at[r], at[r + 1]
        while low < high:
            middle = (low + high) // 2
            if starts[listed[middle]] < since:
                low = middle + 1
            else:
                high = middle
        if since == 0:
            low = at[r]
        head[r] = low
        left += at[r + 1] - low
        if low == at[r + 1] and low > at[r]:
            value = max(value, _span(listed[low - 1], starts, starts, r, duration, group, span,
                                     listed, at, low))  # fmt: skip
        stack[depth] = r
        depth += 1
    failed = False
    while depth > 0 and not failed:
        depth -= 1
        r = stack[depth]
        k = head[r]
        free = 0
        if k > at[r]:
            p = listed[k - 1]
            free = (trial[p] if stamp[p] == mark else starts[p]) + duration[p]
        origin = 0
        if span == 1 and k > at[r] and group[r] >= 0:
            p = listed[at[r]]
            origin = trial[p] if stamp[p] == mark else starts[p]
        while k < at[r + 1]:
            i = listed[k]
            t = max(free, release[i])
            blocked = -1
            for e in range(pred_at[i], pred_at[i + 1]):
                p = pred[e]
                if stamp[p] == mark:
                    t = max(t, trial[p] + duration[p] + pred_lag[e])
                elif since > 0 and starts[p] < since:
                    t = max(t, starts[p] + duration[p] + pred_lag[e])
                else:
                    blocked = p
                    break
            if blocked >= 0:
                next_waiter[r] = waiter[blocked]
                waiter[blocked] = r
                break
            trial[i] = t
            stamp[i] = mark
            free = t + duration[i]
            left -= 1
            k += 1
            if span == 1:
                if k - 1 == at[r]:
                    origin = t
                if group[r] >= 0 and free - origin > limit:
                    failed = True
                    break
            elif free + tail[i] > limit:
                failed = True
                break
            w = waiter[i]
            while w >= 0:
                stack[depth] = w
                depth += 1
                w = next_waiter[w]
            waiter[i] = -1
        head[r] = k
        if k == at[r + 1] and k > at[r] and not failed:
            if span == 0:
                value = max(value, free)
            elif group[r] >= 0:
                value = max(value, free - origin)
    if failed or left > 0:
        for r in range(resources):
            if head[r] < at[r + 1]:
                i = listed[head[r]]
                for e in range(pred_at[i], pred_at[i + 1]):
                    waiter[pred[e]] = -1
        return -1
    return value if value <= limit else -1


@kernel
def _span(i, starts, trial, r, duration, group, span, listed, at, end):  # type: ignore[no-untyped-def]
    if span == 0:
        return starts[i] + duration[i]
    return starts[i] + duration[i] - starts[listed[at[r]]] if group[r] >= 0 else 0


@kernel
def _critical(  # type: ignore[no-untyped-def]
    starts, duration, resource, pred_at, pred, pred_lag, listed, at, place, group, span, path
):
    """Walk one critical path back, and list its ops whose neighbour before is on it too."""
    best, i = -1, -1
    ties = 0
    for r in range(len(at) - 1):
        if at[r + 1] == at[r] or (span == 1 and group[r] < 0):
            continue
        j = listed[at[r + 1] - 1]
        v = starts[j] + duration[j] - (starts[listed[at[r]]] if span == 1 else 0)
        if v > best:
            best, i, ties = v, j, 1
        elif v == best:
            ties += 1
            if np.random.randint(ties) == 0:
                i = j
    length = 0
    while i >= 0:
        back, ties = -1, 0
        k = place[i]
        same = False
        if k > at[resource[i]]:
            p = listed[k - 1]
            if starts[p] + duration[p] == starts[i]:
                back, ties, same = p, 1, True
        for e in range(pred_at[i], pred_at[i + 1]):
            p = pred[e]
            if starts[p] + duration[p] + pred_lag[e] == starts[i]:
                ties += 1
                if np.random.randint(ties) == 0:
                    back, same = p, resource[p] == resource[i] and place[p] == k - 1
        if same and back >= 0:
            path[length] = i
            length += 1
        i = back
    return length


@kernel
def _reachable(source, to, listed, queue, position, column, ancestors):  # type: ignore[no-untyped-def]
    """How far towards `to` the op may go without passing one that it must follow or precede."""
    i = listed[source]
    step = 1 if to > source else -1
    k = source
    while k != to:
        j = listed[k + step]
        first, second = (i, j) if step > 0 else (j, i)
        if queue[i] == queue[j] or ancestors[second, column[queue[first]]] > position[first]:
            break
        k += step
    return k


@kernel
def _fits(source, to, listed, room, rise, fall, level):  # type: ignore[no-untyped-def]
    """Whether the pool of the resource suffices after the move."""
    if room < 0:
        return True
    i = listed[source]
    here = level[min(source, to)]
    if to < source:
        if here + rise[i] > room:
            return False
        here += rise[i] + fall[i]
    for k in range(min(source, to), max(source, to) + 1):
        if k == source:
            continue
        j = listed[k]
        if here + rise[j] > room:
            return False
        here += rise[j] + fall[j]
    return to < source or here + rise[i] <= room


@kernel
def _relevel(low, high, first, listed, rise, fall, level):  # type: ignore[no-untyped-def]
    """Recompute the pool's level before the places low … high − 1 of a resource."""
    here = 0
    if low > first:
        here = level[low - 1] + rise[listed[low - 1]] + fall[listed[low - 1]]
    for k in range(low, high):
        level[k] = here
        here += rise[listed[k]] + fall[listed[k]]


@kernel
def _shift(listed, place, source, to):  # type: ignore[no-untyped-def]
    """Move the op at `source` to `to`, the ones between by one."""
    i = listed[source]
    step = 1 if to > source else -1
    k = source
    while k != to:
        listed[k] = listed[k + step]
        place[listed[k]] = k
        k += step
    listed[to] = i
    place[i] = to
