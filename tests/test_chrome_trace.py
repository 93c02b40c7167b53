from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import pytest
from export_cases import backward_first, pipeline
from helpers import schedule_from, schedule_of
from hypothesis import given
from hypothesis import strategies as st

from schedopt.build.pipeline import build
from schedopt.exporters import export
from schedopt.exporters.chrome_trace import to_chrome_trace
from schedopt.pipeline import Pipeline
from schedopt.schedule import Schedule

BIDIRECTIONAL = pipeline([0, 1, 2]).model_copy(
    update={"placement": [[0, 1, 2], [2, 1, 0]], "direction": [0, 1, 0, 1]}
)
CASES = {
    "linear split": pipeline([0, 1]),
    "V split": pipeline([0, 1, 1, 0], microbatches=5),
    "linear fused": pipeline([0, 1, 2, 3], microbatches=6, backward="fused"),
    "bidirectional": BIDIRECTIONAL,
    "idle rank": pipeline([0, 1]).model_copy(update={"ranks": 3, "latency_ns": None}),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
Event = dict[str, Any]


def events(schedule: Schedule) -> dict[str, list[Event]]:
    """Return the events of the trace by phase."""
    by_phase: dict[str, list[Event]] = defaultdict(list)
    for event in json.loads(to_chrome_trace(schedule))["traceEvents"]:
        by_phase[event["ph"]].append(event)
    return by_phase


def ns(us: float) -> int:
    """Read a time as Perfetto does, which cuts off; rounding must give the same."""
    assert int(us * 1000) == round(us * 1000)
    return int(us * 1000)


@each_case
def test_every_op_is_a_slice(case: Pipeline) -> None:
    schedule = backward_first(case)
    slices = [
        (
            event["cat"],
            event["args"]["stage"],
            event["args"]["microbatch"],
            event["pid"] - 1,
            ns(event["ts"]),
            ns(event["ts"]) + ns(event["dur"]),
        )
        for event in events(schedule)["X"]
    ]
    assert sorted(slices) == sorted(tuple(op.values()) for op in schedule.ops)
    for event in events(schedule)["X"]:
        kind, stage, microbatch = (event["args"][k] for k in ("kind", "stage", "microbatch"))
        assert (event["name"], event["cat"]) == (f"{kind} s{stage} mb{microbatch}", kind)


@each_case
def test_ranks_are_named_processes_with_one_thread(case: Pipeline) -> None:
    metadata = events(backward_first(case))["M"]
    named = {(event["name"], event["pid"]): event["args"] for event in metadata}
    assert len(named) == len(metadata) == 3 * case.ranks
    for rank in range(case.ranks):
        assert named["process_name", rank + 1] == {"name": f"rank {rank}"}
        assert named["process_sort_index", rank + 1] == {"sort_index": rank}
        assert named["thread_name", rank + 1] == {"name": "compute"}


@each_case
def test_times_of_a_track_are_monotonic(case: Pipeline) -> None:
    by_phase = events(backward_first(case))
    for phases in ("Xsf", "C"):
        for rank in range(case.ranks):
            track = json.loads(to_chrome_trace(backward_first(case)))["traceEvents"]
            times = [e["ts"] for e in track if e["ph"] in phases and e["pid"] == rank + 1]
            assert times == sorted(times)
    for a, b in pairwise(by_phase["X"]):
        assert a["pid"] != b["pid"] or ns(a["ts"]) + ns(a["dur"]) <= ns(b["ts"])


def transfers(schedule: Schedule) -> Counter[tuple[Any, ...]]:
    """Return what crosses ranks as (sending slice, receiving slice, end, start, latency)."""
    case, latency = schedule.pipeline, schedule.pipeline.latency()
    found = {(op["kind"], op["stage"], op["microbatch"]): op for op in schedule.ops}
    backward = "B" if case.fused else "I"
    pairs = [("F", s, s + 1) for s in range(case.stages - 1)]
    pairs += [(backward, s + 1, s) for s in range(case.stages - 1)]
    return Counter(
        (
            f"{kind} s{a} mb{j}",
            f"{kind} s{b} mb{j}",
            sender["end_ns"] - 1,
            receiver["start_ns"],
            latency[sender["rank"], receiver["rank"]],
        )
        for j in range(case.microbatches)
        for kind, a, b in pairs
        for sender, receiver in [(found[kind, a, j], found[kind, b, j])]
        if sender["rank"] != receiver["rank"]
    )


@each_case
def test_arrows_join_the_slices_of_every_transfer(case: Pipeline) -> None:
    """Follow each arrow as Perfetto does: it belongs to the slice last begun on its thread."""
    schedule = backward_first(case)
    slice_on: dict[tuple[int, int], str] = {}
    begun: dict[tuple[Any, ...], list[tuple[str, Event]]] = defaultdict(list)
    for event in json.loads(to_chrome_trace(schedule))["traceEvents"]:
        track = event["pid"], event["tid"]
        if event["ph"] == "X":
            slice_on[track] = event["name"]
        elif event["ph"] in "sf":
            end = (slice_on[track], event)
            begun[event["id"], event["cat"], event["name"]].append(end)
    found: Counter[tuple[Any, ...]] = Counter()
    for ends in begun.values():
        (sender, start), (receiver, finish) = sorted(ends, key=lambda e: e[1]["ph"], reverse=True)
        assert (start["ph"], finish["ph"], finish["bp"]) == ("s", "f", "e")
        assert start["args"] == finish["args"]
        latency = start["args"]["latency_ns"]
        found[sender, receiver, ns(start["ts"]), ns(finish["ts"]), latency] += 1
    assert found == transfers(schedule)


@each_case
def test_memory_counters_reach_the_peak_and_end_at_zero(case: Pipeline) -> None:
    schedule = backward_first(case)
    for rank in range(case.ranks):
        counters = [e for e in events(schedule)["C"] if e["pid"] == rank + 1]
        levels = [event["args"]["bytes"] for event in counters]
        assert max(levels, default=0) == schedule.peak_bytes[rank]
        assert min(levels, default=0) == 0
        assert levels[-1:] in ([], [0])
        assert all(a != b for a, b in pairwise(levels))
        assert len({event["ts"] for event in counters}) == len(counters)


def test_a_fall_and_a_rise_at_one_time_are_no_peak() -> None:
    case = pipeline([0], microbatches=2, backward="fused")
    schedule = backward_first(case)
    rows = [("F", 0, 0, 0, 0, 10), ("B", 0, 0, 0, 10, 20), ("F", 0, 1, 0, 20, 30)]
    schedule = schedule_from(case, [*rows, ("B", 0, 1, 0, 30, 40)])
    found = [(ns(e["ts"]), e["args"]["bytes"]) for e in events(schedule)["C"]]
    assert found == [(0, 1000), (40, 0)]


def test_no_memory_no_counter() -> None:
    case = pipeline([0, 1]).model_copy(
        update={"activation_bytes": None, "released_by_input_bytes": None}
    )
    assert "C" not in events(backward_first(case))


@given(st.integers(0, 2**50))  # 13 days; beyond, a float of µs no longer holds ns
def test_times_are_exact(start: int) -> None:
    case = Pipeline(
        ranks=1,
        stages=1,
        microbatches=1,
        placement=[[0]],
        backward="fused",
        forward_ns=[start],
        backward_input_ns=[1],
        backward_weight_ns=[0],
    )
    forward, backward = events(schedule_of(build(case), [0, start]))["X"]
    assert (ns(forward["dur"]), ns(backward["ts"]), ns(backward["dur"])) == (start, start, 1)


def test_the_figures_are_kept() -> None:
    case = pipeline([0, 1])
    plain = backward_first(case)
    model = build(case)
    number = model.find()
    starts = [0] * model.problem.size
    for op in plain.ops:
        starts[number[op["kind"], op["stage"], op["microbatch"]]] = op["start_ns"]
    schedule = schedule_of(model, starts, bound=plain.makespan_ns - 100)
    figures = json.loads(to_chrome_trace(schedule))["otherData"]
    assert figures["makespan_ns"] == plain.makespan_ns
    assert figures["lower_bound_ns"] == plain.makespan_ns - 100
    assert figures["gap"] == pytest.approx(100 / (plain.makespan_ns - 100))


def test_text_does_not_depend_on_the_order_of_the_file() -> None:
    schedule = backward_first(pipeline([0, 1, 1, 0]))
    rows = [tuple(op.values()) for op in schedule.ops]
    again = schedule_from(schedule.pipeline, reversed(rows))
    assert to_chrome_trace(again) == to_chrome_trace(schedule) == export(schedule, "chrome-trace")
