"""The whole search: always something, never a wrong proof, the same for the same seed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import fuzz
import numpy as np
import pytest
from known_cases import KNOWN, Known, line

from schedopt.checking import check_problem
from schedopt.problem import Objective, Option, Problem, ProblemBuilder, value
from schedopt.solvers.cpsat import Limits
from schedopt.solvers.portfolio import Budget, Outcome, Progress, solve

ONE, ROUNDS = Budget(60.0, rounds=1), Budget(60.0, rounds=2)


def _solve(problem: Problem, objective: Objective = "makespan", **options: object) -> Outcome:
    outcome = solve(problem, objective, **{"budget": ROUNDS, **options})
    answer = outcome.answer
    if answer.starts is not None:
        assert check_problem(problem, answer.starts, answer.selected) == []
        assert answer.value == value(problem, objective, answer.starts, answer.selected)
        assert answer.bound <= answer.value
    assert answer.bound == outcome.bound.value
    return outcome


def _open(held: int = 3) -> Problem:
    """A V at less than 1F1B memory: bound and first schedules are apart."""
    return line(
        3,
        5,
        stages=6,
        placement=[[0, 1, 2, 2, 1, 0]],
        forward_ns=[3, 4, 3, 5, 3, 4],
        backward_input_ns=[4, 3, 5, 4, 4, 3],
        backward_weight_ns=[2, 2, 3, 2, 2, 4],
        latency_ns=[[1] * 3] * 3,
        activation_bytes=[2] * 6,
        released_by_input_bytes=[1] * 6,
        memory_limit_bytes=[2 * held] * 3,
    )


# Answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", KNOWN, ids=[k.name for k in KNOWN])
def test_known_optima_are_found_and_proven(known: Known) -> None:
    answer = _solve(known.problem, known.objective).answer
    assert (answer.value, answer.bound) == (known.best, known.best)
    assert answer.optimal


def test_the_fuzzer_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody agrees on tiny problems; see `scripts/fuzz.py` for more of them."""
    monkeypatch.setattr(fuzz, "LIMITS", Limits(20.0, 5.0))
    hunt = fuzz.Hunt("agreement")
    for seed in range(9_000_000, 9_000_024):
        fuzz.agreement(hunt, seed)
    assert hunt.wrong == []
    assert min(hunt.counts[k] for k in ("tiny problems", "tiny pipelines", "infeasible")) >= 3


def test_construction_alone_answers_too() -> None:
    outcome = _solve(_open(), solver="construct")
    assert outcome.method.startswith("list scheduling")
    assert outcome.answer.value is not None


def test_no_time_is_enough_for_something() -> None:
    answer = _solve(_open(), budget=Budget(seconds=0.0)).answer
    assert answer.value is not None


@pytest.mark.parametrize("solver", ["cpsat", "milp"])
def test_others_agree(solver: str) -> None:
    answer = _solve(line(3, 3, 3), solver=solver, budget=Budget(seconds=30.0)).answer
    assert (answer.value, answer.bound) == (11, 11)


def test_what_is_given_is_never_made_worse() -> None:
    problem = _open()
    best = _solve(problem).answer
    again = _solve(
        problem,
        starts=[("given", lambda: best.starts)],
        solver="construct",
        budget=Budget(seconds=0.0),
    )
    assert again.answer.value is not None
    assert again.answer.value <= best.value


def test_improvement_pays() -> None:
    first, later = (_solve(_open(), budget=Budget(60.0, rounds)).answer for rounds in (0, 3))
    assert later.value < first.value


def test_no_ops() -> None:
    for objective in ("makespan", "device-span"):
        answer = _solve(ProblemBuilder().build()[0], objective).answer
        assert (answer.value, answer.bound) == (0, 0)


# Infeasible -------------------------------------------------------------------------------------


def test_too_little_memory_names_an_op() -> None:
    problem = line(2, 2, 1)
    pools = (problem.pools[0], type(problem.pools[1])("small", 1))
    outcome = _solve(problem.replace(pools=pools))
    assert outcome.answer.infeasible
    assert problem.resource[outcome.stuck_op] == 1


def test_what_cp_sat_proves_infeasible_is_infeasible() -> None:
    """No bound sees it, and the list scheduler only gets stuck."""
    builder = ProblemBuilder()
    resource = builder.resource("r")
    builder.edge(builder.op(4, resource), builder.op(1, resource, pinned=3))
    outcome = _solve(builder.build()[0])
    assert outcome.answer.infeasible
    assert outcome.answer.starts is None


# Features ---------------------------------------------------------------------------------------


def test_two_pools_on_one_resource() -> None:
    """Annealing once took them for one, and called an impossible schedule optimal."""
    builder = ProblemBuilder()
    r, s = builder.resource("r", group=0), builder.resource("s", group=1)
    tight, loose = builder.pool("tight", 1), builder.pool("loose", 10)
    for _ in range(4):
        x, y, z = builder.op(2, r), builder.op(3, s), builder.op(1, r)
        builder.edge([x, y], [y, z])
        builder.change([x, z], tight, [1, -1])
        builder.change(builder.op(1, r), loose, 1)
    answer = _solve(builder.build()[0]).answer
    assert (answer.value, answer.bound) == (24, 24)


def test_two_streams_of_one_rank() -> None:
    builder = ProblemBuilder()
    a, b = builder.resource("compute", group=0), builder.resource("copy", group=0)
    c = builder.resource("other", group=1)
    for _ in range(2):
        x, y, z = builder.op(2, a), builder.op(3, c), builder.op(1, b)
        builder.edge([x, y], [y, z], 1)
    answer = _solve(builder.build()[0], "device-span").answer
    assert (answer.value, answer.bound) == (11, 11)


def test_a_late_option_does_not_hide_a_fast_one() -> None:
    builder = ProblemBuilder()
    resource = builder.resource("r")
    choice = builder.choice("choice", Option("slow"), Option("fast"), Option("late"))
    builder.op(10, resource, when=(choice, 0))
    builder.op(5, resource, when=(choice, 1))
    builder.op(1, resource, release=100, when=(choice, 2))
    answer = _solve(builder.build()[0]).answer
    assert (answer.value, answer.bound, answer.selected) == (5, 5, (1,))


# The same again ---------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["makespan", "device-span"])
def test_the_same_seed_gives_the_same(objective: Objective) -> None:
    first, again = (_solve(_open(), objective, seed=3, budget=ONE).answer for _ in range(2))
    assert first.starts is not None
    assert again.starts is not None
    assert first.starts.tolist() == again.starts.tolist()
    assert (first.value, first.bound) == (again.value, again.bound)


SCRIPT = """
import hashlib, json
from test_portfolio import ONE, _open
from schedopt.solvers.portfolio import solve
answer = solve(_open(), budget=ONE, seed=3).answer
print(json.dumps([answer.value, answer.bound, hashlib.sha256(answer.starts).hexdigest()]))
"""


def test_the_same_in_another_process_whatever_the_hash_seed() -> None:
    answer = _solve(_open(), seed=3, budget=ONE).answer
    here = [answer.value, answer.bound, hashlib.sha256(answer.starts).hexdigest()]
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "scripts")]
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(paths)}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == here


# Progress and interruption ----------------------------------------------------------------------


def test_progress_only_improves() -> None:
    seen: list[Progress] = []
    outcome = _solve(_open(), report=seen.append)
    assert {"construct", "anneal"} <= {p.stage for p in seen}
    best = [p.best for p in seen if p.best is not None]
    bounds = [p.bound for p in seen]
    assert best == sorted(best, reverse=True)
    assert bounds == sorted(bounds)
    assert outcome.answer.value <= best[-1]
    assert outcome.answer.bound >= bounds[-1]
    assert np.all(np.diff([p.seconds for p in seen]) >= 0)


@pytest.mark.parametrize("stage", ["construct", "anneal", "cp-sat"])
def test_an_interruption_leaves_the_best_so_far(stage: str) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.stage == stage:
            raise KeyboardInterrupt

    outcome = _solve(_open(), budget=Budget(60.0), report=interrupt)
    assert outcome.answer.interrupted
    assert outcome.answer.value is not None
    assert not outcome.answer.infeasible
