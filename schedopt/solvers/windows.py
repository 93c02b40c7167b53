"""How long a resource must idle before the first op of each of its queues.

Until that op can come, only ops that don't depend on it can run, and of those only as many as the
pool admits: what they acquire stays acquired when its release depends on the awaited op. The most
work that fits is a knapsack. Its items are the states that one place of the queues (one
microbatch, in a pipeline) can be left in, with the memory it then holds and the work done on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from schedopt.problem import Ints, Problem
from schedopt.solvers.heads import NEVER, UNKNOWN
from schedopt.solvers.shape import Shape

__all__ = ["Window", "windows"]

MAX_STATES = 2048
MAX_NODES = 20_000
MAX_ITEMS = 200
"""Kinds of items in a knapsack beyond which only its upper bound is computed."""


@dataclass(frozen=True)
class Window:
    """The wait for the first op of a queue.

    Attributes
    ----------
    op : int
        The op that is waited for (backwards: the op after whose end the rest drains).
    idle : int
        Proven idle time of the resource, ns: ``max(0, arrival - work)``.
    arrival : int
        Earliest start of the op, ns.
    work : int
        Most work that the resource can do until then, ns.
    starved : frozenset of int
        Queues that can't be finished before the op: memory does not reach.
    """

    op: int
    idle: int
    arrival: int
    work: int
    starved: frozenset[int]

    def mirrored(self, size: int) -> Window:
        """Return the same window seen from the reversed problem."""
        return replace(self, op=size - 1 - self.op)


def windows(problem: Problem, shape: Shape, resource: int, head: Ints) -> list[Window]:
    """Return the windows of a resource.

    Parameters
    ----------
    head : array, shape (ops,), ns
        Earliest starts; of other resources' ops they are not looked at.
    """
    queues = shape.resource_queue[shape.resource_at[resource] : shape.resource_at[resource + 1]]
    if len(queues) > 64:
        return []
    result = []
    for q in queues.tolist():
        op = int(shape.queue_op[shape.queue_at[q]])
        arrival = int(head[op])
        if not UNKNOWN < arrival < NEVER:
            continue
        work, starved = _most_work(problem, shape, queues, op)
        result.append(Window(op, max(0, arrival - work), arrival, work, starved))
    return result


def _most_work(problem: Problem, shape: Shape, queues: Ints, op: int) -> tuple[int, frozenset[int]]:
    """Return the most work possible before `op` starts, and the queues that can't be finished."""
    rows = [shape.queue_op[shape.queue_at[q] : shape.queue_at[q + 1]] for q in queues.tolist()]
    awaited = int(shape.column[shape.queue[op]])
    place = int(shape.position[op])
    # The ops of a queue that don't come after `op` are a prefix, since queues are ordered.
    allowed = [
        row[: np.searchsorted(shape.ancestors[row, awaited], place + 1)]
        if c != awaited
        else row[:place]
        for c, row in enumerate(rows)
    ]
    free = sum(int(problem.duration[row].sum()) for row in allowed)
    cut = {c for c, row in enumerate(rows) if len(allowed[c]) < len(row)}
    room = _room(problem, shape, rows)
    groups = _groups(problem, shape, allowed) if room is not None else None
    if room is None or groups is None:
        return free, frozenset(int(queues[c]) for c in cut)
    most = _knapsack(room, tuple((g.places, _undominated(g.states)) for g in groups))
    cut |= {c for g in groups for c in g.columns if len(rows[c]) * g.least_held_with(c) > room}
    return min(free, most), frozenset(int(queues[c]) for c in cut)


def _room(problem: Problem, shape: Shape, rows: list[Ints]) -> int | None:
    """Return what the resource's own pool has free at the start, if it has exactly one."""
    pools = np.unique(shape.pool[np.concatenate(rows)])
    pools = pools[pools >= 0]
    if len(pools) != 1 or not shape.exact_pool[pools[0]]:
        return None
    pool = problem.pools[int(pools[0])]
    return None if pool.capacity is None else pool.capacity - pool.initial


@dataclass(frozen=True)
class _State:
    """What has been done at one place: a set of columns, the pool held then, the work done."""

    done: frozenset[int]
    held: int
    work: int


@dataclass(frozen=True)
class _Group:
    """Columns whose ops at one place depend on each other, and no others."""

    columns: tuple[int, ...]
    places: int
    states: tuple[_State, ...]

    def least_held_with(self, column: int) -> int:
        """Return the least that is held at a place where the op of a column is done."""
        return min((s.held for s in self.states if column in s.done), default=0)


def _groups(problem: Problem, shape: Shape, allowed: list[Ints]) -> list[_Group] | None:
    """Split the allowed ops into independent groups of columns; None if they are too entangled, or
    if a group lowers what another raised.
    """
    columns = [c for c, row in enumerate(allowed) if len(row)]
    needs = {
        c: frozenset(
            d
            for d in range(len(allowed))
            if d != c and np.all(shape.ancestors[allowed[c], d] > np.arange(len(allowed[c])))
        )
        for c in columns
    }
    net = {c: int((shape.rise[allowed[c]] - shape.fall[allowed[c]]).min()) for c in columns}
    work = {c: int(problem.duration[allowed[c]].max()) for c in columns}
    groups = []
    for members in _components(columns, needs):
        states = _states(members, needs, net, work)
        if states is None or any(state.held < 0 for state in states):
            return None
        places = max(len(allowed[c]) for c in members)
        groups.append(_Group(members, places, states))
    return groups


def _components(columns: list[int], needs: dict[int, frozenset[int]]) -> list[tuple[int, ...]]:
    left, result = set(columns), []
    while left:
        component, frontier = set[int](), [min(left)]
        while frontier:
            c = frontier.pop()
            if c in component:
                continue
            component.add(c)
            frontier += [d for d in left if d in needs[c] or c in needs[d]]
        left -= component
        result.append(tuple(sorted(component)))
    return result


def _states(
    members: tuple[int, ...],
    needs: dict[int, frozenset[int]],
    net: dict[int, int],
    work: dict[int, int],
) -> tuple[_State, ...] | None:
    """Enumerate what can have been done at one place; ops that raise nothing are done at once."""

    def closed(done: frozenset[int]) -> frozenset[int]:
        while True:
            more = {c for c in members if c not in done and net[c] <= 0 and needs[c] <= done}
            if not more:
                return done
            done |= more

    seen = {closed(frozenset())}
    frontier = list(seen)
    while frontier:
        done = frontier.pop()
        for c in members:
            if c not in done and needs[c] <= done:
                larger = closed(done | {c})
                if larger not in seen:
                    seen.add(larger)
                    frontier.append(larger)
        if len(seen) > MAX_STATES:
            return None
    return tuple(
        _State(done, sum(net[c] for c in done), sum(work[c] for c in done)) for done in seen
    )


_Items = tuple[tuple[int, int], ...]


def _undominated(states: tuple[_State, ...]) -> _Items:
    """Return the (held, work) that no other state betters in both."""
    result: list[tuple[int, int]] = []
    for state in sorted(states, key=lambda s: (s.held, -s.work)):
        if state.work > (result[-1][1] if result else 0):
            result.append((state.held, state.work))
    return tuple(result)


@lru_cache(maxsize=4096)
def _knapsack(room: int, groups: tuple[tuple[int, _Items], ...]) -> int:
    """Return an upper bound, exact for all but absurd cases, on the work that fits into `room`
    when each of a group's places takes one of its items or none.
    """
    items = [
        (held, work, g)
        for g, (_, states) in enumerate(groups)
        for held, work in states
        if held <= room
    ]
    items.sort(key=lambda item: (item[0] > 0, -item[1] / max(item[0], 1)))
    places = [count for count, _ in groups]
    best, nodes = 0, 0

    def bound(k: int, room: int) -> int:
        """Fill what is left with the densest item, or every place with the largest."""
        if k == len(items):
            return 0
        most = [0] * len(groups)
        for _, work, g in items[k:]:
            most[g] = max(most[g], work)
        by_place = sum(count * work for count, work in zip(places, most, strict=True))
        held, work, _ = items[k]
        return by_place if held <= 0 else min(by_place, room * work // held)

    def search(k: int, room: int, value: int) -> None:
        nonlocal best, nodes
        nodes += 1
        best = max(best, value)
        if k == len(items) or value + bound(k, room) <= best or nodes > MAX_NODES:
            return
        held, work, g = items[k]
        most = places[g] if held <= 0 else min(places[g], room // held)
        for count in range(most, -1, -1):
            places[g] -= count
            search(k + 1, room - count * held, value + count * work)
            places[g] += count

    ceiling = bound(0, room)
    if len(items) > MAX_ITEMS:
        return ceiling
    search(0, room, 0)
    return best if nodes <= MAX_NODES else ceiling
