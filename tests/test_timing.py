"""Earliest times, deadlocks, peaks and spans against plain definitions."""

from __future__ import annotations

import numpy as np
import pytest
from random_problems import random_problem

from schedopt.problem import ABSENT, Problem, ProblemBuilder, device_span
from schedopt.timing import Deadlock, earliest, orders_of, peaks


def naive_peaks(problem: Problem, starts: np.ndarray) -> list[int]:
    """Walk through the events of each pool one by one."""
    top = []
    for k, pool in enumerate(problem.pools):
        events = []
        for op, where, amount in zip(
            problem.change_op, problem.change_pool, problem.change_amount, strict=True
        ):
            if where == k and starts[op] != ABSENT:
                end = starts[op] + problem.duration[op]
                events.append((starts[op], 1, amount) if amount > 0 else (end, 0, amount))
        level = high = pool.initial
        for _, _, amount in sorted(events):
            level += amount
            high = max(high, level)
        top.append(high)
    return top


def naive_span(problem: Problem, starts: np.ndarray) -> int:
    spans = [0]
    for group in {r.group for r in problem.resources} - {-1}:
        mine = [
            i
            for i, r in enumerate(problem.resource)
            if problem.resources[r].group == group and starts[i] != ABSENT
        ]
        if mine:
            first = min(starts[i] for i in mine)
            spans.append(max(starts[i] + problem.duration[i] for i in mine) - first)
    return max(spans)


@pytest.mark.parametrize("seed", range(150))
def test_peaks_and_spans_of_any_starts(seed: int) -> None:
    problem, rng = random_problem(seed), np.random.default_rng(seed)
    starts = rng.integers(-1, 12, problem.size)
    assert peaks(problem, starts).tolist() == naive_peaks(problem, starts)
    assert device_span(problem, starts) == naive_span(problem, starts)


def crossed(first: int, second: int) -> tuple[Problem, list[np.ndarray]]:
    """Two resources with two ops each, in the given order; ops 0 → 3 and 2 → 1 depend."""
    builder = ProblemBuilder()
    left, right = builder.resource("left", group=0), builder.resource("right", group=1)
    ops = builder.ops([2, 3, 5, 7], [left, left, right, right])
    builder.edge([ops[0], ops[2]], [ops[3], ops[1]], [1, 1])
    problem, number = builder.build()
    a, b = number[[0, 1]], number[[2, 3]]
    return problem, [a[:: 1 - 2 * first], b[:: 1 - 2 * second]]


def test_every_op_starts_as_early_as_it_can() -> None:
    problem, orders = crossed(0, 0)
    starts = earliest(problem, orders)
    assert [int(starts[order[0]]) for order in orders] == [0, 0]
    assert [int(starts[order[1]]) for order in orders] == [6, 5]
    assert [o.tolist() for o in orders_of(problem, starts)] == [o.tolist() for o in orders]


def test_a_deadlock_names_who_waits() -> None:
    problem, orders = crossed(1, 1)
    with pytest.raises(Deadlock) as caught:
        earliest(problem, orders)
    assert set(caught.value.waiting) == {int(order[0]) for order in orders}
