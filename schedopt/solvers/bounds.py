"""Proven lower bounds, each with the numbers to redo it by hand.

All are relaxations to one resource, given the earliest start (head) of its ops and the least time
from their end to the end of everything (tail):

* *chain*: head + duration + tail of one op;
* *machine*: the preemptive one-machine schedule of Jackson (1955), which is the best that any
  order of the resource's ops can give (Carlier and Pinson 1989);
* *window*: the work of the resource, plus the idle time before the first op of some queue (it
  can't come before its head, and memory limits the work that can be done until then), plus the
  idle time after the last op of some queue, by the same argument backwards.

For the device span the same bounds hold with heads measured from the resource's first op.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from schedopt.jit import kernel
from schedopt.problem import Ints, Objective, Problem
from schedopt.solvers.heads import NEVER, UNKNOWN, heads
from schedopt.solvers.shape import Shape, shape_of
from schedopt.solvers.windows import Window, windows

__all__ = ["Bound", "Bounds", "lower_bound"]


@dataclass(frozen=True)
class Bound:
    """A proven lower bound on the objective.

    Attributes
    ----------
    value : int
        ns.
    kind : str
        ``none``, ``chain``, ``machine`` or ``window``.
    resource : int
        The resource it looks at; -1 for none.
    first, last : int
        For a window: the op that is waited for, and the op after which the rest drains (-1: that
        side is not used).  For a chain: the op, twice.
    before, after : Window or None
        For a window: the wait for `first`, and the drain after `last`.
    terms : dict of str to int
        Numbers whose sum is the value.
    """

    value: int = 0
    kind: str = "none"
    resource: int = -1
    first: int = -1
    last: int = -1
    before: Window | None = None
    after: Window | None = None
    terms: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Bounds:
    """The best bound, and heads and tails from time 0 for whoever searches.

    Attributes
    ----------
    best : Bound
        The largest.
    head, tail : array, shape (ops,), ns
        Earliest start; least time from the op's end to the end of the last op.
    infeasible_op : int
        An op that can't start in any schedule, because its pool is too small; -1: none found.
    """

    best: Bound
    head: Ints
    tail: Ints
    shape: Shape
    reverse_shape: Shape
    infeasible_op: int = -1

    def divided(self, unit: int) -> Bounds:
        """Return the bounds in multiples of `unit`, rounded up."""
        best = replace(self.best, value=-(-self.best.value // unit))
        return replace(self, best=best, head=-(-self.head // unit), tail=-(-self.tail // unit))


def lower_bound(problem: Problem, objective: Objective = "makespan") -> Bounds:
    """Compute the best lower bound of a problem without choices."""
    backwards = problem.reverse()
    shape, reverse_shape = shape_of(problem), shape_of(backwards)
    head = heads(problem, shape)
    tail = heads(backwards, reverse_shape)[::-1].copy()
    # The first in sequence is stuck for its own sake, not because it waits for one that is.
    stuck = [*np.flatnonzero(head >= NEVER), *np.flatnonzero(tail >= NEVER)[::-1]]
    if stuck:
        return Bounds(Bound(), head, tail, shape, reverse_shape, int(stuck[0]))
    views: Iterator[_View]
    if objective == "makespan":
        views = (_View(r, head, tail) for r in range(len(problem.resources)))
    else:
        views = _spans(problem, backwards, shape, reverse_shape)
    best = Bound()
    for view in views:
        for bound in _on_resource(problem, backwards, shape, reverse_shape, view):
            if bound.value > best.value:
                best = bound
    return Bounds(best, head, tail, shape, reverse_shape)


@dataclass(frozen=True)
class _View:
    """Heads and tails of the ops of one resource, from wherever its time is measured."""

    resource: int
    head: Ints
    tail: Ints


def _spans(
    problem: Problem, backwards: Problem, shape: Shape, reverse_shape: Shape
) -> Iterator[_View]:
    """Yield each grouped resource with heads from its first op and tails to its last.

    A resource that may begin with one of several ops has no single origin; its ops then have
    head 0, since none can start before the resource's first.
    """
    last = problem.size - 1
    for r, resource in enumerate(problem.resources):
        if resource.group < 0:
            continue
        mine = np.flatnonzero(problem.resource == r)
        if not len(mine):
            continue
        head, tail = (np.full(problem.size, UNKNOWN, np.int64) for _ in range(2))
        origin, end = _origin(shape, mine), _origin(reverse_shape, last - mine[::-1])
        if origin >= 0:
            head = heads(problem, shape, origin)
        if end >= 0:
            tail = heads(backwards, reverse_shape, end)[::-1].copy()
        head[mine], tail[mine] = np.maximum(head[mine], 0), np.maximum(tail[mine], 0)
        yield _View(r, head, tail)


def _origin(shape: Shape, mine: Ints) -> int:
    """Return the one op of a resource that comes before all others there, or -1."""
    first = int(mine[0])
    column, place = shape.column[shape.queue[first]], shape.position[first]
    others = mine[mine != first]
    return first if np.all(shape.ancestors[others, column] > place) else -1


def _on_resource(
    problem: Problem, backwards: Problem, shape: Shape, reverse_shape: Shape, view: _View
) -> Iterator[Bound]:
    mine = np.flatnonzero(problem.resource == view.resource)
    if not len(mine):
        return
    head, tail, duration = view.head[mine], view.tail[mine], problem.duration[mine]
    chain = head + duration + tail
    k = int(np.argmax(chain))
    op = int(mine[k])
    terms = {"head": int(head[k]), "duration": int(duration[k]), "tail": int(tail[k])}
    yield Bound(int(chain[k]), "chain", view.resource, op, op, terms=terms)
    work = int(duration.sum())
    machine = jackson(head, duration, tail)
    terms = {"work": work, "waits": machine - work}
    yield Bound(machine, "machine", view.resource, terms=terms)
    warm = windows(problem, shape, view.resource, view.head)
    drain = windows(backwards, reverse_shape, view.resource, view.tail[::-1])
    drain = [window.mirrored(problem.size) for window in drain]
    yield from _pairs(shape, view.resource, work, warm, drain)


def _pairs(
    shape: Shape, resource: int, work: int, warm: list[Window], drain: list[Window]
) -> Iterator[Bound]:
    """Combine idle time before with idle time after where the two can't overlap."""
    none = Window(op=-1, idle=0, arrival=0, work=0, starved=frozenset())
    for before in [none, *(w for w in warm if w.idle)]:
        for after in [none, *(w for w in drain if w.idle)]:
            if before.op >= 0 and after.op >= 0 and not _apart(shape, before, after):
                continue
            terms = {"work": work, "idle_before": before.idle, "idle_after": after.idle}
            value = work + before.idle + after.idle
            yield Bound(value, "window", resource, before.op, after.op, before, after, terms)


def _apart(shape: Shape, before: Window, after: Window) -> bool:
    """Whether op `before.op` must start before `after.op` ends."""
    first, last = before.op, after.op
    if first == last or shape.queue[first] == shape.queue[last]:
        return True
    if shape.ancestors[last, shape.column[shape.queue[first]]] > shape.position[first]:
        return True
    return int(shape.queue[last]) in before.starved


def jackson(head: Ints, duration: Ints, tail: Ints) -> int:
    """Return the makespan of Jackson's preemptive schedule: at any time the available op with the
    longest tail runs.
    """
    order = np.argsort(head, kind="stable")
    return int(_jackson(head[order], duration[order], tail[order]))


@kernel
def _jackson(head, duration, tail):  # type: ignore[no-untyped-def]
    """Run ops sorted by head; the heap holds the negative tails and numbers of what waits."""
    n = len(head)
    left = duration.copy()
    waiting = [(np.int64(0), np.int64(0)) for _ in range(0)]
    time, best, k = 0, 0, 0
    while k < n or waiting:
        if not waiting:
            time = max(time, head[k])
        while k < n and head[k] <= time:
            heapq.heappush(waiting, (-tail[k], np.int64(k)))
            k += 1
        priority, i = waiting[0]
        if k < n and time + left[i] > head[k]:
            left[i] -= head[k] - time
            time = head[k]
        else:
            heapq.heappop(waiting)
            time += left[i]
            best = max(best, time - priority)
    return best
