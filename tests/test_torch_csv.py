from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from export_cases import backward_first, list_schedule, pipeline
from helpers import schedule_from
from hypothesis import given, settings
from hypothesis import strategies as st

from schedopt.build.pipeline import build
from schedopt.errors import Fault, InputError
from schedopt.exporters import EXPORTERS, export
from schedopt.exporters.torch_csv import from_torch_csv, placement_of, to_torch_csv
from schedopt.schedule import Action, Schedule

SAMPLE = Path(__file__).parents[2] / "shared/samples/good/17_torch_schedule_csv/custom_schedule.csv"


def faults(call: Callable[[], object]) -> list[Fault]:
    with pytest.raises(InputError) as error:
        call()
    return list(error.value.faults)


def changed(schedule: Schedule, change: Callable[[tuple], tuple | None]) -> Schedule:
    """Return the schedule with every op row changed, or left out where `change` gives None."""
    names = ("kind", "stage", "microbatch", "rank", "start_ns", "end_ns")
    rows = [change(tuple(op[name] for name in names)) for op in schedule.ops]
    return schedule_from(schedule.pipeline, [row for row in rows if row])


def test_one_row_per_rank_in_order() -> None:
    text = to_torch_csv(backward_first(pipeline([0, 1], microbatches=2)))
    assert text == "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n"


def test_fused_backward_is_one_action() -> None:
    text = to_torch_csv(backward_first(pipeline([0, 1], microbatches=2, backward="fused")))
    assert text == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"


@settings(max_examples=40, deadline=None)
@given(
    placement=st.integers(1, 4).flatmap(
        lambda ranks: st.lists(st.integers(0, ranks - 1), max_size=3).flatmap(
            lambda more: st.permutations([*range(ranks), *more])
        )
    ),
    microbatches=st.integers(1, 5),
    backward=st.sampled_from(["split", "fused"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_round_trip(placement: list[int], microbatches: int, backward: str, seed: int) -> None:
    model = build(pipeline(placement, microbatches, backward))
    order = np.random.default_rng(seed).random(model.problem.size)
    schedule = list_schedule(model, lambda op: order[op])
    orders = from_torch_csv(to_torch_csv(schedule), "own text")
    assert orders == schedule.orders()
    assert placement_of(orders) == placement


def test_a_bidirectional_placement_is_refused() -> None:
    case = pipeline([0, 1], microbatches=2).model_copy(
        update={"placement": [[0, 1], [1, 0]], "direction": [0, 1]}
    )
    found = faults(lambda: to_torch_csv(backward_first(case)))
    assert [(f.place, f.found) for f in found] == [
        ("stage 0", "computations on ranks 0, 1"),
        ("stage 1", "computations on ranks 0, 1"),
    ]


def test_two_directions_with_equal_placement_are_fine() -> None:
    case = pipeline([0, 1], microbatches=2)
    twice = case.model_copy(update={"placement": [[0, 1], [0, 1]], "direction": [0, 1]})
    assert placement_of(from_torch_csv(to_torch_csv(backward_first(twice)), "text")) == [0, 1]


def test_a_rank_without_stages_is_refused() -> None:
    case = pipeline([0, 1]).model_copy(
        update={"ranks": 3, "latency_ns": None, "memory_limit_bytes": None}
    )
    found = faults(lambda: to_torch_csv(backward_first(case)))
    assert [(f.place, f.found) for f in found] == [("rank 2", "no stage")]


@pytest.mark.parametrize(
    ("kind", "place"), [("F", "stage 1, F"), ("I", "stage 1, I or B"), ("W", "stage 1, W")]
)
def test_microbatches_out_of_order_are_refused(kind: str, place: str) -> None:
    def swap(row: tuple) -> tuple:
        swapped = {1: 2, 2: 1}.get(row[2], row[2]) if row[:2] == (kind, 1) else row[2]
        return (*row[:2], swapped, *row[3:])

    found = faults(lambda: to_torch_csv(changed(backward_first(pipeline([0, 1])), swap)))
    assert [(f.place, f.found) for f in found] == [(place, "microbatch 2 after 0")]
    assert found[0].expected == "microbatches 0 to 3, ascending"


def test_missing_and_repeated_actions_are_refused() -> None:
    schedule = backward_first(pipeline([0, 1]))
    without = changed(schedule, lambda row: None if row[:3] == ("W", 0, 3) else row)
    assert [str(f) for f in faults(lambda: to_torch_csv(without))] == [
        "stage 0, W: found microbatches 0 to 2, expected microbatches 0 to 3, ascending"
    ]
    again = changed(
        schedule, lambda row: (*row[:2], 2, *row[3:]) if row[:3] == ("F", 0, 3) else row
    )
    assert [f.found for f in faults(lambda: to_torch_csv(again))] == ["microbatch 2 after 2"]


def test_a_file_from_the_field() -> None:
    if not SAMPLE.exists():
        pytest.skip(f"no sample at {SAMPLE}")
    orders = from_torch_csv(SAMPLE.read_text(), SAMPLE.name)
    assert placement_of(orders) == [0, 1, 0, 1]
    for rank, row in enumerate(orders):
        assert len(row) == 2 * 8 * 3 == len(set(row))
        assert row[0] == Action("F", rank, 0)
        assert row[-1] == Action("W", rank, 7)
    assert (
        "".join(
            ",".join(f"{a.stage}{a.kind}{a.microbatch}" for a in row) + "\n" for row in orders
        ).split()
        == SAMPLE.read_text().split()
    )


def test_merged_actions_become_their_parts() -> None:
    orders = from_torch_csv("0F0,(0F1;3B0)OVERLAP_F_B, ( 1F0 ; 2B0 )OVERLAP_F_B,3F1\n", "text")
    assert orders == [
        [
            Action("F", 0, 0),
            Action("F", 0, 1),
            Action("B", 3, 0),
            Action("F", 1, 0),
            Action("B", 2, 0),
            Action("F", 3, 1),
        ]
    ]


def test_communication_is_dropped() -> None:
    text = "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n1RECV_F0,1F0,1B0,1SEND_B0\n"
    assert from_torch_csv(text, "text") == [
        [Action("F", 0, 0), Action("B", 0, 0)],
        [Action("F", 1, 0), Action("B", 1, 0)],
    ]


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff0F0,0B0\r\n",
        '"0F0","0B0"\n',
        '0F0, "0B0"',
        " 0F0 ,\t0B0 \n",
        "0F0,,,0B0,\n",
    ],
)
def test_spellings_of_one_file(text: str) -> None:
    assert from_torch_csv(text, "text") == [[Action("F", 0, 0), Action("B", 0, 0)]]


@pytest.mark.parametrize(
    "cell",
    [
        "0F0xyz",
        "x0F0",
        "BW",
        "0BW3",
        "0B",
        "F0",
        "0f0",
        "-1F0",
        "0 F0",
        "0F0 0F1",
        "12345678F0",
        "٣F0",  # a digit, but not one that runtimes write
        "0SEND_F",
        "0UNSHARD1",
        "0R0",
        "()OVERLAP_F_B",
        "(0F1;3B0)",
        "(0F1;3B0)OVERLAP_F_B2",
        "(0F1;3SEND_B0)OVERLAP_F_B",
        "((0F1;3B0)OVERLAP_F_B)OVERLAP_F_B",
    ],
)
def test_what_is_no_action_is_refused(cell: str) -> None:
    found = faults(lambda: from_torch_csv(f"0F0,0B0\n1F0,1B0,{cell}\n", "text"))
    assert [(f.place, f.found) for f in found] == [("row 2, column 3", repr(cell))]


def test_all_faults_at_once() -> None:
    text = "0F0,0X0,0F0\n\n1F0,(0F0;1Q2)OVERLAP_F_B\n,,\n"
    found = faults(lambda: from_torch_csv(text, "orders.csv"))
    assert [(f.place, f.found) for f in found] == [
        ("row 1, column 2", "'0X0'"),
        ("row 1, column 3", "0F0 again"),
        ("row 2", "no computation"),
        ("row 3, column 2", "'(0F0;1Q2)OVERLAP_F_B'"),
        ("row 4", "no computation"),
    ]
    assert "blank line" in found[2].hint
    assert found[1].expected.endswith("row 1, column 1")


def test_a_row_that_cannot_be_read_is_not_called_empty() -> None:
    assert [f.place for f in faults(lambda: from_torch_csv("0Q0\n1F0\n", "text"))] == [
        "row 1, column 1"
    ]


def test_an_action_on_two_ranks_is_refused() -> None:
    found = faults(lambda: from_torch_csv("0F0\n0F0\n", "text"))
    assert [(f.place, f.found) for f in found] == [("row 2, column 1", "0F0 again")]


@pytest.mark.parametrize("text", ["", "\ufeff"])
def test_an_empty_file_is_refused(text: str) -> None:
    assert [f.found for f in faults(lambda: from_torch_csv(text, "text"))] == ["an empty file"]


@pytest.mark.parametrize("text", ['0F0\n"0F1', '"0F0"x,0B0\n', "0F0," + "9" * 200_000])
def test_broken_csv_is_refused(text: str) -> None:
    assert faults(lambda: from_torch_csv(text, "text"))[0].place.startswith("line ")


@given(st.text() | st.text('012FIWB,;()"\n\r \ufeff'))
def test_no_text_ends_in_a_traceback(text: str) -> None:
    with contextlib.suppress(InputError):
        assert all(from_torch_csv(text, "text"))


def test_placement_names_every_misplaced_stage() -> None:
    orders = from_torch_csv("0F0,3F0,5F0\n3F1,5F1\n", "text")
    assert [(f.place, f.found) for f in faults(lambda: placement_of(orders))] == [
        ("stage 3", "computations on ranks 0, 1"),
        ("stage 5", "computations on ranks 0, 1"),
        ("stage 1", "no computation, nor of 2 others"),
    ]


def test_export_by_name() -> None:
    schedule = backward_first(pipeline([0, 1]))
    assert export(schedule, "torch-csv") == to_torch_csv(schedule)
    assert [EXPORTERS[name].name for name in EXPORTERS] == list(EXPORTERS)
    (fault,) = faults(lambda: export(schedule, "torch-cvs"))
    assert "torch-csv" in fault.expected
    assert fault.hint == "did you mean 'torch-csv'?"
