"""A problem as rows between points in time, for solvers of mixed-integer programs.

Variables are the starts s_i, the objective's time D, a binary for each option of a choice, and
order binaries. A *row* says ``s_b ≥ s_a + gap`` where all its literals hold. Rows stand for

- edges and queues, where both ends are present;
- each pair on one resource that edges and queues do not order: y, either i ends before j starts
  or j ends before i starts;
- each op and closed window: w, either it ends before the window or starts after it.

Pools
-----
The level can exceed a capacity only at the start of an op that raises it, so for each such op i
the level right after its start is bounded:

    initial + Σ rises of j with s_j ≤ s_i + Σ falls of j with s_j + d_j ≤ s_i ≤ capacity.

Two binaries count the terms of another op j. ``rose`` must be 1 unless s_j ≥ s_i + 1;
``fell`` may be 1 only if s_i ≥ s_j + d_j. Each can be wrong only to the safe side, and a solver
gains nothing by that, so the inequality is exact. Ties need no order: ops that start together
are not apart by 1, hence count each other; an op that ends at s_i has fallen. The 1 loses
nothing, since times are integers. Where edges order the two ops, the term is a constant. Where
they share a resource, both last longer than 0 and neither can be absent, ``rose`` and ``fell``
say the same, and y of the pair is used.

Units
-----
A makespan is computed in units of the gcd of all times and costs: rounding all starts down to
the unit keeps every row, and gives pools the levels they had at the end of each unit. A device
span is not: the rounding can lengthen a span, and where the spans of two groups trade against
each other the optimum can lie between two multiples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import numpy as np

from schedopt.problem import FREE, Ints, Objective, Problem

__all__ = ["Level", "Program", "Row", "When", "write_program"]


class Literal(NamedTuple):
    """A binary, or its opposite."""

    binary: int
    holds: bool = True

    def negated(self) -> Literal:
        """Return what holds where this does not."""
        return Literal(self.binary, not self.holds)


When = tuple[Literal, ...]
"""Literals that must all hold."""


class Row(NamedTuple):
    """`after` lies at least `gap` after `before`, where all of `when` holds."""

    before: int
    after: int
    gap: int
    when: When = ()


class Level(NamedTuple):
    """Sum of amount × literal is at most `room`, where all of `when` holds."""

    terms: list[tuple[int, Literal]]
    room: int
    when: When


class Span(NamedTuple):
    """The objective's time lasts from the point `first` to the end of these ops, if present."""

    first: int
    ops: list[tuple[int, When]]


@dataclass
class Program:
    """Rows over points in time: the start of each op, time 0, and the first start of each span.

    Attributes
    ----------
    unit : int
        ns in which all times and costs are counted.
    duration : list of int
        Of each op.
    horizon : int
        Some optimal schedule ends by then.
    origin : int
        The point that is time 0.
    options : list of list of int
        The binary of each option of each choice.
    costs : list of (binary, cost)
        Of options.
    binaries, points : int
        Counts.
    rows, levels, spans : list
        Times, pools, objective.
    loads : list of list of (duration, literals)
        The work on each resource that the objective's time covers.
    implied : list of (binary, literal)
        The binary holds only if the literal does.
    """

    unit: int
    duration: list[int]
    horizon: int
    origin: int
    options: list[list[int]] = field(default_factory=list)
    costs: list[tuple[int, int]] = field(default_factory=list)
    binaries: int = 0
    points: int = 0
    rows: list[Row] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)
    implied: list[tuple[int, Literal]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    loads: list[list[tuple[int, When]]] = field(default_factory=list)

    def binary(self) -> int:
        """Add a binary."""
        self.binaries += 1
        return self.binaries - 1


@dataclass(frozen=True)
class _Ops:
    """What the writers below ask of ops.

    Attributes
    ----------
    guard : list of tuple
        The literals under which each op is present; none: always.
    behind : array, shape (ops, ops)
        Least time from the start of i to the start of j if edges and queues put j after the end
        of i whenever both are present; otherwise −1.
    """

    problem: Problem
    guard: list[When]
    behind: Ints

    def together(self, i: int, j: int) -> When | None:
        """Return the literals under which both are present; None when that can't be."""
        a, b = self.guard[i], self.guard[j]
        if a and b and a != b and self.problem.guard_choice[i] == self.problem.guard_choice[j]:
            return None
        return a if a == b else a + b

    def also(self, j: int, i: int) -> When:
        """Return the literals under which j is present, given that i is."""
        return () if self.guard[j] == self.guard[i] else self.guard[j]


def _unit(problem: Problem) -> int:
    """Return the largest number that divides all times and costs."""
    times: list[int] = [t for r in problem.resources for w in r.closed for t in w]
    for array in (problem.duration, problem.release, problem.edge_lag):
        times += array.tolist()
    times += problem.pinned[problem.pinned != FREE].tolist()
    times += [option.cost for choice in problem.choices for option in choice.options]
    return math.gcd(*times) or 1


def write_program(problem: Problem, objective: Objective) -> Program:
    """Write a problem as a program."""
    unit = _unit(problem) if objective == "makespan" else 1
    duration = [d // unit for d in problem.duration.tolist()]
    n = problem.size
    program = Program(unit, duration, _horizon(problem) // unit, origin=n, points=n + 1)
    for choice in problem.choices:
        options = [program.binary() for _ in choice.options]
        program.options.append(options)
        costs = (option.cost // unit for option in choice.options)
        program.costs += zip(options, costs, strict=True)
    guards = zip(problem.guard_choice.tolist(), problem.guard_option.tolist(), strict=True)
    guard: list[When] = [(Literal(program.options[c][o]),) if c >= 0 else () for c, o in guards]
    links = list(_links(problem, unit))
    ops = _Ops(problem, guard, _behind(problem, duration, links))
    for i, j, lag in links:
        when = ops.together(i, j)
        if when is not None:
            program.rows.append(Row(i, j, duration[i] + lag, when))
    _write_starts(program, ops)
    _write_windows(program, ops)
    _write_pools(program, ops, _write_orders(program, ops))
    _write_objective(program, ops, objective)
    return program


def _horizon(problem: Problem) -> int:
    """Return a time by which some optimal schedule has ended.

    In any schedule, cut out all time after the last release, pin and closed window in which
    nothing runs and no lag passes: no row breaks, no span grows. What is left is at most all
    durations and lags in a row. Windows after that can't matter.
    """
    work = int(problem.duration.sum()) + int(problem.edge_lag.sum())
    free_from = int(max(problem.release.max(initial=0), problem.pinned.max(initial=0)))
    windows = sorted(w for resource in problem.resources for w in resource.closed)
    for opens, closes in windows:
        if opens < free_from + work:
            free_from = max(free_from, closes)
    return free_from + work


def _links(problem: Problem, unit: int) -> Iterator[tuple[int, int, int]]:
    """Yield (op, later op, lag in units) of edges and queues.

    Of a queue, ops that may be absent are skipped as well as linked.
    """
    for i, j, lag in zip(
        problem.edge_from.tolist(),
        problem.edge_to.tolist(),
        problem.edge_lag.tolist(),
        strict=True,
    ):
        yield i, j, lag // unit
    always = (problem.guard_choice < 0).tolist()
    for queue in problem.queues:
        members = queue.tolist()
        for k, i in enumerate(members):
            for j in members[k + 1 :]:
                yield i, j, 0
                if always[j]:
                    break


def _behind(problem: Problem, duration: list[int], links: list[tuple[int, int, int]]) -> Ints:
    """Return the longest paths between ops, through ops that are present whenever the first is."""
    n = problem.size
    into: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    for i, j, lag in links:
        into[j].append((i, duration[i] + lag))
    guards = list(zip(problem.guard_choice.tolist(), problem.guard_option.tolist(), strict=True))
    behind = np.full((n, n), -1, np.int64)
    for i in range(n):
        sure = {(-1, -1), guards[i]}
        row: dict[int, int] = {i: 0}
        for j in range(i + 1, n):
            gaps = [row[k] + gap for k, gap in into[j] if k in row and guards[k] in sure]
            if gaps:
                behind[i, j] = row[j] = max(gaps)
    return behind


def _write_starts(program: Program, ops: _Ops) -> None:
    """Write releases and pins."""
    problem, origin, unit = ops.problem, program.origin, program.unit
    for i, (release, pin) in enumerate(
        zip(problem.release.tolist(), problem.pinned.tolist(), strict=True)
    ):
        program.rows.append(Row(origin, i, max(release, pin) // unit, ops.guard[i]))
        if pin != FREE:
            program.rows.append(Row(i, origin, -pin // unit, ops.guard[i]))


def _write_windows(program: Program, ops: _Ops) -> None:
    origin = program.origin
    for i, r in enumerate(ops.problem.resource.tolist()):
        for window in ops.problem.resources[r].closed:
            opens, closes = (time // program.unit for time in window)
            if opens >= program.horizon:
                continue
            before = Literal(program.binary())
            program.rows += [
                Row(i, origin, program.duration[i] - opens, (before, *ops.guard[i])),
                Row(origin, i, closes, (before.negated(), *ops.guard[i])),
            ]


def _write_orders(program: Program, ops: _Ops) -> dict[tuple[int, int], Literal]:
    """Let ops of one resource exclude each other; return "the first runs before the second"."""
    first: dict[tuple[int, int], Literal] = {}
    for r in range(len(ops.problem.resources)):
        for i, j in combinations(np.flatnonzero(ops.problem.resource == r).tolist(), 2):
            when = ops.together(i, j)
            if when is None or ops.behind[i, j] >= 0:
                continue
            first[i, j] = Literal(program.binary())
            first[j, i] = first[i, j].negated()
            program.rows += [
                Row(i, j, program.duration[i], (first[i, j], *when)),
                Row(j, i, program.duration[j], (first[j, i], *when)),
            ]
    return first


def _write_pools(program: Program, ops: _Ops, first: dict[tuple[int, int], Literal]) -> None:
    problem = ops.problem
    counted = _Counted(program, ops, first)
    for k, pool in enumerate(problem.pools):
        if pool.capacity is None:
            continue
        mine = problem.change_pool == k
        amounts = problem.change_amount[mine]
        scale = int(np.gcd.reduce(amounts)) or 1
        rises: dict[int, int] = {}
        falls: dict[int, int] = {}
        for i, amount in zip(problem.change_op[mine].tolist(), amounts.tolist(), strict=True):
            into = rises if amount > 0 else falls
            into[i] = into.get(i, 0) + amount // scale
        room = (pool.capacity - pool.initial) // scale
        for i in rises:
            terms = [term for j, a in rises.items() for term in counted.rise(j, i, a)]
            terms += [term for j, a in falls.items() for term in counted.fall(j, i, a)]
            known = sum(a for a, literal in terms if literal is None)
            open_terms = [(a, literal) for a, literal in terms if literal is not None]
            program.levels.append(Level(open_terms, room - known, ops.guard[i]))


@dataclass
class _Counted:
    """How much of the rise or the fall of op j counts right after the start of op i.

    A term is (amount, literal), or (amount, None) for a constant.
    """

    program: Program
    ops: _Ops
    first: dict[tuple[int, int], Literal]
    rose: dict[tuple[int, int], Literal] = field(default_factory=dict)
    fell: dict[tuple[int, int], Literal] = field(default_factory=dict)

    def rise(self, j: int, i: int, amount: int) -> Iterator[tuple[int, Literal | None]]:
        """Yield the term of a rise, if it can count."""
        when = self.ops.together(i, j)
        if i == j or self.ops.behind[j, i] >= 0:
            yield self._present(j, i, amount)
        elif when is not None and self.ops.behind[i, j] < 1:
            literal = self._ordered(j, i) or self.rose.get((j, i))
            if literal is None:
                literal = self.rose[j, i] = Literal(self.program.binary())
                self.program.rows.append(Row(i, j, 1, (literal.negated(), *when)))
            yield amount, literal

    def fall(self, j: int, i: int, amount: int) -> Iterator[tuple[int, Literal | None]]:
        """Yield the term of a fall, if it can count."""
        when, duration = self.ops.together(i, j), self.program.duration[j]
        if (i == j and duration == 0) or self.ops.behind[j, i] >= 0:
            yield self._present(j, i, amount)
        elif i != j and when is not None and self._may_end(j, i):
            literal = self._ordered(j, i) or self.fell.get((j, i))
            if literal is None:
                literal = self.fell[j, i] = Literal(self.program.binary())
                self.program.rows.append(Row(j, i, duration, (literal, *when)))
                also = self.ops.also(j, i)
                self.program.implied += [(literal.binary, guard) for guard in also]
            yield amount, literal

    def _may_end(self, j: int, i: int) -> bool:
        """Whether j can end by the start of i."""
        gap = self.ops.behind[i, j]
        return bool(gap < 0 or gap + self.program.duration[j] == 0)

    def _present(self, j: int, i: int, amount: int) -> tuple[int, Literal | None]:
        guard = self.ops.also(j, i)
        return amount, guard[0] if guard else None

    def _ordered(self, j: int, i: int) -> Literal | None:
        """Return "j runs before i" if that alone tells whether both terms count."""
        lasting = self.program.duration[i] > 0 and self.program.duration[j] > 0
        always = not self.ops.guard[i] and not self.ops.guard[j]
        return self.first.get((j, i)) if lasting and always else None


def _write_objective(program: Program, ops: _Ops, objective: Objective) -> None:
    """Write the spans and, as cuts, the work on each resource: big-M rows alone bound next to
    nothing.
    """
    problem = ops.problem
    group = [resource.group for resource in problem.resources]
    if objective == "makespan":
        program.spans.append(Span(program.origin, list(enumerate(ops.guard))))
    else:
        for g in sorted({g for g in group if g >= 0}):
            mine = [i for i, r in enumerate(problem.resource.tolist()) if group[r] == g]
            first, program.points = program.points, program.points + 1
            program.spans.append(Span(first, [(i, ops.guard[i]) for i in mine]))
            program.rows += [Row(first, i, 0, ops.guard[i]) for i in mine]
    for r, g in enumerate(group):
        if objective == "makespan" or g >= 0:
            mine = np.flatnonzero(problem.resource == r).tolist()
            program.loads.append([(program.duration[i], ops.guard[i]) for i in mine])
