"""A schedule in the terminal: a Gantt chart and its numbers, readable without colour."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from schedopt.pipeline import Pipeline
from schedopt.problem import Ints
from schedopt.render.palette import Look, looks
from schedopt.render.view import (
    IDLE,
    KIND_NAMES,
    Row,
    clean,
    dimensions,
    extent,
    headline,
    layers_line,
    looks_of,
    percent,
    raster,
    rows,
    sample,
    stage_table,
    ticks,
    title,
)
from schedopt.schedule import Schedule
from schedopt.units import format_bytes, format_ns

__all__ = ["gantt", "stages", "summary"]

MOST_ROWS = 32
MOST_MEMORY_LINES = 12
_LABEL, _BUBBLE = 4, 7  # columns of the rank and of its bubble, left and right of the bars
_FRAME = 3  # a space and two borders
_LEAST_COLUMNS = 16
_PARTS = 1024  # of a column
_TICK_COLUMNS = 14
_IDLE, _FILL = "·", "─"


def gantt(schedule: Schedule, width: int = 80) -> Text:
    """Draw one row per rank, time from left to right.

    F, I, W and B are forward, input gradient, weight gradient and fused backward; lower case
    stands for every second stage of a rank. The microbatch follows where there is room; with more
    than two stages per rank the stage goes in front, as in PyTorch's ``5F0``.

    Parameters
    ----------
    width : int
        Columns of the terminal.
    """
    columns = max(_LEAST_COLUMNS, width - _LABEL - _BUBBLE - _FRAME)
    start, end = extent(schedule)
    ranks = schedule.pipeline.ranks
    pictured, look = rows(schedule, sample(ranks, MOST_ROWS)), looks(schedule.pipeline)
    snapped = [_snapped(row, start, end, columns) for row in pictured]
    cells = raster(snapped, 0, columns * _PARTS, columns, len(look))
    text = Text(no_wrap=True)
    if len(pictured) < ranks:
        text.append(f"{len(pictured)} of {ranks} ranks shown\n", "italic")
    text.append(f"{'rank':>{_LABEL}}{'bubble':>{columns + _BUBBLE + _FRAME}}\n", "dim")
    numbered = continued = False
    for row, exact, line in zip(snapped, pictured, cells, strict=True):
        signs = _signs(row, line, look)
        numbered = numbered or any(sign.isdigit() for sign in signs)
        continued = continued or _FILL in signs
        text.append(f"{row.rank:>{_LABEL}} │", "dim")
        for sign, k in zip(signs, line.tolist(), strict=True):
            text.append(sign, "dim" if k == IDLE else f"{look[k].ink} on {look[k].colour}")
        text.append("│", "dim")
        text.append(f"{percent(exact.bubble(schedule.makespan_ns)):>{_BUBBLE}}\n")
    text.append(_axis(start, end, columns), "dim")
    text.append_text(_legend(pictured, look, numbered, continued))
    column_ns = float(f"{(end - start) / columns:.3g}")
    scale = f"one column: {format_ns(column_ns)}   narrower ops: letters in proportion to time"
    return text.append(scale, "dim")


def summary(schedule: Schedule) -> RenderableType:
    """Show value, bound, memory, certificate and assumptions."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in headline(schedule):
        grid.add_row(name, Text(value, "bold" if name == "status" else ""))
    for k, line in enumerate(_memory_lines(schedule)):
        grid.add_row("" if k else "peak memory", line)
    layers = layers_line(schedule.pipeline)
    if layers:
        grid.add_row("layers", Text(layers))
    if schedule.certificate is not None:
        proof = schedule.certificate
        at = "" if proof.rank is None else f", rank {proof.rank}"
        grid.add_row("certificate", Text(f"{clean(proof.bound)}{at}: {clean(proof.reason, 1000)}"))
    for k, assumption in enumerate(schedule.assumptions):
        grid.add_row("" if k else "assumed", Text(clean(assumption, 1000)))
    head = Text(title(schedule), "bold")
    if schedule.method:
        head.append(f"  {clean(schedule.method)}", "dim")
    return Group(head, Text(dimensions(schedule.pipeline), "dim"), grid)


def stages(pipeline: Pipeline) -> RenderableType:
    """Show where each stage is and what it costs."""
    heads, lines = stage_table(pipeline)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for head in heads:
        left = head == "layers"
        table.add_column(head, justify="left" if left else "right", overflow="fold")
    for line in lines:
        table.add_row(*map(Text, line))
    return table


def _snapped(row: Row, start: int, end: int, columns: int) -> Row:
    """Move the ops of at least two columns to whole columns, and what touches them along.

    Returns
    -------
    Row
        With times in parts of a column.
    """
    first, last = ((time - start) / (end - start) * columns for time in (row.start, row.end))
    wide = np.round(last) - np.round(first) >= 2
    first[wide], last[wide] = np.round(first[wide]), np.round(last[wide])
    touch = row.start[1:] == row.end[:-1]
    after = wide[:-1] & ~wide[1:]
    first[1:][after] = np.where(touch, last[:-1], np.maximum(first[1:], last[:-1]))[after]
    before = wide[1:] & ~wide[:-1]
    last[:-1][before] = np.where(touch, first[1:], np.minimum(last[:-1], first[1:]))[before]
    parts = (np.round(time * _PARTS).astype(np.int64) for time in (first, np.maximum(first, last)))
    return Row(row.rank, row.look, row.stage, row.microbatch, *parts)


def _signs(row: Row, line: Ints, look: Sequence[Look]) -> list[str]:
    """Return one letter per column, and names in the ops of at least two columns."""
    signs = [_IDLE if k == IDLE else _letter(look[k]) for k in line.tolist()]
    several = max(one.chunk for one in look) > 1
    room = (row.end - row.start) // _PARTS
    for k in (room >= 2).nonzero()[0].tolist():
        letter, at = _letter(look[row.look[k]]), int(row.start[k]) // _PARTS
        name = f"{row.stage[k] if several else ''}{letter}{row.microbatch[k]}"
        shown = name if len(name) <= room[k] else letter
        signs[at : at + int(room[k])] = shown.ljust(int(room[k]), _FILL)
    return signs


def _letter(look: Look) -> str:
    return look.kind if look.chunk % 2 == 0 else look.kind.lower()


def _axis(start: int, end: int, columns: int) -> str:
    line, labels = ["─"] * columns, [" "] * (columns + _LABEL + _BUBBLE + _FRAME)
    for tick in ticks(start, end, max(2, columns // _TICK_COLUMNS)):
        at = min(columns - 1, (tick - start) * columns // (end - start))
        line[at] = "┬"
        label = format_ns(tick)
        first = min(_LABEL + 2 + at, len(labels) - len(label))
        if not "".join(labels[max(0, first - 1) : first]).strip():
            labels[first : first + len(label)] = label
    return f"{'':{_LABEL}} └{''.join(line)}┘\n{''.join(labels).rstrip()}\n"


def _legend(pictured: Sequence[Row], look: Sequence[Look], numbered: bool, continued: bool) -> Text:
    seen = looks_of(pictured)
    chunks = max((look[k].chunk for k in seen), default=0) + 1
    text = Text()
    for k in seen:
        if look[k].chunk == 0:
            text.append(look[k].kind, f"{look[k].ink} on {look[k].colour}")
            text.append(f" {KIND_NAMES[look[k].kind]}   ")
    text.append(f"{_IDLE} idle\n")
    notes = []
    if numbered:
        notes.append("F3: F of microbatch 3" if chunks < 3 else "5F3: F of stage 5, microbatch 3")
    if continued:
        notes.append(f"{_FILL}: the op goes on")
    if chunks > 1:
        which = "the second stage" if chunks == 2 else "every second stage"
        notes.append(f"lower case: {which} of a rank")
    return text.append("   ".join(notes) + "\n" * bool(notes))


def _memory_lines(schedule: Schedule) -> list[Text]:
    """Peak per rank against the limit; equal neighbours share a line, the fullest are shown."""
    pipeline = schedule.pipeline
    if pipeline.activation_bytes is None:
        return [Text("not modelled")]
    limits: Sequence[int | None] = pipeline.memory_limit_bytes or [None] * pipeline.ranks
    runs = []  # first rank, last rank, peak, limit
    rank = 0
    for (peak, limit), equal in groupby(zip(schedule.peak_bytes, limits, strict=True)):
        count = len(list(equal))
        runs.append((rank, rank + count - 1, peak, limit))
        rank += count
    fullest = sorted(runs, key=lambda run: -(run[2] / run[3] if run[3] else run[2]))
    shown = sorted(fullest[:MOST_MEMORY_LINES], key=lambda run: run[0])
    table = [
        (_ranks(first, last), format_bytes(peak), "" if limit is None else format_bytes(limit))
        for first, last, peak, limit in shown
    ]
    wide = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for (who, peak_text, limit_text), (_, _, peak, limit) in zip(table, shown, strict=True):
        line = Text(f"{who:<{wide[0]}}  {peak_text:>{wide[1]}}")
        if limit is not None:
            over = "  over the limit" if peak > limit else ""
            full = percent(peak / max(1, limit))
            line.append(f" of {limit_text:<{wide[2]}}  {full:>7}{over}", "red" if over else "")
        lines.append(line)
    if len(shown) < len(runs):
        lines.append(Text(f"and {len(runs) - len(shown)} more, none fuller", "dim"))
    return lines


def _ranks(first: int, last: int) -> str:
    return f"rank {first}" if first == last else f"ranks {first}–{last}"
