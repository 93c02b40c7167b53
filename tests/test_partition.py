"""Cutting profiles into pipelines: exactly even, within memory, and honest about guesses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedopt.build.balance import balance
from schedopt.build.costs import MAX_LAYERS
from schedopt.build.partition import Cut, cut
from schedopt.build.placement import MAX_RANKS, shape_of
from schedopt.build.rank_balance import even_ranks
from schedopt.errors import InfeasibleError, InputError
from schedopt.pipeline import Pipeline
from schedopt.profile import Profile

GIB = 2**30


def measured(value: int, basis: str = "measured") -> dict[str, Any]:
    return {"median": value, "basis": basis}


def layer(f: int, i: int, w: int, name: str = "block", **fields: Any) -> dict[str, Any]:
    times = {
        "forward_ns": measured(f),
        "backward_input_ns": measured(i),
        "backward_weight_ns": measured(w),
    }
    sizes = {key: measured(value) for key, value in fields.items() if key != "count"}
    counts = {"count": fields["count"]} if "count" in fields else {}
    return {"name": name, "times": {"A": times}, **sizes, **counts}


def whole(f: int, b: int, name: str = "block", **fields: Any) -> dict[str, Any]:
    times = {"A": {"forward_ns": measured(f), "backward_ns": measured(b)}}
    return {"name": name, "times": times, **fields}


def profile(layers: list[dict[str, Any]], **fields: Any) -> Profile:
    document = {
        "format": "schedopt/profile",
        "version": 1,
        "name": "toy",
        "provenance": {"sources": [{"what": "a test"}]},
        "devices": {"A": {}},
        "layers": layers,
        **fields,
    }
    return Profile.parse(document, "toy")


def four(**fields: Any) -> Profile:
    """Four layers with times, activations and parameters that all differ."""
    layers = [
        layer(
            10 * k,
            11 * k,
            7 * k,
            name=f"l{k}",
            activation_bytes=1000 * k,
            kept_after_input_bytes=600 * k,
            parameter_bytes=5000 + k,
        )
        for k in (1, 2, 3, 4)
    ]
    return profile(layers, **fields)


def split_of(pipeline: Pipeline) -> list[int]:
    assert pipeline.layers is not None
    return [len(names) for names in pipeline.layers]


# The most even split


def value(times: Sequence[int], sizes: Sequence[int]) -> tuple[int, int]:
    ends = np.cumsum([0, *sizes])
    sums = [sum(times[a:b]) for a, b in pairwise(ends)]
    return max(sums), sum(x * x for x in sums)


def brute(
    times: list[int], stages: int, sizes: list[int], limit: int | None
) -> tuple[int, int] | None:
    values = []
    for inner in combinations(range(1, len(times)), stages - 1):
        ends = [0, *inner, len(times)]
        if limit is None or all(sum(sizes[a:b]) <= limit for a, b in pairwise(ends)):
            values.append(value(times, [b - a for a, b in pairwise(ends)]))
    return min(values, default=None)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_balance_is_the_best_of_all_splits(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 9))
    stages = data.draw(st.integers(1, n))
    some = st.one_of(st.integers(0, 12), st.integers(0, 10**16))
    times = data.draw(st.lists(some, min_size=n, max_size=n))
    sizes = data.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))
    limit = data.draw(st.none() | st.integers(0, 40))
    found = balance(times, stages, sizes, limit)
    want = brute(times, stages, sizes, limit)
    assert (found is None) == (want is None)
    if found is not None:
        assert len(found) == stages
        assert min(found) >= 1
        assert value(times, found) == want


@pytest.mark.parametrize("heavy", [0, 500, 999])
def test_balance_is_exact_on_many_layers(heavy: int) -> None:
    """One layer dwarfs the others: the maximum says nothing, the squares decide."""
    times = [1_000_000] * 1000
    times[heavy] = 10**10
    sizes = balance(times, 256)
    assert sizes is not None
    assert sum(sizes) == 1000
    # 255 stages share 999 equal layers in threes and fours, as far as the heavy one permits.
    assert value(times, sizes)[0] == 10**10
    alone = np.searchsorted(np.cumsum(sizes), heavy, side="right")
    assert sizes[alone] == 1
    assert set(sizes[:alone] + sizes[alone + 1 :]) <= {3, 4, 5}


# What a cut contains


def test_a_linear_cut() -> None:
    links = [{"scope": "a", "boundary_ns": measured(9)}]
    pipeline, notes = cut(four(links=links), Cut(ranks=2, microbatches=5, layers=[3, 1]))
    assert (pipeline.ranks, pipeline.stages, pipeline.microbatches) == (2, 2, 5)
    assert pipeline.placement == [[0, 1]]
    assert pipeline.direction is None
    assert pipeline.backward == "split"
    assert pipeline.times()[:, :, 0].tolist() == [[60, 40], [66, 44], [42, 28]]
    assert pipeline.latency_ns == [[0, 9], [9, 0]]
    assert pipeline.activation_bytes == [6000, 4000]
    assert pipeline.released_by_input_bytes == [2400, 1600]
    assert pipeline.memory_limit_bytes == [12000, 8000]
    assert pipeline.layers == [["l1", "l2", "l3"], ["l4"]]
    assert notes == ["memory: that of the device not stated; limited to what 1F1B needs"]


def test_the_default_split_is_the_most_even() -> None:
    pipeline, _ = cut(four(), Cut(ranks=2, microbatches=5))
    assert split_of(pipeline) == [3, 1]
    pipeline, _ = cut(four(), Cut(ranks=3, microbatches=5))
    assert split_of(pipeline) == [2, 1, 1]


def test_counts_are_unrolled() -> None:
    equal = profile([layer(1, 1, 1, count=6)])
    pipeline, _ = cut(equal, Cut(ranks=3, microbatches=1))
    assert pipeline.layers == [[f"block.{2 * s}", f"block.{2 * s + 1}"] for s in range(3)]


def test_the_device_is_chosen() -> None:
    two = layer(1, 1, 1)
    two["times"]["B"] = {"forward_ns": measured(5), "backward_ns": measured(6)}
    both = profile([two], devices={"A": {}, "B": {}})
    pipeline, _ = cut(both, Cut(ranks=1, microbatches=1, device="B"))
    assert (pipeline.backward, pipeline.forward_ns) == ("fused", [5])
    with pytest.raises(InputError, match="--device"):
        cut(both, Cut(ranks=1, microbatches=1))


def test_a_layer_that_was_not_timed_on_the_device() -> None:
    only = {"B": {"forward_ns": measured(5), "backward_ns": measured(6)}}
    mixed = profile([layer(1, 1, 1), {"name": "head", "times": only}], devices={"A": {}, "B": {}})
    with pytest.raises(InputError, match=r"layers\[1\].times: found no times of head on A"):
        cut(mixed, Cut(ranks=1, microbatches=1, device="A"))


# Placements

EVEN = [layer(1, 1, 1, activation_bytes=10, parameter_bytes=7, count=12)]


@pytest.mark.parametrize(
    ("options", "placement"),
    [
        ({}, [[0, 1, 2]]),
        ({"chunks": 1}, [[0, 1, 2]]),
        ({"placement": "interleaved"}, [[0, 1, 2, 0, 1, 2]]),
        ({"placement": "interleaved", "chunks": 3}, [[0, 1, 2] * 3]),
        ({"placement": "v"}, [[0, 1, 2, 2, 1, 0]]),
        ({"placement": "v", "chunks": 3}, [[0, 1, 2, 2, 1, 0, 0, 1, 2]]),
        ({"placement": "bidirectional"}, [[0, 1, 2], [2, 1, 0]]),
        ({"placement": [[0, 2, 1, 1]]}, [[0, 2, 1, 1]]),
    ],
)
def test_placements(options: dict[str, Any], placement: list[list[int]]) -> None:
    pipeline, _ = cut(profile(EVEN), Cut(ranks=3, microbatches=4, **options))
    assert pipeline.placement == placement
    assert pipeline.stages == len(placement[0])
    assert loads([1] * 12, split_of(pipeline), placement) == [4 * len(placement)] * 3
    assert pipeline.direction == ([0, 1, 0, 1] if len(placement) == 2 else None)


@pytest.mark.parametrize(
    ("rows", "shape"),
    [
        ([[0, 1, 2]], "linear"),
        ([[0, 1, 2] * 3], "interleaved"),
        ([[0, 1, 2, 2, 1, 0]], "v"),
        ([[0, 1, 2], [2, 1, 0]], "bidirectional"),
        ([[0, 2, 1]], "free"),
        ([[0, 1, 2, 2]], "free"),
    ],
)
def test_rows_that_have_a_name_get_it(rows: list[list[int]], shape: str) -> None:
    assert shape_of(rows, 3) == shape
    pipeline, _ = cut(profile(EVEN), Cut(ranks=3, microbatches=4, placement=rows))
    assert pipeline.name.startswith(f"toy-{shape}-p3")


@pytest.mark.parametrize(
    ("need", "typed"),
    [(8_407_398_481, "7.83GiB"), (2**30, "1GiB"), (2**20 + 1, "1.01MiB"), (1023, "1023B")],
)
def test_a_limit_to_be_typed_is_rounded_up(need: int, typed: str) -> None:
    layers = [layer(1, 1, 1, activation_bytes=need)]
    with pytest.raises(InfeasibleError, match=rf"{need} bytes .*--memory-limit {typed}\)"):
        cut(profile(layers), Cut(ranks=1, microbatches=1, memory_limit=1))
    cut(profile(layers), Cut(ranks=1, microbatches=1, memory_limit=typed))


def test_bidirectional_holds_weights_twice_and_shares_the_limit() -> None:
    bidirectional = Cut(ranks=2, microbatches=4, placement="bidirectional")
    relative, _ = cut(four(), bidirectional)
    # Stages of 6000 and 4000 bytes on each rank: 2 × (6000 + 4000) / 2.
    assert relative.memory_limit_bytes == [10000, 10000]
    absolute = Cut(ranks=2, microbatches=4, placement="bidirectional", memory_limit=40_000)
    pipeline, _ = cut(four(), absolute)
    assert pipeline.memory_limit_bytes == [40_000 - 20_010] * 2


def test_a_stage_that_both_directions_have_on_one_rank_counts_once() -> None:
    options = Cut(ranks=1, microbatches=2, placement=[[0], [0]], memory_limit=100_000)
    pipeline, _ = cut(four(), options)
    assert pipeline.memory_limit_bytes == [100_000 - 20_010]


# Backward


def test_a_whole_backward_stays_whole() -> None:
    pipeline, notes = cut(profile([whole(10, 21), whole(10, 33)]), Cut(ranks=2, microbatches=1))
    assert pipeline.backward == "fused"
    assert pipeline.times()[1:].sum(axis=0)[:, 0].tolist() == [21, 33]
    assert "backward: input and weight gradients were not timed apart; one fused op" in notes


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(1, 10**12), min_size=1, max_size=6),
    st.floats(0.01, 0.99),
)
def test_assumed_halves_sum_exactly(backwards: list[int], share: float) -> None:
    layers = [whole(1, b) for b in backwards]
    options = Cut(ranks=1, microbatches=1, split_backward=share)
    pipeline, _ = cut(profile(layers), options)
    first, second = pipeline.times()[1:, 0, 0].tolist()
    assert pipeline.backward == "split"
    assert first + second == sum(backwards)
    assert abs(first - share * sum(backwards)) <= len(backwards) + 1e-3


def test_an_assumed_split_is_said_and_spares_what_was_measured() -> None:
    mixed = profile([whole(10, 21), layer(1, 2, 3)])
    pipeline, notes = cut(mixed, Cut(ranks=2, microbatches=1, split_backward=0.6))
    assert pipeline.times()[1:, :, 0].tolist() == [[13, 2], [8, 3]]
    assert "backward: split assumed, 0.6 of it input gradient, for 1 of 2 layers" in notes


def test_fused_on_request() -> None:
    both = layer(10, 11, 12)
    both["times"]["A"]["backward_ns"] = measured(20)
    layers = [layer(10, 11, 7, activation_bytes=8), both | {"activation_bytes": measured(8)}]
    pipeline, _ = cut(profile(layers), Cut(ranks=2, microbatches=1, backward="fused"))
    assert pipeline.backward == "fused"
    assert pipeline.times()[1:].sum(axis=0)[:, 0].tolist() == [18, 20]
    assert pipeline.released_by_input_bytes is None


def test_guessed_times_are_said() -> None:
    guess = whole(10, 20)
    guess["times"]["A"]["backward_ns"] = measured(20, "assumed")
    _, notes = cut(profile([guess, whole(1, 2)]), Cut(ranks=1, microbatches=1))
    assert "times: those of 1 of 2 layers are partly assumed" in notes


# Memory


@pytest.mark.parametrize(
    ("limit", "want"),
    [
        (None, [12000, 8000]),
        ("1x", [12000, 8000]),
        ("0.5x", [6000, 4000]),
        ("2.5X", [30000, 20000]),
        ("none", None),
        (100_000, [100_000 - 15006, 100_000 - 5004]),
        ("100kB", [100_000 - 15006, 100_000 - 5004]),
        ("1 GiB", [GIB - 15006, GIB - 5004]),
    ],
)
def test_memory_limits(limit: int | str | None, want: list[int] | None) -> None:
    pipeline, _ = cut(four(), Cut(ranks=2, microbatches=1, memory_limit=limit))
    assert pipeline.memory_limit_bytes == want
    assert pipeline.activation_bytes == [6000, 4000]


def test_four_fifths_of_the_device_by_default() -> None:
    stated = four(devices={"A": {"memory_bytes": 100_000}})
    pipeline, notes = cut(stated, Cut(ranks=2, microbatches=1))
    assert pipeline.memory_limit_bytes == [80_000 - 15006, 80_000 - 5004]
    assert "memory: limited to 80 % of the device's 97.66 KiB" in notes
    assert "memory: gradient_bytes of l1 and 3 other layers not known, taken as 0" in notes


def test_unknown_activations_mean_no_memory_model() -> None:
    layers = [layer(1, 1, 1, activation_bytes=5), layer(1, 1, 1, name="head")]
    stated = profile(layers, devices={"A": {"memory_bytes": GIB}})
    for limit in (None, "none"):
        pipeline, notes = cut(stated, Cut(ranks=2, microbatches=1, memory_limit=limit))
        assert pipeline.activation_bytes is None
        assert pipeline.memory_limit_bytes is None
        assert "memory: activation bytes of head not known; no limit applied" in notes
    with pytest.raises(InputError, match=r"activation bytes are not known.*--memory-limit none"):
        cut(stated, Cut(ranks=2, microbatches=1, memory_limit="1x"))


def test_unknown_rest_after_the_input_gradient() -> None:
    layers = [
        layer(1, 1, 1, name="a", activation_bytes=5),
        layer(1, 1, 1, name="b", activation_bytes=5, kept_after_input_bytes=2),
    ]
    pipeline, notes = cut(profile(layers), Cut(ranks=2, microbatches=1))
    assert pipeline.released_by_input_bytes == [0, 3]
    assert "memory: kept after I not known of a: all, until W ends" in notes


def test_memory_moves_the_split() -> None:
    """By time the split is 2 + 2; the two large layers don't fit one rank together."""
    sizes = [60, 50, 10, 10]
    layers = [layer(1, 1, 1, activation_bytes=size) for size in sizes]
    free, _ = cut(profile(layers), Cut(ranks=2, microbatches=1))
    tight, _ = cut(profile(layers), Cut(ranks=2, microbatches=1, memory_limit=100))
    assert split_of(free) == [2, 2]
    assert split_of(tight) == [1, 3]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_one_stage_per_rank_fits_whenever_some_split_does(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 7))
    ranks = data.draw(st.integers(1, n))
    numbers = st.lists(st.integers(1, 9), min_size=n, max_size=n)
    times, held, static = (data.draw(numbers) for _ in range(3))
    limit = data.draw(st.integers(1, 60))
    layers = [
        layer(t, t, t, activation_bytes=a, parameter_bytes=s)
        for t, a, s in zip(times, held, static, strict=True)
    ]
    options = Cut(ranks=ranks, microbatches=1, memory_limit=limit)
    weight = [a + s for a, s in zip(held, static, strict=True)]
    want = brute([3 * t for t in times], ranks, weight, limit)
    if want is not None:
        pipeline, _ = cut(profile(layers), options)
        assert value([3 * t for t in times], split_of(pipeline)) == want
        return
    with pytest.raises(InfeasibleError) as caught:
        cut(profile(layers), options)
    smallest = int(re.findall(r"A limit of (\d+) bytes", str(caught.value))[0])
    assert smallest > limit
    assert brute(times, ranks, weight, smallest - 1) is None
    cut(profile(layers), Cut(ranks=ranks, microbatches=1, memory_limit=smallest))
    typed = re.findall(r"--memory-limit (\w+)\)", str(caught.value))[0]
    cut(profile(layers), Cut(ranks=ranks, microbatches=1, memory_limit=typed))


def loads(times: Sequence[int], sizes: Sequence[int], rows: list[list[int]]) -> list[int]:
    """Sum up the layers that each rank has, once per direction."""
    ends = np.cumsum([0, *sizes])
    result = [0] * (1 + max(max(row) for row in rows))
    for row in rows:
        for rank, (a, b) in zip(row, pairwise(ends), strict=True):
            result[rank] += sum(times[a:b])
    return result


def rank_value(
    times: Sequence[int], sizes: Sequence[int], rows: list[list[int]]
) -> tuple[int, int, int]:
    return max(loads(times, sizes, rows)), *value(times, sizes)


SHAPES = [
    [[0, 1, 1, 0]],
    [[0, 1, 0, 1]],
    [[0, 1, 2, 2, 1, 0]],
    [[0, 1, 2], [2, 1, 0]],
    [[0, 0, 1, 2, 1]],
]


def test_ranks_with_several_stages_are_evened_out_almost_as_well_as_possible() -> None:
    """Never worse than the exact split into stages, and nearly always the best of all."""
    random = np.random.default_rng(0)
    best = 0
    for k in range(100):
        rows = SHAPES[k % len(SHAPES)]
        stages, ranks = len(rows[0]), 1 + max(rows[0])
        n = int(random.integers(stages, 11))
        times = random.integers(1, 20, n).tolist() if k % 2 else [9, *[4] * (n - 2), 13]
        splits = [
            [b - a for a, b in pairwise([0, *inner, n])]
            for inner in combinations(range(1, n), stages - 1)
        ]
        even = balance(times, stages)
        assert even is not None
        found = even_ranks(times, even, rows, ranks, 1, lambda sizes: True)
        reached = rank_value(times, found, rows)
        assert reached <= rank_value(times, even, rows)
        best += reached == min(rank_value(times, sizes, rows) for sizes in splits)
    assert best >= 85


def test_the_fullest_rank_counts_before_the_largest_stage() -> None:
    """Stages of 2, 2, 2, 4 are even, but leave rank 0 with 6 of 10."""
    layers = [layer(t, t, t) for t in (1, 1, 2, 2, 4)]
    pipeline, _ = cut(profile(layers), Cut(ranks=2, microbatches=4, placement="v"))
    assert loads([1, 1, 2, 2, 4], split_of(pipeline), pipeline.placement) == [5, 5]


def test_empty_stages_even_out_ranks_where_they_are_allowed() -> None:
    """The head is as long as all others: rank 0 of a V has it, and nothing else if it may."""
    layers = [layer(t, t, t) for t in (2, 2, 2, 6)]
    strict, _ = cut(profile(layers), Cut(ranks=2, microbatches=4, placement="v"))
    free, notes = cut(
        profile(layers), Cut(ranks=2, microbatches=4, placement="v", allow_empty=True)
    )
    assert split_of(strict) == [1, 1, 1, 1]
    assert split_of(free)[0] == 0
    assert loads([2, 2, 2, 6], split_of(free), free.placement) == [6, 6]
    assert NOT_PROVEN not in notes  # nothing is more even
    many, _ = cut(
        profile(layers[:3]), Cut(ranks=3, microbatches=4, placement="v", allow_empty=True)
    )
    assert loads([2, 2, 2], split_of(many), many.placement) == [2, 2, 2]


NOT_PROVEN = "partition: ranks hold several stages; the most even split found, not proven"
V = {"ranks": 2, "microbatches": 1, "placement": "v"}


@pytest.mark.parametrize(
    ("times", "sizes", "limit", "split"),
    [
        ([1, 1, 1, 1, 1, 1], [30, 10, 10, 10, 10, 30], 80, [1, 1, 2, 2]),
        # Evened out by time it is 2 2 1 1 and rank 0 has 70; in halves of 60 it is 1 2 2 1.
        ([1, 1, 1, 1, 2, 2], [20, 20, 10, 10, 10, 30], 60, [1, 2, 2, 1]),
        # Some stage is over its half of 80, but rank 0 has 50 + 30.
        ([1, 4, 1, 4, 4, 1], [50, 10, 10, 10, 10, 30], 80, [1, 2, 2, 1]),
    ],
)
def test_stages_that_share_a_rank(
    times: list[int], sizes: list[int], limit: int, split: list[int]
) -> None:
    layers = [layer(t, t, t, activation_bytes=size) for t, size in zip(times, sizes, strict=True)]
    pipeline, notes = cut(profile(layers), Cut(**V, memory_limit=limit))
    assert split_of(pipeline) == split
    a, b = loads(times, split, [[0, 1, 1, 0]])
    assert (NOT_PROVEN in notes) == (a != b)
    assert pipeline.activation_bytes is not None
    a, b, c, d = pipeline.activation_bytes
    assert max(a + d, b + c) <= limit


def test_stages_that_share_a_rank_and_do_not_fit() -> None:
    layers = [layer(1, 1, 1, activation_bytes=size) for size in (60, 10, 10, 10, 10, 60)]
    with pytest.raises(InfeasibleError, match=r"rank 0 needs 120 B .*has 110 B.*not tried"):
        cut(profile(layers), Cut(**V, memory_limit=110))


def test_a_rank_that_cannot_hold_one_microbatch() -> None:
    given_layers = Cut(ranks=2, microbatches=1, layers=[1, 3], memory_limit=20_000)
    with pytest.raises(InfeasibleError) as caught:
        cut(four(), given_layers)
    text = str(caught.value)
    assert "rank 1 needs 23.45 KiB (14.66 KiB of parameters" in text
    assert "has 19.53 KiB, the memory limit" in text
    assert "A limit of 24009 bytes would do" in text


def test_a_multiple_that_cannot_hold_one_microbatch() -> None:
    with pytest.raises(InfeasibleError, match=r"rank 0 needs 5.859 KiB .* 0.5x would do"):
        cut(four(), Cut(ranks=2, microbatches=1, memory_limit="0.4x"))
    cut(four(), Cut(ranks=2, microbatches=1, memory_limit="0.5x"))


@pytest.mark.parametrize(
    "limit", ["80 gigs", "", "x", "-1x", "0x", "1e9x", "1/0x", "nanx", -1, 2**63]
)
def test_limits_that_are_none(limit: int | str) -> None:
    with pytest.raises(InputError, match="memory_limit"):
        cut(four(), Cut(ranks=2, microbatches=1, memory_limit=limit))


def test_more_kept_than_held() -> None:
    odd = profile([layer(1, 1, 1, activation_bytes=5, kept_after_input_bytes=6)])
    with pytest.raises(InputError, match=r"block.kept_after_input_bytes: found 6.*at most 5"):
        cut(odd, Cut(ranks=1, microbatches=1))


# Latency


def linked(outputs: list[int | None], links: list[dict[str, Any]]) -> Profile:
    layers = [
        layer(1, 1, 1, name=f"l{k}") | ({} if size is None else {"output_bytes": measured(size)})
        for k, size in enumerate(outputs)
    ]
    return profile(layers, links=links)


TABLE = {
    "scope": "slow",
    "table": [{"bytes": 10, "ns": measured(100)}, {"bytes": 30, "ns": measured(300)}],
}


def test_latency_follows_the_boundary() -> None:
    pipeline, notes = cut(linked([10, 25, 30], [TABLE]), Cut(ranks=3, microbatches=1))
    assert pipeline.latency_ns == [[0, 100, 0], [100, 0, 250], [0, 250, 0]]
    assert not [n for n in notes if n.startswith("latency")]


def test_latency_between_two_ranks_is_that_of_their_largest_boundary() -> None:
    options = Cut(ranks=2, microbatches=1, placement="interleaved")
    pipeline, _ = cut(linked([10, 30, 20, None], [TABLE]), options)
    assert pipeline.latency_ns == [[0, 300], [300, 0]]


def test_no_latency_on_one_rank() -> None:
    options = Cut(ranks=2, microbatches=1, placement="v")
    pipeline, _ = cut(linked([10, 30, 10, None], [TABLE]), options)
    assert pipeline.latency_ns == [[0, 100], [100, 0]]


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (None, "found a boundary of unknown size.*Add output_bytes.*remove the link"),
        (31, "found a boundary of 31 bytes, expected a size from 10 to 30.*Measure the link"),
    ],
)
@pytest.mark.parametrize("link", [None, "slow"])
def test_a_size_that_was_not_measured(size: int | None, words: str, link: str | None) -> None:
    unknown = linked([size, size, 10], [TABLE])
    with pytest.raises(InputError, match=f"link slow: table: {words}") as caught:
        cut(unknown, Cut(ranks=3, microbatches=1, link=link))
    assert len(caught.value.faults) == 1  # the same for both boundaries
    cut(unknown, Cut(ranks=1, microbatches=1, link=link))  # nothing is sent


def test_choosing_a_link() -> None:
    links = [{"scope": "fast", "boundary_ns": measured(3)}, TABLE]
    first, notes = cut(linked([10, 10], links), Cut(ranks=2, microbatches=1))
    second, quiet = cut(linked([10, 10], links), Cut(ranks=2, microbatches=1, link="slow"))
    assert first.latency_ns == [[0, 3], [3, 0]]
    assert second.latency_ns == [[0, 100], [100, 0]]
    assert "latency: that of link fast, the first of 2" in notes
    assert not [n for n in quiet if n.startswith("latency")]
    with pytest.raises(InputError, match=r"one of fast, slow\. did you mean 'slow'"):
        cut(linked([10, 10], links), Cut(ranks=2, microbatches=1, link="slo"))


def test_no_link_at_all() -> None:
    pipeline, notes = cut(four(), Cut(ranks=2, microbatches=1))
    assert pipeline.latency_ns is None
    assert "latency: not in the profile, taken as 0" in notes


def test_an_empty_stage_sends_what_it_got() -> None:
    options = Cut(ranks=3, microbatches=1, layers=[1, 0, 1], allow_empty=True)
    pipeline, _ = cut(linked([10, 10], [TABLE]), options)
    assert pipeline.latency_ns == [[0, 100, 0], [100, 0, 100], [0, 100, 0]]


# Options that don't fit


def test_more_stages_than_layers() -> None:
    with pytest.raises(InfeasibleError, match=r"5 stages .* has 4 .*at most 4 .*--allow-empty"):
        cut(four(), Cut(ranks=5, microbatches=1))
    options = Cut(ranks=5, microbatches=1, allow_empty=True)
    pipeline, _ = cut(four(), options)
    assert split_of(pipeline) == [1, 1, 1, 1, 0]
    assert pipeline.forward_ns[4] == 0
    with pytest.raises(InfeasibleError, match="each a whole stage"):
        cut(four(unit="stage"), Cut(ranks=5, microbatches=1))


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([2, 2, 2], "found 3 numbers, expected 2"),
        ([2, 3], "found a sum of 5, expected 4"),
        ([5, -1], "found -1, expected 0 or more"),
        ([4, 0], "a stage without layers.*--allow-empty"),
    ],
)
def test_given_layers_that_do_not_fit(layers: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        cut(four(), Cut(ranks=2, microbatches=1, layers=layers))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 0}, "ranks: found 0"),
        ({"ranks": MAX_RANKS + 1}, "ranks: found"),
        ({"microbatches": 0}, "microbatches: found 0"),
        ({"microbatches": 10**12}, "microbatches: found"),
        ({"placement": "V"}, "placement: found 'V', expected one of linear"),
        ({"placement": "interleave"}, "did you mean 'interleaved'"),
        ({"chunks": 2}, "chunks: found 2, expected 1 for linear"),
        ({"placement": "bidirectional", "chunks": 2}, "chunks: found 2"),
        ({"placement": "v", "chunks": 1}, "chunks: found 1.*linear"),
        ({"placement": "interleaved", "chunks": 0}, "chunks: found 0"),
        ({"placement": [[0, 1]], "chunks": 1}, "chunks: found 1, expected none"),
        ({"placement": []}, "placement: found rows of length"),
        ({"placement": [[]]}, "placement: found rows of length"),
        ({"placement": [[0, 1], [1]]}, "placement: found rows of length"),
        ({"placement": [[0, 2]]}, r"placement\[0\]\[1\]: found 2"),
        ({"placement": [[0, -1]]}, r"placement\[0\]\[1\]: found -1"),
        ({"split_backward": 0.0}, "split_backward: found 0.0"),
        ({"split_backward": 1.0}, "split_backward: found 1.0"),
        ({"split_backward": float("nan")}, "split_backward: found nan"),
        ({"split_backward": 0.5, "backward": "fused"}, "split_backward: found 0.5"),
        ({"backward": "both"}, "backward: found 'both'"),
        ({"link": "a"}, "link: found 'a', expected none"),
        ({"device": "B"}, "device: found 'B'"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        cut(four(), Cut(**{"ranks": 2, "microbatches": 1, **options}))


def test_a_split_needs_both_gradients_or_a_share() -> None:
    fused = profile([whole(10, 20, "a"), whole(10, 20, "b"), layer(1, 1, 1)])
    with pytest.raises(InputError, match=r"only the whole backward of a and 1 other layer, .*0\.5"):
        cut(fused, Cut(ranks=1, microbatches=1, backward="split"))


def test_no_share_is_assumed_of_what_was_measured() -> None:
    with pytest.raises(InputError, match=r"split_backward: found 0.5, expected none.*Leave"):
        cut(four(), Cut(ranks=1, microbatches=1, split_backward=0.5))


def test_absurd_counts_are_refused_early() -> None:
    many = profile([layer(1, 1, 1, count=MAX_LAYERS + 1)])
    with pytest.raises(InputError, match="layers: found"):
        cut(many, Cut(ranks=1, microbatches=1))
