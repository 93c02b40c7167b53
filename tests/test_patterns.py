"""Named schedules: the published values, and no deadlock on anything that they fit."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedopt import patterns
from schedopt.build.pipeline import build
from schedopt.errors import InputError
from schedopt.patterns.blocks import _v_block
from schedopt.pipeline import Pipeline
from schedopt.problem import device_span, makespan
from schedopt.schedule import Action, Orders
from schedopt.simulation import replay
from schedopt.timing import peaks

ROWS = {
    "linear": lambda p: [list(range(p))],
    "loop": lambda p: [[*range(p), *range(p)]],
    "v": lambda p: [[*range(p), *reversed(range(p))]],
    "bidirectional": lambda p: [[*range(p)], [*reversed(range(p))]],
}


def uniform(
    kind: str, p: int, m: int, *, f: int = 1, i: int = 1, w: int = 1, lag: int = 0, **more: Any
) -> Pipeline:
    """Equal stages on p ranks, one unit of activation each."""
    rows = ROWS[kind](p)
    stages = len(rows[0])
    fields: dict[str, Any] = {
        "ranks": p,
        "stages": stages,
        "microbatches": m,
        "placement": rows,
        "direction": [j % len(rows) for j in range(m)],
        "forward_ns": [f] * stages,
        "backward_input_ns": [i] * stages,
        "backward_weight_ns": [w] * stages,
        "latency_ns": [[lag] * p] * p,
        "activation_bytes": [1] * stages,
    }
    return Pipeline.model_validate(fields | more)


def measure(name: str, pipeline: Pipeline) -> tuple[int, int, list[int]]:
    """Makespan, device span and peaks of a pattern."""
    problem = build(pipeline).problem
    starts = replay(build(pipeline), patterns.orders(name, pipeline))
    return makespan(problem, starts), device_span(problem, starts), peaks(problem, starts).tolist()


@pytest.mark.parametrize(
    ("rows", "direction", "expected"),
    [
        ([[0, 1, 2]], None, "linear"),
        ([[2, 0, 1]], None, "linear"),
        ([[0]], None, "linear"),
        ([[0, 1, 0, 1, 0, 1]], None, "loop"),
        ([[1, 2, 0, 1, 2, 0]], None, "loop"),
        ([[0, 0]], None, "loop"),
        ([[0, 1, 2, 2, 1, 0]], None, "v"),
        ([[2, 0, 0, 2]], None, "v"),
        ([[0, 1, 1, 0, 0, 1]], None, "free"),
        ([[0, 0, 1, 1]], None, "free"),
        ([[0, 1, 2], [2, 1, 0]], [0, 1], "bidirectional"),
        ([[0, 1, 2], [2, 1, 0]], [1, 1], "linear"),
        ([[0, 1, 2], [0, 1, 2]], [0, 1], "linear"),
        ([[0, 1, 2], [2, 0, 1]], [0, 1], "free"),
        ([[0, 1, 0], [0, 1, 1]], [0, 1], "free"),
    ],
)
def test_shape(rows: list[list[int]], direction: list[int] | None, expected: str) -> None:
    s = len(rows[0])
    pipeline = Pipeline(
        ranks=3,
        stages=s,
        microbatches=2,
        placement=rows,
        direction=direction,
        forward_ns=[1] * s,
        backward_input_ns=[1] * s,
        backward_weight_ns=[1] * s,
    )
    assert patterns.shape(pipeline) == expected


@pytest.mark.parametrize(
    ("name", "pipeline", "expected", "peak"),
    [
        ("gpipe", uniform("linear", 4, 8, backward="fused"), 33, [8, 8, 8, 8]),
        ("1f1b", uniform("linear", 4, 8, backward="fused"), 33, [4, 3, 2, 1]),
        ("1f1b", uniform("linear", 2, 2, backward="fused"), 9, [2, 1]),
        ("1f1b", uniform("linear", 4, 4, backward="fused"), 21, [4, 3, 2, 1]),
        ("1f1b", uniform("linear", 2, 4, lag=2, backward="fused"), 23, [2, 1]),
        ("1f1b", uniform("linear", 4, 8), 30, [4, 3, 2, 1]),
        ("zb-h1", uniform("linear", 4, 8), 27, [4, 4, 4, 4]),
        ("zb-h2", uniform("linear", 4, 8), 27, [7, 7, 7, 7]),
        ("interleaved-1f1b", uniform("loop", 4, 8, backward="fused"), 57, [11, 9, 7, 5]),
        ("chimera", uniform("bidirectional", 4, 4, w=0, backward="fused"), 10, [3, 4, 4, 3]),
        ("chimera", uniform("bidirectional", 4, 4, backward="fused"), 16, [3, 4, 4, 3]),
        # One tick each: 2N + D − 2.
        ("chimera", uniform("bidirectional", 4, 12, w=0, backward="fused"), 26, [3, 4, 4, 3]),
        # The rank's work and the first forwards' way to the last rank: no schedule is shorter.
        ("zb-v", uniform("v", 4, 8), 51, [8, 8, 8, 8]),
        ("zb-v", uniform("v", 8, 32), 199, [16] * 8),
        ("v-half", uniform("v", 4, 8), 55, [6, 6, 6, 6]),
        ("v-min", uniform("v", 4, 8), 59, [4, 4, 4, 4]),
        ("dualpipe-v", uniform("v", 4, 8), 51, [9, 9, 9, 9]),
    ],
)
def test_published_values(name: str, pipeline: Pipeline, expected: int, peak: list[int]) -> None:
    value, _, levels = measure(name, pipeline)
    assert (value, levels) == (expected, peak)


def test_device_spans_without_a_bubble() -> None:
    assert measure("zb-h2", uniform("linear", 4, 8))[1] == 8 * 3
    assert measure("zb-v", uniform("v", 4, 8))[1] == 8 * 6
    assert measure("zb-h1", uniform("linear", 4, 8))[1] == 27


def test_latency_on_one_boundary() -> None:
    lag = [[4 * ({a, b} == {1, 2}) for b in range(4)] for a in range(4)]
    assert measure("1f1b", uniform("linear", 4, 8, backward="fused", latency_ns=lag))[0] == 65


@pytest.mark.parametrize(
    ("p", "m", "f", "i", "w", "lag", "fused_1f1b"),
    [
        (8, 24, 18522, 18086, 9337, 601, 0.2431),
        (8, 64, 18546, 18097, 9321, 762, 0.1240),
        (8, 24, 29718, 29444, 19927, 527, 0.2347),
        (8, 32, 29802, 29428, 19530, 577, 0.1898),
    ],
)
def test_bubbles_that_the_zero_bubble_authors_report(
    p: int, m: int, f: int, i: int, w: int, lag: int, fused_1f1b: float
) -> None:
    """Their 1F1B runs a fused backward; every split pattern is below it, in the order known."""
    sizes = {"f": f, "i": i, "w": w, "lag": lag}

    def bubble(name: str, backward: str) -> float:
        span = measure(name, uniform("linear", p, m, **sizes, backward=backward))[1]
        return 1 - m * (f + i + w) / span

    assert round(bubble("1f1b", "fused"), 4) == fused_1f1b
    split = [bubble(name, "split") for name in ("1f1b", "zb-h1", "zb-h2")]
    assert fused_1f1b > split[0] > split[1] > split[2]


@pytest.mark.parametrize("p", range(2, 13))
def test_memory_of_the_v_patterns(p: int) -> None:
    pipeline = uniform("v", p, 3 * p)
    assert max(measure("zb-v", pipeline)[2]) <= 2 * p
    assert max(measure("v-half", pipeline)[2]) <= p + 2
    assert max(measure("v-min", pipeline)[2]) <= 2 * p // 3 + 3


def test_every_v_has_a_block() -> None:
    for ranks in (*range(2, 14), 24, 64):
        for down, up in ((4, 2), (2, 1), (1, 1)):
            block, chunks = _v_block(ranks, down, up)
            ticks = [*block[0], *block[1][::-1]]
            assert ticks == sorted(set(ticks))
            assert chunks <= 2 * ranks


def test_dualpipe_v_with_adjacent_halves_as_one_op() -> None:
    """JaxPP's replay of the same actions, where I with W directly after it ends as a whole."""
    orders = patterns.orders("dualpipe-v", uniform("v", 4, 8))
    end: dict[Action, int] = {}
    free, rows = [0] * 4, [list(reversed(row)) for row in orders]
    while any(rows):
        r = next(r for r in range(4) if rows[r] and _before(rows[r][-1], 8) <= end.keys())
        action = rows[r].pop()
        start = max([free[r], *(end[a] for a in _before(action, 8))])
        weight = action._replace(kind="W")
        if action.kind == "I" and rows[r] and rows[r][-1] == weight:
            rows[r].pop()
            end[weight] = start + 2
        end[action] = free[r] = end.get(weight, start + 1)
    assert max(free) == 53


def _before(action: Action, stages: int) -> set[Action]:
    kind, stage, microbatch = action
    if kind == "F":
        return {Action("F", stage - 1, microbatch)} if stage else set()
    if kind == "W":
        return {Action("I", stage, microbatch)}
    deeper = Action("I", stage + 1, microbatch)
    return {deeper if stage + 1 < stages else Action("F", stage, microbatch)}


@st.composite
def uneven(draw: st.DrawFn) -> Pipeline:
    """A pipeline of any shape with times, sizes and latencies at random; zeros among them."""
    dice = random.Random(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(("linear", "loop", "v", "bidirectional", "free")))
    p, m = draw(st.integers(2, 8)), draw(st.integers(1, 24))
    names = dice.sample(range(p), p)
    if kind == "free":
        directions = dice.choice((1, 2))
        stages = dice.randint(1, 10)
        rows = [[dice.randrange(p) for _ in range(stages)] for _ in range(directions)]
    elif kind == "loop":
        rows = [names * dice.randint(2, 4)]
    else:
        rows = [[names[r] for r in row] for row in ROWS[kind](p)]
    stages = len(rows[0])
    per_microbatch = dice.random() < 0.3

    def times() -> list[Any]:
        top = dice.choice((1, 3, 50))
        return [
            [dice.randint(0, top) for _ in range(m)] if per_microbatch else dice.randint(0, top)
            for _ in range(stages)
        ]

    kept = [dice.randint(0, 9) for _ in range(stages)]
    return Pipeline(
        ranks=p,
        stages=stages,
        microbatches=m,
        placement=rows,
        direction=[dice.randrange(len(rows)) for _ in range(m)],
        forward_ns=times(),
        backward_input_ns=times(),
        backward_weight_ns=times(),
        backward=dice.choice(("split", "split", "fused")),
        latency_ns=[[dice.randint(0, 20) for _ in range(p)] for _ in range(p)],
        activation_bytes=kept,
        released_by_input_bytes=[dice.randint(0, k) for k in kept],
    )


@settings(max_examples=150, deadline=None)
@given(uneven())
def test_every_action_once_and_no_deadlock(pipeline: Pipeline) -> None:
    model = build(pipeline)
    names = patterns.applicable(pipeline)
    assert {"gpipe", "1f1b"} <= set(names)
    for name in names:
        orders = patterns.orders(name, pipeline)
        counts = Counter(action for row in orders for action in row)
        assert counts == Counter(Action(*key) for key in model.find())  # type: ignore[arg-type]
        replay(model, orders)


@settings(max_examples=60, deadline=None)
@given(uneven())
def test_weights_directly_after_inputs(pipeline: Pipeline) -> None:
    """In place means in place: with the halves merged, split and fused orders are the same."""
    fused = Pipeline.model_validate(pipeline.model_dump() | {"backward": "fused"})
    split = Pipeline.model_validate(pipeline.model_dump() | {"backward": "split"})
    for name in {"gpipe", "1f1b", "interleaved-1f1b", "chimera"} & set(
        patterns.applicable(pipeline)
    ):
        merged = patterns.orders(name, fused)
        for row, whole in zip(patterns.orders(name, split), merged, strict=True):
            parts = iter(row)
            for action in whole:
                if action.kind == "B":
                    assert next(parts) == action._replace(kind="I")
                    assert next(parts) == action._replace(kind="W")
                else:
                    assert next(parts) == action
            assert next(parts, None) is None


@settings(max_examples=60, deadline=None)
@given(uneven())
def test_zero_bubble_memory_on_uneven_stages(pipeline: Pipeline) -> None:
    """W is put off only as far as 1F1B's first rank would go with the same stage (H1)."""
    names = patterns.applicable(pipeline)
    kept = pipeline.activation_bytes
    if "zb-h1" not in names or kept is None or not any(kept):
        return
    stages, row = pipeline.stages, pipeline.placement[pipeline.directions()[0]]
    for name, factor in (("zb-h1", stages), ("zb-h2", 2 * stages - 1)):
        levels = measure(name, pipeline)[2]
        assert all(levels[row[s]] <= factor * kept[s] for s in range(stages))


def test_weights_fill_waits_by_their_own_length() -> None:
    """A W longer than the wait would delay the next op; a short one fits."""
    for w, expected in ((2, True), (200, False)):
        pipeline = uniform("linear", 2, 2, f=10, i=10, w=w)
        first = patterns.orders("zb-h1", pipeline)[0]
        kinds = "".join(action.kind for action in first)
        assert (kinds == "FFIWIW") is expected
        assert sorted(kinds) == sorted("FFIWIW")


@pytest.fixture
def bench() -> Path:
    folder = Path(__file__).parents[2] / "shared" / "bench"
    if not folder.is_dir():
        pytest.skip("needs the benchmark files in ../shared/bench")
    return folder


@pytest.mark.parametrize(
    "case",
    [
        "i01_hom_p4_m8_1x",
        "i06_zb1.5B_p8_m24_1x",
        "i09_zb6.2B_p8_m32_1x",
        "i10_zb14.6B_p16_m48_1x",
        "i28_llama3-8B_p4_m16_uniform_1x",
    ],
)
def test_zb_h1_is_as_good_as_its_authors(bench: Path, case: str) -> None:
    known = json.loads((bench / "best_known.json").read_text())[case]
    text = (bench / "pipelines" / f"{case}.json").read_text()
    pipeline = Pipeline.model_validate(json.loads(text))
    value, _, levels = measure("zb-h1", pipeline)
    assert known["lower_bound_ns"] <= value <= known["best_published_heuristic_ns"]
    assert pipeline.memory_limit_bytes is not None
    assert all(a <= b for a, b in zip(levels, pipeline.memory_limit_bytes, strict=True))


@pytest.fixture(scope="module")
def torch_schedules() -> ModuleType:
    return pytest.importorskip("torch.distributed.pipelining.schedules")


def _torch_orders(schedules: ModuleType, kind: str, p: int, m: int, chunks: int) -> Orders:
    """Each rank's actions by PyTorch's own generator, overlapped ones one after another."""
    letters = {"FORWARD": "F", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W"}
    rows: Orders = []
    for r in range(p):
        schedule = object.__new__(getattr(schedules, kind))  # no process group needed
        schedule.pp_group_size, schedule.rank, schedule._n_microbatches = p, r, m
        schedule.n_local_stages, schedule._num_stages = chunks, p * chunks
        schedule.number_of_rounds = max(1, m // p)
        schedule.microbatches_per_round = m // schedule.number_of_rounds
        row = []
        for step in filter(None, schedule._calculate_single_rank_operations(r)):
            for action in step.sub_actions or (step,):
                name = action.computation_type.name
                kinds = "IW" if name == "FULL_BACKWARD" else letters[name]
                where = action.stage_index, action.microbatch_index
                row += [Action(k, *where) for k in kinds]  # type: ignore[arg-type]
        rows.append(row)
    return rows


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 13), (3, 9), (8, 20)])
def test_dualpipe_v_is_pytorchs(torch_schedules: ModuleType, p: int, m: int) -> None:
    expected = _torch_orders(torch_schedules, "ScheduleDualPipeV", p, m, 2)
    assert patterns.orders("dualpipe-v", uniform("v", p, m)) == expected


@pytest.mark.parametrize(
    ("p", "m", "chunks"), [(2, 4, 2), (4, 4, 2), (4, 7, 2), (4, 8, 3), (4, 10, 3), (3, 9, 4)]
)
def test_interleaved_is_pytorchs(torch_schedules: ModuleType, p: int, m: int, chunks: int) -> None:
    expected = _torch_orders(torch_schedules, "ScheduleInterleaved1F1B", p, m, chunks)
    times = [1] * (p * chunks)
    pipeline = Pipeline(
        ranks=p,
        stages=p * chunks,
        microbatches=m,
        placement=[list(range(p)) * chunks],
        forward_ns=times,
        backward_input_ns=times,
        backward_weight_ns=times,
    )
    assert patterns.orders("interleaved-1f1b", pipeline) == expected


def test_applicable_by_shape() -> None:
    def names(kind: str, m: int = 8, backward: str = "split") -> set[str]:
        return set(patterns.applicable(uniform(kind, 4, m, backward=backward)))

    always = {"gpipe", "1f1b"}
    assert names("linear") == always | {"zb-h1", "zb-h2"}
    assert names("linear", backward="fused") == always
    assert names("loop") == names("loop", backward="fused") == always | {"interleaved-1f1b"}
    assert names("v") == always | {"zb-v", "v-half", "v-min", "dualpipe-v"}
    assert names("v", m=7) == always | {"zb-v", "v-half", "v-min"}
    assert names("bidirectional") == always | {"chimera"}


def test_refusals_say_why() -> None:
    with pytest.raises(InputError, match="did you mean 'zb-h1'"):
        patterns.orders("zbh1", uniform("linear", 4, 8))
    with pytest.raises(InputError, match="microbatches: found 4, expected at least 8"):
        patterns.orders("dualpipe-v", uniform("v", 4, 4))
    with pytest.raises(InputError, match="backward: found fused, expected split"):
        patterns.orders("zb-h2", uniform("linear", 4, 8, backward="fused"))
    with pytest.raises(InputError, match=r"placement: found linear .* expected loop"):
        patterns.orders("interleaved-1f1b", uniform("linear", 4, 8))
    with pytest.raises(InputError) as caught:
        patterns.orders("dualpipe-v", uniform("linear", 4, 2, backward="fused"))
    assert len(caught.value.faults) == 3


def test_names_and_sources() -> None:
    assert all(name == pattern.name for name, pattern in patterns.PATTERNS.items())
    assert all(pattern.title and pattern.source for pattern in patterns.PATTERNS.values())
