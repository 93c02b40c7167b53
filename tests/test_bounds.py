"""Bounds: known values, and no bound above an optimum."""

from __future__ import annotations

import random

import fuzz
import numpy as np
import pytest
from brute import brute_force
from hypothesis import given, settings
from hypothesis import strategies as st
from known_cases import KNOWN, Known, line
from random_problems import make_pooled_problem, pooled_problem, problems

from schedopt.problem import Objective, Problem, ProblemBuilder, device_span, makespan
from schedopt.solvers.bounds import Bounds, jackson, lower_bound
from schedopt.solvers.construct import ListScheduler
from schedopt.solvers.cpsat import Limits, solve_cpsat
from schedopt.solvers.heads import NEVER, heads
from schedopt.solvers.portfolio import Budget, solve
from schedopt.solvers.shape import shape_of
from schedopt.solvers.windows import windows


def _proven(problem: Problem, objective: Objective = "makespan") -> int:
    """Return the optimum, found without bounds."""
    answer = solve_cpsat(problem, objective, limits=Limits(60.0, 20.0))
    assert answer.optimal
    assert answer.value is not None
    return answer.value


# Known values -----------------------------------------------------------------------------------


@pytest.mark.parametrize("known", KNOWN, ids=[k.name for k in KNOWN])
def test_known_optima_are_met(known: Known) -> None:
    assert lower_bound(known.problem, known.objective).best.value == known.best


@pytest.mark.parametrize("seed", range(40))
def test_zero_bubble_h1_is_optimal_at_1f1b_memory(seed: int) -> None:
    """The bubble (p - 1)(F + I - W + 4c) of ZB-H1 can't be beaten on a uniform line while W is no
    longer than F and I, c at most W / 2, and there are more microbatches than ranks.
    """
    rng = random.Random(seed)
    forward, backward_input = rng.randint(1, 20), rng.randint(1, 20)
    backward_weight = rng.randint(1, min(forward, backward_input))
    latency, ranks = rng.randint(0, backward_weight // 2), rng.randint(1, 6)
    m = rng.randint(ranks + 1, 3 * ranks + 2)
    times = (forward, backward_input, backward_weight)
    problem = line(ranks, m, ranks, latency, times)
    bubble = (ranks - 1) * (forward + backward_input - backward_weight + 4 * latency)
    assert lower_bound(problem).best.value == m * sum(times) + bubble
    outcome = solve(problem, budget=Budget(20.0, rounds=4))
    assert outcome.answer.value == m * sum(times) + bubble  # so it can be met


def test_without_memory_a_line_waits_for_the_first_backward_only() -> None:
    problem = line(4, 20, None, 3, (5, 7, 6))
    expected = 20 * (5 + 7 + 6) + 3 * (5 + 3)  # the last rank starts after 3 F and 3 links
    assert lower_bound(problem).best.value >= expected


def test_less_memory_never_lowers_the_bound() -> None:
    values = [lower_bound(line(4, 9, k, 1, (3, 4, 2))).best.value for k in range(1, 10)]
    assert values == sorted(values, reverse=True)


# Explanations -----------------------------------------------------------------------------------


@pytest.mark.parametrize("known", KNOWN, ids=[k.name for k in KNOWN])
def test_the_terms_add_up(known: Known) -> None:
    best = lower_bound(known.problem, known.objective).best
    assert sum(best.terms.values()) == best.value
    if best.kind == "window":
        for window, op, key in (
            (best.before, best.first, "idle_before"),
            (best.after, best.last, "idle_after"),
        ):
            assert window is not None
            assert window.op == op
            assert best.terms[key] == window.idle == max(0, window.arrival - window.work)


def test_the_kinds_are_named_for_what_binds() -> None:
    assert lower_bound(line(3, 1)).best.kind == "chain"
    assert lower_bound(line(4, 8, 4, 1)).best.kind == "machine"
    assert lower_bound(ProblemBuilder().build()[0]).best.kind == "none"
    # Two ops of 5 fit before 20, but only one fits the pool.
    builder = ProblemBuilder()
    resource, pool = builder.resource("r"), builder.pool("pool", 1)
    x = builder.op(1, resource, release=20)
    for _ in range(2):
        up, down = builder.ops([5, 1], resource)
        builder.edge([up, x], down)
        builder.change([up, down], pool, [1, -1])
    found = lower_bound(builder.build()[0]).best
    assert (found.kind, found.value) == ("window", 28)
    assert found.terms == {"work": 13, "idle_before": 15, "idle_after": 0}


def test_jackson_by_hand() -> None:
    """Op 0 runs to 3, where 1 takes over, since its tail is longer; then 0 goes on."""
    assert jackson(np.array([0, 3]), np.array([5, 2]), np.array([1, 4])) == 9
    assert jackson(np.array([0, 3]), np.array([5, 2]), np.array([9, 4])) == 14
    assert jackson(np.array([4]), np.array([0]), np.array([2])) == 6


# Heads ------------------------------------------------------------------------------------------


def test_heads_know_chains_load_and_memory() -> None:
    builder = ProblemBuilder()
    a, b = builder.resource("a"), builder.resource("b")
    pool = builder.pool("pool", 1)
    f = builder.ops([2, 2, 2], a)
    far = builder.ops([5, 5, 5], b)
    w = builder.ops([1, 1, 1], a)
    builder.edge([*f, *far], [*far, *w], 1)
    builder.change(f, pool, 1)
    builder.change(w, pool, -1)
    for queue in (f, far, w):
        builder.queue(queue)
    problem, number = builder.build()
    # One goes through in 2 + 1 + 5 + 1 + 1 = 10; until then the pool is full.
    assert problem.size == 9
    sequential = problem.edge_from  # place by place is what makes the pool regular
    assert len(sequential) == 6
    loose = heads(problem, shape_of(problem))
    assert loose[number[f]].tolist() == [0, 2, 4]
    interleaved = _place_by_place(1)
    tight = heads(interleaved, shape_of(interleaved))
    assert tight[0::3].tolist() == [0, 10, 20]
    assert _place_by_place(0).pools[0].capacity == 0
    assert heads(_place_by_place(0), shape_of(_place_by_place(0)))[0] == NEVER


def _place_by_place(room: int) -> Problem:
    builder = ProblemBuilder()
    a, b = builder.resource("a"), builder.resource("b")
    pool = builder.pool("pool", room)
    ops = np.array([[builder.op(2, a), builder.op(5, b), builder.op(1, a)] for _ in range(3)])
    builder.edge(ops[:, :2].ravel(), ops[:, 1:].ravel(), 1)
    builder.change(ops[:, 0], pool, 1)
    builder.change(ops[:, 2], pool, -1)
    for queue in ops.T:
        builder.queue(queue)
    return builder.build()[0]


# No bound above an optimum ----------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(problems(6), st.sampled_from(["makespan", "device-span"]))
def test_never_above_brute_force(problem: Problem, objective: Objective) -> None:
    fixed = problem.select((0,) * len(problem.choices))[0]
    best, found = brute_force(fixed, objective), lower_bound(fixed, objective)
    if best is not None:
        assert found.infeasible_op == -1
        assert found.best.value <= best


@st.composite
def _pooled(draw: st.DrawFn) -> Problem:
    return make_pooled_problem(lambda low, high: draw(st.integers(low, high)))


@settings(max_examples=25, deadline=None)
@given(_pooled(), st.sampled_from(["makespan", "device-span"]))
def test_never_above_what_cp_sat_finds(problem: Problem, objective: Objective) -> None:
    answer = solve_cpsat(problem, objective, limits=Limits(5.0, 0.2))
    if answer.starts is None:
        return
    found = lower_bound(problem, objective)
    assert found.infeasible_op == -1
    assert found.best.value <= answer.value
    _contains(found, problem, answer.starts)


def _contains(found: Bounds, problem: Problem, starts: np.ndarray) -> None:
    """Heads and tails exclude no schedule."""
    assert np.all(found.head <= starts)
    assert np.all(found.tail <= makespan(problem, starts) - starts - problem.duration)


def test_the_fuzzer_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "LIMITS", Limits(5.0, 0.03))
    hunt = fuzz.Hunt("bounds")
    for seed in range(7_000_000, 7_000_010):
        fuzz.bounds(hunt, seed)
    assert hunt.wrong == []
    assert hunt.counts["pipelines"] > 3
    assert hunt.counts["problems"] > 3


def test_the_fuzzer_would_find_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that is 1 too high does not pass."""
    honest = fuzz.lower_bound

    def too_high(problem: Problem, objective: Objective = "makespan") -> Bounds:
        found = honest(problem, objective)
        best = found.best
        return Bounds(
            type(best)(best.value + 1, best.kind),
            found.head,
            found.tail,
            found.shape,
            found.reverse_shape,
            found.infeasible_op,
        )

    monkeypatch.setattr(fuzz, "LIMITS", Limits(5.0, 0.03))
    monkeypatch.setattr(fuzz, "lower_bound", too_high)
    hunt = fuzz.Hunt("bounds")
    for seed in range(7_000_000, 7_000_006):
        fuzz.bounds(hunt, seed)
    assert any("but the optimum is" in line for line in hunt.wrong)


# Bounds that once were wrong --------------------------------------------------------------------


def test_pools_of_one_resource_are_not_added_up() -> None:
    builder = ProblemBuilder()
    resource = builder.resource("r")
    first, second = builder.ops([1, 1], resource)
    builder.edge(first, second)
    for op in (first, second):
        builder.change(op, builder.pool("pool", 3), 3)
    found = lower_bound(builder.build()[0])
    assert (found.infeasible_op, found.best.value) == (-1, 2)


def test_a_pool_without_capacity_takes_no_room_from_another() -> None:
    problem = _place_by_place(1)
    pools = (*problem.pools, type(problem.pools[0])("log"))
    more = problem.replace(
        pools=pools,
        change_op=np.repeat(problem.change_op, 2),
        change_pool=np.tile([0, 1], len(problem.change_op)),
        change_amount=np.repeat(problem.change_amount, 2),
    )
    assert lower_bound(more).best.value == lower_bound(problem).best.value == _proven(problem)
    assert _proven(more) == _proven(problem)
    answer = solve_cpsat(more, limits=Limits(10.0), bounds=lower_bound(more))
    assert answer.value == _proven(problem)


def test_a_short_queue_can_end_where_a_long_one_could_not() -> None:
    """Memory keeps some `a` until after `x`, but not the only `c`; so idling before `x` and idling
    after `c` can be the same.
    """
    builder = ProblemBuilder()
    resource, other = builder.resource("r"), builder.resource("s")
    pool = builder.pool("pool", 2)
    a0, c, x, f0, a1, f1, a2, f2 = builder.ops([1] * 8, resource, release=[0, 0, 20] + [0] * 5)
    y = builder.op(10, other)
    a, f = [a0, a1, a2], [f0, f1, f2]
    builder.edge([a0, c, x, x, x, *a], [c, y, *f, *f])
    builder.queue(a)
    builder.queue(f)
    builder.change(a, pool, 1)
    builder.change(f, pool, -1)
    problem = builder.build()[0]
    assert _proven(problem) == 25
    assert lower_bound(problem).best.value <= 25


def test_what_one_group_frees_another_may_take() -> None:
    """`c` frees what `a` took, but only at the first place, so the two are in different groups."""
    builder = ProblemBuilder()
    resource, pool = builder.resource("r"), builder.pool("pool", 3)
    a0, c0, d0, x, g0, f0, a1, c1, g1, d1, f1 = builder.ops(
        [1, 1, 10, 1, 1, 1, 1, 1, 1, 10, 1], resource, release=[0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0]
    )
    builder.edge([a0, a1, a0], [d0, d1, c0])
    builder.edge([x] * 4, [g0, g1, f0, f1])
    builder.edge([a0, a1, d0, d1], [g0, g1, f0, f1])
    for queue in ([a0, a1], [c0, c1], [d0, d1], [g0, g1], [f0, f1]):
        builder.queue(queue)
    builder.change([a0, a1, d0, d1], pool, 2)
    builder.change([c0, g1, f0, f1], pool, -2)
    problem = builder.build()[0]
    assert _proven(problem) == 36
    assert lower_bound(problem).best.value <= 36


def test_a_thousand_kinds_of_items_need_no_deep_recursion() -> None:
    """Ten ops whose sizes are powers of 2 leave a place in 1024 states, none better than all."""
    builder = ProblemBuilder()
    resource, pool = builder.resource("r"), builder.pool("pool", 2**10)
    root, x = builder.ops([1, 1], resource, release=[0, 2**12])
    for k in range(10):
        up, down = builder.ops([2**k, 1], resource)
        builder.edge([root, up, x], [up, down, down])
        builder.change([up, down], pool, [2**k, -(2**k)])
    problem = builder.build()[0]
    assert lower_bound(problem).best.value == 2**12 + 1 + 10


def test_ops_without_duration_need_no_room_for_each_other() -> None:
    """At one instant falls count before rises, though the one that falls comes after."""
    builder = ProblemBuilder()
    pool = builder.pool("pool", 0)
    ops = builder.ops([0, 0], builder.resource("r"))
    builder.edge(*ops)
    builder.change(ops, pool, [1, -1])
    problem = builder.build()[0]
    assert brute_force(problem) == 0
    assert lower_bound(problem).infeasible_op == -1


def test_windows_count_the_work_that_memory_admits() -> None:
    """Rank 0 of four: until the first I comes back after 4 F and 3 I, it can do 2 F, no more."""
    problem = line(4, 8, 2)
    shape = shape_of(problem)
    idle = {w.arrival: w.idle for w in windows(problem, shape, 0, heads(problem, shape))}
    assert idle[7] == 5


def test_no_claim_of_infeasibility_where_something_fits() -> None:
    for seed in range(200):
        problem = pooled_problem(seed)
        for objective in ("makespan", "device-span"):
            found = lower_bound(problem, objective)
            if found.infeasible_op >= 0:
                assert solve_cpsat(problem, objective, limits=Limits(20.0)).infeasible, seed


def test_device_span_is_bounded_by_the_schedule_too() -> None:
    for seed in range(200):
        problem = pooled_problem(seed)
        found = lower_bound(problem, "device-span")
        if found.infeasible_op >= 0:
            continue
        starts = ListScheduler(problem, found.shape).run(-found.tail.astype(float))
        if starts is not None:
            assert found.best.value <= device_span(problem, starts), seed
            _contains(found, problem, starts)
