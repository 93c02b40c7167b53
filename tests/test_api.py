"""The library's front door, and answers that were once wrong."""

from __future__ import annotations

import math
from typing import Any

import pytest
from conftest import ROOT

import schedopt
from schedopt import InputError, Pipeline


def one_rank(**changes: Any) -> Pipeline:
    fields: dict[str, Any] = {
        "ranks": 1,
        "stages": 1,
        "microbatches": 2,
        "placement": [[0]],
        "forward_ns": [5],
        "backward_input_ns": [5],
        "backward_weight_ns": [5],
    }
    return Pipeline(**(fields | changes))


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"objective": "makespam"}, "objective: found 'makespam'"),
        ({"solver": "cp-sat"}, "did you mean 'cpsat'"),
        ({"time_limit": -1}, "time_limit: found -1"),
        ({"time_limit": math.nan}, "time_limit: found nan"),
        ({"rounds": -3}, "rounds: found -3"),
        ({"seed": -1}, "seed: found -1"),
    ],
)
def test_nonsense_is_refused(options: dict[str, Any], place: str) -> None:
    with pytest.raises(InputError, match=place):
        schedopt.solve(one_rank(), **options)


def test_unknown_options_of_a_cut_are_refused() -> None:
    profile = schedopt.load(ROOT / "profiles" / "zero-bubble-1.5b.json")
    with pytest.raises(InputError, match="did you mean 'microbatches'"):
        schedopt.cut(profile, ranks=8, microbatch=4)


def test_ops_of_no_length_may_release_what_they_acquire() -> None:
    """A charge and a release at one instant: the release counts first, so 3 is possible."""
    pipeline = Pipeline(
        ranks=2,
        stages=3,
        microbatches=2,
        placement=[[0, 1, 0]],
        backward="fused",
        forward_ns=[0, 0, 0],
        backward_input_ns=[0, 1, 0],
        backward_weight_ns=[1, 0, 0],
        activation_bytes=[204, 0, 184],
        memory_limit_bytes=[572, 0],
    )
    for solver in ("auto", "milp"):
        schedule = schedopt.solve(pipeline, objective="device-span", solver=solver)
        assert (schedule.value_ns, schedule.status) == (3, "optimal")


def test_a_proof_does_not_assume_an_order_of_different_microbatches() -> None:
    """In their order these microbatches take 24; exchanged they would take 15."""
    pipeline = Pipeline(
        ranks=2,
        stages=2,
        microbatches=2,
        placement=[[0, 1]],
        backward="fused",
        forward_ns=[[10, 1], [1, 10]],
        backward_input_ns=[0, 0],
        backward_weight_ns=[1, 1],
    )
    for solver in ("auto", "cpsat", "milp", "construct"):
        schedule = schedopt.solve(pipeline, solver=solver, time_limit=2)
        assert schedule.makespan_ns == 24
        assert schedule.status == "feasible"
        assert schedule.lower_bound_ns is not None
        assert schedule.lower_bound_ns <= 15
        assert any("keep their order" in note for note in schedule.assumptions)


def test_nothing_is_left_to_prove_when_the_bound_is_met() -> None:
    """OR-Tools used to abort on an objective that can take one value only."""
    pipeline = Pipeline(
        ranks=1,
        stages=3,
        microbatches=2,
        placement=[[0, 0, 0]],
        forward_ns=[588929077, 967733415, 2970852],
        backward_input_ns=[137450516, 712997350, 191578714],
        backward_weight_ns=[83575038, 149694093, 487219458],
        activation_bytes=[0, 1, 1],
        memory_limit_bytes=[2],
    )
    schedule = schedopt.solve(pipeline, solver="cpsat")
    assert schedule.status == "optimal"
    assert schedule.makespan_ns == int(pipeline.times().sum())


def test_among_equals_the_least_memory_wins() -> None:
    pipeline = one_rank(microbatches=8, backward="fused")
    schedule = schedopt.solve(pipeline)
    assert schedule.method == "1f1b"
