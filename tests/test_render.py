"""Pictures: they show what the schedule says, at any size, and run nothing that a file says."""

import base64
import hashlib
import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from schedopt.build.pipeline import KINDS, build
from schedopt.pipeline import Pipeline
from schedopt.problem import device_span, makespan
from schedopt.render import html, palette, svg, terminal, view
from schedopt.schedule import Action, Certificate, Op, Orders, Provenance, Schedule
from schedopt.simulation import replay
from schedopt.timing import peaks

PIPELINES = Path(__file__).parents[2] / "shared" / "bench" / "pipelines"
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"'&\x1b[31m\x00\u202e]]>"
SVG = "{http://www.w3.org/2000/svg}"


def gpipe(pipeline: Pipeline) -> Orders:
    """All forwards, then all backwards: valid for any placement."""
    placement, direction = pipeline.placement, pipeline.directions()
    orders: Orders = [[] for _ in range(pipeline.ranks)]
    backward = ("B",) if pipeline.fused else ("I", "W")
    for kinds, step in ((("F",), 1), (backward, -1)):
        for j in range(pipeline.microbatches):
            for stage in range(pipeline.stages)[::step]:
                rank = placement[direction[j]][stage]
                orders[rank] += [Action(kind, stage, j) for kind in kinds]
    return orders


def one_f_one_b(pipeline: Pipeline) -> Orders:
    """Warm up, then forward and backward in turn; stage r on rank r."""
    orders: Orders = []
    p, m = pipeline.ranks, pipeline.microbatches
    for rank in range(p):
        warm = min(m, p - rank)
        forwards = [Action("F", rank, j) for j in range(m)]
        kinds = ("B",) if pipeline.fused else ("I", "W")
        backwards = [[Action(kind, rank, j) for kind in kinds] for j in range(m)]
        row = forwards[:warm]
        for j in range(m):
            row += [*backwards[j], *forwards[warm + j : warm + j + 1]]
        orders.append(row)
    return orders


def schedule_of(pipeline: Pipeline, orders: Orders, **fields: object) -> Schedule:
    model = build(pipeline)
    problem = model.problem
    starts = replay(model, orders)
    columns = (model.kind, model.stage, model.microbatch, problem.resource, starts)
    table = zip(*(column.tolist() for column in columns), problem.duration.tolist(), strict=True)
    ops = [
        Op(kind=KINDS[k], stage=s, microbatch=j, rank=r, start_ns=t, end_ns=t + d)
        for k, s, j, r, t, d in table
    ]
    span = makespan(problem, starts)
    data: dict[str, object] = {
        "name": pipeline.name,
        "status": "feasible",
        "makespan_ns": span,
        "device_span_ns": device_span(problem, starts),
        "bubble": 1 - int(problem.duration.sum()) / (pipeline.ranks * span),
        "peak_bytes": peaks(problem, starts).tolist(),
        "pipeline": pipeline,
        "ops": ops,
    }
    return Schedule.model_validate(data | fields)


def linear(ranks: int = 3, microbatches: int = 4, **fields: object) -> Pipeline:
    data: dict[str, object] = {
        "name": "small",
        "ranks": ranks,
        "stages": ranks,
        "microbatches": microbatches,
        "placement": [list(range(ranks))],
        "forward_ns": [10_000] * ranks,
        "backward_input_ns": [18_000] * ranks,
        "backward_weight_ns": [6_000] * ranks,
        "activation_bytes": [1024] * ranks,
        "released_by_input_bytes": [512] * ranks,
        "memory_limit_bytes": [4096] * ranks,
    }
    return Pipeline.model_validate(data | fields)


def v_shaped(ranks: int, microbatches: int) -> Pipeline:
    """Two stages per rank, the second lap backwards."""
    stages = 2 * ranks
    placement = [*range(ranks), *reversed(range(ranks))]
    sizes = {"activation_bytes": [8] * stages, "released_by_input_bytes": [3] * stages}
    times = {"forward_ns": [7] * stages, "backward_input_ns": [9] * stages}
    times["backward_weight_ns"] = [5] * stages
    return linear(ranks, microbatches, stages=stages, placement=[placement], **sizes, **times)


@pytest.fixture(scope="module")
def small() -> Schedule:
    pipeline = linear()
    return schedule_of(
        pipeline,
        one_f_one_b(pipeline),
        certificate=Certificate(bound="machine", rank=1, reason="Rank 1 works.", terms={"work": 9}),
        assumptions=["Links are free."],
        provenance=Provenance(input_sha256=pipeline.digest(), versions={"schedopt": "1"}),
        lower_bound_ns=150_000,
        gap=0.1,
    )


@pytest.fixture(scope="module")
def large() -> Schedule:
    """The size that the pictures promise to bear: 196,608 ops on 64 ranks."""
    pipeline = v_shaped(64, 512)
    stages, m = pipeline.stages, pipeline.microbatches
    placement, ops = pipeline.placement[0], []
    for rank in range(64):
        now = rank * 7
        mine = [stage for stage in range(stages) if placement[stage] == rank]
        for j in range(m):
            for kind, length in (("F", 7), ("I", 9), ("W", 5)):
                for stage in mine:
                    op = {"kind": kind, "stage": stage, "microbatch": j, "rank": rank}
                    ops.append(op | {"start_ns": now, "end_ns": now + length})
                    now += length
    span = 63 * 7 + 2 * m * 21
    return Schedule.model_validate(
        {
            "status": "optimal",
            "makespan_ns": span,
            "device_span_ns": 2 * m * 21,
            "lower_bound_ns": span,
            "bubble": 1 - 2 * m * 21 / span,
            "peak_bytes": [16] * 64,
            "pipeline": pipeline,
            "ops": ops,
        }
    )


def nasty(schedule: Schedule) -> Schedule:
    """Replace every string that can come from a file."""
    reason = Certificate(bound=NASTY, reason=NASTY, terms={NASTY: 1})
    origin = Provenance(input_sha256=NASTY, options={NASTY: NASTY}, versions={NASTY: NASTY})
    pipeline = schedule.pipeline.model_copy(update={"name": NASTY, "layers": [[NASTY]] * 3})
    fields = {"name": NASTY, "method": NASTY, "assumptions": [NASTY], "certificate": reason}
    return schedule.model_copy(update=fields | {"provenance": origin, "pipeline": pipeline})


def printed(renderable: object, width: int = 80, colour: bool = False) -> str:
    stream = io.StringIO()
    system = "truecolor" if colour else None
    console = Console(file=stream, width=width, color_system=system, force_terminal=colour)
    console.print(renderable)
    return stream.getvalue()


def bars(text: str) -> dict[int, str]:
    """The cells of each rank of a printed chart."""
    return {int(rank): cells for rank, cells in re.findall(r"^ *(\d+) │(.*)│", text, re.M)}


# palette


def test_text_is_readable_on_every_colour() -> None:
    pipeline = linear(1, 1, stages=8, placement=[[0] * 8], **many_stages(8))
    for look in palette.looks(pipeline):
        assert palette.contrast(look.colour, look.ink) >= 4.5, look
    assert palette.contrast("#000000", "#ffffff") == pytest.approx(21)


def many_stages(count: int) -> dict[str, object]:
    names = ("forward_ns", "backward_input_ns", "backward_weight_ns", "activation_bytes")
    return {name: [10] * count for name in (*names, "released_by_input_bytes")}


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
BLIND = {
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def lab(colour: str, eye: list[list[float]]) -> np.ndarray:
    channels = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    linear_rgb = np.where(
        channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
    )
    seen = np.clip(np.array(eye) @ linear_rgb, 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ seen / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("eye", BLIND)
def test_kinds_stay_apart_for_colour_blind_eyes(eye: str) -> None:
    schedule = schedule_of(v_shaped(2, 2), gpipe(v_shaped(2, 2)))
    seen = {
        (look.kind, look.chunk): lab(look.colour, BLIND[eye])
        for look in palette.looks(schedule.pipeline)
    }
    for one, other in ("FI", "FW", "IW", "FB"):  # the kinds that occur together
        assert np.linalg.norm(seen[one, 0] - seen[other, 0]) > 25, (one, other)
        for a, b in ((0, 1), (1, 0), (1, 1)):
            assert np.linalg.norm(seen[one, a] - seen[other, b]) > 14, (one, a, other, b)


def test_clean_leaves_nothing_that_steers() -> None:
    text = view.clean(NASTY)
    assert text.isprintable()
    assert "</script>" in text  # escaping is for those who know the target
    assert view.clean("a\n\t b") == "a b"
    assert view.clean("x" * 300, 10) == "x" * 9 + "…"


def test_verdict_rounds_the_gap_up() -> None:
    schedule = schedule_of(linear(), one_f_one_b(linear()))
    span = schedule.makespan_ns
    assert view.verdict(schedule) == "feasible"
    close = schedule.model_copy(update={"lower_bound_ns": span - 1})
    assert view.verdict(close) == "within 0.01 % of the bound"
    half = schedule.model_copy(update={"lower_bound_ns": span // 2})
    assert view.verdict(half) == "within 100 % of the bound"
    best = schedule.model_copy(update={"lower_bound_ns": span, "status": "optimal"})
    assert view.verdict(best) == "optimal (proven)"
    short = schedule.model_copy(
        update={"objective": "device-span", "device_span_ns": 110, "lower_bound_ns": 100}
    )
    assert view.verdict(short) == "within 10 % of the bound"
    assert ("device span", "110 ns (minimised)") in view.headline(short)


@pytest.mark.parametrize(
    ("start", "end", "most"), [(0, 1, 5), (0, 7, 3), (3, 1_389_174_000, 9), (0, 2**62, 12)]
)
def test_ticks_are_round_and_inside(start: int, end: int, most: int) -> None:
    ticks = view.ticks(start, end, most)
    assert 1 <= len(ticks) <= most
    assert all(start <= tick <= end for tick in ticks)
    steps = set(np.diff(np.array(ticks)).tolist())
    assert len(steps) <= 1
    assert all(str(step).rstrip("0") in ("1", "2", "5") for step in steps)


def test_memory_curve_reaches_the_stated_peak(small: Schedule) -> None:
    for row, peak in zip(view.rows(small, range(3)), small.peak_bytes, strict=True):
        times, levels = view.memory(small.pipeline, row)
        assert levels.max() == peak > 0
        assert levels[-1] == 0
        assert (np.diff(times) >= 0).all()


def test_raster_shows_looks_in_proportion_and_never_what_is_not_there(large: Schedule) -> None:
    rows, looks = view.rows(large, [0, 40]), palette.looks(large.pipeline)
    start, end = view.extent(large)
    cells = view.raster(rows, start, end, 100, len(looks))
    for row, line in zip(rows, cells, strict=True):
        for k in range(len(looks)):
            mine = row.look == k
            share = (row.end - row.start)[mine].sum() / (end - start)
            assert (line == k).mean() == pytest.approx(share, abs=0.02)
        width = (end - start) / 100
        for column, k in enumerate(line.tolist()):
            inside = (row.end > column * width) & (row.start < (column + 1) * width)
            assert k == view.IDLE or k in row.look[inside]


def test_raster_leaves_an_idle_column_idle() -> None:
    times = np.array([[0, 3], [3, 6], [10, 14], [14, 20]])
    none = np.zeros(4, np.int64)
    row = view.Row(0, np.array([0, 1, 0, 1]), none, none, times[:, 0], times[:, 1])
    # The first look is owed most of a column when the last one comes, but does not occur in it.
    assert view.raster([row], 0, 30, 3, 2).tolist() == [[view.IDLE, 1, view.IDLE]]


def test_sample_keeps_the_ends() -> None:
    assert view.sample(5, 8) == [0, 1, 2, 3, 4]
    picked = view.sample(100, 32)
    assert (len(set(picked)), picked[0], picked[-1]) == (32, 0, 99)
    assert picked == sorted(picked)


# terminal


def test_gantt_reads_without_colour(small: Schedule) -> None:
    text = printed(terminal.gantt(small))
    assert max(map(len, text.splitlines())) <= 80
    rows = bars(text)
    assert list(rows) == [0, 1, 2]
    for row in rows.values():
        assert [re.findall(rf"{kind}(\d)", row) for kind in "FI"] == [["0", "1", "2", "3"]] * 2
        assert row.count("W") == 4
        assert "·" in row
    legend = ("forward", "input gradient", "weight gradient", "idle", "─: the op goes on")
    for words in (*legend, "microbatch", "us"):
        assert words in text


def test_gantt_letters_have_the_length_of_their_ops(small: Schedule) -> None:
    columns = len(bars(printed(terminal.gantt(small)))[0])
    unit = small.makespan_ns / columns
    for rank, row in bars(printed(terminal.gantt(small))).items():
        drawn = [(m.start(), m.end()) for m in re.finditer(r"F\d─*", row)]
        ops = [op for op in small.by_rank()[rank] if op["kind"] == "F"]
        for (first, last), op in zip(drawn, ops, strict=True):
            assert abs(first - op["start_ns"] / unit) <= 0.5
            assert abs(last - op["end_ns"] / unit) <= 0.5


def test_gantt_tells_the_stages_of_a_rank_apart() -> None:
    pipeline = v_shaped(2, 2)
    text = printed(terminal.gantt(schedule_of(pipeline, gpipe(pipeline))))
    assert "F0" in bars(text)[0]
    assert "f0" in bars(text)[0]
    assert "lower case" in text
    four = linear(1, 1, stages=4, placement=[[0] * 4], **many_stages(4))
    text = printed(terminal.gantt(schedule_of(four, gpipe(four))))
    assert re.findall(r"\d[Ff]0", bars(text)[0]) == ["0F0", "1f0", "2F0", "3f0"]


def test_gantt_of_many_ranks_says_that_it_is_a_sample(large: Schedule) -> None:
    text = printed(terminal.gantt(large))
    assert "32 of 64 ranks shown" in text
    rows = bars(text)
    assert (len(rows), min(rows), max(rows)) == (32, 0, 63)
    assert all(set("FfIiWw·") >= set(row) for row in rows.values())
    assert all(row.count("·") <= 2 for row in rows.values())  # the bubble is 2 %


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_gantt_fits_its_width(small: Schedule, width: int) -> None:
    lines = printed(terminal.gantt(small, width), 300).splitlines()
    rows = [line for line in lines if "│" in line]
    assert {len(line) for line in rows} == {max(width, 30)}


def test_summary_has_value_proof_and_memory(small: Schedule) -> None:
    text = printed(terminal.summary(small))
    assert max(map(len, text.splitlines())) <= 80
    for words in (
        f"makespan     {small.makespan_ns // 1000} us (minimised)",
        "lower bound  150 us",
        "machine, rank 1: Rank 1 works.",
        "Links are free.",
        "rank 0  3 KiB of 4 KiB  75.0 %",
        f"status       {view.verdict(small)}",
    ):
        assert " ".join(words.split()) in " ".join(text.split())


def test_summary_names_what_is_over_the_limit_and_joins_equal_ranks() -> None:
    pipeline = linear(20, 4, memory_limit_bytes=[2048] + [8192] * 19)
    text = printed(terminal.summary(schedule_of(pipeline, gpipe(pipeline))))
    assert re.search(r"rank 0 .* 200\.0 %  over the limit", text)
    assert re.search(r"ranks 1–19 .* 50\.0 %", text)
    sizes = [1024 + k for k in range(20)]
    uneven = linear(20, 4, activation_bytes=sizes, memory_limit_bytes=None)
    text = printed(terminal.summary(schedule_of(uneven, gpipe(uneven))))
    assert "and 8 more, none fuller" in text
    assert "rank 19" in text
    assert "rank 7 " not in text


def test_terminal_is_not_steered_by_names(small: Schedule) -> None:
    text = printed(terminal.summary(nasty(small)))
    assert "\x1b" not in text
    assert "\u202e" not in text
    markup = small.model_copy(update={"name": "[red]x[/red] [/]"})
    assert "[red]x[/red] [/]" in printed(terminal.summary(markup))


# svg


def test_svg_has_every_op_at_its_time(small: Schedule) -> None:
    root = ElementTree.fromstring(svg.to_svg(small))
    rows = root.findall(f"{SVG}g")
    assert len(rows) == 3
    for group, ops in zip(rows, small.by_rank(), strict=True):
        track, *rects = group.findall(f"{SVG}rect")
        scale = float(track.get("width", "")) / small.makespan_ns
        assert len(rects) == len(ops)
        for rect, op in zip(rects, ops, strict=True):
            assert rect.get("class") == f"{op['kind']}0"
            assert float(rect.get("x", "")) == pytest.approx(op["start_ns"] * scale, abs=0.01)
            length = (op["end_ns"] - op["start_ns"]) * scale
            assert float(rect.get("width", "")) == pytest.approx(length, abs=1)
            tip = rect.findtext(f"{SVG}title") or ""
            assert f"microbatch {op['microbatch']}, stage {op['stage']}, rank {op['rank']}" in tip
    text = " ".join(root.itertext())
    for words in ("small", "rank 2", "50 us", "within", "3 KiB of 4 KiB", "input gradient"):
        assert words in text


def test_svg_escapes_names(small: Schedule) -> None:
    text = svg.to_svg(nasty(small))
    root = ElementTree.fromstring(text)
    assert not root.findall(f".//{SVG}script")
    assert "<img" not in text
    assert "</script>" in (root.findtext(f"{SVG}title") or "")


def test_svg_of_two_hundred_thousand_ops_is_small_and_faithful(large: Schedule) -> None:
    text = svg.to_svg(large)
    assert len(text) < 5_000_000
    rows = ElementTree.fromstring(text).findall(f"{SVG}g")
    assert len(rows) == 64
    drawn = dict.fromkeys("FIW", 0.0)
    for path in rows[10].findall(f"{SVG}path"):
        widths = re.findall(r"h([\d.]+)v", path.get("d", ""))
        if path.get("class", "")[:1] in drawn:
            drawn[path.get("class", "")[0]] += sum(map(float, widths))
    total = sum(drawn.values())
    for kind, length in (("F", 7), ("I", 9), ("W", 5)):
        assert drawn[kind] / total == pytest.approx(length / 21, abs=0.01)


def test_svg_of_more_ranks_than_fit_shows_a_sample() -> None:
    pipeline = linear(300, 1)
    text = svg.to_svg(schedule_of(pipeline, gpipe(pipeline)))
    assert "256 of 300 ranks shown" in text
    assert len(ElementTree.fromstring(text).findall(f"{SVG}g")) == 256


def test_svg_memory_curve_touches_the_peak() -> None:
    pipeline = linear(2, 4, memory_limit_bytes=None)
    schedule = schedule_of(pipeline, gpipe(pipeline))
    group = ElementTree.fromstring(svg.to_svg(schedule)).findall(f"{SVG}g")[0]
    band = next(path for path in group.findall(f"{SVG}path") if path.get("class") == "y")
    base = float(re.match(r"M0 ([\d.]+)", band.get("d", ""))[1])  # type: ignore[index]
    heights = [base - float(y) for y in re.findall(r"V([\d.]+)", band.get("d", ""))]
    assert max(heights) == pytest.approx(16)  # the fullest rank fills its band
    assert min(heights) == 0


def test_svg_memory_curve_keeps_peaks_narrower_than_a_pixel() -> None:
    pipeline = linear(1, 3000, memory_limit_bytes=None)
    group = ElementTree.fromstring(svg.to_svg(schedule_of(pipeline, one_f_one_b(pipeline))))
    band = next(path for path in group.iter(f"{SVG}path") if path.get("class") == "y")
    heights = re.findall(r"V([\d.]+)", band.get("d", ""))
    assert len(heights) == 2  # up to the peak at the start, down at the end


# html


def payload(text: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found is not None
    result: dict[str, object] = json.loads(found[1])
    return result


def test_html_carries_every_op(small: Schedule) -> None:
    data = payload(html.to_html(small))
    looks, rows = data["looks"], data["rows"]
    assert isinstance(looks, list)
    assert isinstance(rows, list)
    for numbers, ops in zip(rows, small.by_rank(), strict=True):
        now = data["start"]
        assert isinstance(now, int)
        for k, op in enumerate(ops):
            look, stage, microbatch, idle, length = numbers[5 * k : 5 * k + 5]
            assert (looks[look][0], stage, microbatch) == (
                op["kind"],
                op["stage"],
                op["microbatch"],
            )
            assert (now + idle, now + idle + length) == (op["start_ns"], op["end_ns"])
            now = op["end_ns"]
        assert len(numbers) == 5 * len(ops)


def test_html_shows_numbers_proof_and_ranks(small: Schedule) -> None:
    text = html.to_html(small)
    for words in ("within", "Rank 1 works.", "Links are free.", "3 KiB", "75.0 %", "schedopt"):
        assert words in text
    # Three ranks, three stages and the certificate's term.
    assert text.count('<tr><th scope="row">') == 7


def test_html_asks_nobody_and_runs_only_its_own_script(small: Schedule) -> None:
    text = html.to_html(small)
    assert not re.search(r"\b(src|href)=|@import|url\(|https?:", text)
    style = re.search(r"<style>(.*?)</style>", text, re.S)
    script = re.search(r"<script>(.*?)</script>", text, re.S)
    assert style is not None
    assert script is not None
    for inline in (style[1], script[1]):
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"sha256-{digest}" in text
    assert "default-src" in text
    assert not re.search(r'\sstyle="', text)  # the policy would refuse it


def test_html_escapes_names(small: Schedule) -> None:
    plain, text = html.to_html(small), html.to_html(nasty(small))
    assert "alert(1)" in text  # shown, as text
    for tag in ("<script", "</script", "<img", "<figure"):
        assert text.count(tag) == plain.count(tag)
    assert "\x1b" not in text
    assert "\x00" not in text


def test_html_of_two_hundred_thousand_ops(large: Schedule) -> None:
    rows = payload(html.to_html(large))["rows"]
    assert isinstance(rows, list)
    assert sum(map(len, rows)) == 5 * 196_608


# everything, on odd schedules


def odd_schedules() -> dict[str, Schedule]:
    plain = linear(2, 3)
    unsized = ("activation_bytes", "released_by_input_bytes", "memory_limit_bytes")
    fused = linear(2, 3, backward="fused", **dict.fromkeys(unsized))
    instant = linear(2, 3, forward_ns=[0, 0], backward_input_ns=[0, 0], backward_weight_ns=[0, 0])
    one = schedule_of(plain, gpipe(plain))
    still = {"status": "feasible", "makespan_ns": 0, "device_span_ns": 0, "bubble": 0.0}
    at_zero = [Op(kind="F", stage=r, microbatch=0, rank=r, start_ns=0, end_ns=0) for r in range(2)]
    late = [
        op | {"start_ns": op["start_ns"] + 10**15, "end_ns": op["end_ns"] + 10**15}
        for op in one.ops
    ]
    overlapping = [op | {"start_ns": 0} for op in one.ops]
    return {
        "fused": schedule_of(fused, gpipe(fused)),
        "no ops": Schedule.model_validate(one.model_dump() | {"ops": []}),
        "no time": Schedule.model_validate(
            still | {"peak_bytes": [0, 0], "pipeline": instant, "ops": at_zero}
        ),
        "late": Schedule.model_validate(one.model_dump() | {"ops": late}),
        "overlapping": Schedule.model_validate(one.model_dump() | {"ops": overlapping}),
    }


@pytest.mark.parametrize("name", ["fused", "no ops", "no time", "late", "overlapping"])
def test_odd_schedules_are_drawn(name: str) -> None:
    schedule = odd_schedules()[name]
    text = printed(terminal.gantt(schedule)) + printed(terminal.summary(schedule))
    drawn, page = svg.to_svg(schedule), html.to_html(schedule)
    ElementTree.fromstring(drawn)
    payload(page)
    assert list(bars(text)) == [0, 1]
    assert "nan" not in (text + drawn).lower()
    assert ("B backward" in text) == (name == "fused")


@pytest.mark.parametrize(
    "name",
    ["i06_zb1.5B_p8_m24_1x", "i22_RR4_p8_m32_1.5x_c1", "bidir-p8-v1-m16-a-het0-head0-mem1.0"],
)
def test_published_pipelines(name: str) -> None:
    path = PIPELINES / f"{name}.json"
    if not path.is_file():
        pytest.skip("needs the benchmark pipelines beside the checkout")
    pipeline = Pipeline.read(path)
    schedule = schedule_of(pipeline, gpipe(pipeline))
    root = ElementTree.fromstring(svg.to_svg(schedule))
    shades = {rect.get("class") for rect in root.findall(f"{SVG}g/{SVG}rect")} - {"t"}
    per_rank = len(pipeline.placement) * pipeline.stages // pipeline.ranks
    assert shades == {f"{kind}{chunk}" for kind in "FIW" for chunk in range(per_rank)}
    assert len(bars(printed(terminal.gantt(schedule)))) == 8
    assert pipeline.name in html.to_html(schedule)
