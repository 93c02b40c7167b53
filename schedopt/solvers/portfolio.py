"""Bound, construct, improve, prove: from a problem to the best schedule found and its proof."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf
from typing import Literal

import numpy as np
import numpy.typing as npt

from schedopt.problem import (
    ABSENT,
    Ints,
    Objective,
    Problem,
    ProblemBuilder,
    device_span,
    makespan,
    value,
)
from schedopt.solvers.answer import Answer
from schedopt.solvers.bounds import Bound, lower_bound
from schedopt.solvers.construct import Floats, ListScheduler
from schedopt.solvers.cpsat import Limits, solve_cpsat
from schedopt.solvers.improve import Annealer, can_anneal
from schedopt.solvers.repair import repair
from schedopt.solvers.shape import Shape, shape_of
from schedopt.solvers.span import compress
from schedopt.timing import orders_of, peaks

__all__ = ["Budget", "Outcome", "Progress", "Solver", "solve"]

Solver = Literal["auto", "cpsat", "milp", "construct"]

SMALL = 1000
"""Ops up to which CP-SAT helps; beyond, it proves nothing that the bounds do not."""
LARGE = 20_000
"""Ops beyond which the least device span of some orders is only worth computing for the answer."""
EFFORT = 2.0
"""Deterministic seconds of CP-SAT for each round, where rounds are counted."""
POPULATION = 6
ALIKE = 2
"""Schedules of one method that are kept."""
WIDTHS = (6, 6, 4, 3, 2)
"""Lines that are annealed in each cycle; the last holds for all later ones."""
BATCH = 2
"""Anneals run side by side; fixed, so that the result does not depend on the machine's cores."""


TEMPERATURES = (0.3, 0.5, 1.0)
"""First temperatures of anneals in turn, in mean durations of an op."""


@dataclass(frozen=True)
class Budget:
    """How long to look.

    Attributes
    ----------
    seconds : float
        Wall time, compilation not counted.
    rounds : int, optional
        Rounds of annealing, two anneals each. With it, as long as `seconds` suffice, equal inputs
        and seeds give equal answers.
    """

    seconds: float = 10.0
    rounds: int | None = None


@dataclass(frozen=True)
class Progress:
    """Where a search stands: what it does, best bound and value so far (ns), time used (s)."""

    stage: str
    bound: int
    best: int | None
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """The result of `solve`.

    Attributes
    ----------
    answer : Answer
        Best schedule and bound; `answer.infeasible` when there is none.
    bound : Bound
        The combinatorial bound with its numbers (kind ``cp-sat`` or ``milp`` when a solver's
        proof is better).
    method : str
        What found the schedule.
    stuck_op : int
        When infeasible: an op that can't start, or -1.
    """

    answer: Answer
    bound: Bound
    method: str
    stuck_op: int = -1


def solve(
    problem: Problem,
    objective: Objective = "makespan",
    *,
    budget: Budget = Budget(),
    solver: Solver = "auto",
    seed: int = 0,
    starts: Sequence[tuple[str, Callable[[], Ints]]] = (),
    report: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Minimise the objective.

    Parameters
    ----------
    solver : {"auto", "cpsat", "milp", "construct"}
        ``auto`` constructs, improves by annealing, and lets CP-SAT prove small problems;
        ``cpsat`` gives it all the time; ``milp`` is an independent second opinion for small
        problems, which uses no bound of ours; ``construct`` only constructs.
    starts : sequence of (name, callable)
        Schedules to begin with, made when there is time; where they don't fit the pools they are
        made to.
    report : callable, optional
        Called with progress.

    Returns
    -------
    Outcome
        On KeyboardInterrupt, the best so far, its answer marked `interrupted`. Problems with
        choices go to CP-SAT, whatever `solver` says, unless that is ``milp``.
    """
    if solver == "milp":
        return _milp(problem, objective, budget, seed)
    if problem.choices:
        return _with_choices(problem, objective, budget, seed, report)
    return _Search(problem, objective, budget, seed, report).run(solver, starts)


def _milp(problem: Problem, objective: Objective, budget: Budget, seed: int) -> Outcome:
    from schedopt.solvers.milp import solve_milp

    answer = solve_milp(problem, objective, time_limit=budget.seconds, seed=seed)
    if np.all(problem.queue_exact):
        return Outcome(answer, Bound(answer.bound, "milp"), "milp")
    bound = lower_bound(problem.without_assumptions(), objective).best
    return Outcome(replace(answer, bound=bound.value), bound, "milp")


def _with_choices(
    problem: Problem,
    objective: Objective,
    budget: Budget,
    seed: int,
    report: Callable[[Progress], None] | None,
) -> Outcome:
    """Solve for the neutral options, then let CP-SAT decide everything from there."""
    neutral = (0,) * len(problem.choices)
    fixed, kept = problem.select(neutral)
    share = Budget(budget.seconds / 4, budget.rounds)
    first = solve(fixed, objective, budget=share, seed=seed, report=report).answer
    incumbent = None
    if first.starts is not None:
        spread = np.full(problem.size, ABSENT, np.int64)
        spread[kept] = first.starts
        incumbent = Answer(spread, neutral, value(problem, objective, spread, neutral))
    least = sum(min(o.cost for o in choice.options) for choice in problem.choices)
    if first.interrupted:
        answer = replace(incumbent or Answer(), bound=least, interrupted=True)
        return Outcome(answer, Bound(least), "neutral options")
    effort = None if budget.rounds is None else EFFORT * budget.rounds
    limits = Limits(budget.seconds * 3 / 4, effort)
    answer = solve_cpsat(problem, objective, limits=limits, incumbent=incumbent, seed=seed)
    if not np.all(problem.queue_exact):
        answer = replace(answer, bound=least)
    return Outcome(answer, Bound(answer.bound, "cp-sat"), "cp-sat")


@dataclass
class _Line:
    """A schedule and what it becomes by annealing."""

    worth: int
    peak: int
    other: int
    method: str
    starts: Ints

    def rank(self) -> tuple[int, int, int]:
        """Shorter first; among equals, what needs least of the pools; then by the objective that
        was not asked for.
        """
        return self.worth, self.peak, self.other

    def take(self, other: _Line) -> None:
        """Go on from another schedule unless it is longer."""
        if other.worth < self.worth:
            self.method = other.method
        if other.worth <= self.worth:
            self.worth, self.peak, self.other = other.rank()
            self.starts = other.starts


@dataclass
class _Search:
    """The state of one search: the best few schedules and the best bound so far."""

    problem: Problem
    objective: Objective
    budget: Budget
    seed: int
    report: Callable[[Progress], None] | None
    lines: list[_Line] = field(default_factory=list)
    stop: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(1, np.uint8))
    bound: Bound = field(default_factory=Bound)
    began: float = field(default_factory=time.monotonic)
    infeasible: bool = False

    def run(self, solver: Solver, starts: Sequence[tuple[str, Callable[[], Ints]]]) -> Outcome:
        interrupted = False
        try:
            self._off_the_clock(_warm)
            self.bounds = lower_bound(self.problem, self.objective)
            self.bound = self.bounds.best
            if not self._exact:
                # The search keeps to the queues; the proof must not, where they may lose.
                free = self.problem.without_assumptions()
                self.bound = lower_bound(free, self.objective).best
            if self.bounds.infeasible_op >= 0:
                answer = Answer(infeasible=True)
                return Outcome(answer, self.bound, "bound", self.bounds.infeasible_op)
            for name, make in starts:
                if self.lines and self._left() <= 0:
                    break
                self._begin(name, make())
            self._construct()
            if solver == "auto":
                self._improve()
            elif solver == "cpsat":
                self._prove(self._left(), None)
        except KeyboardInterrupt:
            interrupted = True
            self.stop[0] = 1
        answer = Answer(bound=self.bound.value, infeasible=self.infeasible, interrupted=interrupted)
        if not self.lines:
            return Outcome(answer, self.bound, "none")
        best = self.lines[0]
        if self.problem.size > LARGE and not interrupted:
            best.take(self._compressed(best, steps=6))
        answer = replace(answer, starts=best.starts, value=best.worth)
        return Outcome(answer, self.bound, best.method)

    @property
    def _exact(self) -> bool:
        return bool(np.all(self.problem.queue_exact))

    def _off_the_clock(self, warm: Callable[[], object]) -> None:
        """Run something that may have to compile, at the expense of nobody's time limit."""
        before = time.monotonic()
        warm()
        self.began += time.monotonic() - before

    def _left(self) -> float:
        return self.budget.seconds - (time.monotonic() - self.began)

    def _done(self) -> bool:
        closed = bool(self.lines) and self.lines[0].worth <= self.bound.value
        return closed or self._left() <= 0

    def _tell(self, stage: str) -> None:
        if self.report is not None:
            best = self.lines[0].worth if self.lines else None
            seconds = time.monotonic() - self.began
            self.report(Progress(stage, self.bound.value, best, seconds))

    def _line(self, method: str, schedule: Ints) -> _Line:
        line = self._measured(method, schedule)
        return self._compressed(line) if self.problem.size <= LARGE else line

    def _compressed(self, line: _Line, steps: int = 64) -> _Line:
        """Where the device span counts, return the line with the least that its orders allow."""
        if self.objective == "makespan" or not can_anneal(self.problem):
            return line
        schedule = compress(self.problem, line.starts, self.bound.value, steps)
        return self._measured(line.method, schedule)

    def _measured(self, method: str, schedule: Ints) -> _Line:
        p = self.problem
        lengths = makespan(p, schedule), device_span(p, schedule)
        worth, other = lengths if self.objective == "makespan" else lengths[::-1]
        return _Line(worth, int(peaks(p, schedule).sum()), other, method, schedule)

    def _begin(self, method: str, schedule: Ints) -> None:
        """Begin a line with a schedule from outside, made to fit the pools."""
        p = self.problem
        capacity = [2**62 if pool.capacity is None else pool.capacity for pool in p.pools]
        if np.any(peaks(p, schedule) > np.array(capacity, np.int64)):
            if not can_anneal(p):
                return
            fitting = repair(p, self.bounds.shape, orders_of(p, schedule))
            if fitting is None:
                return
            method, schedule = f"{method}, made to fit", fitting
        self._add(method, schedule)

    def _add(self, method: str, schedule: Ints) -> None:
        """Begin a line with a schedule, if it is among the best few and new."""
        new = self._line(method, schedule)
        if any(x.worth == new.worth and np.array_equal(x.starts, new.starts) for x in self.lines):
            return
        self.lines.append(new)
        self.lines.sort(key=_Line.rank)
        # Starts that differ in kind lead to different places: no method may crowd out the others.
        alike = [k for k, line in enumerate(self.lines) if line.method == method]
        if len(alike) > ALIKE:
            del self.lines[alike[-1]]
        del self.lines[POPULATION:]

    def _construct(self) -> None:
        """List scheduling with many keys, forwards and backwards."""
        p, b = self.problem, self.bounds
        forward = ListScheduler(p, b.shape)
        runs = [(forward, False, key) for key in _keys(p, b.tail)]
        if _reversible(p):
            backwards = p.reverse()
            backward = ListScheduler(backwards, b.reverse_shape)
            runs += [(backward, True, key) for key in _keys(backwards, b.head[::-1])]
        some = min(len(runs), max(8, 6_000_000 // max(p.size, 1)))
        for k in range(some):
            if self.lines and self._done():
                return
            scheduler, mirrored, key = runs[k * len(runs) // some]
            schedule = scheduler.run(key)
            if schedule is None:
                continue
            if mirrored:
                ends = schedule + scheduler.problem.duration
                schedule = (int(ends.max(initial=0)) - ends)[::-1].copy()
            self._add("list scheduling, backwards" if mirrored else "list scheduling", schedule)
        self._tell("construct")

    def _improve(self) -> None:
        """Anneal every line, then fewer and fewer of the best for longer and longer; in between,
        CP-SAT on what is small enough.
        """
        if not can_anneal(self.problem) or not self.lines:
            self._prove(self._left(), None)
            return
        self._off_the_clock(_warm_improve)
        proof = _proofs(self.problem.size)
        k = 0
        for cycle in count():
            lines = sorted(self.lines, key=_Line.rank)[: WIDTHS[min(cycle, len(WIDTHS) - 1)]]
            lines += lines[: -len(lines) % BATCH]
            for first in range(0, len(lines), BATCH):
                if self._done() or k == self.budget.rounds:
                    return
                self._anneal(lines[first : first + BATCH], cycle, k)
                k += 1
                self._tell("anneal")
                if k in proof and not self._done():
                    # Counted rounds must not depend on the machine's speed.
                    share = inf if self.budget.rounds is not None else 3 * proof[k]
                    self._prove(min(self._left(), share), proof[k])

    def _anneal(self, lines: list[_Line], cycle: int, k: int) -> None:
        """Anneal some lines side by side."""
        p = self.problem
        annealer = Annealer(p, self.bounds.shape, self.bounds.tail, self.objective)
        mean = float(p.duration.mean())
        with ThreadPoolExecutor(min(BATCH, os.cpu_count() or 1)) as pool:
            futures: list[Future[Ints]] = []
            for j, line in enumerate(lines, BATCH * k):
                hot = TEMPERATURES[(j + cycle) % len(TEMPERATURES)] * mean
                futures.append(
                    pool.submit(
                        annealer.run, line.starts, _moves(p.size) << min(cycle, 6), hot, hot / 30,
                        self.seed * 1_000_003 + j, self.bound.value, self.stop,
                    )
                )  # fmt: skip
            try:
                wait(futures, timeout=max(0.0, self._left()))
            finally:
                if not all(future.done() for future in futures):
                    self.stop[0] = 1
                for line, future in zip(lines, futures, strict=True):
                    line.take(self._line("annealing", future.result()))
                self.lines.sort(key=_Line.rank)

    def _prove(self, seconds: float, effort: float | None) -> None:
        """Let CP-SAT search below the best, from it."""
        if seconds <= 0:
            return
        incumbent = None
        if self.lines:
            incumbent = Answer(self.lines[0].starts, (), self.lines[0].worth)
        self._tell("cp-sat")
        answer = solve_cpsat(
            self.problem, self.objective, limits=Limits(seconds, effort),
            bounds=self.bounds, incumbent=incumbent, seed=self.seed,
        )  # fmt: skip
        self.infeasible = answer.infeasible
        if answer.bound > self.bound.value and self._exact:
            self.bound = Bound(answer.bound, "cp-sat")
        if answer.starts is not None and answer.value is not None:
            found = self._line("cp-sat", answer.starts)
            if not self.lines:
                self.lines.append(found)
            elif found.worth < self.lines[0].worth:
                self.lines[0].take(found)
        if answer.interrupted:
            raise KeyboardInterrupt


def _tiny() -> tuple[Problem, Shape]:
    builder = ProblemBuilder()
    builder.resource("r", group=0)
    builder.edge(*builder.ops([1, 1], 0))
    problem, _ = builder.build()
    return problem, shape_of(problem)


def _warm() -> None:
    problem, shape = _tiny()
    lower_bound(problem)
    ListScheduler(problem, shape).run(np.zeros(2))
    repair(problem, shape, orders_of(problem, np.array([0, 1])))


def _warm_improve() -> None:
    problem, shape = _tiny()
    still = np.zeros(1, np.uint8)
    Annealer(problem, shape, np.zeros(2, np.int64), "makespan").run(
        np.array([0, 1]), 1, 1.0, 0.1, 0, 0, still
    )


def _moves(size: int) -> int:
    """Moves of the first anneals; they double with every cycle, since one long anneal beats many
    short ones, but nobody knows beforehand how long is long enough.
    """
    return min(100_000, max(2_000, 20_000_000 // max(size, 1)))


def _proofs(size: int) -> dict[int, float]:
    """After how many rounds CP-SAT tries, and with how much deterministic time."""
    if size <= 250:
        return {2: 0.5, 6: 4.0, 10: 16.0, 14: 64.0}
    return {7: 3.0, 12: 20.0} if size <= SMALL else {}


def _keys(problem: Problem, tail: Ints) -> Iterator[Floats]:
    """Priorities: long tails first, more or less; ops that nobody waits for later; ops that
    raise a pool later.
    """
    mean = float(problem.duration.mean()) if problem.size else 0.0
    raises, ends = np.zeros(problem.size), np.ones(problem.size)
    raises[problem.change_op[problem.change_amount > 0]] = 1
    ends[problem.edge_from] = 0
    for weight in (1.0, 0.3, 0.1, 0.03, 0.01, 0.003):
        for late_end in (0.0, 0.3, 1.0, 3.0):
            for late_rise in (0.0, 0.5):
                yield -weight * tail + mean * (late_end * ends + late_rise * raises)


def _reversible(problem: Problem) -> bool:
    closed = any(r.closed for r in problem.resources)
    return not (closed or np.any(problem.release) or np.any(problem.pinned >= 0))
