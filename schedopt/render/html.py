"""A schedule as one self-contained page: a chart to zoom and hover, its proof, its ranks."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files

import numpy as np

from schedopt.build.pipeline import KINDS, memory_changes
from schedopt.pipeline import Pipeline
from schedopt.render.palette import Look, looks
from schedopt.render.view import (
    KIND_NAMES,
    Row,
    clean,
    dimensions,
    extent,
    headline,
    looks_of,
    percent,
    rows,
    stage_table,
    title,
    top_bytes,
)
from schedopt.schedule import Schedule
from schedopt.units import format_bytes, format_ns

__all__ = ["to_html"]

_TOOLS = """<div class="tools"><button id="in" aria-label="Zoom in">+</button>
<button id="out" aria-label="Zoom out">−</button><button id="all">Whole schedule</button></div>"""
_HELP = (
    "Wheel or + −: zoom. Drag or ← →: move. 0: whole schedule. "
    "Click, ↑ ↓ or Shift + ← →: choose an op."
)


def to_html(schedule: Schedule) -> str:
    """Make a page that shows a schedule without asking any other machine for anything.

    Every op is in it and can be hovered; ops narrower than a pixel share it, mixed in proportion
    to their time. Names from files are only ever text: they are escaped, and a content security
    policy lets no script run but the page's own.

    Returns
    -------
    str
        An HTML document.
    """
    look = looks(schedule.pipeline)
    pictured = rows(schedule, range(schedule.pipeline.ranks))
    name = escape(title(schedule))
    style, script = _asset("page.css"), _asset("page.js")
    words = " · ".join(filter(None, (dimensions(schedule.pipeline), clean(schedule.method))))
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    numbers = "".join(
        f"<div><dt>{escape(term)}</dt><dd>{escape(value)}</dd></div>"
        for term, value in headline(schedule)
    )
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{name}</title><style>{style}</style></head><body><main>",
        f'<h1>{name}</h1><p class="muted">{escape(words)}</p>',
        f'<dl class="numbers">{numbers}</dl>',
        *_chart(schedule, look, pictured),
        *_proof(schedule),
        *_table(schedule, pictured),
        *_stages(schedule.pipeline),
        *_origin(schedule),
        "</main>",
        f'<script type="application/json" id="data">{_data(schedule, look, pictured)}</script>',
        f"<script>{script}</script></body></html>\n",
    ]
    return "\n".join(parts)


def _chart(schedule: Schedule, look: Sequence[Look], pictured: Sequence[Row]) -> Iterator[str]:
    words = ", ".join(f"{name} {value}" for name, value in headline(schedule))
    yield f'<figure><div class="bar">{"".join(_keys(schedule, look, pictured))}{_TOOLS}</div>'
    yield (
        '<div id="view" tabindex="0" role="application" aria-label="Gantt chart" '
        'aria-describedby="help"><canvas id="chart" role="img" '
        f'aria-label="Ops of each rank over time: {escape(words)}."></canvas>'
        '<div id="spacer"></div></div>'
    )
    yield f'<figcaption id="help">{_HELP}</figcaption><p id="said" aria-live="polite"></p>'
    yield '</figure><div id="tip" aria-hidden="true"></div>'


def _keys(schedule: Schedule, look: Sequence[Look], pictured: Sequence[Row]) -> Iterator[str]:
    seen = looks_of(pictured)
    for kind in dict.fromkeys(look[k].kind for k in seen):
        colours = [look[k].colour for k in seen if look[k].kind == kind]
        yield _key(colours, f"{kind} {KIND_NAMES[kind]}")
    yield _key(["var(--track)"], "idle")
    if schedule.pipeline.activation_bytes is not None:
        limited = schedule.pipeline.memory_limit_bytes is not None
        yield _key(["var(--memory)"], "activation memory" + ", dashed: its limit" * limited)
    if any(look[k].chunk for k in seen):
        yield '<span class="muted">shades: stages of a rank, the first darkest</span>'


def _key(colours: Sequence[str], words: str) -> str:
    boxes = "".join(
        f'<rect x="{14 * k}" width="13" height="13" fill="{colour}"/>'
        for k, colour in enumerate(colours)
    )
    size = f'width="{14 * len(colours) - 1}" height="13"'
    return f'<span class="key"><svg {size} aria-hidden="true">{boxes}</svg>{words}</span>'


def _proof(schedule: Schedule) -> Iterator[str]:
    proof = schedule.certificate
    if proof is not None:
        at = "" if proof.rank is None else f", rank {proof.rank}"
        yield f"<section><h2>Certificate: {_text(proof.bound)}{at}</h2>"
        yield f"<p>{_text(proof.reason, 2000)}</p>"
        if proof.terms:
            yield '<div class="scroll"><table><tbody>'
            for term, value in proof.terms.items():
                yield f'<tr><th scope="row">{_text(term)}</th><td>{format_ns(value)}</td></tr>'
            yield "</tbody></table></div>"
        yield "</section>"
    if schedule.assumptions:
        items = "".join(f"<li>{_text(one, 2000)}</li>" for one in schedule.assumptions)
        yield f"<section><h2>Assumptions</h2><ul>{items}</ul></section>"


def _table(schedule: Schedule, pictured: Sequence[Row]) -> Iterator[str]:
    sized = schedule.pipeline.activation_bytes is not None
    limits = schedule.pipeline.memory_limit_bytes
    names = ["rank", "ops", "busy", "bubble"]
    names += ["peak memory"] * sized + ["limit", "of the limit"] * (limits is not None)
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    yield '<section><h2 id="ranks">Ranks</h2><div class="scroll" tabindex="0" role="region" '
    yield f'aria-labelledby="ranks"><table><thead><tr>{head}</tr></thead><tbody>'
    for row, peak in zip(pictured, schedule.peak_bytes, strict=True):
        bubble = percent(row.bubble(schedule.makespan_ns))
        cells = [str(len(row.start)), format_ns(row.busy_ns), bubble]
        cells += [format_bytes(peak)] * sized
        line = "".join(f"<td>{cell}</td>" for cell in cells)
        if limits is not None:
            line += f"<td>{format_bytes(limits[row.rank])}</td>{_used(peak, limits[row.rank])}"
        yield f'<tr><th scope="row">{row.rank}</th>{line}</tr>'
    yield "</tbody></table></div></section>"


def _stages(pipeline: Pipeline) -> Iterator[str]:
    heads, lines = stage_table(pipeline)
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    yield '<section><h2 id="stages">Stages</h2><div class="scroll" tabindex="0" role="region" '
    yield f'aria-labelledby="stages"><table><thead><tr>{head}</tr></thead><tbody>'
    for stage, *cells in lines:
        line = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        yield f'<tr><th scope="row">{stage}</th>{line}</tr>'
    yield "</tbody></table></div></section>"


def _used(peak: int, limit: int) -> str:
    share = peak / max(1, limit)
    css, over = (' class="over"', ", over") if peak > limit else ("", "")
    return (
        f'<td{css}>{percent(share)}{over} <meter value="{min(1, share):.3f}" '
        'aria-hidden="true"></meter></td>'
    )


def _origin(schedule: Schedule) -> Iterator[str]:
    origin = schedule.provenance
    if origin is None:
        return
    facts = [("input sha256", origin.input_sha256)]
    facts += [(name, str(value)) for name, value in (origin.options | origin.versions).items()]
    items = "".join(
        f"<dt>{_text(name)}</dt><dd><code>{_text(value)}</code></dd>" for name, value in facts
    )
    yield f"<section><h2>Provenance</h2><dl>{items}</dl></section>"


def _data(schedule: Schedule, look: Sequence[Look], pictured: Sequence[Row]) -> str:
    """Return what the script draws, as JSON that can't end its element."""
    pipeline, (start, end) = schedule.pipeline, extent(schedule)
    changes = dict(zip(KINDS, memory_changes(pipeline).tolist(), strict=True))
    data = {
        "start": start,
        "end": end,
        "kinds": KIND_NAMES,
        "looks": [[one.kind, one.chunk, one.colour, one.ink] for one in look],
        "changes": None if pipeline.activation_bytes is None else changes,
        "limits": pipeline.memory_limit_bytes,
        "top": top_bytes(schedule),
        "rows": [_numbers(row, start) for row in pictured],
    }
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _numbers(row: Row, start: int) -> list[int]:
    """Return look, stage, microbatch, time since the last end and duration of each op in turn."""
    idle = row.start - np.concatenate([[start], row.end[:-1]])[: len(row.start)]
    table = (row.look, row.stage, row.microbatch, idle, row.end - row.start)
    numbers: list[int] = np.stack(table, axis=1).ravel().tolist()
    return numbers


def _asset(name: str) -> str:
    """Read a file that lies beside this module."""
    return files("schedopt.render").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """Return the hash by which a content security policy knows a script or style."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _text(text: str, most: int = 200) -> str:
    return escape(clean(text, most))
