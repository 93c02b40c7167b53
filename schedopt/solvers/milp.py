"""A second opinion: the problem as a mixed-integer program, through PuLP.

Nothing of the other solvers is used here, neither bounds nor heuristics nor the field `graph`, so
that an agreement means something. It is meant for small problems (to about 100 ops).

A row ``s_b ≥ s_a + gap`` of the program becomes ``s_b ≥ s_a + gap − M Σ (1 − literal)`` with the
smallest M that the domains of s_a and s_b allow (Manne, "On the job-shop scheduling problem",
Operations Research 8(2), 1960).

Exactness
---------
Solvers compute in floating point and return 12499.9999, so only their binaries are used,
rounded: these pick rows, and the rows are solved again as longest paths in integers. The result
is checked against the problem like any other schedule.

The bound is the solver's own, less a relative 1e-6 (its tolerance), rounded up to the next unit,
for no objective lies between. From 500,000 units on the tolerance reaches half a unit; then
nothing is rounded up, and `Answer.optimal` stays false. Tolerances let the solver bend rows,
which makes the program easier and its bound lower, never higher.

Of infeasible programs, CBC 2.10.3, which comes with PuLP, sometimes says that they are solved:
then the check refuses the schedule, and the answer has neither `starts` nor `infeasible`.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np

from schedopt.checking import check_problem
from schedopt.errors import Fault, InputError
from schedopt.problem import ABSENT, Ints, Objective, Problem, value
from schedopt.solvers.answer import Answer
from schedopt.solvers.milp_program import Level, Program, Row, When, write_program

__all__ = ["solve_milp"]

Solver = Literal["highs", "cbc"]
TOLERANCE = 1e-6
"""Relative error granted to a solver's bound."""
MAX_HORIZON = 2**53
"""From here on a double can't hold every integer."""


def solve_milp(
    problem: Problem,
    objective: Objective = "makespan",
    *,
    time_limit: float,
    solver: Solver = "highs",
    seed: int = 0,
) -> Answer:
    """Solve a small problem as a mixed-integer program.

    Parameters
    ----------
    problem : Problem
        With choices, pools, queues, closed windows, releases and pins.
    objective : {"makespan", "device-span"}
        What to minimise, plus the costs of the options taken.
    time_limit : float
        Seconds of wall time, the writing of the program included.
    solver : {"highs", "cbc"}
        Who solves it.
    seed : int
        Given to the solver.

    Returns
    -------
    Answer
        Without `starts` when the solver found none in time or when numbers too large for its
        floating point made it choose orders that can't be kept.

    Raises
    ------
    InputError
        When the solver is not installed.
    """
    deadline = time.monotonic() + time_limit
    floor = sum(min(o.cost for o in c.options) for c in problem.choices)
    if any(p.capacity is not None and p.initial > p.capacity for p in problem.pools):
        return Answer(bound=floor, infeasible=True)
    program = write_program(problem, objective)
    if program.horizon >= MAX_HORIZON:
        return Answer(bound=floor)
    domains = _domains(program)
    if domains is None:
        return Answer(bound=floor, infeasible=True)
    result = _run(program, domains, solver, deadline, seed)
    if result.infeasible:
        return Answer(bound=floor, infeasible=True)
    bound = floor if result.bound is None else max(floor, _round_up(result.bound) * program.unit)
    if result.literals is None:
        return Answer(bound=bound)
    found = _schedule(problem, program, result.literals)
    if found is None:
        return Answer(bound=bound)
    best = value(problem, objective, *found)
    # A bound above a checked schedule disproves the solver, not the schedule.
    return Answer(*found, best, bound if bound <= best else floor)


def _schedule(
    problem: Problem, program: Program, literals: list[bool]
) -> tuple[Ints, tuple[int, ...]] | None:
    """Turn the solver's decisions into exact starts and options; None when they can't be kept."""
    selected = tuple(
        max(range(len(options)), key=lambda k: literals[options[k]]) for options in program.options
    )
    times = _exact(program, literals)
    if times is None:
        return None
    starts = np.where(problem.present(selected), times * program.unit, ABSENT)
    return None if check_problem(problem, starts, selected) else (starts, selected)


# --- Times in exact integers ---------------------------------------------------------------------


def _domains(program: Program) -> tuple[Ints, Ints] | None:
    """Return earliest and latest time of each point by the rows that always hold; None: none."""
    rows = [row for row in program.rows if not row.when]
    earliest = _longest(rows, program.points, program.origin)
    turned = [Row(after, before, gap) for before, after, gap, _ in rows]
    end = program.points
    turned += [Row(end, i, d) for i, d in enumerate(program.duration)]
    turned.append(Row(end, program.origin, program.horizon))
    slack = _longest(turned, end + 1, program.origin, allowance=program.horizon)
    if earliest is None or slack is None:
        return None
    return earliest, program.horizon - slack[:end]


def _longest(rows: list[Row], points: int, origin: int, allowance: int = 0) -> Ints | None:
    """Return the least times ≥ 0 that keep the rows, None when the origin would exceed its
    allowance or there are none (Bellman–Ford).
    """
    before = np.array([row.before for row in rows], np.int64)
    after = np.array([row.after for row in rows], np.int64)
    gap = np.array([row.gap for row in rows], np.int64)
    times = np.zeros(points, np.int64)
    for _ in range(points + 1):
        later = times.copy()
        np.maximum.at(later, after, times[before] + gap)
        if later[origin] > allowance:
            return None
        if np.array_equal(later, times):
            return times
        times = later
    return None


def _exact(program: Program, literals: list[bool]) -> Ints | None:
    """Return the best starts, in units, under the decisions taken; None when they contradict."""
    rows = [row for row in program.rows if _hold(row.when, literals)]
    best: Ints | None = None
    low, high = 0, program.horizon
    while low <= high:
        middle = (low + high) // 2
        limits = [
            Row(i, span.first, program.duration[i] - middle)
            for span in program.spans
            for i, guard in span.ops
            if _hold(guard, literals)
        ]
        times = _longest(rows + limits, program.points, program.origin)
        if times is None:
            low = middle + 1
        else:
            best, high = times[: program.origin], middle - 1
    return best


def _hold(when: When, literals: list[bool]) -> bool:
    return all(literals[binary] == holds for binary, holds in when)


def _round_up(bound: float) -> int:
    """Return the least integer that is not below a bound known to a relative 1e-6 only."""
    error = TOLERANCE * max(1.0, abs(bound))
    return math.ceil(bound - error) if error < 0.5 else math.floor(bound - error)


# --- Solvers -------------------------------------------------------------------------------------


class _Result(NamedTuple):
    """What a solver said: its proven bound and its binaries, rounded; None: nothing."""

    bound: float | None = None
    literals: list[bool] | None = None
    infeasible: bool = False


def _engine(solver: Solver, seconds: float, seed: int) -> Any:
    """Return the PuLP solver asked for."""
    import pulp

    limits = {"msg": False, "timeLimit": seconds, "gapRel": 0.0}
    if solver == "highs":
        package = "highspy"
        tight = dict.fromkeys(("mip_feasibility_tolerance", "primal_feasibility_tolerance"), 1e-9)
        engines = [_stoppable(pulp.HiGHS(random_seed=seed, **tight, **limits))]
    else:
        package = "pulp[cbc]"
        seeds = [f"randomSeed {seed}", f"randomCbcSeed {seed}"]
        bundled = getattr(pulp, "PULP_CBC_CMD", None)
        paths = (None, bundled and bundled.pulp_cbc_path)
        engines = [pulp.COIN_CMD(path=path, options=seeds, **limits) for path in paths]
    for engine in engines:
        if engine.available():
            return engine
    fault = Fault("", f"no {solver}", "it installed", f"pip install {package}")
    raise InputError("solver", fault)


def _stoppable(engine: Any) -> Any:
    """Let HiGHS run in a thread of its own: only so do Python's signals get through meanwhile."""

    def call(problem: Any) -> None:
        highs = problem.solverModel
        highs.HandleUserInterrupt = True
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(highs.run)
            try:
                future.result()
            except KeyboardInterrupt:
                highs.cancelSolve()
                raise

    engine.callSolver = call
    return engine


def _run(
    program: Program,
    domains: tuple[Ints, Ints],
    solver: Solver,
    deadline: float,
    seed: int,
) -> _Result:
    import pulp

    model = _Model(program, domains)
    problem = model.problem
    engine = _engine(solver, max(0.0, deadline - time.monotonic()), seed)
    try:
        with _quiet():
            problem.solve(engine)
    except pulp.PulpSolverError:
        return _Result()  # CBC 2.10.3 can crash on infeasible programs
    if problem.status == pulp.LpStatusInfeasible:
        return _Result(infeasible=True)
    bound = None
    if isinstance(engine, pulp.HiGHS):
        bound = problem.solverModel.getInfo().mip_dual_bound
    elif problem.sol_status == pulp.LpSolutionOptimal:
        bound = pulp.value(problem.objective)
    if bound is not None and not math.isfinite(bound):
        bound = None
    # PuLP says Optimal of the status, but not of the solution, when the time ran out.
    if problem.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        return _Result(bound)
    return _Result(bound, [bool(round(binary.varValue or 0)) for binary in model.binary])


class _Model:
    """The program in PuLP: `problem`, and the variable of each binary."""

    def __init__(self, program: Program, domains: tuple[Ints, Ints]) -> None:
        import pulp

        self.expression = pulp.LpAffineExpression
        self.problem = pulp.LpProblem("schedopt")
        add = self.problem.add_variable
        self.low, self.high = (domain.tolist() for domain in domains)
        bounds = enumerate(zip(self.low, self.high, strict=True))
        self.point = [add(f"s{i}", low, high) for i, (low, high) in bounds]
        self.binary = [add(f"b{k}", cat="Binary") for k in range(program.binaries)]
        self.horizon = program.horizon
        self.time = add("time", 0, program.horizon, cat="Integer")
        costs = {self.binary[k]: cost for k, cost in program.costs}
        self.problem.setObjective(self.expression({self.time: 1, **costs}))
        self._add_decisions(program)
        self._add_times(program)
        for level in program.levels:
            self._add_level(level)

    def _at_least(self, terms: dict[Any, int], least: int, lacks: int = 0, when: When = ()) -> None:
        """Add "the terms sum to at least `least`, where `when` holds"; elsewhere they may lack
        as much as they ever can.
        """
        row = dict(terms)
        for k, holds in when:
            row[self.binary[k]] = row.get(self.binary[k], 0) + (-lacks if holds else lacks)
            least -= lacks if holds else 0
        if not any(row.values()):
            if least <= 0:
                return
            # CBC can overlook a broken row without variables; a time beyond its range it can't.
            row, least = {self.time: 1}, self.horizon + 1
        self.problem.addConstraint(self.expression(row) >= least)

    def _add_decisions(self, program: Program) -> None:
        for options in program.options:
            self.problem.addConstraint(self.expression({self.binary[k]: 1 for k in options}) == 1)
        for k, (other, holds) in program.implied:
            sign = 1 if holds else -1
            self._at_least({self.binary[other]: sign, self.binary[k]: -1}, min(0, sign))

    def _add_times(self, program: Program) -> None:
        for before, after, gap, when in program.rows:
            lacks = gap + self.high[before] - self.low[after]
            if lacks > 0:
                terms = {self.point[after]: 1, self.point[before]: -1}
                self._at_least(terms, gap, lacks, when)
        for span in program.spans:
            for i, guard in span.ops:
                duration = program.duration[i]
                terms = {self.time: 1, self.point[i]: -1, self.point[span.first]: 1}
                self._at_least(
                    terms, duration, duration + self.high[i] - self.low[span.first], guard
                )
        for load in program.loads:
            row: dict[Any, int] = {self.time: 1}
            for duration, guard in load:
                for k, _ in guard:
                    row[self.binary[k]] = row.get(self.binary[k], 0) - duration
            self._at_least(row, sum(duration for duration, guard in load if not guard))

    def _add_level(self, level: Level) -> None:
        room, row = level.room, dict[Any, int]()
        for amount, (k, holds) in level.terms:
            row[self.binary[k]] = row.get(self.binary[k], 0) - (amount if holds else -amount)
            room -= 0 if holds else amount
        least = sum(min(0, coefficient) for coefficient in row.values())
        self._at_least(row, -room, max(0, -room - least), level.when)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what solvers print by themselves (HiGHS its banner) off the standard output."""
    sys.stdout.flush()
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
