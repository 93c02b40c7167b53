"""List scheduling: feasible, never stuck where it must not be, as early as its order allows."""

from __future__ import annotations

import fuzz
import numpy as np
import pytest
from known_cases import line
from random_problems import pooled_problem, random_pipeline, random_problem

from schedopt.build.pipeline import build
from schedopt.checking import check_problem
from schedopt.problem import Ints, Problem, ProblemBuilder, makespan
from schedopt.solvers.construct import ListScheduler
from schedopt.solvers.shape import shape_of
from schedopt.timing import earliest, orders_of, peaks


def _run(problem: Problem, key: object = 0.0) -> Ints | None:
    keys = np.broadcast_to(np.asarray(key, np.float64), problem.size)
    return ListScheduler(problem, shape_of(problem)).run(keys)


def _noise(problem: Problem, seed: int) -> np.ndarray:
    scale = 10.0 * (1 + int(problem.duration.max(initial=0)))
    return scale * np.random.default_rng(seed).random(problem.size)


# Feasible ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [random_problem, pooled_problem])
def test_whatever_it_returns_is_right(make: object) -> None:
    """Any feature, any key: releases, pins, closed windows, shared pools."""
    found = 0
    for seed in range(150):
        problem = make(seed)
        problem = problem.select((0,) * len(problem.choices))[0]
        for key in (0.0, _noise(problem, seed)):
            starts = _run(problem, key)
            if starts is not None:
                found += 1
                assert check_problem(problem, starts) == [], seed
    assert found > 150


def test_it_gets_through_wherever_one_microbatch_fits() -> None:
    hunt = fuzz.Hunt("memory")
    for seed in range(8_000_000, 8_000_016):
        fuzz.memory(hunt, seed)
    assert hunt.wrong == []
    assert hunt.counts["runs"] == 12 * hunt.counts["pipelines"] == 12 * 16


def test_memory_never_exceeds_the_limit_but_uses_it() -> None:
    for held in (1, 2, 3, 5):
        problem = line(4, 9, held, 1, (3, 4, 2), released_by_input_bytes=[1, 0, 2, 1])
        starts = _run(problem)
        assert starts is not None
        assert peaks(problem, starts)[0] == 2 * held


@pytest.mark.parametrize("seed", range(60))
def test_times_are_the_earliest_for_their_order(seed: int) -> None:
    """On a pipeline, where an op waits for memory it waits for an op of its own rank."""
    problem = build(random_pipeline(seed, stages=4, microbatches=4)).problem
    starts = _run(problem, _noise(problem, seed))
    assert starts is not None
    assert earliest(problem, orders_of(problem, starts)).tolist() == starts.tolist()


# Priorities -------------------------------------------------------------------------------------


def _choice_of_two(lead: int) -> tuple[Problem, Ints]:
    """A long op now, or an important one that can start `lead` later."""
    builder = ProblemBuilder()
    resource = builder.resource("r")
    ops = builder.ops([10, 1], resource, release=[0, lead])
    problem, number = builder.build()
    return problem, number[ops]


def test_the_smallest_key_goes_first() -> None:
    builder = ProblemBuilder()
    ops = builder.ops([3, 2, 4], builder.resource("r"))
    problem, number = builder.build()
    key = np.array([2.0, 3.0, 1.0])
    starts = _run(problem, key[number])
    assert starts is not None
    assert starts[number[ops]].tolist() == [4, 7, 0]


def test_it_waits_for_what_is_important_enough() -> None:
    """An op whose start is known is waited for when its key outweighs the wait."""
    builder = ProblemBuilder()
    a, b = builder.resource("a"), builder.resource("b")
    first, long, important = builder.op(2, a), builder.op(10, b), builder.op(1, b)
    builder.edge(first, important)
    problem, number = builder.build()
    for weight, expected in ((1.0, [0, 10]), (3.0, [3, 2])):
        key = np.zeros(problem.size)
        key[number[important]] = -weight
        starts = _run(problem, key)
        assert starts is not None
        assert starts[number[[long, important]]].tolist() == expected


def test_a_release_is_looked_ahead_to() -> None:
    problem, (long, important) = _choice_of_two(3)
    key = np.zeros(2)
    key[important] = -5.0
    starts = _run(problem, key)
    assert starts is not None
    assert starts[[long, important]].tolist() == [4, 3]


def test_equal_keys_equal_schedules() -> None:
    problem = line(4, 12, 3, 1, (3, 4, 2))
    first, second = _run(problem, _noise(problem, 5)), _run(problem, _noise(problem, 5))
    assert first is not None
    assert first.tolist() == second.tolist()


# Windows, pins, pools ---------------------------------------------------------------------------


def test_closed_windows_are_stepped_over() -> None:
    builder = ProblemBuilder()
    resource = builder.resource("r", closed=[(2, 5), (6, 8)])
    builder.ops([2, 2, 1], resource)
    starts = _run(builder.build()[0], [0.0, 1.0, 2.0])
    assert starts is not None
    assert starts.tolist() == [0, 8, 5]  # the short one fits in between


def test_pins_are_kept_and_worked_around() -> None:
    builder = ProblemBuilder()
    resource = builder.resource("r")
    pinned = builder.op(2, resource, pinned=3)
    builder.ops([2, 2], resource)
    problem = builder.build()[0]
    starts = _run(problem)
    assert starts is not None
    assert starts[pinned] == 3
    assert makespan(problem, starts) == 7


def test_a_pin_that_cannot_be_kept() -> None:
    builder = ProblemBuilder()
    resource = builder.resource("r")
    builder.edge(builder.op(4, resource), builder.op(1, resource, pinned=3))
    assert _run(builder.build()[0]) is None


@pytest.mark.parametrize(("start", "fits"), [(0, True), (1, False), (3, False), (5, True)])
def test_a_pin_in_a_closed_window(start: int, fits: bool) -> None:
    builder = ProblemBuilder()
    builder.op(2, builder.resource("r", closed=[(2, 5)]), pinned=start)
    assert (_run(builder.build()[0]) is not None) == fits


def test_a_pool_that_is_too_high_from_the_start() -> None:
    builder = ProblemBuilder()
    builder.pool("pool", 1, initial=2)
    builder.op(1, builder.resource("r"))
    assert _run(builder.build()[0]) is None


def test_rises_of_one_op_on_one_pool_are_added_up() -> None:
    builder = ProblemBuilder()
    pool = builder.pool("pool", 5)
    for k in range(2):
        op = builder.op(2, builder.resource(f"r{k}"))
        builder.change([op, op, op, op], pool, [1, 2, -1, -2])
    problem = builder.build()[0]
    starts = _run(problem)
    assert starts is not None
    assert starts.tolist() == [0, 2]


def test_a_greedy_start_would_deadlock() -> None:
    """Two chunks share a pool of 3: forwards of one alone would starve the other for ever."""
    builder = ProblemBuilder()
    rank, far = builder.resource("rank"), builder.resource("far")
    pool = builder.pool("memory", 3)
    ops = []
    for _ in range(5):
        f, x, g, h = (
            builder.op(1, rank),
            builder.op(9, far),
            builder.op(1, rank),
            builder.op(1, rank),
        )
        builder.edge([f, x, g], [x, g, h])
        builder.change([f, g, h], pool, [1, 1, -2])
        ops.append([f, g, h])
    for queue in np.array(ops).T:
        builder.queue(queue)
    problem = builder.build()[0]
    starts = _run(problem)
    assert starts is not None
    assert check_problem(problem, starts) == []


def test_no_ops() -> None:
    starts = _run(ProblemBuilder().build()[0])
    assert starts is not None
    assert len(starts) == 0
