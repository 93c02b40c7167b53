"""Annealing: feasible, never worse, repeatable, stoppable."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import pytest
from known_cases import line
from random_problems import pooled_problem, wide_pipeline

from schedopt.build.pipeline import build
from schedopt.checking import check_problem
from schedopt.problem import Ints, Objective, Problem, ProblemBuilder, value
from schedopt.solvers.bounds import Bounds, lower_bound
from schedopt.solvers.construct import ListScheduler
from schedopt.solvers.improve import Annealer, can_anneal
from schedopt.timing import earliest, orders_of


@dataclass
class Case:
    """A problem with a schedule that leaves room for improvement."""

    problem: Problem
    objective: Objective
    found: Bounds
    starts: Ints

    def anneal(
        self, moves: int = 3000, seed: int = 0, target: int = 0, stopped: bool = False
    ) -> Ints:
        annealer = Annealer(self.problem, self.found.shape, self.found.tail, self.objective)
        stop = np.array([stopped], np.uint8)
        return annealer.run(self.starts, moves, 3.0, 0.1, seed, target, stop)

    def value(self, starts: Ints) -> int:
        return value(self.problem, self.objective, starts)


def _case(problem: Problem, objective: Objective = "makespan") -> Case | None:
    """Start from a list schedule with a bad key: short tails first."""
    found = lower_bound(problem, objective)
    if found.infeasible_op >= 0 or not can_anneal(problem):
        return None
    starts = ListScheduler(problem, found.shape).run(0.3 * found.tail)
    return None if starts is None else Case(problem, objective, found, starts)


def _v_at_half_memory() -> Case:
    problem = line(
        4,
        6,
        stages=8,
        placement=[[0, 1, 2, 3, 3, 2, 1, 0]],
        forward_ns=[3] * 8,
        backward_input_ns=[4] * 8,
        backward_weight_ns=[2] * 8,
        activation_bytes=[2] * 8,
        released_by_input_bytes=[1] * 8,
        memory_limit_bytes=[8] * 4,
    )
    case = _case(problem)
    assert case is not None
    return case


@pytest.mark.parametrize("objective", ["makespan", "device-span"])
@pytest.mark.parametrize("make", [lambda s: build(wide_pipeline(s)).problem, pooled_problem])
def test_right_and_never_worse(make: object, objective: Objective) -> None:
    annealed = improved = 0
    for seed in range(80):
        case = _case(make(seed), objective)
        if case is None or not case.problem.size:
            continue
        starts = case.anneal(seed=seed, target=case.found.best.value)
        assert check_problem(case.problem, starts) == [], seed
        if len({r.group for r in case.problem.resources if r.group >= 0}) == sum(
            r.group >= 0 for r in case.problem.resources
        ):  # it looks at each resource; two in one group may get worse together
            assert case.value(starts) <= case.value(case.starts), seed
        annealed += 1
        improved += case.value(starts) < case.value(case.starts)
    assert annealed > 25
    assert improved > 5


def test_every_op_is_at_its_earliest() -> None:
    case = _v_at_half_memory()
    starts = case.anneal()
    assert earliest(case.problem, orders_of(case.problem, starts)).tolist() == starts.tolist()


def test_longer_is_better_here() -> None:
    """Proven elsewhere: nothing is shorter than 66."""
    case = _v_at_half_memory()
    values = [case.value(case.anneal(moves, seed=1)) for moves in (10, 60_000)]
    assert case.value(case.starts) >= values[0] > values[1]


def test_a_seed_decides_everything() -> None:
    case = _v_at_half_memory()
    first, again, other = (case.anneal(seed=seed) for seed in (3, 3, 4))
    assert first.tolist() == again.tolist() != other.tolist()


def test_side_by_side_gives_the_same() -> None:
    """Kernels share no state: two threads get what one after the other gets."""
    case = _v_at_half_memory()
    alone = [case.anneal(seed=seed).tolist() for seed in (3, 4)]
    results: dict[int, list[int]] = {}
    threads = [
        threading.Thread(target=lambda s=seed: results.update({s: case.anneal(seed=s).tolist()}))
        for seed in (3, 4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[3], results[4]] == alone


def test_stop_stops_at_once() -> None:
    case = _v_at_half_memory()
    starts = case.anneal(moves=10**9, stopped=True)
    assert case.value(starts) <= case.value(case.starts)


def test_stop_from_another_thread() -> None:
    case = _v_at_half_memory()
    annealer = Annealer(case.problem, case.found.shape, case.found.tail, "makespan")
    stop = np.zeros(1, np.uint8)
    timer = threading.Timer(0.2, lambda: stop.fill(1))
    timer.start()
    starts = annealer.run(case.starts, 10**12, 3.0, 0.1, 0, 0, stop)
    assert check_problem(case.problem, starts) == []


def test_it_ends_when_the_target_is_reached() -> None:
    """A billion moves would take an hour."""
    problem = line(4, 8, 4)
    case = _case(problem)
    assert case is not None
    assert case.value(case.starts) > 27
    assert case.value(case.anneal(10**9, target=27)) == 27


def test_one_microbatch_has_one_schedule() -> None:
    case = _case(line(3, 1))
    assert case is not None
    assert case.anneal().tolist() == case.starts.tolist()


# What can be annealed ---------------------------------------------------------------------------


def _two_pools(same_resource: bool, capacity: int | None = 1) -> Problem:
    builder = ProblemBuilder()
    a, b = builder.resource("a"), builder.resource("b")
    builder.change(builder.op(1, a), builder.pool("P", 1), 1)
    builder.change(builder.op(1, a if same_resource else b), builder.pool("Q", capacity), 1)
    return builder.build()[0]


def test_two_pools_on_one_resource_are_not_annealed() -> None:
    """Their changes can't be added up; a pool without capacity does not count."""
    assert not can_anneal(_two_pools(same_resource=True))
    assert can_anneal(_two_pools(same_resource=False))
    assert can_anneal(_two_pools(same_resource=True, capacity=None))


def test_a_pool_of_two_resources_is_not_annealed() -> None:
    builder = ProblemBuilder()
    ops = [builder.op(1, builder.resource(f"r{k}")) for k in range(2)]
    builder.change(ops, builder.pool("pool", 2), 1)
    assert not can_anneal(builder.build()[0])


@pytest.mark.parametrize("what", ["pinned", "closed"])
def test_pins_and_windows_are_not_annealed(what: str) -> None:
    builder = ProblemBuilder()
    resource = builder.resource("r", closed=[(5, 6)] if what == "closed" else ())
    builder.op(1, resource, **({"pinned": 2} if what == "pinned" else {}))
    assert not can_anneal(builder.build()[0])


def test_a_pool_that_is_too_high_from_the_start_is_not_annealed() -> None:
    builder = ProblemBuilder()
    builder.pool("pool", 1, initial=2)
    builder.op(1, builder.resource("r"))
    assert not can_anneal(builder.build()[0])


def test_at_no_temperature_nothing_longer_is_accepted() -> None:
    """What a problem of nothing but lags asks for, whose mean duration is 0."""
    problem = line(2, 4, 2, 3, (0, 0, 0))
    case = _case(problem)
    assert case is not None
    annealer = Annealer(problem, case.found.shape, case.found.tail, "makespan")
    starts = annealer.run(case.starts, 100, 0.0, 0.0, 0, 0, np.zeros(1, np.uint8))
    assert check_problem(problem, starts) == []
    assert case.value(starts) <= case.value(case.starts)


def test_ops_without_duration_may_fit_only_as_they_stand() -> None:
    """At 1 the level falls and rises again, both by ops without duration; no order says so."""
    builder = ProblemBuilder()
    resource, pool = builder.resource("r", group=0), builder.pool("pool", 1)
    ops = builder.ops([1, 0, 0], resource)
    builder.change(ops, pool, [1, 1, -1])
    problem = builder.build()[0]
    starts = np.array([0, 1, 1])
    assert check_problem(problem, starts) == []
    found = lower_bound(problem)
    annealer = Annealer(problem, found.shape, found.tail, "makespan")
    stop = np.zeros(1, np.uint8)
    assert annealer.run(starts, 100, 1.0, 0.1, 0, 0, stop).tolist() == [0, 1, 1]
