"""A schedule as a standalone SVG Gantt chart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt

from schedopt.problem import Ints
from schedopt.render.palette import Look, looks
from schedopt.render.view import (
    IDLE,
    KIND_NAMES,
    Row,
    clean,
    dimensions,
    extent,
    looks_of,
    memory,
    percent,
    raster,
    rows,
    sample,
    ticks,
    title,
    top_bytes,
    verdict,
)
from schedopt.schedule import Schedule
from schedopt.units import format_bytes, format_ns

__all__ = ["to_svg"]

MOST_ROWS = 256
MOST_DETAILED_OPS = 12_000
"""With more, ops lose label and tooltip and are drawn by the column: the file stays below 5 MB."""
MOST_CELLS = 120_000

_WIDTH, _LEFT, _RIGHT, _TOP = 1400, 72, 190, 118
_PLOT = _WIDTH - _LEFT - _RIGHT
_LONGEST = 150  # letters of a line
_LETTER, _DIGIT = 6.4, 6.0  # usual widths in running text and in an op's label, px
_STYLE = """
text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif;fill:#3d4a5c}
.h{font-size:19px;font-weight:600;fill:#16202c}.s{font-size:13px}.m{font-size:11px;fill:#5c6b80}
.n{font-size:10px;text-anchor:middle;pointer-events:none}.e{text-anchor:end}.c{text-anchor:middle}
.t{fill:#eef1f5}.g{stroke:#dde3ea}.y{fill:#b4c0d0}.l{stroke:#7b8a9e;stroke-dasharray:5 3}
"""


@dataclass(frozen=True)
class _Frame:
    """What is drawn, and how it is scaled.

    Attributes
    ----------
    start, end : int
        Time pictured, ns.
    columns : int
        Resolution of what is not drawn exactly.
    bar, band : int
        Heights of a row's ops and of its memory, px; no band without sizes.
    top_bytes : int
        Memory at the top of a band.
    """

    schedule: Schedule
    rows: list[Row]
    look: list[Look]
    start: int
    end: int
    columns: int
    bar: int
    band: int
    top_bytes: int

    @property
    def step(self) -> int:
        """Distance between rows, px."""
        return self.bar + self.band + (10 if self.band else 6)

    def x(self, time: Ints | int) -> npt.NDArray[np.float64]:
        """Return where a time lies in the plot, px."""
        return np.asarray((time - self.start) / (self.end - self.start) * _PLOT)


def to_svg(schedule: Schedule) -> str:
    """Draw one row per rank, with its activation memory below where the pipeline has sizes.

    Small schedules get a label and a tooltip per op. Large ones are drawn by the column, with the
    kinds in proportion to their time (`view.raster`); of very many ranks a sample is shown.

    Returns
    -------
    str
        An SVG document without external references.
    """
    frame = _frame(schedule)
    name = escape(title(schedule, _LONGEST))
    bottom = _TOP + frame.step * len(frame.rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + 32}" '
        f'width="{_WIDTH}" height="{bottom + 32}" role="img" aria-labelledby="title desc">',
        f'<title id="title">{name}</title>',
        f'<desc id="desc">{_text(_numbers(schedule))}</desc>',
        f"<style>{_STYLE}{_fills(frame.look)}</style>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text class="h" x="{_LEFT}" y="34">{name}</text>',
        f'<text class="s" x="{_LEFT}" y="57">{_text(_numbers(schedule))}</text>',
        *_legend(frame),
        *_head(frame),
        *_axis(frame, bottom),
    ]
    drawn = _detailed(frame) if len(schedule.ops) <= MOST_DETAILED_OPS else _columns(frame)
    for k, (row, shapes) in enumerate(zip(frame.rows, drawn, strict=True)):
        parts.append(f'<g transform="translate({_LEFT} {_TOP + k * frame.step})">')
        parts.append(f'<rect class="t" width="{_PLOT}" height="{frame.bar}"/>')
        parts.append(shapes)
        parts.extend(_margins(frame, row))
        if frame.band:
            parts.extend(_memory(frame, row))
        parts.append("</g>")
    return "\n".join([*parts, "</svg>\n"])


def _frame(schedule: Schedule) -> _Frame:
    pipeline = schedule.pipeline
    pictured = rows(schedule, sample(pipeline.ranks, MOST_ROWS))
    bar = 24 if len(pictured) <= 16 else 14 if len(pictured) <= 64 else 10
    band = 0 if pipeline.activation_bytes is None else 16 if bar == 24 else 10
    columns = min(_PLOT, MOST_CELLS // len(pictured))
    return _Frame(
        schedule, pictured, looks(pipeline), *extent(schedule), columns, bar, band,
        top_bytes(schedule),
    )  # fmt: skip


def _numbers(schedule: Schedule) -> str:
    bound = schedule.lower_bound_ns
    words = [
        verdict(schedule),
        f"makespan {format_ns(schedule.makespan_ns)}",
        f"{schedule.objective} bound {format_ns(bound)}" if bound is not None else "",
        f"bubble {percent(schedule.bubble)}",
        dimensions(schedule.pipeline),
    ]
    return " · ".join(word for word in words if word)


def _fills(look: list[Look]) -> str:
    return "".join(
        f".{one.kind}{one.chunk}{{fill:{one.colour}}}.i{one.kind}{one.chunk}{{fill:{one.ink}}}"
        for one in look
    )


def _legend(frame: _Frame) -> Iterator[str]:
    seen = looks_of(frame.rows)
    x, y = float(_LEFT), 72
    for kind in dict.fromkeys(frame.look[k].kind for k in seen):
        for k in seen:
            if frame.look[k].kind == kind:
                chunk = frame.look[k].chunk
                yield f'<rect class="{kind}{chunk}" x="{x:g}" y="{y}" width="13" height="13"/>'
                x += 14
        words = f"{kind} {KIND_NAMES[kind]}"
        yield f'<text x="{x + 5:g}" y="{y + 11}">{words}</text>'
        x += 24 + _LETTER * len(words)
    yield f'<rect class="t" x="{x:g}" y="{y}" width="13" height="13"/>'
    yield f'<text x="{x + 19:g}" y="{y + 11}">idle</text>'
    x += 62
    if frame.band:
        yield f'<rect class="y" x="{x:g}" y="{y}" width="13" height="13"/>'
        yield f'<text x="{x + 19:g}" y="{y + 11}">activation memory</text>'
        x += 144
        if frame.schedule.pipeline.memory_limit_bytes:
            yield f'<path class="l" d="M{x:g} {y + 7}h18"/>'
            yield f'<text x="{x + 24:g}" y="{y + 11}">its limit</text>'
            x += 92
    if any(frame.look[k].chunk for k in seen):
        words = "shades: stages of a rank, the first darkest"
        yield f'<text class="m" x="{x:g}" y="{y + 11}">{words}</text>'


def _head(frame: _Frame) -> Iterator[str]:
    ranks = frame.schedule.pipeline.ranks
    if len(frame.rows) < ranks:
        words = f"{len(frame.rows)} of {ranks} ranks shown"
        yield f'<text class="m" x="{_LEFT}" y="{_TOP - 10}">{words}</text>'
    words = "bubble, peak memory" if frame.band else "bubble"
    yield f'<text class="m" x="{_LEFT + _PLOT + 12}" y="{_TOP - 10}">{words}</text>'


def _axis(frame: _Frame, bottom: int) -> Iterator[str]:
    for tick in ticks(frame.start, frame.end, 10):
        x = f"{_LEFT + float(frame.x(tick)):.1f}"
        yield f'<path class="g" d="M{x} {_TOP - 6}V{bottom}"/>'
        yield f'<text class="m c" x="{x}" y="{bottom + 16}">{format_ns(tick)}</text>'


def _margins(frame: _Frame, row: Row) -> Iterator[str]:
    """What stands left and right of a row."""
    schedule, y = frame.schedule, frame.bar // 2 + 4
    yield f'<text class="e" x="-10" y="{y}">rank {row.rank}</text>'
    bubble = percent(row.bubble(schedule.makespan_ns))
    yield f'<text x="{_PLOT + 12}" y="{y}">{bubble}</text>'
    if frame.band:
        limits, peak = schedule.pipeline.memory_limit_bytes, schedule.peak_bytes[row.rank]
        of = f" of {format_bytes(limits[row.rank])}" if limits else ""
        y = frame.bar + frame.band // 2 + 6
        yield f'<text class="m" x="{_PLOT + 12}" y="{y}">{format_bytes(peak)}{of}</text>'


def _detailed(frame: _Frame) -> Iterator[str]:
    """Yield each row's ops one by one."""
    for row in frame.rows:
        first, last = frame.x(row.start), frame.x(row.end)
        ops = zip(
            (frame.look[k] for k in row.look.tolist()),
            row.stage.tolist(),
            row.microbatch.tolist(),
            row.start.tolist(),
            row.end.tolist(),
            first.tolist(),
            (last - first).tolist(),
            strict=True,
        )
        parts = []
        for one, stage, microbatch, start, end, x, wide in ops:
            shown = wide - 0.7 if wide > 3 else wide  # a hairline between neighbours
            css = f"{one.kind}{one.chunk}"
            tip = (
                f"{KIND_NAMES[one.kind]}, microbatch {microbatch}, stage {stage}, rank {row.rank}"
                f"\n{format_ns(start)} to {format_ns(end)}, {format_ns(end - start)} long"
            )
            parts.append(
                f'<rect class="{css}" x="{x:.2f}" width="{shown:.2f}" height="{frame.bar}">'
                f"<title>{tip}</title></rect>"
            )
            if wide >= 2 + _DIGIT * len(str(microbatch)):
                at = f'x="{x + wide / 2:.1f}" y="{frame.bar / 2 + 3.5:g}"'
                parts.append(f'<text class="n i{css}" {at}>{microbatch}</text>')
        yield "\n".join(parts)


def _columns(frame: _Frame) -> Iterator[str]:
    """Yield each row's ops as one path per look, neighbouring columns of one look merged."""
    unit = _PLOT / frame.columns
    cells = raster(frame.rows, frame.start, frame.end, frame.columns, len(frame.look))
    for line in cells:
        borders = np.flatnonzero(np.diff(line, prepend=-2, append=-2))
        paths: dict[int, list[str]] = {}
        for first, last in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
            if line[first] != IDLE:
                x, wide = f"{first * unit:.6g}", f"{(last - first) * unit:.6g}"
                path = f"M{x} 0h{wide}v{frame.bar}h-{wide}z"
                paths.setdefault(int(line[first]), []).append(path)
        yield "\n".join(
            f'<path class="{frame.look[k].kind}{frame.look[k].chunk}" d="{"".join(path)}"/>'
            for k, path in sorted(paths.items())
        )


def _memory(frame: _Frame, row: Row) -> Iterator[str]:
    """Draw the most memory of each column as a filled step curve, and the limit above it."""
    base, unit = frame.bar + 2 + frame.band, _PLOT / frame.columns
    path, last = [f"M0 {base}"], 0
    for column, level in enumerate(_highest(frame, row).tolist()):
        if level != last:
            y = base - frame.band * level / frame.top_bytes
            path.append(f"H{column * unit:.6g}V{y:.4g}")
            last = level
    yield f'<path class="y" d="{"".join(path)}H{_PLOT}V{base}z"/>'
    limits = frame.schedule.pipeline.memory_limit_bytes
    if limits:
        y = base - frame.band * limits[row.rank] / frame.top_bytes
        yield f'<path class="l" d="M0 {y:.4g}H{_PLOT}"/>'


def _highest(frame: _Frame, row: Row) -> Ints:
    """Return the highest memory level of each column, bytes."""
    times, levels = memory(frame.schedule.pipeline, row)
    edges = np.linspace(0, _PLOT, frame.columns + 1)
    at = np.clip(np.searchsorted(edges, frame.x(times), "right") - 1, 0, frame.columns - 1)
    steps = np.concatenate([[0], levels])
    # What a column begins with is what the last change before it left.
    highest = steps[np.searchsorted(at, np.arange(frame.columns), "left")]
    np.maximum.at(highest, at, levels)
    return highest


def _text(text: str) -> str:
    return escape(clean(text, _LONGEST))
