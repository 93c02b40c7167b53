"""The least device span of a schedule's orders."""

from __future__ import annotations

import numpy as np
import pytest
from brute import brute_force
from known_cases import line
from random_problems import pooled_problem, wide_pipeline

from schedopt.build.pipeline import build
from schedopt.checking import check_problem
from schedopt.problem import Problem, ProblemBuilder, device_span
from schedopt.solvers.construct import ListScheduler
from schedopt.solvers.cpsat import Limits, solve_cpsat
from schedopt.solvers.improve import can_anneal
from schedopt.solvers.shape import shape_of
from schedopt.solvers.span import compress
from schedopt.timing import fits, orders_of


def _with_fixed_orders(problem: Problem, starts: np.ndarray) -> Problem:
    """Return the problem with each resource's order as edges, and without pools."""
    orders = orders_of(problem, starts)
    builder = ProblemBuilder()
    for resource in problem.resources:
        builder.resource(resource.name, resource.group)
    builder.ops(problem.duration, problem.resource, problem.release)
    builder.edge(problem.edge_from, problem.edge_to, problem.edge_lag)
    for order in orders:
        builder.edge(order[:-1], order[1:])
    return builder.build()[0]


@pytest.mark.parametrize("make", [lambda s: build(wide_pipeline(s)).problem, pooled_problem])
def test_no_times_of_these_orders_have_a_smaller_span(make: object) -> None:
    checked = 0
    for seed in range(16):
        problem = make(seed)
        starts = ListScheduler(problem, shape_of(problem)).run(np.zeros(problem.size))
        if (
            starts is None
            or not can_anneal(problem)
            or not fits(problem, orders_of(problem, starts))
        ):
            continue
        closer = compress(problem, starts)
        assert check_problem(problem, closer) == [], seed
        answer = solve_cpsat(
            _with_fixed_orders(problem, starts), "device-span", limits=Limits(20.0, 0.1)
        )
        assert answer.bound <= device_span(problem, closer), seed
        assert answer.value is None or device_span(problem, closer) <= answer.value, seed
        checked += answer.optimal
    assert checked > 3


def test_resources_of_one_group_share_a_span() -> None:
    """This once went on for ever."""
    builder = ProblemBuilder()
    a, b = builder.resource("compute", group=0), builder.resource("copy", group=0)
    c = builder.resource("other", group=1)
    for _ in range(2):
        x, y, z = builder.op(2, a), builder.op(3, c), builder.op(1, b)
        builder.edge([x, y], [y, z], 1)
    problem = builder.build()[0]
    starts = ListScheduler(problem, shape_of(problem)).run(np.zeros(problem.size))
    assert starts is not None
    assert device_span(problem, compress(problem, starts)) == 11
    assert brute_force(problem, "device-span") == 11


def test_a_floor_stops_the_search_early() -> None:
    problem = line(4, 8, 7)
    starts = ListScheduler(problem, shape_of(problem)).run(np.zeros(problem.size))
    assert starts is not None
    least = device_span(problem, compress(problem, starts))
    assert device_span(problem, compress(problem, starts, floor=least)) == least


def test_what_fits_only_as_it_stands_is_left_alone() -> None:
    builder = ProblemBuilder()
    resource, pool = builder.resource("r", group=0), builder.pool("pool", 1)
    ops = builder.ops([1, 0, 0], resource)
    builder.change(ops, pool, [1, 1, -1])
    problem = builder.build()[0]
    starts = np.array([3, 9, 9])
    assert check_problem(problem, starts) == []
    assert not fits(problem, orders_of(problem, starts))
    assert compress(problem, starts).tolist() == [3, 9, 9]
