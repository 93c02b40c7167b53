"""Try to catch the solvers in a contradiction.

Three hunts on random problems, each for both objectives, each answer judged by
`schedopt.checking`:

* *agreement*: CP-SAT, HiGHS, CBC, the portfolio and brute force on tiny problems with any feature;
* *bounds*: lower bounds, heads, tails and claims of infeasibility against what CP-SAT proves
  without them, then CP-SAT with them and the portfolio against the same optimum;
* *memory*: the list scheduler must get through wherever one microbatch fits.

Prints what it did, and every disagreement with the seed that makes it; exit status 1 if there is
any.

    python scripts/fuzz.py --count 500 --seed 0
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
import numpy as np

from schedopt.build.pipeline import build
from schedopt.checking import check_problem
from schedopt.pipeline import Pipeline
from schedopt.problem import Objective, Problem, makespan, value
from schedopt.solvers.answer import Answer
from schedopt.solvers.bounds import Bounds, lower_bound
from schedopt.solvers.construct import ListScheduler
from schedopt.solvers.cpsat import Limits, solve_cpsat
from schedopt.solvers.milp import solve_milp
from schedopt.solvers.portfolio import Budget, solve
from schedopt.solvers.shape import shape_of

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from brute import brute_force
from random_problems import (
    pooled_problem,
    random_pipeline,
    random_problem,
    wide_pipeline,
)

OBJECTIVES: tuple[Objective, ...] = ("makespan", "device-span")
LIMITS = Limits(seconds=20.0, effort=0.2)
BUDGET = Budget(seconds=2.0, rounds=4)


@dataclass
class Hunt:
    """What one hunt has seen.

    Attributes
    ----------
    counts : Counter
        Cases by kind.
    gaps : list of float
        Optimum / bound − 1, where both are known and the bound is not 0.
    wrong : list of str
        Disagreements; each is printed when it is found.
    """

    name: str
    counts: Counter[str] = field(default_factory=Counter)
    gaps: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def object(self, line: str) -> None:
        """Note a disagreement."""
        self.wrong.append(line)
        click.echo(f"WRONG {self.name}: {line}")

    def judge(self, case: str, problem: Problem, objective: Objective, answer: Answer) -> None:
        """Note what is wrong with an answer in itself."""
        if answer.infeasible and answer.starts is not None:
            self.object(f"{case}: infeasible, with a schedule")
        if answer.starts is None:
            return
        for violation in check_problem(problem, answer.starts, answer.selected):
            self.object(f"{case}: {violation}")
        worth = value(problem, objective, answer.starts, answer.selected)
        if worth != answer.value:
            self.object(f"{case}: says value {answer.value}, its schedule has {worth}")
        if answer.bound > worth:
            self.object(f"{case}: bound {answer.bound} above its own value {worth}")

    def compare(self, case: str, answer: Answer, best: int | None, complete: bool = False) -> None:
        """Note where an answer contradicts the optimum (None: infeasible); a complete answer must
        reach it.
        """
        if answer.infeasible and best is not None:
            self.object(f"{case}: infeasible, but the optimum is {best}")
        if answer.starts is not None and (best is None or (answer.value or 0) < best):
            self.object(f"{case}: value {answer.value}, but the optimum is {best}")
        if best is not None and answer.bound > best:
            self.object(f"{case}: bound {answer.bound}, but the optimum is {best}")
        if complete and (answer.value != best or answer.infeasible != (best is None)):
            self.object(f"{case}: {answer.value}, but the optimum is {best}")

    def tell(self, seconds: float) -> None:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items()))
        click.echo(f"{self.name}: {counts} ({seconds:.0f} s)")
        if self.gaps:
            tight = sum(gap == 0 for gap in self.gaps) / len(self.gaps)
            mean, most = np.mean(self.gaps), max(self.gaps)
            click.echo(
                f"  bound = optimum on {tight:.1%}; optimum above bound by {mean:.2%} on average, "
                f"at most {most:.1%}"
            )


# Agreement --------------------------------------------------------------------------------------


def agreement(hunt: Hunt, seed: int) -> None:
    """Let everybody solve one tiny problem."""
    kind, problem = _tiny(seed)
    for objective in OBJECTIVES:
        case = f"{kind} {seed} {objective}"
        best = brute_force(problem, objective)
        hunt.counts[f"{kind}s" if best is not None else "infeasible"] += 1
        bounds = None if problem.choices else lower_bound(problem, objective)
        answers = {
            "cp-sat": solve_cpsat(problem, objective, limits=LIMITS, seed=seed),
            "highs": solve_milp(problem, objective, time_limit=60, solver="highs", seed=seed),
            "cbc": solve_milp(problem, objective, time_limit=60, solver="cbc", seed=seed),
            "portfolio": solve(problem, objective, budget=BUDGET, seed=seed).answer,
        }
        if bounds is not None and bounds.infeasible_op < 0:
            answers["cp-sat with bounds"] = solve_cpsat(
                problem, objective, limits=LIMITS, bounds=bounds, seed=seed
            )
        for name, answer in answers.items():
            hunt.judge(f"{case} {name}", problem, objective, answer)
            # CBC may overlook that a program is infeasible, and then says nothing.
            complete = name != "cbc" or best is not None
            hunt.compare(f"{case} {name}", answer, best, complete)
        if bounds is not None:
            _check_bounds(hunt, case, problem, objective, bounds, answers["cp-sat"])


def _tiny(seed: int) -> tuple[str, Problem]:
    if seed % 4 == 0:
        return "tiny pipeline", build(random_pipeline(seed, stages=2, microbatches=2)).problem
    return "tiny problem", random_problem(seed)


# Bounds -----------------------------------------------------------------------------------------


def bounds(hunt: Hunt, seed: int) -> None:
    """Compare bounds and what relies on them with what CP-SAT proves without."""
    if seed % 2:
        kind, problem = "pipeline", build(wide_pipeline(seed)).problem
    else:
        kind, problem = "problem", pooled_problem(seed)
    for objective in OBJECTIVES:
        case = f"{kind} {seed} {objective}"
        reference = solve_cpsat(
            problem, objective, limits=LIMITS, incumbent=_some(problem, objective), seed=seed
        )
        hunt.judge(f"{case} cp-sat alone", problem, objective, reference)
        proven = reference.optimal or reference.infeasible
        found = lower_bound(problem, objective)
        if not proven:
            hunt.counts["not proven"] += 1
            if reference.starts is not None and found.infeasible_op >= 0:
                hunt.object(f"{case}: op {found.infeasible_op} called infeasible")
            continue
        hunt.counts["infeasible" if reference.infeasible else f"{kind}s"] += 1
        _check_bounds(hunt, case, problem, objective, found, reference)
        best = None if reference.infeasible else reference.value
        if found.infeasible_op < 0:
            helped = solve_cpsat(problem, objective, limits=LIMITS, bounds=found, seed=seed)
            hunt.judge(f"{case} cp-sat with bounds", problem, objective, helped)
            hunt.compare(f"{case} cp-sat with bounds", helped, best)
        outcome = solve(problem, objective, budget=BUDGET, seed=seed)
        hunt.judge(f"{case} portfolio", problem, objective, outcome.answer)
        hunt.compare(f"{case} portfolio", outcome.answer, best)
        hunt.counts["portfolio optimal"] += outcome.answer.optimal
        if kind == "pipeline" and best is not None and outcome.answer.starts is None:
            hunt.object(f"{case} portfolio: nothing, but the optimum is {best}")


def _some(problem: Problem, objective: Objective) -> Answer | None:
    """Return a list schedule, if it is right, to save CP-SAT the search for one."""
    starts = ListScheduler(problem, shape_of(problem)).run(np.zeros(problem.size))
    if starts is None or check_problem(problem, starts):
        return None
    return Answer(starts, (), value(problem, objective, starts))


def _check_bounds(
    hunt: Hunt, case: str, problem: Problem, objective: Objective, bounds: Bounds, best: Answer
) -> None:
    """Note where bounds exclude an optimal schedule."""
    if bounds.infeasible_op >= 0:
        if not best.infeasible:
            hunt.object(f"{case}: op {bounds.infeasible_op} called infeasible")
        return
    if best.starts is None or best.value is None:
        return
    if bounds.best.value > best.value:
        hunt.object(f"{case}: {bounds.best}, but the optimum is {best.value}")
    if bounds.best.value:
        hunt.gaps.append(best.value / bounds.best.value - 1)
    late = np.flatnonzero(bounds.head > best.starts)
    after = makespan(problem, best.starts) - best.starts - problem.duration
    soon = np.flatnonzero(bounds.tail > after)
    for name, ops in (("head", late), ("tail", soon)):
        if len(ops):
            hunt.object(f"{case}: {name} of op {ops[0]} excludes an optimal schedule")


# Memory -----------------------------------------------------------------------------------------


def memory(hunt: Hunt, seed: int) -> None:
    """Run the list scheduler, with sensible keys and with senseless ones, where memory binds."""
    rng = random.Random(seed)
    pipeline = _tight(rng)
    problem = build(pipeline).problem
    found = lower_bound(problem)
    hunt.counts["pipelines"] += 1
    if found.infeasible_op >= 0:
        hunt.object(f"pipeline {seed}: op {found.infeasible_op} called infeasible")
        return
    noise = np.random.default_rng(seed)
    mean = float(problem.duration.mean())
    for backwards in (False, True):
        side = problem.reverse() if backwards else problem
        tail = found.head[::-1] if backwards else found.tail
        scheduler = ListScheduler(side, shape_of(side))
        for weight, spread in ((-1.0, 0), (-0.03, 0), (1.0, 0), (0.0, 1), (0.0, 10), (0.0, 100)):
            starts = scheduler.run(weight * tail + spread * mean * noise.random(problem.size))
            case = f"pipeline {seed} {'backwards' if backwards else 'forwards'} {weight} {spread}"
            hunt.counts["runs"] += 1
            if starts is None:
                hunt.object(f"{case}: stuck")
                continue
            hunt.judge(case, side, "makespan", Answer(starts, (), makespan(side, starts)))


def _tight(rng: random.Random) -> Pipeline:
    """Make a pipeline, two times out of three bidirectional, with the memory of 0.67 to 1 times
    as many microbatches as ranks, but at least one.
    """
    ranks, chunks = rng.randint(1, 8), rng.randint(1, 3)
    count, m = ranks * chunks, rng.randint(1, 24)
    shape = rng.choice(["linear", "v"])
    row = [
        ranks - 1 - s % ranks if shape == "v" and (s // ranks) % 2 else s % ranks
        for s in range(count)
    ]
    placement, direction = [row], None
    if rng.random() < 0.67:
        placement.append([ranks - 1 - rank for rank in row])
        direction = [rng.randint(0, 1) for _ in range(m)]
    kept = [rng.choice([5, rng.randint(1, 9)]) for _ in range(count)]
    share = rng.uniform(0.67, 1.0)
    limits = []
    for rank in range(ranks):
        need = max(sum(k for k, r in zip(kept, row, strict=True) if r == rank) for row in placement)
        limits.append(max(need, int(share * ranks * need)))
    return Pipeline(
        ranks=ranks,
        stages=count,
        microbatches=m,
        placement=placement,
        direction=direction,
        backward=rng.choice(["split", "fused"]),
        forward_ns=[rng.randint(0, 9) for _ in range(count)],
        backward_input_ns=[rng.randint(0, 9) for _ in range(count)],
        backward_weight_ns=[rng.randint(0, 9) for _ in range(count)],
        latency_ns=[[rng.randint(0, 5) for _ in range(ranks)] for _ in range(ranks)],
        activation_bytes=kept,
        released_by_input_bytes=[rng.randint(0, k) for k in kept],
        memory_limit_bytes=limits,
    )


HUNTS: dict[str, tuple[Callable[[Hunt, int], None], int]] = {
    "agreement": (agreement, 1),
    "bounds": (bounds, 4),
    "memory": (memory, 1),
}
"""Each hunt, and its cases for each of `--count`."""


def run(names: tuple[str, ...], count: int, seed: int) -> Iterator[Hunt]:
    """Run hunts and yield what they saw."""
    for name in names:
        one, share = HUNTS[name]
        hunt, began = Hunt(name), time.monotonic()
        for k in range(share * count):
            one(hunt, seed * 1_000_000 + k)
        hunt.tell(time.monotonic() - began)
        yield hunt


@click.command()
@click.option(
    "--count", default=500, show_default=True, help="Cases; four times as many for bounds."
)
@click.option("--seed", default=0, show_default=True, help="Which cases.")
@click.option(
    "--hunt", "names", type=click.Choice(list(HUNTS)), multiple=True, help="Absent: all of them."
)
def main(count: int, seed: int, names: tuple[str, ...]) -> None:
    """Try to catch the solvers in a contradiction."""
    hunts = list(run(names or tuple(HUNTS), count, seed))
    if any(hunt.wrong for hunt in hunts):
        sys.exit(1)


if __name__ == "__main__":
    main()
