"""CP-SAT against brute force, with bounds and incumbents, and against its own promises."""

from __future__ import annotations

import numpy as np
import pytest
from brute import brute_force
from hypothesis import given, settings
from hypothesis import strategies as st
from known_cases import KNOWN, Known, line
from random_problems import pooled_problem, problems, random_pipeline, random_problem

from schedopt.build.pipeline import build
from schedopt.checking import check_problem
from schedopt.problem import Objective, Option, Problem, ProblemBuilder, value
from schedopt.solvers.answer import Answer
from schedopt.solvers.bounds import lower_bound
from schedopt.solvers.construct import ListScheduler
from schedopt.solvers.cpsat import Limits, solve_cpsat
from schedopt.solvers.shape import shape_of

OBJECTIVES: list[Objective] = ["makespan", "device-span"]
ENOUGH = Limits(seconds=60.0, effort=20.0)


def _solve(problem: Problem, objective: Objective = "makespan", **options: object) -> Answer:
    answer = solve_cpsat(problem, objective, **{"limits": ENOUGH, **options})
    if answer.starts is not None:
        assert check_problem(problem, answer.starts, answer.selected) == []
        assert answer.value == value(problem, objective, answer.starts, answer.selected)
        assert answer.bound <= answer.value
        assert not answer.infeasible
    return answer


def _agree(problem: Problem, objective: Objective, seed: int = 0) -> bool:
    """Compare with brute force; return whether there is a schedule."""
    best = brute_force(problem, objective)
    answer = _solve(problem, objective)
    assert (answer.value, answer.infeasible) == (best, best is None), seed
    assert answer.optimal == (best is not None), seed
    if not problem.choices:
        bounds = lower_bound(problem, objective)
        if bounds.infeasible_op < 0:
            helped = _solve(problem, objective, bounds=bounds)
            assert (helped.value, helped.infeasible) == (best, best is None), seed
    return best is not None


# Against brute force ----------------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_random_problems(objective: Objective) -> None:
    solved = sum(_agree(random_problem(seed, 6), objective, seed) for seed in range(50))
    assert 25 < solved < 50  # both kinds are there


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_random_pipelines(objective: Objective) -> None:
    for seed in range(25):
        problem = build(random_pipeline(seed, stages=2, microbatches=2)).problem
        assert _agree(problem, objective, seed)


@settings(max_examples=40, deadline=None)
@given(problems(5), st.sampled_from(OBJECTIVES))
def test_drawn_problems(problem: Problem, objective: Objective) -> None:
    _agree(problem, objective)


@pytest.mark.parametrize("known", KNOWN, ids=[k.name for k in KNOWN])
def test_known_optima(known: Known) -> None:
    bounds = lower_bound(known.problem, known.objective)
    answer = _solve(known.problem, known.objective, bounds=bounds)
    assert (answer.value, answer.bound) == (known.best, known.best)


def test_a_small_optimum_without_help() -> None:
    answer = _solve(line(3, 3, 3))
    assert (answer.value, answer.bound) == (11, 11)


# Incumbents -------------------------------------------------------------------------------------


def _incumbent(problem: Problem, objective: Objective) -> Answer | None:
    starts = ListScheduler(problem, shape_of(problem)).run(np.zeros(problem.size))
    return None if starts is None else Answer(starts, (), value(problem, objective, starts))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_incumbent_changes_no_optimum(objective: Objective) -> None:
    used = 0
    for seed in range(40):
        problem = pooled_problem(seed)
        incumbent = _incumbent(problem, objective)
        if incumbent is None or problem.size > 12:
            continue
        used += 1
        alone, helped = (_solve(problem, objective, incumbent=x) for x in (None, incumbent))
        assert alone.value == helped.value, seed
        assert helped.optimal, seed
    assert used > 15


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_incumbent_is_kept_when_nothing_better_is_found(objective: Objective) -> None:
    problem = line(4, 8, 4, 1, (3, 4, 2))
    incumbent = _incumbent(problem, objective)
    assert incumbent is not None
    answer = _solve(problem, objective, incumbent=incumbent, limits=Limits(10.0, effort=0.0))
    assert answer.starts is not None
    assert answer.starts.tolist() == incumbent.starts.tolist()
    assert answer.value == incumbent.value
    assert not answer.optimal


def test_an_optimal_incumbent_is_proven() -> None:
    problem = line(3, 3, 3)
    best = _solve(problem)
    again = _solve(problem, incumbent=Answer(best.starts, (), best.value))
    assert (again.value, again.bound) == (11, 11)


# Limits -----------------------------------------------------------------------------------------


def test_out_of_effort_is_neither_optimal_nor_infeasible() -> None:
    for effort in (0.0, 1e-6, 1e-4, 1e-3, 1e-2):
        answer = _solve(line(4, 8, 4), limits=Limits(10.0, effort))
        assert not answer.infeasible
        assert answer.bound <= 27
        assert answer.value is None or answer.value >= 27
        assert answer.optimal == (answer.value == answer.bound)


def test_out_of_time_is_neither_optimal_nor_infeasible() -> None:
    answer = _solve(line(4, 8, 4), limits=Limits(0.0))
    assert not answer.optimal
    assert not answer.infeasible


def test_equal_effort_equal_answer() -> None:
    problem = line(4, 6, 3, 1, (3, 4, 2))
    first, again = (_solve(problem, limits=Limits(60.0, 0.1), seed=3) for _ in range(2))
    assert (first.value, first.bound) == (again.value, again.bound)
    assert first.starts is not None
    assert again.starts is not None
    assert first.starts.tolist() == again.starts.tolist()


# Infeasible -------------------------------------------------------------------------------------


def test_too_little_memory() -> None:
    problem = line(2, 2, 1)
    pools = tuple(type(p)(p.name, p.capacity - 1) for p in problem.pools)
    assert _solve(problem.replace(pools=pools)).infeasible


def test_a_pin_that_cannot_be_kept() -> None:
    builder = ProblemBuilder()
    resource = builder.resource("r")
    builder.edge(builder.op(4, resource), builder.op(1, resource, pinned=3))
    assert _solve(builder.build()[0]).infeasible


@pytest.mark.parametrize("freed", [0, 1])
def test_a_pool_that_is_too_high_from_the_start(freed: int) -> None:
    """Even if an op without duration could lower it at once."""
    builder = ProblemBuilder()
    pool = builder.pool("pool", 1, initial=2)
    builder.change(builder.op(0, builder.resource("r")), pool, -freed)
    problem = builder.build()[0]
    assert brute_force(problem) is None
    assert _solve(problem).infeasible


# Units ------------------------------------------------------------------------------------------


def test_the_unit_of_time_does_not_matter() -> None:
    for seed in range(20):
        problem = random_problem(seed)
        problem = problem.select((0,) * len(problem.choices))[0]
        here, there = _solve(problem), _solve(_longer(problem, 1_000_003))
        assert there.infeasible == here.infeasible, seed
        assert there.value == (None if here.value is None else here.value * 1_000_003), seed


def _longer(problem: Problem, unit: int) -> Problem:
    return problem.replace(
        duration=problem.duration * unit,
        edge_lag=problem.edge_lag * unit,
        release=problem.release * unit,
        pinned=np.where(problem.pinned < 0, problem.pinned, problem.pinned * unit),
        resources=tuple(
            type(r)(r.name, r.group, tuple((a * unit, b * unit) for a, b in r.closed))
            for r in problem.resources
        ),
    )


def test_costs_are_in_the_same_unit() -> None:
    """An op of 10 may be replaced by one of 5 at a cost of 3: times of 5 make no unit."""
    builder = ProblemBuilder()
    resource = builder.resource("r")
    choice = builder.choice("choice", Option("slow"), Option("fast", cost=3))
    builder.op(10, resource, when=(choice, 0))
    builder.op(5, resource, when=(choice, 1))
    assert _solve(builder.build()[0]).value == 8


def test_spans_that_trade_meet_between_multiples() -> None:
    builder = ProblemBuilder()
    a, b = (builder.resource(f"rank {k}", group=k) for k in range(2))
    first, last = builder.ops([0, 0], [a, b]), builder.ops([0, 0], [b, a])
    builder.edge(first, last, [40, 50])
    assert _solve(builder.build()[0], "device-span").value == 45


def test_real_sizes_do_not_overflow() -> None:
    """Times in ns and activations in bytes as they are: tens of seconds, tens of gigabytes."""
    big = 7 * 10**10
    sizes = {"activation_bytes": [big] * 3, "memory_limit_bytes": [2 * big] * 3}
    problem = line(3, 4, 2, times=(10**9 + 1, 10**9 + 3, 10**9), **sizes)
    bounds = lower_bound(problem)
    answer = _solve(problem, bounds=bounds, incumbent=_incumbent(problem, "makespan"))
    assert answer.value is not None
    assert bounds.best.value <= answer.bound <= answer.value


# Optima that once were wrong --------------------------------------------------------------------


@pytest.mark.parametrize("pinned", [False, True])
def test_an_op_without_a_place_in_time_is_absent(pinned: bool) -> None:
    """With an incumbent of 10, the op that can't start before 100 is out; the fast one is not."""
    builder = ProblemBuilder()
    resource = builder.resource("r")
    choice = builder.choice("choice", Option("slow"), Option("fast"), Option("late"))
    builder.op(10, resource, when=(choice, 0))
    builder.op(5, resource, when=(choice, 1))
    late = {"pinned": 100} if pinned else {"release": 100}
    builder.op(1, resource, when=(choice, 2), **late)
    problem = builder.build()[0]
    incumbent = Answer(np.array([0, -1, -1]), (0,), 10)
    assert _solve(problem, incumbent=incumbent).value == 5


def test_a_queue_keeps_its_order_around_an_absent_op() -> None:
    builder = ProblemBuilder()
    choice = builder.choice("middle", Option("no"), Option("yes"), Option("perhaps"))
    resource, other = builder.resource("resource"), builder.resource("other")
    first = builder.op(1, resource, release=3)
    middle = [builder.op(1, resource, when=(choice, k)) for k in (1, 2)]
    last = builder.op(1, resource)
    builder.edge(last, builder.op(4, other))
    builder.queue([first, *middle, last])
    assert _solve(builder.build()[0]).value == 9
