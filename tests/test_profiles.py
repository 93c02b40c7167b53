"""The profiles that come with schedopt: as published, well-formed, and of use."""

from __future__ import annotations

import importlib.util
import json
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from schedopt.build.balance import balance
from schedopt.build.partition import Cut, cut
from schedopt.build.pipeline import build
from schedopt.pipeline import Pipeline
from schedopt.profile import Measure, Profile
from schedopt.schedule import Action
from schedopt.simulation import replay

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"
FILES = sorted((ROOT / "profiles").glob("*.json"))
ZERO_BUBBLE = {
    "zero-bubble-1.5b": ("i06_zb1.5B_p8_m24_1x", 8, 24),
    "zero-bubble-14.6b": ("i10_zb14.6B_p16_m48_1x", 16, 48),
    "zero-bubble-28.3b": ("i12_zb28.3B_p32_m96_1x", 32, 96),
}


@pytest.fixture(scope="module")
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the published sample files are not here")
    return SHARED


@pytest.fixture(scope="module")
def make() -> ModuleType:
    path = ROOT / "scripts" / "make_profiles.py"
    spec = importlib.util.spec_from_file_location("make_profiles", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def expected(shared: Path) -> Any:
    return json.loads((shared / "samples" / "EXPECTED.json").read_text())


def profile(name: str) -> Profile:
    return Profile.read(ROOT / "profiles" / f"{name}.json")


def test_there_are_profiles() -> None:
    assert len(FILES) == 8


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_reads_and_is_sourced(path: Path) -> None:
    read = Profile.read(path)
    assert read.name == path.stem
    assert read.text() == path.read_text()
    assert read.provenance.notes
    made_from = read.provenance.sources[0]
    assert made_from.url
    assert made_from.licence
    assert made_from.sha256
    assert f"`{path.name}`" in (ROOT / "profiles" / "README.md").read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_is_not_measured_says_why(path: Path) -> None:
    def measures(value: object) -> list[Measure]:
        if isinstance(value, Measure):
            return [value]
        if hasattr(value, "__dict__"):
            return [m for part in vars(value).values() for m in measures(part)]
        if isinstance(value, dict | list):
            parts = value.values() if isinstance(value, dict) else value
            return [m for part in parts for m in measures(part)]
        return []

    read = Profile.read(path)
    found = measures(read.layers) + measures(read.links)
    assert found
    assert all(m.note for m in found if m.basis != "measured")


def test_made_again_byte_for_byte(shared: Path, make: ModuleType) -> None:
    made = {p.name: p.text() for p in make.profiles(shared / "samples")}
    assert made == {path.stem: path.read_text() for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("ranks", [4, 8])
def test_can_be_cut(path: Path, ranks: int) -> None:
    read = Profile.read(path)
    pipeline, notes = cut(read, Cut(ranks=ranks, microbatches=2 * ranks))
    total = sum(
        t.forward_ns.median + t.backward_total for x in read.expanded() for t in x.times.values()
    )
    assert pipeline.times()[:, :, 0].sum() == total
    assert notes
    assert build(pipeline).problem.size


# Against the benchmark problems and the readings worked out by hand


def same_but_memory(pipeline: Pipeline, bench: Pipeline) -> None:
    assert (pipeline.ranks, pipeline.microbatches) == (bench.ranks, bench.microbatches)
    assert pipeline.placement == bench.placement
    assert pipeline.backward == bench.backward
    np.testing.assert_array_equal(pipeline.times(), bench.times())
    np.testing.assert_array_equal(pipeline.latency(), bench.latency())


@pytest.mark.parametrize("name", ZERO_BUBBLE)
def test_zero_bubble_is_the_benchmark(shared: Path, name: str) -> None:
    file, p, m = ZERO_BUBBLE[name]
    bench = Pipeline.read(shared / "bench" / "pipelines" / f"{file}.json")
    pipeline, _ = cut(profile(name), Cut(ranks=p, microbatches=m))
    same_but_memory(pipeline, bench)
    # The benchmark counts bytes per token and layer.
    layers = {8: 3, 16: 3, 32: 2}[p]
    np.testing.assert_array_equal(pipeline.activations(), bench.activations() * 1024 * layers)
    assert bench.memory_limit_bytes is not None
    assert pipeline.memory_limit_bytes == [b * 1024 * layers for b in bench.memory_limit_bytes]


def test_the_other_row_of_6_2b_is_the_benchmark(shared: Path, make: ModuleType) -> None:
    bench = Pipeline.read(shared / "bench" / "pipelines" / "i09_zb6.2B_p8_m32_1x.json")
    row = make.zero_bubble(shared / "samples", "6.2b", microbatches=32)
    pipeline, _ = cut(row, Cut(ranks=8, microbatches=32))
    same_but_memory(pipeline, bench)
    np.testing.assert_array_equal(pipeline.activations(), bench.activations() * 1024 * 4)


def test_zero_bubble_measured_is_the_benchmark(shared: Path) -> None:
    bench = Pipeline.read(shared / "bench" / "pipelines" / "i24_zbmeasured_lmhead_p8_m32_6F.json")
    options = Cut(ranks=8, microbatches=32, memory_limit="7440MB")
    pipeline, _ = cut(profile("zero-bubble-8stage-measured"), options)
    same_but_memory(pipeline, bench)
    np.testing.assert_array_equal(pipeline.activations(), bench.activations() * 10**6)
    assert bench.memory_limit_bytes is not None
    assert pipeline.memory_limit_bytes == [b * 10**6 for b in bench.memory_limit_bytes]


def one_f_one_b(pipeline: Pipeline) -> int:
    """Makespan of 1F1B, ns."""
    p, m = pipeline.ranks, pipeline.microbatches
    orders = []
    for rank in range(p):
        ahead = min(p - rank, m)
        kinds = [("F", j) for j in range(ahead)]
        for j in range(m):
            kinds.append(("B", j))
            if ahead + j < m:
                kinds.append(("F", ahead + j))
        orders.append([Action(kind, rank, j) for kind, j in kinds])
    model = build(pipeline)
    return int((replay(model, orders) + model.problem.duration).max())


def test_zero_bubble_1f1b(expected: Any) -> None:
    want = expected["good/19_zero_bubble_profiles/zb_profiles.json"]
    measured = profile("zero-bubble-8stage-measured")
    pipeline, _ = cut(measured, Cut(ranks=8, microbatches=32, backward="fused"))
    assert one_f_one_b(pipeline) == want["per_stage_1f1b_makespan_us"] * 1000
    totals = pipeline.times()[:, :, 0].sum(axis=0)
    np.testing.assert_array_equal(totals, np.array(want["stage_totals_us"]) * 1000)
    options = Cut(ranks=8, microbatches=24, backward="fused")
    uniform, _ = cut(profile("zero-bubble-6.2b"), options)
    uniform = uniform.model_copy(update={"latency_ns": None})
    assert one_f_one_b(uniform) == want["uniform_6.2B_m24_1f1b_us"] * 1000


def test_repartition_of_the_measured_stages(expected: Any) -> None:
    want = expected["good/19_zero_bubble_profiles/zb_profiles.json"]
    layer = round(sum(want["layer_us"].values()) * 1000)
    times = [layer] * 32 + [round(want["head_in_layers"] * layer)]
    sizes = balance(times, 8)
    assert sizes is not None
    ends = np.cumsum([0, *sizes])
    largest = max(sum(times[a:b]) for a, b in pairwise(ends))
    assert largest == want["minmax_repartition_us"] * 1000


def test_sailor(expected: Any) -> None:
    want = expected["good/21_sailor_one_measurement_many_formats"]["sailor_llama3-8_GH-96.json"]
    layers = profile("llama3-8b-gh200-sailor").expanded()
    times = [layer.times["GH200-96"] for layer in layers]
    pairs = [(t.forward_ns.median / 1e6, t.backward_total / 1e6) for t in times]
    assert len(layers) == want["entries"]
    for k, key in ((1, "first_transformer_ms"), (2, "mbs1_tp1_layer2_ms"), (33, "final_norm_ms")):
        assert pairs[k] == (want[key]["F"], want[key]["B"])
    assert pairs[-1] == (want["head_ms"]["F"], want["head_ms"]["B"])
    assert round(sum(map(sum, pairs)), 2) == want["sum_FB_ms"]


def test_aceso(expected: Any) -> None:
    want = expected["good/03_aceso_runtime_8stages/l4"]
    read = profile("aceso-gpt-6.7b-l4")
    times = [layer.times["L4"] for layer in read.layers]
    assert [round(t.forward_ns.median / 1e6, 2) for t in times] == want["forward_ms"]
    assert [round(t.backward_total / 1e6, 2) for t in times] == want["backward_ms"]
    assert read.measured_iteration_ns == want["measured_iteration_ms"] * 10**6
    assert (read.measured_microbatches, len(times)) == (want["m"], want["p"])
    pipeline, _ = cut(read, Cut(ranks=8, microbatches=128))
    assert round(one_f_one_b(pipeline) / 1e6) == want["ideal_1f1b_ms"]


def test_galvatron(expected: Any) -> None:
    want = expected["good/05_galvatron/computation_profiling_bf16_llama2-7b_all.json"]
    block, head = (layer.times["gpu"] for layer in profile("llama2-7b-galvatron").layers)
    assert round(block.forward_ns.median / 1e6, 5) == want["layer_forward_bsz1"]
    head_ms = head.forward_ns.median / 1e6
    assert head_ms == pytest.approx(want["embed_plus_head_forward_bsz1"], abs=1e-5)
    for times in (block, head):
        assert times.backward_ns is not None
        assert times.backward_ns.basis == "assumed"
        assert abs(times.backward_ns.median - 2 * times.forward_ns.median) <= 1
