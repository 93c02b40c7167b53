"""The library's front door: the same words as the command line.

>>> import schedopt
>>> pipeline, notes = schedopt.cut(schedopt.load("profile.json"), ranks=8, microbatches=32)
>>> schedule = schedopt.solve(pipeline)
>>> schedopt.check(schedule)
[]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from math import inf
from pathlib import Path
from typing import Any, get_args

from schedopt import patterns
from schedopt.assemble import assemble, label, provenance
from schedopt.build.partition import Cut
from schedopt.build.partition import cut as _cut
from schedopt.build.pipeline import Model, build
from schedopt.checking import Violation, check_problem, check_schedule
from schedopt.errors import (
    Fault,
    InfeasibleError,
    InputError,
    LimitError,
    SchedoptError,
    did_you_mean,
)
from schedopt.files import Document, read_json
from schedopt.pipeline import Pipeline
from schedopt.problem import Ints, Objective
from schedopt.profile import Profile
from schedopt.schedule import Orders, Schedule
from schedopt.simulation import replay, simulate
from schedopt.solvers.portfolio import Budget, Outcome, Progress, Solver
from schedopt.solvers.portfolio import solve as _solve
from schedopt.timing import Deadlock
from schedopt.units import format_bytes

__all__ = [
    "Interrupted",
    "check",
    "compare",
    "cut",
    "export",
    "from_orders",
    "load",
    "named",
    "simulate",
    "solve",
]


class Interrupted(SchedoptError):
    """The search was stopped from outside; `best` is the best schedule until then."""

    exit_code = 130

    def __init__(self, best: Schedule | None) -> None:
        self.best = best
        super().__init__("interrupted")


def load(path: Path | str) -> Profile | Pipeline | Schedule:
    """Read a profile, a pipeline or a schedule, whichever the file says it is.

    Raises
    ------
    InputError
        When the file can't be used, with everything that is wrong with it.
    """
    kinds: dict[str, type[Document]] = {kind.FORMAT: kind for kind in (Profile, Pipeline, Schedule)}
    data, source = read_json(path), str(path)
    name = data.get("format") if isinstance(data, dict) else None
    if not isinstance(name, str) or name not in kinds:
        found = repr(name) if name is not None else "no format"
        expected = "one of " + ", ".join(kinds)
        hint = "Does the file start with its format?"
        raise InputError(source, Fault("format", found, expected, hint))
    return kinds[name].parse(data, source)  # type: ignore[return-value]


def cut(profile: Profile, **options: Any) -> tuple[Pipeline, list[str]]:
    """Cut a profile into a pipeline; the options are those of `schedopt.build.partition.Cut`.

    Returns
    -------
    pipeline : Pipeline
    notes : list of str
        What was assumed on the way.
    """
    known = [option.name for option in fields(Cut)]
    for name in options.keys() - set(known):
        hint = did_you_mean(name, known)
        raise InputError(
            "cut", Fault(name, "an unknown option", "one of " + ", ".join(known), hint)
        )
    return _cut(profile, Cut(**options))


def solve(
    pipeline: Pipeline,
    *,
    objective: Objective = "makespan",
    time_limit: float = 10.0,
    rounds: int | None = None,
    seed: int = 0,
    solver: Solver = "auto",
    notes: Sequence[str] = (),
    report: Callable[[Progress], None] | None = None,
) -> Schedule:
    """Find the best schedule of a pipeline, with a proof of how good it is.

    Parameters
    ----------
    objective : {"makespan", "device-span"}
        What to minimise.
    time_limit : float
        Wall time of the search, s.
    rounds : int, optional
        Rounds of annealing; with it equal inputs give equal files, if the time limit suffices.
    seed : int
        Of all that is random.
    solver : {"auto", "cpsat", "milp", "construct"}
        See `schedopt.solvers.portfolio.solve`.
    notes : sequence of str
        Assumptions to state in the schedule.
    report : callable, optional
        Called with progress.

    Raises
    ------
    InfeasibleError
        When no schedule exists.
    LimitError
        When none was found in time.
    Interrupted
        On KeyboardInterrupt, with the best so far.
    """
    _refuse_nonsense(objective, time_limit, rounds, seed, solver)
    _refuse_too_small(pipeline)
    model = build(pipeline)
    outcome = _solve(
        model.problem,
        objective,
        budget=Budget(time_limit, rounds),
        solver=solver,
        seed=seed,
        starts=_baselines(model) if solver != "milp" else (),
        report=report,
    )
    options: dict[str, str | int | float | bool | None] = {
        "objective": objective,
        "time_limit_s": time_limit,
        "rounds": rounds,
        "seed": seed,
        "solver": solver,
    }
    schedule = _schedule(model, outcome, objective, options, list(notes))
    if outcome.answer.interrupted:
        raise Interrupted(schedule)
    if schedule is None:
        raise _refusal(model, outcome)
    return schedule


def _refuse_nonsense(
    objective: str, time_limit: float, rounds: int | None, seed: int, solver: str
) -> None:
    known = {"objective": (objective, get_args(Objective)), "solver": (solver, get_args(Solver))}
    faults = [
        Fault(name, repr(word), "one of " + ", ".join(words), did_you_mean(str(word), words))
        for name, (word, words) in known.items()
        if word not in words
    ]
    if not 0 <= time_limit < inf:
        faults.append(Fault("time_limit", str(time_limit), "a number of seconds, not negative"))
    if rounds is not None and rounds < 0:
        faults.append(Fault("rounds", str(rounds), "a number of rounds, not negative"))
    if not 0 <= seed < 2**31:
        faults.append(Fault("seed", str(seed), "a number from 0 to 2^31 - 1"))
    if faults:
        raise InputError("solve", faults)


def _schedule(
    model: Model,
    outcome: Outcome,
    objective: Objective,
    options: dict[str, str | int | float | bool | None],
    notes: list[str],
) -> Schedule | None:
    """Assemble the answer, and let the independent checker see it before anybody else."""
    starts = outcome.answer.starts
    if starts is None:
        return None
    schedule = assemble(
        model,
        starts,
        objective=objective,
        bound=outcome.bound,
        method=outcome.method,
        notes=notes,
        source=provenance(model.pipeline.digest(), options),
    )
    wrong = [*check_problem(model.problem, starts), *check_schedule(schedule)]
    if wrong:
        raise AssertionError("a schedule failed the check: " + "; ".join(map(str, wrong[:5])))
    return schedule


def _refusal(model: Model, outcome: Outcome) -> SchedoptError:
    if not outcome.answer.infeasible:
        return LimitError("no schedule was found in time; allow more with --time-limit")
    what = label(model, outcome.stuck_op) if outcome.stuck_op >= 0 else "some op"
    return InfeasibleError(f"no schedule exists: {what} can never start within the memory limit")


def _refuse_too_small(pipeline: Pipeline) -> None:
    """Raise InfeasibleError if a rank can't hold the activations of one microbatch.

    If every rank can, running one microbatch after the other is a schedule.
    """
    limits, sizes = pipeline.memory_limit_bytes, pipeline.activation_bytes
    if limits is None or sizes is None:
        return
    used = set(pipeline.directions())
    lines = []
    for rank, limit in enumerate(limits):
        need = max(
            sum(size for size, r in zip(sizes, pipeline.placement[d], strict=True) if r == rank)
            for d in used
        )
        if need > limit:
            lines.append(
                f"rank {rank} holds {format_bytes(need)} ({need} bytes) for one microbatch, "
                f"but may hold {format_bytes(limit)} ({limit} bytes)"
            )
    if lines:
        mend = "raise its limit to that, or move layers to another rank"
        raise InfeasibleError(
            "no schedule exists: " + "; ".join(lines) + f". Smallest mend: {mend}"
        )


def _baselines(model: Model) -> list[tuple[str, Callable[[], Ints]]]:
    """Return the named schedules, still to be made: the solver begins with them."""

    def start(name: str) -> Callable[[], Ints]:
        return lambda: replay(model, patterns.orders(name, model.pipeline))

    return [(name, start(name)) for name in patterns.applicable(model.pipeline)]


def named(pipeline: Pipeline, name: str) -> Schedule:
    """Return a published schedule by name, e.g. ``1f1b``, run with the pipeline's times.

    Raises
    ------
    InputError
        When the name is unknown or the pattern does not fit the placement.
    """
    return _named(build(pipeline), name)


def _named(model: Model, name: str) -> Schedule:
    orders = patterns.orders(name, model.pipeline)
    return assemble(model, replay(model, orders), method=name)


def compare(schedule: Schedule) -> list[Schedule]:
    """Return a schedule and the named ones that apply to its pipeline, whether they fit its
    memory or not.
    """
    model = build(schedule.pipeline)
    return [schedule, *(_named(model, name) for name in patterns.applicable(model.pipeline))]


def from_orders(pipeline: Pipeline, orders: Orders, method: str = "imported") -> Schedule:
    """Return the schedule that some orders give, every action as early as possible.

    Raises
    ------
    InputError
        When the orders are not those of the pipeline.
    InfeasibleError
        When they deadlock.
    """
    model = build(pipeline)
    try:
        starts = replay(model, orders)
    except Deadlock as error:
        waiting = "; ".join(
            f"rank {model.problem.resource[op]} waits to run {label(model, op)}"
            for op in error.waiting
        )
        raise InfeasibleError(f"the orders deadlock: {waiting}") from None
    return assemble(model, starts, method=method)


def check(schedule: Schedule, pipeline: Pipeline | None = None) -> list[Violation]:
    """Return what is wrong with a schedule; see `schedopt.checking.check_schedule`."""
    return check_schedule(schedule, pipeline)


def export(schedule: Schedule, to: str) -> str:
    """Return a schedule in the form that a consumer reads; see `schedopt.exporters.EXPORTERS`."""
    from schedopt.exporters import export as _export

    return _export(schedule, to)
