"""The profile format: what it refuses, and how it answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schedopt.errors import InputError
from schedopt.profile import Link, Measure, Profile


def measured(value: int) -> dict[str, Any]:
    return {"median": value, "basis": "measured"}


def layer(name: str = "block", **fields: Any) -> dict[str, Any]:
    times = {"forward_ns": measured(10), "backward_ns": measured(20)}
    return {"name": name, "times": {"A": times}, **fields}


def document(**fields: Any) -> dict[str, Any]:
    return {
        "format": "schedopt/profile",
        "version": 1,
        "name": "toy",
        "provenance": {"sources": [{"what": "a test"}]},
        "devices": {"A": {}},
        "layers": [layer()],
        **fields,
    }


def faults_of(**fields: Any) -> str:
    with pytest.raises(InputError) as caught:
        Profile.parse(document(**fields), "toy.json")
    return str(caught.value)


def test_minimal() -> None:
    profile = Profile.parse(document(), "toy.json")
    times = profile.layers[0].times["A"]
    assert profile.unit == "layer"
    assert (times.split, times.backward_total) == (False, 20)
    assert profile.layers[0].static_bytes == 0


def test_text_reads_back_equal() -> None:
    profile = Profile.parse(document(links=[{"scope": "a", "boundary_ns": measured(5)}]), "toy")
    again = Profile.parse(json.loads(profile.text()), "again")
    assert again == profile
    assert again.digest() == profile.digest()


def test_halves_sum_up_and_the_whole_wins() -> None:
    halves = {"backward_input_ns": measured(7), "backward_weight_ns": measured(4)}
    split = {"A": {"forward_ns": measured(10), **halves}}
    both = {"A": {"forward_ns": measured(10), "backward_ns": measured(12), **halves}}
    layers = [{"name": "a", "times": split}, {"name": "b", "times": both}]
    first, second = Profile.parse(document(layers=layers), "toy").layers
    assert (first.times["A"].split, first.times["A"].backward_total) == (True, 11)
    assert (second.times["A"].split, second.times["A"].backward_total) == (True, 12)


def test_half_a_backward_is_none() -> None:
    times = {"A": {"forward_ns": measured(10), "backward_input_ns": measured(7)}}
    assert "no complete backward" in faults_of(layers=[{"name": "a", "times": times}])


@pytest.mark.parametrize(("forward", "backward"), [(0, 20), (10, 0)])
def test_no_time_is_not_a_measurement(forward: int, backward: int) -> None:
    times = {"A": {"forward_ns": measured(forward), "backward_ns": measured(backward)}}
    text = faults_of(layers=[{"name": "a", "times": times}])
    assert "takes no time" in text
    assert "Leave out what was not measured" in text


def test_static_bytes_sum_what_is_known() -> None:
    known = layer(parameter_bytes=measured(2), optimizer_bytes=measured(8))
    assert Profile.parse(document(layers=[known]), "toy").layers[0].static_bytes == 10


@pytest.mark.parametrize("value", [-1, 1.5, "10", None, 2**63])
def test_medians_are_non_negative_integers(value: object) -> None:
    times = {
        "A": {"forward_ns": {"median": value, "basis": "measured"}, "backward_ns": measured(1)}
    }
    assert "layers[0].times.A.forward_ns.median" in faults_of(
        layers=[{"name": "a", "times": times}]
    )


def test_basis_must_be_known() -> None:
    link = {"scope": "a", "boundary_ns": {"median": 1, "basis": "guessed"}}
    assert "'measured', 'derived' or 'assumed'" in faults_of(links=[link])


def test_unknown_field_gets_a_hint() -> None:
    assert "did you mean 'activation_bytes'?" in faults_of(
        layers=[layer(activations_bytes=measured(1))]
    )


def test_times_only_on_listed_devices() -> None:
    text = faults_of(devices={"B": {}})
    assert "layers[0].times.A" in text
    assert "no device" in faults_of(layers=[{"name": "a", "times": {}}])


def test_a_profile_has_devices_and_layers() -> None:
    assert "devices" in faults_of(devices={})
    assert "layers" in faults_of(layers=[])


def test_choosing_a_device() -> None:
    one = Profile.parse(document(), "toy")
    two = Profile.parse(document(devices={"A": {}, "H100": {}}), "toy")
    assert one.device() == "A"
    assert two.device("H100") == "H100"
    with pytest.raises(InputError, match=r"no choice, expected one of A, H100.*--device"):
        two.device()
    with pytest.raises(InputError, match="did you mean 'H100'"):
        two.device("H10")


def test_expanding_counts_names_each_layer() -> None:
    profile = Profile.parse(document(layers=[layer("emb"), layer("block", count=3)]), "toy")
    assert [x.name for x in profile.expanded()] == ["emb", "block.0", "block.1", "block.2"]
    assert all(x.count == 1 for x in profile.expanded())


def test_a_link_has_one_form() -> None:
    point = {"bytes": 10, "ns": measured(5)}
    assert "no single form" in faults_of(links=[{"scope": "a"}])
    both = {"scope": "a", "table": [point], "boundary_ns": measured(5)}
    assert "no single form" in faults_of(links=[both])


@pytest.mark.parametrize("sizes", [[], [20, 10], [10, 10]])
def test_a_table_ascends(sizes: list[int]) -> None:
    table = [{"bytes": size, "ns": measured(5)} for size in sizes]
    assert "ascending sizes" in faults_of(links=[{"scope": "a", "table": table}])


def table() -> Link:
    points = [{"bytes": b, "ns": measured(t)} for b, t in ((100, 10), (200, 20), (400, 21))]
    return Link.model_validate({"scope": "a", "table": points})


@pytest.mark.parametrize(
    ("size", "time"), [(100, 10), (200, 20), (400, 21), (150, 15), (300, 20), (399, 21)]
)
def test_a_table_interpolates(size: int, time: int) -> None:
    assert table().time_ns(size) == time


@pytest.mark.parametrize("size", [99, 401, None])
def test_a_table_does_not_extrapolate(size: int | None) -> None:
    with pytest.raises(InputError, match="a size from 100 to 400 bytes"):
        table().time_ns(size)


def test_a_boundary_time_needs_no_size() -> None:
    link = Link(scope="a", boundary_ns=Measure(median=7, basis="measured"))
    assert (link.time_ns(None), link.time_ns(1)) == (7, 7)
