"""The MILP against brute force, known optima, and its own promises."""

from __future__ import annotations

import pulp
import pytest
from brute import brute_force
from hypothesis import given, settings
from hypothesis import strategies as st
from random_problems import problems, random_pipeline, random_problem

from schedopt.build.pipeline import build
from schedopt.checking import check_problem
from schedopt.errors import InputError
from schedopt.pipeline import Pipeline
from schedopt.problem import Objective, Option, Problem, ProblemBuilder, value
from schedopt.solvers import milp
from schedopt.solvers.answer import Answer
from schedopt.solvers.milp import Solver, solve_milp

OBJECTIVES: list[Objective] = ["makespan", "device-span"]


def _has_cbc() -> bool:
    bundled = getattr(pulp, "PULP_CBC_CMD", None)
    paths = [None, bundled and bundled.pulp_cbc_path]
    return any(pulp.COIN_CMD(path=path, msg=False).available() for path in paths)


needs_cbc = pytest.mark.skipif(not _has_cbc(), reason="CBC is not installed")
SOLVERS = ["highs", pytest.param("cbc", marks=needs_cbc)]


def _solve(problem: Problem, objective: Objective = "makespan", **options: object) -> Answer:
    answer = solve_milp(problem, objective, **{"time_limit": 60.0, **options})
    if answer.starts is not None:
        assert check_problem(problem, answer.starts, answer.selected) == []
        assert answer.value == value(problem, objective, answer.starts, answer.selected)
        assert answer.bound <= answer.value
    return answer


def _agree(problem: Problem, objective: Objective, solver: Solver, seed: int = 0) -> bool:
    """Compare with brute force; return whether there is a schedule."""
    best = brute_force(problem, objective)
    answer = _solve(problem, objective, solver=solver, seed=seed)
    assert answer.value == best, f"seed {seed}"
    assert answer.optimal == (best is not None), f"seed {seed}"
    if solver == "highs" or best is not None:  # CBC can overlook that a program is infeasible
        assert answer.infeasible == (best is None), f"seed {seed}"
    return best is not None


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(
    ("solver", "seeds"), [("highs", 250), pytest.param("cbc", 60, marks=needs_cbc)]
)
def test_random_problems_against_brute_force(
    solver: Solver, seeds: int, objective: Objective
) -> None:
    solved = sum(_agree(random_problem(s, 6), objective, solver, s) for s in range(seeds))
    assert seeds // 2 < solved < seeds  # both kinds are there


@settings(max_examples=50, deadline=None)
@given(problems(5), st.sampled_from(OBJECTIVES))
def test_drawn_problems_against_brute_force(problem: Problem, objective: Objective) -> None:
    _agree(problem, objective, "highs")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_random_pipelines_against_brute_force(objective: Objective) -> None:
    for seed in range(25):
        pipeline = random_pipeline(seed, stages=2, microbatches=2)
        assert _agree(build(pipeline).problem, objective, "highs", seed)


def _line(ranks: int, microbatches: int, activations: int, **changes: object) -> Problem:
    """A linear pipeline of unit times in which a rank holds so many activations."""
    fields = {
        "ranks": ranks,
        "stages": ranks,
        "microbatches": microbatches,
        "placement": [list(range(ranks))],
        "forward_ns": [1] * ranks,
        "backward_input_ns": [1] * ranks,
        "backward_weight_ns": [1] * ranks,
        "activation_bytes": [2] * ranks,
        "released_by_input_bytes": [0] * ranks,
        "memory_limit_bytes": [2 * activations] * ranks,
        **changes,
    }
    return build(Pipeline(**fields)).problem


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("ranks", "microbatches", "best"), [(3, 3, 11), (4, 4, 15)])
def test_zero_bubble_at_1f1b_memory(
    ranks: int, microbatches: int, best: int, solver: Solver
) -> None:
    answer = _solve(_line(ranks, microbatches, ranks), solver=solver)
    assert (answer.value, answer.bound) == (best, best)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("activations", "best"), [(2, 23), (3, 20), (4, 19)])
def test_memory_pays_for_latency(activations: int, best: int, solver: Solver) -> None:
    latency = [[0, 2], [2, 0]]
    answer = _solve(_line(2, 4, activations, backward="fused", latency_ns=latency), solver=solver)
    assert (answer.value, answer.bound) == (best, best)


@pytest.mark.parametrize(("links", "best"), [(2, 13), (1, 15)])
def test_all_reduce_on_links(links: int, best: int) -> None:
    """Two ranks, three microbatches, unit times, an all-reduce of 3 after the last W of each."""
    builder = ProblemBuilder()
    ranks = [builder.resource(f"rank {k}", group=k) for k in range(2)]
    wires = [builder.resource(f"link {k}") for k in range(links)]
    reduces = [builder.op(3, wires[k % links]) for k in range(2)]
    for _ in range(3):
        f0, f1, i1, w1, i0, w0 = (builder.op(1, ranks[k]) for k in (0, 1, 1, 1, 0, 0))
        builder.edge([f0, f1, i1, i1, i0], [f1, i1, w1, i0, w0])
        builder.edge([w0, w1], reduces)
    answer = _solve(builder.build()[0])
    assert (answer.value, answer.bound) == (best, best)


def test_the_unit_of_time_does_not_matter() -> None:
    problem = _line(3, 3, 3)
    longer = problem.replace(duration=problem.duration * 10**9)
    answer = _solve(longer)
    assert (answer.value, answer.bound) == (11 * 10**9, 11 * 10**9)


def test_no_proof_where_floating_point_gives_none() -> None:
    """A duration that is prime to the others leaves no unit to count in."""
    problem = _line(2, 2, 2)
    duration = problem.duration * 10**9
    duration[0] += 1
    answer = _solve(problem.replace(duration=duration))
    assert answer.value is not None
    assert answer.value * 0.99 < answer.bound < answer.value


def test_a_time_too_long_for_floating_point_is_left_alone() -> None:
    problem = _line(2, 2, 2)
    duration = problem.duration * 2**55
    duration[0] += 1
    assert _solve(problem.replace(duration=duration)) == Answer()


@pytest.mark.parametrize("solver", SOLVERS)
def test_out_of_time_is_not_optimal(solver: Solver) -> None:
    answer = solve_milp(_line(4, 8, 3), time_limit=0.0, solver=solver)
    assert not answer.optimal
    assert not answer.infeasible


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_time_limit_leaves_a_sound_bound(solver: Solver) -> None:
    """PuLP calls what is found in time Optimal. The optimum is 293729."""
    problem = _line(
        4,
        8,
        4,
        forward_ns=[11347] * 4,
        backward_input_ns=[11248] * 4,
        backward_weight_ns=[8132] * 4,
        latency_ns=[[377] * 4] * 4,
        activation_bytes=[10] * 4,
        released_by_input_bytes=[4] * 4,
        memory_limit_bytes=[40] * 4,
    )
    answer = _solve(problem, time_limit=1.0, solver=solver)
    assert not answer.infeasible
    assert answer.bound <= 293729
    assert answer.value is None or answer.value >= 293729


def test_a_solver_that_contradicts_itself_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = _line(2, 2, 2)
    best = _solve(problem).value
    honest = milp._run
    monkeypatch.setattr(milp, "_run", lambda *a: honest(*a)._replace(bound=best + 1.0))
    assert _solve(problem).value == best
    assert _solve(problem).bound == 0


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    _solve(_line(2, 2, 2))
    assert capfd.readouterr().out == ""


def test_a_missing_solver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulp.COIN_CMD, "available", lambda _: False)
    with pytest.raises(InputError, match=r"pulp\[cbc\]"):
        solve_milp(_line(2, 2, 2), time_limit=1.0, solver="cbc")


# Small cases with optima found by hand: they hold brute force and MILP to the definitions.


def _both(problem: Problem, objective: Objective = "makespan") -> int | None:
    best = brute_force(problem, objective)
    answer = _solve(problem, objective)
    assert (answer.value, answer.infeasible) == (best, best is None)
    return best


def test_no_ops() -> None:
    problem = ProblemBuilder().build()[0]
    assert _both(problem) == 0
    assert _both(problem, "device-span") == 0


def _rises_and_falls(capacity: int) -> ProblemBuilder:
    """Two resources, a pool, and an op of length 2 on each that takes 1 and gives it back."""
    builder = ProblemBuilder()
    pool = builder.pool("pool", capacity)
    ops = [builder.op(2, builder.resource(f"resource {k}")) for k in range(2)]
    builder.change(ops, pool, 1)
    builder.change(ops, pool, -1)
    return builder


@pytest.mark.parametrize(("capacity", "best"), [(0, None), (1, 4), (2, 2)])
def test_rises_together_both_count_and_a_fall_comes_first(capacity: int, best: int | None) -> None:
    assert _both(_rises_and_falls(capacity).build()[0]) == best


def test_three_rises_together_all_count() -> None:
    """No order among ties can hide one of three."""
    builder = ProblemBuilder()
    pool = builder.pool("pool", 2)
    ops = [builder.op(1, builder.resource(f"resource {k}")) for k in range(3)]
    builder.change(ops, pool, 1)
    assert _both(builder.build()[0]) is None
    builder.change(builder.op(4, builder.resource("other")), pool, -1)
    assert _both(builder.build()[0]) == 5


def test_an_op_without_duration_falls_before_it_rises() -> None:
    builder = ProblemBuilder()
    pool = builder.pool("pool", 1, initial=1)
    op = builder.op(0, builder.resource("resource"))
    builder.change(op, pool, 2)
    assert _both(builder.build()[0]) is None
    builder.change(op, pool, -2)
    assert _both(builder.build()[0]) == 0


def test_a_level_above_capacity_from_the_start() -> None:
    builder = ProblemBuilder()
    builder.pool("pool", 1, initial=2)
    builder.op(1, builder.resource("resource"))
    assert _both(builder.build()[0]) is None


def test_an_absent_op_holds_and_frees_nothing() -> None:
    """Freeing 1 costs 5; without it the second rise has no room."""
    builder = ProblemBuilder()
    pool = builder.pool("pool", 1)
    choice = builder.choice("free", Option("no"), Option("yes", cost=5))
    resource = builder.resource("resource")
    ops = builder.ops([1, 1], resource)
    free = builder.op(1, builder.resource("other"), when=(choice, 1))
    builder.change(ops, pool, 1)
    assert _both(builder.build()[0]) is None
    builder.change(free, pool, -1)
    assert _both(builder.build()[0]) == 2 + 5


def test_a_closed_window_and_a_pin() -> None:
    builder = ProblemBuilder()
    resource = builder.resource("resource", closed=[(2, 5)])
    builder.op(2, resource, pinned=6)
    builder.ops([2, 1], resource)
    assert _both(builder.build()[0]) == 8
    builder.op(3, resource)
    assert _both(builder.build()[0]) == 11


def test_a_queue_with_an_absent_op_keeps_its_order() -> None:
    builder = ProblemBuilder()
    choice = builder.choice("middle", Option("no"), Option("yes"))
    resource, other = builder.resource("resource"), builder.resource("other")
    first = builder.op(1, resource, release=3)
    middle = builder.op(1, resource, when=(choice, 1))
    last = builder.op(1, resource)
    builder.edge(last, builder.op(4, other))
    builder.queue([first, middle, last])
    assert _both(builder.build()[0]) == 9


def test_starting_later_shortens_a_span() -> None:
    builder = ProblemBuilder()
    a, b = (builder.resource(f"rank {k}", group=k) for k in range(2))
    x, y, z = builder.op(1, a), builder.op(5, b), builder.op(1, a)
    builder.edge(y, z)
    assert _both(builder.build()[0]) == 6
    assert _both(builder.build()[0], "device-span") == 5
    builder.edge(x, y, 1)
    assert _both(builder.build()[0], "device-span") == 8


def test_spans_that_trade_meet_between_multiples() -> None:
    """Lags of 2 and 5 tens between first and last ops: spans 40 and 50 become 45 and 45."""
    builder = ProblemBuilder()
    a, b = (builder.resource(f"rank {k}", group=k) for k in range(2))
    first, last = builder.ops([0, 0], [a, b]), builder.ops([0, 0], [b, a])
    builder.edge(first, last, [4, 5])
    problem = builder.build()[0]
    assert _both(problem, "device-span") == 5
    assert _solve(problem.replace(edge_lag=problem.edge_lag * 10), "device-span").value == 45
