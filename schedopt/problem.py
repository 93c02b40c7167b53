"""The core: a scheduling problem of resources, pools, ops, edges, choices and queues.

No word of pipelines stands here. Every feature of training (recompute, links, offload,
all-reduce, outages) is data made by a builder in front; the solvers know only this.

An op runs without interruption on one unary resource. While it runs and after, it changes the
level of pools: a rise counts from the op's start, a fall from its end, and a fall at time t comes
before a rise at t. An edge lets one op start a lag after another has ended. A choice selects one
of its options; ops guarded by another option are absent, and so are edges at an absent end. A
queue is a list of ops of one resource that run in the listed order.

Ops are stored in a *sequential order*: edges and queues lead from lower to higher numbers, so a
machine that ran one op at a time could run them as numbered. Where several such orders exist it
is the one that finishes what was added first, which keeps pools low: construction relies on it
to stay clear of deadlock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from schedopt.errors import Fault, InputError
from schedopt.units import MAX_INT

__all__ = [
    "ABSENT",
    "FREE",
    "Choice",
    "Graph",
    "Ints",
    "Objective",
    "Option",
    "Pool",
    "Problem",
    "ProblemBuilder",
    "Resource",
    "device_span",
    "makespan",
    "value",
]

Ints = npt.NDArray[np.int64]
Objective = Literal["makespan", "device-span"]
ABSENT = -1
"""Start of an op that its choice left out."""
FREE = -1
"""Pinned start of an op that may start at any time."""


@dataclass(frozen=True)
class Resource:
    """Something that runs one op at a time.

    Attributes
    ----------
    name : str
        For messages.
    group : int
        Resources of one group share a device span; -1: it counts for none (a link).
    closed : tuple of (start, end)
        Ascending, disjoint windows during which nothing may run.
    """

    name: str
    group: int = -1
    closed: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Pool:
    """A level between no bound below and `capacity` above (None: none)."""

    name: str
    capacity: int | None = None
    initial: int = 0


@dataclass(frozen=True)
class Option:
    """One way to decide a choice; its cost is added to the objective."""

    name: str
    cost: int = 0


@dataclass(frozen=True)
class Choice:
    """One decision: exactly one option holds. The first is the neutral one."""

    name: str
    options: tuple[Option, ...]


class Graph(NamedTuple):
    """Edges and queues together, in compressed rows, both ways.

    ``pred[pred_at[i]:pred_at[i + 1]]`` must end `pred_lag` before op i starts.
    """

    pred_at: Ints
    pred: Ints
    pred_lag: Ints
    succ_at: Ints
    succ: Ints
    succ_lag: Ints


def _ints(values: object) -> Ints:
    return np.asarray(values, np.int64)


def _none() -> Ints:
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Problem:
    """An immutable, validated scheduling problem; build it with `ProblemBuilder`.

    Attributes
    ----------
    duration, resource, release, pinned : array, shape (ops,)
        ns; resource number; earliest start; forced start or `FREE`.
    change_op, change_pool, change_amount : array, shape (changes,)
        Pool changes, sorted by op. Positive counts from the start, negative from the end.
    edge_from, edge_to, edge_lag : array, shape (edges,)
        Precedences.
    queue_at, queue_op : array, shape (queues + 1,) and (queued ops,)
        Queue q is ``queue_op[queue_at[q]:queue_at[q + 1]]``.
    queue_exact : array of bool, shape (queues,)
        Whether the order is known to lose nothing; otherwise it is an assumption.
    guard_choice, guard_option : array, shape (ops,)
        The option under which the op is present; -1: always.
    """

    resources: tuple[Resource, ...]
    pools: tuple[Pool, ...]
    choices: tuple[Choice, ...]
    duration: Ints
    resource: Ints
    release: Ints
    pinned: Ints
    change_op: Ints = field(default_factory=_none)
    change_pool: Ints = field(default_factory=_none)
    change_amount: Ints = field(default_factory=_none)
    edge_from: Ints = field(default_factory=_none)
    edge_to: Ints = field(default_factory=_none)
    edge_lag: Ints = field(default_factory=_none)
    queue_at: Ints = field(default_factory=lambda: np.zeros(1, np.int64))
    queue_op: Ints = field(default_factory=_none)
    queue_exact: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    guard_choice: Ints = field(default_factory=_none)
    guard_option: Ints = field(default_factory=_none)

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name in ("resources", "pools", "choices"):
                continue
            given = np.asarray(value)
            if given.size and given.dtype.kind not in "iub":
                found = f"numbers of type {given.dtype}"
                raise InputError("problem", Fault(item.name, found, "exact integers"))
            # A private copy: no caller can change the problem behind its back.
            frozen = np.array(given, np.bool_ if item.name == "queue_exact" else np.int64)
            frozen.flags.writeable = False
            object.__setattr__(self, item.name, frozen)
        faults = list(_faults(self))
        if faults:
            raise InputError("problem", faults)

    @property
    def size(self) -> int:
        """Number of ops."""
        return len(self.duration)

    @property
    def queues(self) -> list[Ints]:
        """The queues, each an array of ops."""
        return np.split(self.queue_op, self.queue_at[1:-1]) if len(self.queue_at) > 1 else []

    @cached_property
    def graph(self) -> Graph:
        """Edges and queues together, both ways."""
        head, tail, lag = self.links()
        preds = _rows(tail, head, lag, self.size)
        return Graph(*preds, *_rows(head, tail, lag, self.size))

    def links(self) -> tuple[Ints, Ints, Ints]:
        """Return every precedence, queues included, as (from, to, lag)."""
        inner = np.ones(len(self.queue_op), np.bool_)
        inner[self.queue_at[:-1][self.queue_at[:-1] < len(self.queue_op)]] = False
        later = np.flatnonzero(inner)
        head = np.concatenate([self.edge_from, self.queue_op[later - 1]])
        tail = np.concatenate([self.edge_to, self.queue_op[later]])
        return head, tail, np.concatenate([self.edge_lag, np.zeros(len(later), np.int64)])

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated anew."""
        return replace(self, **changes)

    def digest(self) -> str:
        """Return a sha256 that is equal for equal problems, whatever things are called."""
        state = hashlib.sha256()
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, np.ndarray):
                state.update(f"{item.name}{value.shape}".encode())
                state.update(np.ascontiguousarray(value, "<i8").tobytes())
        state.update(repr([(r.group, r.closed) for r in self.resources]).encode())
        state.update(repr([(p.capacity, p.initial) for p in self.pools]).encode())
        state.update(repr([[o.cost for o in c.options] for c in self.choices]).encode())
        return state.hexdigest()

    def present(self, selected: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Return which ops are present when choice c takes option ``selected[c]``."""
        if not self.choices:
            return np.ones(self.size, np.bool_)
        option: Ints = np.append(_ints(selected), -1)[self.guard_choice]
        return np.asarray((self.guard_choice < 0) | (option == self.guard_option), np.bool_)

    def select(self, selected: Sequence[int]) -> tuple[Problem, Ints]:
        """Decide every choice.

        Returns
        -------
        problem : Problem
            Without choices, with the ops that are present.
        kept : array, shape (ops of that problem,)
            Their numbers in this problem.
        """
        keep = self.present(selected)
        kept, number = np.flatnonzero(keep), np.cumsum(keep) - 1
        edges = keep[self.edge_from] & keep[self.edge_to]
        changes, queued = keep[self.change_op], keep[self.queue_op]
        before = np.concatenate([[0], np.cumsum(queued)])
        problem = replace(
            self,
            choices=(),
            duration=self.duration[kept],
            resource=self.resource[kept],
            release=self.release[kept],
            pinned=self.pinned[kept],
            change_op=number[self.change_op[changes]],
            change_pool=self.change_pool[changes],
            change_amount=self.change_amount[changes],
            edge_from=number[self.edge_from[edges]],
            edge_to=number[self.edge_to[edges]],
            edge_lag=self.edge_lag[edges],
            queue_at=before[self.queue_at],
            queue_op=number[self.queue_op[queued]],
            guard_choice=np.full(len(kept), -1),
            guard_option=np.full(len(kept), -1),
        )
        return problem, kept

    def without_assumptions(self) -> Problem:
        """Return the problem without the queues that are not known to lose nothing: what a proof
        has to be about.
        """
        if np.all(self.queue_exact):
            return self
        kept = [q for q, exact in zip(self.queues, self.queue_exact, strict=True) if exact]
        return replace(
            self,
            queue_at=np.cumsum([0, *map(len, kept)]),
            queue_op=np.concatenate([*kept, _none()]),
            queue_exact=np.ones(len(kept), np.bool_),
        )

    def reverse(self) -> Problem:
        """Return the problem with time running backwards (op i becomes op n − 1 − i).

        Releases, pins and closed windows have no mirror without a horizon and are dropped: the
        result is a relaxation wherever there were any.
        """
        last = self.size - 1
        order = np.argsort(last - self.change_op, kind="stable")
        totals = np.zeros(len(self.pools), np.int64)
        np.add.at(totals, self.change_pool, self.change_amount)
        pools = tuple(
            Pool(p.name, p.capacity, p.initial + int(t))
            for p, t in zip(self.pools, totals, strict=True)
        )
        queues = [last - q[::-1] for q in self.queues]
        return replace(
            self,
            resources=tuple(Resource(r.name, r.group) for r in self.resources),
            pools=pools,
            duration=self.duration[::-1],
            resource=self.resource[::-1],
            release=np.zeros(self.size, np.int64),
            pinned=np.full(self.size, FREE),
            change_op=(last - self.change_op)[order],
            change_pool=self.change_pool[order],
            change_amount=-self.change_amount[order],
            edge_from=last - self.edge_to,
            edge_to=last - self.edge_from,
            queue_op=np.concatenate([*queues, _none()]),
            guard_choice=self.guard_choice[::-1],
            guard_option=self.guard_option[::-1],
        )


def makespan(problem: Problem, starts: Ints) -> int:
    """Return the end of the last op, from time 0."""
    present = starts != ABSENT
    return int((starts + problem.duration)[present].max(initial=0))


def device_span(problem: Problem, starts: Ints) -> int:
    """Return the largest time between first start and last end within one group of resources."""
    groups = np.array([r.group for r in problem.resources], np.int64)[problem.resource]
    mine = np.flatnonzero((groups >= 0) & (starts != ABSENT))
    if not len(mine):
        return 0
    first = np.full(int(groups.max()) + 1, np.iinfo(np.int64).max)
    last = np.full(len(first), -1, np.int64)
    np.minimum.at(first, groups[mine], starts[mine])
    np.maximum.at(last, groups[mine], starts[mine] + problem.duration[mine])
    return int((last - first)[last >= 0].max())


def value(
    problem: Problem, objective: Objective, starts: Ints, selected: Sequence[int] = ()
) -> int:
    """Return what is minimised: makespan or device span, plus the costs of the options taken."""
    time = (device_span if objective == "device-span" else makespan)(problem, starts)
    costs = (c.options[k].cost for c, k in zip(problem.choices, selected, strict=True))
    return time + sum(costs)


def _rows(key: Ints, value: Ints, lag: Ints, size: int) -> tuple[Ints, Ints, Ints]:
    order = np.argsort(key, kind="stable")
    at = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(key, minlength=size), out=at[1:])
    return at, value[order], lag[order]


def _faults(p: Problem) -> Iterator[Fault]:
    """Yield what makes a problem meaningless."""
    n = len(p.duration)
    for name in ("resource", "release", "pinned", "guard_choice", "guard_option"):
        if len(getattr(p, name)) != n:
            yield Fault(name, f"{len(getattr(p, name))} entries", f"{n}, one per op")
            return
    for first, *others in (
        ("change_op", "change_pool", "change_amount"),
        ("edge_from", "edge_to", "edge_lag"),
    ):
        for name in others:
            if len(getattr(p, name)) != len(getattr(p, first)):
                yield Fault(name, f"{len(getattr(p, name))} entries", f"as many as {first}")
                return
    yield from _outside("duration", p.duration, 0, MAX_INT)
    yield from _outside("release", p.release, 0, MAX_INT)
    yield from _outside("pinned", p.pinned, FREE, MAX_INT)
    yield from _outside("resource", p.resource, 0, len(p.resources) - 1)
    yield from _outside("edge_lag", p.edge_lag, 0, MAX_INT)
    yield from _outside("change_amount", p.change_amount, -MAX_INT, MAX_INT)
    for name, top in (
        ("edge_from", n),
        ("edge_to", n),
        ("queue_op", n),
        ("change_op", n),
        ("change_pool", len(p.pools)),
        ("guard_choice", len(p.choices)),
    ):
        low = -1 if name == "guard_choice" else 0
        yield from _outside(name, getattr(p, name), low, top - 1)
    total = float(p.duration.sum(dtype=np.float64) + p.edge_lag.sum(dtype=np.float64))
    if total > MAX_INT:
        yield Fault("duration", f"a total of {total:.3g}", "a total below 2^62")
    if np.any(p.edge_from >= p.edge_to):
        k = int(np.argmax(p.edge_from >= p.edge_to))
        yield Fault(f"edge {k}", f"{p.edge_from[k]} → {p.edge_to[k]}", "ascending op numbers")
    if np.any(np.diff(p.change_op) < 0):
        yield Fault("change_op", "an unsorted list", "changes sorted by op")
    yield from _queue_faults(p)
    for k in np.flatnonzero(p.guard_choice >= 0).tolist():
        c, o = int(p.guard_choice[k]), int(p.guard_option[k])
        if c < len(p.choices) and not 0 <= o < len(p.choices[c].options):
            yield Fault(f"guard_option[{k}]", str(o), f"an option of choice {c}")
    for resource in p.resources:
        flat = [t for window in resource.closed for t in window]
        if flat != sorted(flat) or any(t < 0 for t in flat):
            yield Fault(resource.name, f"closed {resource.closed}", "ascending, disjoint windows")


def _queue_faults(p: Problem) -> Iterator[Fault]:
    if len(p.queue_exact) != len(p.queue_at) - 1:
        yield Fault("queue_exact", f"{len(p.queue_exact)} entries", f"{len(p.queue_at) - 1}")
        return
    if p.queue_at[0] != 0 or p.queue_at[-1] != len(p.queue_op) or np.any(np.diff(p.queue_at) < 0):
        yield Fault("queue_at", "wrong bounds", f"0 … {len(p.queue_op)}, ascending")
        return
    if len(np.unique(p.queue_op)) != len(p.queue_op):
        yield Fault("queue_op", "an op in two queues", "each op in one queue")
    for k, queue in enumerate(p.queues):
        if np.any(np.diff(queue) <= 0):
            yield Fault(f"queue {k}", "unsorted ops", "ascending op numbers")
        if len(np.unique(p.resource[queue])) > 1:
            yield Fault(f"queue {k}", "several resources", "ops of one resource")


def _outside(name: str, values: Ints, low: int, high: int) -> Iterator[Fault]:
    bad = np.flatnonzero((values < low) | (values > high))
    if len(bad):
        k = int(bad[0])
        yield Fault(f"{name}[{k}]", str(values[k]), f"a number from {low} to {high}")


class ProblemBuilder:
    """Collects a problem piece by piece; `build` orders, validates and freezes it.

    Ops are known by the number in which they were added (a *handle*). `ops`, `change` and `edges`
    take arrays, so that a large pipeline is built without a Python loop. Features are stacked by
    handing one builder from function to function.
    """

    def __init__(self) -> None:
        self._resources: list[Resource] = []
        self._pools: list[Pool] = []
        self._choices: list[Choice] = []
        self._ops: list[tuple[Ints, ...]] = []
        self._size = 0
        self._changes: list[tuple[Ints, ...]] = []
        self._edges: list[tuple[Ints, ...]] = []
        self._queues: list[Ints] = []
        self._exact: list[bool] = []

    def resource(self, name: str, group: int = -1, closed: Iterable[tuple[int, int]] = ()) -> int:
        """Add a resource and return its number."""
        self._resources.append(Resource(name, group, tuple(closed)))
        return len(self._resources) - 1

    def pool(self, name: str, capacity: int | None = None, initial: int = 0) -> int:
        """Add a pool and return its number."""
        self._pools.append(Pool(name, capacity, initial))
        return len(self._pools) - 1

    def choice(self, name: str, *options: Option) -> int:
        """Add a choice, neutral option first, and return its number."""
        self._choices.append(Choice(name, options))
        return len(self._choices) - 1

    def ops(
        self,
        duration: npt.ArrayLike,
        resource: npt.ArrayLike,
        release: npt.ArrayLike = 0,
        pinned: npt.ArrayLike = FREE,
        when: tuple[int, int] = (-1, -1),
    ) -> Ints:
        """Add ops, the arguments broadcast together, and return their handles.

        Parameters
        ----------
        when : (choice, option)
            Present only under this option of this choice.
        """
        columns = np.broadcast_arrays(
            *(np.atleast_1d(_ints(x)) for x in (duration, resource, release, pinned, *when))
        )
        self._ops.append(tuple(columns))
        first, self._size = self._size, self._size + len(columns[0])
        return np.arange(first, self._size)

    def op(self, duration: int, resource: int, **rest: Any) -> int:
        """Add one op and return its handle; see `ops`."""
        return int(self.ops(duration, resource, **rest)[0])

    def change(self, op: npt.ArrayLike, pool: npt.ArrayLike, amount: npt.ArrayLike) -> None:
        """Let ops raise (from their start) or lower (from their end) pools; zeros are dropped."""
        columns = np.broadcast_arrays(*(np.atleast_1d(_ints(x)) for x in (op, pool, amount)))
        keep = columns[2] != 0
        self._changes.append(tuple(column[keep] for column in columns))

    def edge(self, before: npt.ArrayLike, after: npt.ArrayLike, lag: npt.ArrayLike = 0) -> None:
        """Let `after` start only `lag` after `before` has ended."""
        columns = np.broadcast_arrays(*(np.atleast_1d(_ints(x)) for x in (before, after, lag)))
        self._edges.append(tuple(columns))

    def queue(self, ops: npt.ArrayLike, exact: bool = True) -> None:
        """Let ops of one resource run in this order; `exact` when no better schedule is lost."""
        self._queues.append(_ints(ops))
        self._exact.append(exact)

    def build(self) -> tuple[Problem, Ints]:
        """Return the problem, and the number in it of every handle.

        Raises
        ------
        InputError
            When edges form a cycle or anything else makes no sense.
        """
        duration, resource, release, pinned, choice, option = _stack(self._ops, 6)
        change_op, change_pool, change_amount = _stack(self._changes, 3)
        edge_from, edge_to, edge_lag = _stack(self._edges, 3)
        queue_op = np.concatenate([*self._queues, _none()])
        queue_at = np.cumsum([0, *map(len, self._queues)])
        number = self._sequence(edge_from, edge_to)
        order = np.argsort(number)
        sorted_changes = np.argsort(number[change_op], kind="stable")
        problem = Problem(
            resources=tuple(self._resources),
            pools=tuple(self._pools),
            choices=tuple(self._choices),
            duration=duration[order],
            resource=resource[order],
            release=release[order],
            pinned=pinned[order],
            change_op=number[change_op][sorted_changes],
            change_pool=change_pool[sorted_changes],
            change_amount=change_amount[sorted_changes],
            edge_from=number[edge_from],
            edge_to=number[edge_to],
            edge_lag=edge_lag,
            queue_at=queue_at,
            queue_op=number[queue_op],
            queue_exact=np.array(self._exact, np.bool_),
            guard_choice=choice[order],
            guard_option=option[order],
        )
        return problem, number

    def _sequence(self, edge_from: Ints, edge_to: Ints) -> Ints:
        """Number the ops so that all precedences ascend, each op as soon after its handle's turn
        as its predecessors allow; the handles themselves where they already ascend.
        """
        head = np.concatenate([edge_from, *(q[:-1] for q in self._queues)])
        tail = np.concatenate([edge_to, *(q[1:] for q in self._queues)])
        for values in (head, tail):
            if len(values) and not (values.min() >= 0 and values.max() < self._size):
                fault = Fault("edges", "a handle of no op", "handles from ops()")
                raise InputError("problem", fault)
        if np.all(head < tail):
            return np.arange(self._size)
        at, preds, _ = _rows(tail, head, np.zeros(len(head), np.int64), self._size)
        return _depth_first(at.tolist(), preds.tolist(), self._size)


def _depth_first(at: list[int], preds: list[int], size: int) -> Ints:
    """Number ops in the order of their handles, each directly after its unnumbered ancestors."""
    number = np.full(size, -1, np.int64)
    state = bytearray(size)  # 0 new, 1 on the stack, 2 numbered
    count = 0
    for root in range(size):
        stack = [root] if state[root] == 0 else []
        while stack:
            op = stack[-1]
            if state[op] == 2:
                stack.pop()
            elif state[op] == 1:
                stack.pop()
                state[op] = 2
                number[op] = count
                count += 1
            else:
                state[op] = 1
                waiting = [q for q in preds[at[op] : at[op + 1]] if state[q] != 2]
                if any(state[q] == 1 for q in waiting):
                    fault = Fault("edges", f"a cycle through op {op}", "precedences without cycles")
                    raise InputError("problem", fault)
                stack.extend(sorted(waiting, reverse=True))
    return number


def _stack(rows: list[tuple[Ints, ...]], width: int) -> list[Ints]:
    return [np.concatenate([row[k] for row in rows] or [_none()]) for k in range(width)]
