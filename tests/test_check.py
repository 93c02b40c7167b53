"""Every rule of the checker on a schedule that breaks this rule and no other."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from helpers import OpRow, schedule_from, schedule_of
from hypothesis import given, settings
from hypothesis import strategies as st

import schedopt.checking
from schedopt.build.pipeline import build
from schedopt.checking import SHOWN, Violation, check_problem, check_schedule
from schedopt.errors import InputError
from schedopt.pipeline import Pipeline
from schedopt.problem import ABSENT, Ints, Option, Problem, ProblemBuilder
from schedopt.schedule import Schedule
from schedopt.timing import earliest

ROOT = Path(__file__).parents[1]


def places(violations: Sequence[Violation]) -> list[str]:
    return [violation.place for violation in violations]


def judge(
    builder: ProblemBuilder, starts: Sequence[int], selected: Sequence[int] = ()
) -> list[str]:
    problem, _ = builder.build()
    return places(check_problem(problem, np.array(starts, np.int64), selected))


def machine(*durations: int, closed: Sequence[tuple[int, int]] = ()) -> ProblemBuilder:
    """Return a builder with ops 0, 1, … on one resource called gpu."""
    builder = ProblemBuilder()
    builder.ops(durations, builder.resource("gpu", closed=closed))
    return builder


# Independence -----------------------------------------------------------------------------------


def test_imports_nothing_that_it_judges() -> None:
    tree = ast.parse(Path(schedopt.checking.__file__).read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {
        a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names
    }
    allowed = {f"schedopt.{name}" for name in ("errors", "pipeline", "problem", "schedule")}
    assert {name for name in imported if name and name.startswith("schedopt")} <= allowed


def test_reads_raw_fields_only() -> None:
    tree = ast.parse(Path(schedopt.checking.__file__).read_text(encoding="utf-8"))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    helpers = {"graph", "links", "present", "select", "reverse", "queues"}
    helpers |= {"times", "directions", "activations", "uniform_microbatches", "fused"}
    assert not used & helpers


def test_violation_in_words() -> None:
    assert str(Violation("op 3", "start 4", "5 or later")) == (
        "op 3: found start 4, expected 5 or later"
    )


# Problems: one rule at a time -------------------------------------------------------------------


def test_starts_of_another_shape() -> None:
    assert judge(machine(5, 5), [0]) == ["starts"]
    problem, _ = machine(5, 5).build()
    assert places(check_problem(problem, np.array([0.0, 5.0]))) == ["starts"]


def test_release() -> None:
    builder = ProblemBuilder()
    builder.op(5, builder.resource("gpu"), release=7)
    assert judge(builder, [7]) == []
    assert judge(builder, [6]) == ["op 0"]


@pytest.mark.parametrize("start", [6, 8])
def test_pinned(start: int) -> None:
    builder = ProblemBuilder()
    builder.op(5, builder.resource("gpu"), pinned=7)
    assert judge(builder, [7]) == []
    assert judge(builder, [start]) == ["op 0"]


def test_overlap() -> None:
    assert judge(machine(5, 5), [0, 5]) == []
    assert judge(machine(5, 5), [0, 4]) == ["op 1 on gpu"]
    assert judge(machine(5, 5), [4, 0]) == ["op 0 on gpu"]
    assert judge(machine(9, 1, 1), [0, 3, 9]) == ["op 1 on gpu"]


def test_overlap_is_per_resource() -> None:
    builder = ProblemBuilder()
    builder.ops([5, 5], [builder.resource("gpu"), builder.resource("link")])
    assert judge(builder, [0, 0]) == []


def test_op_without_duration_may_stand_at_an_edge_but_not_inside() -> None:
    assert judge(machine(5, 0), [2, 2]) == []
    assert judge(machine(5, 0), [2, 7]) == []
    assert judge(machine(5, 0), [2, 3]) == ["op 1 on gpu"]
    assert judge(machine(0, 0), [2, 2]) == []


@pytest.mark.parametrize("start", [6, 10, 12, 19, 35, 25])
def test_closed_window(start: int) -> None:
    builder = machine(5, closed=[(10, 20), (29, 40)])
    assert judge(builder, [start]) == ["op 0 on gpu"]


@pytest.mark.parametrize("start", [0, 5, 20, 24, 40])
def test_between_closed_windows(start: int) -> None:
    assert judge(machine(5, closed=[(10, 20), (29, 40)]), [start]) == []


def test_op_without_duration_beside_a_closed_window() -> None:
    assert judge(machine(0, closed=[(10, 20)]), [10]) == []
    assert judge(machine(0, closed=[(10, 20)]), [20]) == []
    assert judge(machine(0, closed=[(10, 20)]), [11]) == ["op 0 on gpu"]


def test_closed_window_of_another_resource() -> None:
    builder = machine(5)
    builder.resource("link", closed=[(0, 20)])
    assert judge(builder, [3]) == []


def test_edge_with_lag() -> None:
    builder = ProblemBuilder()
    builder.ops([5, 5], [builder.resource("gpu"), builder.resource("link")])
    builder.edge(0, 1, 3)
    assert judge(builder, [1, 9]) == []
    assert judge(builder, [1, 8]) == ["op 1"]


def test_queue() -> None:
    builder = machine(5, 5, 5)
    builder.queue([0, 2])
    assert judge(builder, [0, 5, 10]) == []
    assert judge(builder, [5, 0, 10]) == []
    assert judge(builder, [10, 5, 0]) == ["op 2 of queue 0"]


def test_queues_are_apart() -> None:
    builder = machine(5, 5, 5, 5)
    builder.queue([2, 3])
    builder.queue([0, 1])
    assert judge(builder, [0, 5, 10, 15]) == []
    assert judge(builder, [0, 5, 15, 10]) == ["op 3 of queue 0"]


def test_queue_of_ops_without_duration() -> None:
    """At equal starts the op that ends first ran first."""
    builder = machine(5, 0)
    builder.queue([0, 1])
    assert judge(builder, [2, 7]) == []
    assert judge(builder, [2, 2]) == ["op 1 of queue 0"]


def held(capacity: int | None, initial: int = 0) -> ProblemBuilder:
    """Return two ops of 5 ns on a resource each; op 0 takes 3 and op 1 takes 4 of a pool."""
    builder = ProblemBuilder()
    builder.ops([5, 5], [builder.resource("gpu"), builder.resource("link")])
    builder.pool("memory", capacity, initial)
    builder.change([0, 1], 0, [3, 4])
    return builder


def test_pool_rises_from_the_start() -> None:
    assert judge(held(7), [0, 2]) == []
    assert judge(held(6), [0, 2]) == ["pool 0 (memory)"]
    assert judge(held(None), [0, 2]) == []


def test_pool_falls_from_the_end_and_before_a_rise() -> None:
    builder = held(4)
    builder.change(0, 0, -3)
    assert judge(builder, [0, 5]) == []
    assert judge(builder, [0, 4]) == ["pool 0 (memory)"]


def test_pool_starts_at_its_initial_level() -> None:
    assert judge(held(9, initial=2), [0, 2]) == []
    assert judge(held(9, initial=3), [0, 2]) == ["pool 0 (memory)"]
    builder = ProblemBuilder()
    builder.resource("gpu")
    builder.pool("memory", 3, initial=4)
    assert judge(builder, []) == ["pool 0 (memory)"]


def test_pools_are_apart() -> None:
    builder = held(7)
    builder.pool("empty", 0)
    builder.pool("other", 1)
    builder.change(0, 2, 2)
    assert judge(builder, [0, 2]) == ["pool 2 (other)"]


def test_pool_says_when_it_is_fullest() -> None:
    problem, _ = held(6).build()
    (violation,) = check_problem(problem, np.array([3, 1]))
    assert (violation.found, violation.expected) == ("level 7 at 3", "at most 6")


def test_levels_beyond_64_bits() -> None:
    builder = ProblemBuilder()
    builder.ops([5] * 4, [builder.resource(str(k)) for k in range(4)])
    builder.pool("memory", 2**62)
    builder.change(range(4), 0, 2**62)
    assert judge(builder, [0, 1, 2, 3]) == ["pool 0 (memory)"]


def guarded() -> ProblemBuilder:
    """Return ops 0 (always), 1 (option 0) and 2 (option 1), each of 5 ns on one resource."""
    builder = ProblemBuilder()
    gpu = builder.resource("gpu")
    builder.choice("keep", Option("yes"), Option("no", cost=3))
    builder.op(5, gpu)
    builder.op(5, gpu, when=(0, 0))
    builder.op(5, gpu, when=(0, 1))
    return builder


def test_choice_says_what_is_present() -> None:
    assert judge(guarded(), [0, 5, ABSENT], [0]) == []
    assert judge(guarded(), [0, ABSENT, 5], [1]) == []
    assert judge(guarded(), [0, 5, 10], [0]) == ["op 2"]
    assert judge(guarded(), [0, ABSENT, ABSENT], [0]) == ["op 1"]
    assert judge(guarded(), [ABSENT, 5, ABSENT], [0]) == ["op 0"]


def test_absent_is_one_number_and_times_are_bounded() -> None:
    assert judge(guarded(), [0, 5, -2], [0]) == ["op 2"]
    assert judge(guarded(), [2**62, 5, ABSENT], [0]) == ["op 0"]
    assert judge(guarded(), [2**62 - 1, 5, ABSENT], [0]) == []


@pytest.mark.parametrize(
    ("selected", "place"),
    [([], "selected"), ([0, 0], "selected"), ([2], "selected[0]"), ([-1], "selected[0]")],
)
def test_selected_options(selected: list[int], place: str) -> None:
    assert judge(guarded(), [0, 5, ABSENT], selected) == [place]


def test_absent_ops_break_no_rule() -> None:
    builder = guarded()
    builder.pool("memory", 1)
    builder.change([1, 2], 0, [1, 9])
    builder.edge(2, builder.op(5, 0), 100)
    builder.edge(0, 2, 100)
    builder.queue([0, 2, 3])
    assert judge(builder, [0, 5, ABSENT, 10], [0]) == []
    assert judge(builder, [10, 5, ABSENT, 0], [0]) == ["op 3 of queue 0"]
    assert judge(builder, [0, ABSENT, 105, 210], [1]) == ["pool 0 (memory)"]
    assert judge(builder, [0, ABSENT, 105, 209], [1]) == ["op 3", "pool 0 (memory)"]


def test_long_lists_are_counted() -> None:
    count = 50_000
    problem, _ = machine(*[5] * count).build()
    wrong = check_problem(problem, np.zeros(count, np.int64))
    assert len(wrong) == SHOWN + 1
    assert wrong[-1].found == f"{count - 1 - SHOWN} more violations"


# Problems: against the definitions, op by op ----------------------------------------------------


@st.composite
def solutions(draw: st.DrawFn) -> tuple[Problem, Ints, list[int]]:
    """Draw a small problem, options and starts, often right or nearly so."""
    small = st.integers(0, 4)
    builder = ProblemBuilder()
    builder.resource("a", closed=draw(st.sampled_from([(), ((3, 5),), ((2, 4), (7, 9))])))
    builder.resource("b")
    builder.choice("c", Option("x"), Option("y"))
    builder.pool("p", draw(small) + 4, draw(small))
    n = draw(st.integers(1, 5))
    for _ in range(n):
        when = draw(st.sampled_from([(-1, -1), (-1, -1), (0, 0), (0, 1)]))
        pinned = draw(st.sampled_from([-1, -1, -1, 4]))
        release = draw(st.sampled_from([0, 0, 3]))
        builder.op(draw(small), draw(st.integers(0, 1)), release=release, pinned=pinned, when=when)
        builder.change(draw(st.integers(0, n - 1)), 0, draw(st.integers(-4, 4)))
    for after in range(1, n):
        if draw(st.booleans()):
            builder.edge(draw(st.integers(0, after - 1)), after, draw(small))
    problem, _ = builder.build()
    on_a = np.flatnonzero(problem.resource == 0)
    if draw(st.booleans()):
        bounds = np.array([0, len(on_a)])
        problem = problem.replace(queue_op=on_a, queue_at=bounds, queue_exact=np.ones(1, np.bool_))
    selected = [draw(st.integers(0, 1))]
    kept = [
        not c + 1 or o == selected[0]
        for c, o in zip(problem.guard_choice, problem.guard_option, strict=True)
    ]
    orders = [
        np.array([i for i in range(n) if kept[i] and problem.resource[i] == r], np.int64)
        for r in (0, 1)
    ]
    starts = earliest(problem, orders)
    for i in draw(st.lists(st.integers(0, n - 1), max_size=2)):
        starts[i] = max(ABSENT, starts[i] + draw(st.integers(-3, 6)))
    return problem, starts, selected


def breaks_a_rule(p: Problem, starts: list[int], selected: list[int]) -> bool:
    """Apply the definitions to every op, pair and moment."""
    duration, n = p.duration.tolist(), len(starts)
    end = [s + d for s, d in zip(starts, duration, strict=True)]
    here = []
    for i in range(n):
        choice = int(p.guard_choice[i])
        here.append(choice < 0 or selected[choice] == p.guard_option[i])
        if here[i] != (starts[i] >= 0):
            return True
    ops = [i for i in range(n) if here[i]]
    for i in ops:
        if starts[i] < p.release[i] or p.pinned[i] not in (-1, starts[i]):
            return True
        for a, b in p.resources[p.resource[i]].closed:
            if not (end[i] <= a or starts[i] >= b):
                return True
        for j in ops:
            if (
                i < j
                and p.resource[i] == p.resource[j]
                and not (end[i] <= starts[j] or end[j] <= starts[i])
            ):
                return True
    for i, j, lag in zip(p.edge_from, p.edge_to, p.edge_lag, strict=True):
        if here[i] and here[j] and starts[j] < end[i] + lag:
            return True
    queue = [int(i) for i in p.queue_op if here[i]]
    if any(starts[j] < end[i] for k, i in enumerate(queue) for j in queue[k + 1 :]):
        return True
    changes = [
        (int(amount), starts[op] if amount > 0 else end[op])
        for op, amount in zip(p.change_op, p.change_amount, strict=True)
        if here[op]
    ]
    moments = [-1, *(time for _, time in changes)]
    return any(
        p.pools[0].initial + sum(amount for amount, time in changes if time <= moment)
        > (p.pools[0].capacity or 0)
        for moment in moments
    )


@settings(max_examples=300, deadline=None)
@given(solutions())
def test_agrees_with_the_definitions(solution: tuple[Problem, Ints, list[int]]) -> None:
    problem, starts, selected = solution
    wrong = check_problem(problem, starts, selected)
    assert bool(wrong) == breaks_a_rule(problem, starts.tolist(), selected), wrong


# Schedule files ---------------------------------------------------------------------------------


def pipeline(**changes: Any) -> Pipeline:
    """Return two stages on two ranks, 10 ns per op, 5 ns apart; 10 and 20 bytes, 4 and 5 by I."""
    document: dict[str, Any] = {
        "format": Pipeline.FORMAT,
        "version": 1,
        "ranks": 2,
        "stages": 2,
        "microbatches": 1,
        "placement": [[0, 1]],
        "forward_ns": [10, 10],
        "backward_input_ns": [10, 10],
        "backward_weight_ns": [10, 10],
        "latency_ns": [[0, 5], [5, 0]],
        "activation_bytes": [10, 20],
        "released_by_input_bytes": [4, 5],
    }
    return Pipeline.parse({**document, **changes}, "test pipeline")


SPLIT = {"0F0": 0, "1F0": 15, "1I0": 25, "1W0": 35, "0I0": 40, "0W0": 50}
FUSED = {"0F0": 0, "1F0": 15, "1B0": 25, "0B0": 50}


def rows_of(p: Pipeline, starts: dict[str, int]) -> list[OpRow]:
    rows = []
    for name, start in starts.items():
        stage, kind, microbatch = int(name[0]), name[1], int(name[2])
        lasts = 20 if kind == "B" else 10
        rows.append((kind, stage, microbatch, p.placement[0][stage], start, start + lasts))
    return rows


def timed(p: Pipeline, starts: dict[str, int], **rest: Any) -> Schedule:
    return schedule_from(p, rows_of(p, starts), **rest)


def edited(schedule: Schedule, **changes: Any) -> Schedule:
    """Change fields of the file; None leaves one out."""
    document = {**schedule.model_dump(mode="json", exclude_none=True), **changes}
    return Schedule.parse({k: v for k, v in document.items() if v is not None}, "edited")


def wrong_in(schedule: Schedule, given: Pipeline | None = None) -> list[str]:
    return places(check_schedule(schedule, given))


def test_right_schedules() -> None:
    schedule = timed(pipeline(), SPLIT)
    assert (schedule.makespan_ns, schedule.device_span_ns) == (60, 60)
    assert (schedule.bubble, schedule.peak_bytes) == (0.5, [10, 20])
    assert check_schedule(schedule) == []
    assert check_schedule(timed(pipeline(backward="fused"), FUSED)) == []


@pytest.mark.parametrize(
    ("starts", "name", "early", "predecessor"),
    [
        (SPLIT, "1F0", 14, "0F0"),
        (SPLIT, "0I0", 39, "1I0"),
        (SPLIT, "1I0", 0, "1F0"),
        (SPLIT, "1W0", 0, "1I0"),
        (FUSED, "1F0", 14, "0F0"),
        (FUSED, "0B0", 49, "1B0"),
        (FUSED, "1B0", -5, "1F0"),
    ],
)
def test_precedence(starts: dict[str, int], name: str, early: int, predecessor: str) -> None:
    by = 100  # room for an op before all others
    moved = {key: start + by for key, start in starts.items()} | {name: early + by}
    p = pipeline(backward="fused" if starts is FUSED else "split", activation_bytes=[0, 0],
                 released_by_input_bytes=[0, 0])  # fmt: skip
    (violation,) = check_schedule(timed(p, moved))
    assert f"({name})" in violation.place
    assert violation.expected.startswith(predecessor)


def test_latency_lies_between_two_ranks_in_its_direction() -> None:
    p = pipeline(latency_ns=[[99, 5], [4, 99]])
    starts = SPLIT | {"0I0": 39}
    assert wrong_in(timed(p, starts)) == []
    assert wrong_in(timed(pipeline(latency_ns=[[0, 6], [4, 0]]), starts)) == ["ops[1] (1F0)"]
    assert wrong_in(timed(pipeline(latency_ns=[[0, 5], [5, 0]]), starts)) == ["ops[4] (0I0)"]
    assert wrong_in(timed(pipeline(latency_ns=None), starts)) == []


def test_missing_op() -> None:
    starts = {name: start for name, start in SPLIT.items() if name != "1I0"}
    (violation,) = check_schedule(timed(pipeline(), starts))
    assert violation == Violation("ops", "no 1I0", "it once")


def test_repeated_op() -> None:
    p = pipeline()
    rows = rows_of(p, SPLIT)
    (violation,) = check_schedule(schedule_from(p, [*rows, ("F", 1, 0, 1, 80, 90)]))
    assert violation.found == "1F0 2 times, first in ops[1] and ops[6]"


def test_foreign_kind() -> None:
    p = pipeline(backward="fused")
    rows = [*rows_of(p, FUSED), ("W", 0, 0, 0, 80, 90)]
    assert wrong_in(schedule_from(p, rows)) == ["ops[4]"]


def test_wrong_rank() -> None:
    p = pipeline()
    rows = [row if row[:2] != ("W", 0) else ("W", 0, 0, 1, 50, 60) for row in rows_of(p, SPLIT)]
    (violation,) = check_schedule(schedule_from(p, rows))
    assert violation == Violation("ops[5] (0W0)", "rank 1", "rank 0")


@pytest.mark.parametrize("end", [59, 61])
def test_wrong_duration(end: int) -> None:
    p = pipeline()
    rows = [*rows_of(p, SPLIT)[:-1], ("W", 0, 0, 0, 50, end)]
    (violation,) = check_schedule(schedule_from(p, rows))
    assert violation == Violation("ops[5] (0W0)", f"{end - 50} ns", "10 ns")


def test_durations_by_microbatch() -> None:
    p = pipeline(
        ranks=1, microbatches=2, placement=[[0, 0]], latency_ns=None, backward="fused",
        forward_ns=[[1, 2], 3], backward_input_ns=[4, [5, 6]], backward_weight_ns=[[7, 8], 9],
    )  # fmt: skip
    model = build(p)
    assert model.problem.duration.tolist() == [1, 3, 14, 11, 2, 3, 15, 12]
    starts = np.concatenate([[0], np.cumsum(model.problem.duration)[:-1]])
    assert wrong_in(schedule_of(model, starts)) == []
    swapped = edited(
        schedule_of(model, starts),
        pipeline=p.model_dump(exclude_none=True) | {"forward_ns": [[2, 1], 3]},
    )
    assert wrong_in(swapped) == ["ops[0] (0F0)", "ops[4] (0F1)"]


def test_overlap_on_a_rank() -> None:
    p = pipeline(ranks=1, placement=[[0, 0]], latency_ns=None)
    starts = {"0F0": 0, "1F0": 10, "1I0": 20, "1W0": 30, "0I0": 40, "0W0": 50}
    assert wrong_in(timed(p, starts)) == []
    (violation,) = check_schedule(timed(p, starts | {"0I0": 39}))
    assert violation.place == "ops[4] (0I0)"
    assert violation.expected == "40 or later, when 1W0 ends on rank 0"


def test_memory_limit() -> None:
    """Both stages on one rank hold 10 + 20 bytes once the second forward starts."""
    p = pipeline(ranks=1, placement=[[0, 0]], latency_ns=None)
    starts = {"0F0": 0, "1F0": 10, "1I0": 20, "1W0": 30, "0I0": 40, "0W0": 50}
    assert timed(p, starts).peak_bytes == [30]
    for limit, found in ((30, []), (29, ["30 bytes of activations at 10"])):
        limited = pipeline(ranks=1, placement=[[0, 0]], latency_ns=None, memory_limit_bytes=[limit])
        wrong = check_schedule(timed(limited, starts))
        assert [violation.found for violation in wrong] == found


@pytest.mark.parametrize(
    ("order", "peak"),
    [
        ("F0 F1 I0 W0 I1 W1", 20),
        ("F0 I0 F1 W0 I1 W1", 16),  # I frees 4 of 10
        ("F0 I0 W0 F1 I1 W1", 10),  # W the rest, before F charges at the same moment
        ("F0 B0 F1 B1", 10),
        ("F0 F1 B0 B1", 20),
    ],
)
def test_memory_is_charged_by_forward_and_freed_by_backward(order: str, peak: int) -> None:
    p = pipeline(
        ranks=2, stages=1, microbatches=2, placement=[[1]], latency_ns=None,
        forward_ns=[10], backward_input_ns=[10], backward_weight_ns=[10], activation_bytes=[10],
        released_by_input_bytes=[4], memory_limit_bytes=[0, peak],
        backward="fused" if "B" in order else "split",
    )  # fmt: skip
    names, starts, now = [f"0{name}" for name in order.split()], {}, 0
    for name in names:
        starts[name], now = now, now + (20 if "B" in name else 10)
    schedule = timed(p, starts)
    assert schedule.peak_bytes == [0, peak]
    assert wrong_in(schedule) == []
    short = p.model_dump(exclude_none=True) | {"memory_limit_bytes": [0, peak - 1]}
    (violation,) = check_schedule(edited(schedule, pipeline=short))
    assert violation.place == "memory of rank 1"


@pytest.mark.parametrize(
    ("order", "lasting", "peak"),
    [
        ("F0 I0 W0 F1 I1 W1", "FW", 10),  # I ends when it starts: after F has charged
        ("F0 F1 I0 I1 W0 W1", "IW", 20),  # F1 starts when I0 starts: before I0 frees
        ("F0 I0 W0 F1 I1 W1", "FI", 10),  # W0 frees before F1 charges
    ],
)
def test_memory_of_ops_that_take_no_time(order: str, lasting: str, peak: int) -> None:
    times = {kind: 10 * (kind in lasting) for kind in "FIW"}
    p = pipeline(
        ranks=1, stages=1, microbatches=2, placement=[[0]], latency_ns=None,
        forward_ns=[times["F"]], backward_input_ns=[times["I"]], backward_weight_ns=[times["W"]],
        activation_bytes=[10], released_by_input_bytes=[4],
    )  # fmt: skip
    rows: list[OpRow] = []
    now = 0
    for name in order.split():
        kind, microbatch = name[0], name[1]
        rows.append((kind, 0, int(microbatch), 0, now, now + times[kind]))
        now += times[kind]
    assert schedule_from(p, rows).peak_bytes == [peak]
    assert wrong_in(schedule_from(p, rows)) == []


def test_memory_beyond_64_bits_is_refused() -> None:
    with pytest.raises(InputError, match="in all microbatches"):
        pipeline(
            ranks=1, stages=1, microbatches=4, placement=[[0]], latency_ns=None, forward_ns=[10],
            backward_input_ns=[10], backward_weight_ns=[10], activation_bytes=[2**62],
            released_by_input_bytes=[0], memory_limit_bytes=[2**62],
        )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"makespan_ns": 61}, "makespan_ns"),
        ({"makespan_ns": 59}, "makespan_ns"),
        ({"device_span_ns": 59}, "device_span_ns"),
        ({"bubble": 0.5 + 2e-9}, "bubble"),
        ({"bubble": 0.5 - 2e-9}, "bubble"),
        ({"peak_bytes": [10, 21]}, "peak_bytes[1]"),
        ({"peak_bytes": [9, 20]}, "peak_bytes[0]"),
        ({"lower_bound_ns": 61, "gap": 0.0}, "lower_bound_ns"),
        ({"lower_bound_ns": 48}, "gap"),
        ({"lower_bound_ns": 48, "gap": 0.25 + 2e-9}, "gap"),
        ({"lower_bound_ns": 48, "gap": 0.25 - 2e-9}, "gap"),
        ({"status": "optimal"}, "status"),
        ({"status": "optimal", "lower_bound_ns": 48, "gap": 0.25}, "status"),
    ],
)
def test_wrong_figure(changes: dict[str, Any], place: str) -> None:
    wrong = wrong_in(edited(timed(pipeline(), SPLIT), **changes))
    assert set(wrong) == {place} | ({"gap"} if changes.get("lower_bound_ns") == 61 else set())


@pytest.mark.parametrize(
    "changes",
    [
        {"lower_bound_ns": 48, "gap": 0.25},
        {"lower_bound_ns": 59, "gap": 60 / 59 - 1},
        {"lower_bound_ns": 60, "gap": 0.0, "status": "optimal"},
        {"lower_bound_ns": 0},
        {"bubble": 0.5 + 1e-12},
    ],
)
def test_right_figure(changes: dict[str, Any]) -> None:
    assert wrong_in(edited(timed(pipeline(), SPLIT), **changes)) == []


def test_gap_far_above_the_bound_is_no_looser() -> None:
    starts = {name: start + 99_940 for name, start in SPLIT.items()}
    schedule = timed(pipeline(), starts, bound=1)
    assert schedule.gap == 99_999
    assert wrong_in(schedule) == []
    assert wrong_in(edited(schedule, gap=99_999 + 5e-6)) == ["gap"]


def test_objective_says_what_bound_and_gap_are_about() -> None:
    """All 40 ns late: the makespan is 100, the device span stays 60."""
    starts = {name: start + 40 for name, start in SPLIT.items()}
    schedule = timed(pipeline(), starts, objective="device-span", bound=60, status="optimal")
    assert (schedule.makespan_ns, schedule.device_span_ns) == (100, 60)
    assert wrong_in(schedule) == []
    assert wrong_in(timed(pipeline(), starts, bound=100, status="optimal")) == []
    assert wrong_in(edited(schedule, objective="makespan")) == ["gap", "status"]
    assert wrong_in(edited(schedule, device_span_ns=100)) == ["device_span_ns"]


def test_device_span_is_the_largest_of_the_ranks() -> None:
    """Rank 0 works from 0 to 60; rank 1 from 15 to 85 once its W is late."""
    schedule = timed(pipeline(), SPLIT | {"1W0": 75})
    assert (schedule.makespan_ns, schedule.device_span_ns) == (85, 70)
    assert wrong_in(schedule) == []


def test_no_time_at_all() -> None:
    nothing = {f"{k}_ns": [0, 0] for k in ("forward", "backward_input", "backward_weight")}
    p = pipeline(latency_ns=None, **nothing)
    model = build(p)
    assert wrong_in(schedule_of(model, np.zeros(6, np.int64))) == []


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"latency_ns": [[0, 5], [4, 0]]}, "pipeline: latency[1, 0]"),
        ({"latency_ns": None}, "pipeline: latency"),
        (
            {"activation_bytes": [10, 20], "released_by_input_bytes": [4, 6]},
            "pipeline: change[1, 1]",
        ),
        ({"memory_limit_bytes": [10, 20]}, "pipeline: limit"),
    ],
)
def test_given_pipeline_that_differs_where_the_schedule_is_right(
    changes: dict[str, Any], place: str
) -> None:
    assert wrong_in(timed(pipeline(), SPLIT), pipeline(**changes))[0] == place


def test_given_pipeline_counts() -> None:
    schedule = timed(pipeline(), SPLIT)
    limited = pipeline(memory_limit_bytes=[10, 19])
    assert wrong_in(schedule, limited) == ["pipeline: limit", "memory of rank 1"]
    slower = pipeline(forward_ns=[10, 11])
    assert wrong_in(schedule, slower) == ["pipeline: duration[0, 1, 0]", "ops[1] (1F0)"]


def test_given_pipeline_of_another_size() -> None:
    schedule = timed(pipeline(), SPLIT)
    one = pipeline(
        ranks=1, stages=1, placement=[[0]], latency_ns=None, forward_ns=[10], activation_bytes=[10],
        backward_input_ns=[10], backward_weight_ns=[10], released_by_input_bytes=[4],
    )  # fmt: skip
    wrong = wrong_in(schedule, one)
    assert "pipeline: ranks" in wrong
    assert wrong[-3:] == ["ops[1]", "ops[2]", "ops[3]"]
    two = timed(
        pipeline(microbatches=2), SPLIT | {f"{name[:2]}1": 60 + t for name, t in SPLIT.items()}
    )
    assert wrong_in(two, pipeline())[-6:] == [f"ops[{k}]" for k in range(6, 12)]
    more = pipeline(ranks=3, latency_ns=None)
    assert wrong_in(schedule, more)[-2:] == ["peak_bytes", "bubble"]
    fused = pipeline(backward="fused")
    assert "pipeline: kinds" in wrong_in(schedule, fused)


def test_given_pipeline_that_says_the_same_otherwise() -> None:
    same = pipeline(
        name="other", direction=[0], forward_ns=[[10], [10]], latency_ns=[[7, 5], [5, 9]],
        placement=[[0, 1], [1, 0]], layers=[["a"], ["b"]],
    )  # fmt: skip
    assert wrong_in(timed(pipeline(), SPLIT), same) == []
    none = timed(pipeline(latency_ns=None), SPLIT)
    assert wrong_in(none, pipeline(latency_ns=[[3, 0], [0, 0]])) == []


def test_directions() -> None:
    p = pipeline(microbatches=2, placement=[[0, 1], [1, 0]], direction=[0, 1])
    model = build(p)
    orders = [np.flatnonzero(model.problem.resource == rank) for rank in range(2)]
    schedule = schedule_of(model, earliest(model.problem, orders))
    assert wrong_in(schedule) == []
    other = p.model_dump(exclude_none=True) | {"direction": [0, 0]}
    moved = [f"({stage}{kind}1)" for kind in "FIW" for stage in range(2)]
    wrong = wrong_in(edited(schedule, pipeline=other))
    assert sorted(place.split()[1] for place in wrong) == sorted(moved)


def test_long_lists_of_a_file_are_counted() -> None:
    p = pipeline(microbatches=40)
    model = build(p)
    wrong = check_schedule(schedule_of(model, np.zeros(240, np.int64)))
    assert len(wrong) < 3 * (SHOWN + 1)
    assert Violation("overlaps", f"{238 - SHOWN} more violations", "none") in wrong


def test_no_ops() -> None:
    assert wrong_in(schedule_from(pipeline(), [])) == ["ops"] * 6


# Mutants ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mutate() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "mutate_check", ROOT / "scripts" / "mutate_check.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_mutants_are_judged_rightly(mutate: ModuleType) -> None:
    counts, misjudged = mutate.run(300, seed=1)
    assert misjudged == []
    assert counts.total() == 300


@pytest.mark.parametrize("answer", [[], [Violation("", "", "")]])
def test_a_checker_that_always_says_the_same_is_found_out(
    mutate: ModuleType, monkeypatch: pytest.MonkeyPatch, answer: list[Violation]
) -> None:
    monkeypatch.setattr(mutate, "check_schedule", lambda schedule: answer)
    result = CliRunner().invoke(mutate.main, ["--count", "40"])
    assert result.exit_code == 1
    assert "misjudged" in result.output


def test_mutation_script_as_a_command(mutate: ModuleType) -> None:
    result = CliRunner().invoke(mutate.main, ["--count", "40", "--seed", "2"])
    assert result.exit_code == 0
    assert "40 mutants, 0 misjudged" in result.output
