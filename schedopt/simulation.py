"""Run a pipeline in given orders: with its own durations, with others, with jitter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schedopt.build.pipeline import Model, build
from schedopt.errors import Fault, InputError
from schedopt.pipeline import Pipeline
from schedopt.problem import Ints, Problem, makespan
from schedopt.schedule import Orders, Schedule
from schedopt.timing import earliest

__all__ = ["Simulation", "Step", "critical_path", "numbered", "replay", "simulate"]


@dataclass(frozen=True)
class Step:
    """One op of a critical path.

    Attributes
    ----------
    op : int
        Number of the op.
    start, end : int
        ns.
    waited_for : {"rank", "data", "start"}
        What it could not start before: the op before it on its rank, a predecessor (plus
        latency), or nothing.
    """

    op: int
    start: int
    end: int
    waited_for: str


@dataclass(frozen=True)
class Simulation:
    """What a schedule's orders give under some durations.

    Attributes
    ----------
    model : Model
        Of the pipeline that was run.
    starts : array, shape (ops,), ns
        Without jitter, every op as early as possible.
    makespan_ns : int
        Without jitter.
    samples : array, shape (samples,), ns
        Makespans with jitter; empty without.
    critical : list of Step
        One critical path, first op first.
    """

    model: Model
    starts: Ints
    makespan_ns: int
    samples: Ints
    critical: list[Step]

    def percentile(self, q: float) -> int:
        """Return a percentile of the makespan under jitter, ns; without jitter, the makespan."""
        return (
            round(float(np.percentile(self.samples, q))) if len(self.samples) else self.makespan_ns
        )


def simulate(
    schedule: Schedule,
    pipeline: Pipeline | None = None,
    *,
    jitter: float = 0.0,
    samples: int = 200,
    seed: int = 0,
) -> Simulation:
    """Run a schedule's orders.

    Parameters
    ----------
    pipeline : Pipeline, optional
        With the same ops but other durations or latencies; absent: the schedule's own.
    jitter : float
        Standard deviation of every duration relative to it; each op draws from a log-normal
        distribution of mean 1, on its own.
    samples : int
        How often to draw.

    Raises
    ------
    InputError
        When the pipeline does not have the schedule's ops.
    """
    model = build(pipeline or schedule.pipeline)
    orders = numbered(model, schedule.orders())
    starts = earliest(model.problem, orders)
    drawn = [
        makespan(
            model.problem.replace(duration=duration), earliest(model.problem, orders, duration)
        )
        for duration in _draws(model.problem.duration, jitter, samples, seed)
    ]
    path = critical_path(model.problem, starts, orders)
    length = makespan(model.problem, starts)
    return Simulation(model, starts, length, np.array(drawn, np.int64), path)


def _draws(duration: Ints, jitter: float, samples: int, seed: int) -> Sequence[Ints]:
    if jitter == 0:
        return []
    rng = np.random.default_rng(seed)
    sigma = float(np.sqrt(np.log1p(jitter**2)))
    factors: list[npt.NDArray[np.float64]] = [
        rng.lognormal(-(sigma**2) / 2, sigma, len(duration)) for _ in range(samples)
    ]
    return [np.rint(duration * factor).astype(np.int64) for factor in factors]


def critical_path(problem: Problem, starts: Ints, orders: Sequence[Ints]) -> list[Step]:
    """Return a chain of ops without slack from time 0 to the makespan, every op at its earliest."""
    before = np.full(problem.size, -1, np.int64)
    for order in orders:
        before[order[1:]] = order[:-1]
    ends = starts + problem.duration
    graph = problem.graph
    op, steps = int(np.argmax(ends)) if problem.size else -1, []
    while op >= 0:
        start, waited, back = int(starts[op]), "start", -1
        if before[op] >= 0 and ends[before[op]] == start:
            waited, back = "rank", int(before[op])
        for k in range(int(graph.pred_at[op]), int(graph.pred_at[op + 1])):
            p = int(graph.pred[k])
            if ends[p] + graph.pred_lag[k] == start and p != before[op]:
                waited, back = "data", p
        steps.append(Step(op, start, int(ends[op]), waited))
        op = back
    return steps[::-1]


def numbered(model: Model, orders: Orders) -> list[Ints]:
    """Return orders of actions as orders of op numbers, one per rank.

    Raises
    ------
    InputError
        When an action does not belong to the pipeline or to the rank, comes twice, or is missing.
    """
    find, problem = model.find(), model.problem
    seen: set[int] = set()
    faults, rows = [], []
    for rank, actions in enumerate(orders):
        row = []
        for k, action in enumerate(actions):
            op = find.get((action.kind, action.stage, action.microbatch))
            place, name = f"rank {rank}, action {k}", "{1}{0}{2}".format(*action)
            if op is None:
                faults.append(Fault(place, name, "an action of the pipeline"))
            elif problem.resource[op] != rank:
                faults.append(Fault(place, name, f"it on rank {problem.resource[op]}"))
            elif op in seen:
                faults.append(Fault(place, f"{name} again", "each action once"))
            else:
                seen.add(op)
                row.append(op)
        rows.append(np.array(row, np.int64))
    for (kind, stage, microbatch), op in find.items():
        if op not in seen and len(faults) < 20:
            faults.append(Fault("orders", "nothing", f"{stage}{kind}{microbatch}"))
    if faults:
        raise InputError("orders", faults[:20])
    rows += [np.empty(0, np.int64)] * (len(problem.resources) - len(rows))
    return rows


def replay(model: Model, orders: Orders, duration: Ints | None = None) -> Ints:
    """Start every action as early as its rank's order and its predecessors allow.

    Parameters
    ----------
    duration : array, shape (ops,), optional
        Durations to use instead of the pipeline's, ns.

    Returns
    -------
    array, shape (ops,)
        Starts, ns.

    Raises
    ------
    InputError
        When the orders are not those of the pipeline.
    Deadlock
        When actions wait for each other.
    """
    return earliest(model.problem, numbered(model, orders), duration)
