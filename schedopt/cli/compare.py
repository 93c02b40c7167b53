"""``schedopt compare``: our schedule beside the published ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from schedopt.cli.inputs import FILE, about, load, pipeline_of, refuse_options, warn
from schedopt.cli.options import cut_options, json_option, search_options, voice_options, words
from schedopt.cli.present import misfit
from schedopt.cli.program import Command
from schedopt.cli.solve import search_for
from schedopt.cli.voice import Voice

if TYPE_CHECKING:
    from schedopt.schedule import Schedule

__all__ = ["command"]


class _Row(NamedTuple):
    """One schedule of the table."""

    name: str
    schedule: Schedule
    fits: bool | None  # None: there is no limit
    gap: float | None  # None: no bound known, or one that does not hold for it

    @property
    def value_ns(self) -> int:
        return self.schedule.value_ns


@click.command(
    "compare",
    cls=Command,
    example="schedopt compare profile.json --ranks 8 --microbatches 32",
)
@click.argument("file", type=FILE)
@cut_options
@search_options
@json_option("the table")
@voice_options
@click.pass_obj
def command(voice: Voice, file: str, cut: dict[str, Any], search: dict[str, Any]) -> None:
    """Compare our schedule with the published ones.

    FILE is a profile or a pipeline, which is solved first as by "schedopt solve"; or a schedule:
    one of ours is compared as it is, beside an imported one stands ours for its pipeline. GPipe,
    1F1B, ZB-H1, ZB-V, Chimera and others are listed if they are defined for the placement,
    whether they fit into memory or not.
    """
    from schedopt.api import Interrupted
    from schedopt.schedule import Schedule

    document = load(file)
    given = None
    if isinstance(document, Schedule):
        refuse_options(file, "a schedule", cut)
        if document.lower_bound_ns is not None:
            _show(voice, "this schedule", document)
            voice.next_step("check", file)
            return
        given, pipeline, notes = document, document.pipeline, document.assumptions
    else:
        pipeline, notes = pipeline_of(file, document, cut)
    warn(voice, pipeline, notes)
    try:
        with about(file):
            schedule = search_for(voice, pipeline, notes, search)
    except Interrupted as stop:
        if stop.best is not None:
            _show(voice, "schedopt", stop.best, given)
        raise
    _show(voice, "schedopt", schedule, given)
    if given is not None:
        voice.next_step("simulate", file)
    else:
        voice.next_step("solve", file, words(cut), words(search), "-o", "schedule.json")


def _show(voice: Voice, name: str, schedule: Schedule, given: Schedule | None = None) -> None:
    rows = _rows(name, schedule, given)
    if voice.json:
        voice.document(_document(schedule, rows))
    else:
        _table(voice, schedule, rows)


def _rows(name: str, schedule: Schedule, given: Schedule | None) -> list[_Row]:
    """Ours first, then what was given, what fits into memory, and the rest, the best first."""
    from schedopt.api import compare

    ours, *others = compare(schedule)
    bound = schedule.lower_bound_ns

    def row(other: Schedule) -> _Row:
        other = other.model_copy(update={"objective": schedule.objective})
        return _row(other.method or "this schedule", other, bound)

    rows = sorted(map(row, others), key=lambda row: (row.fits is False, row.value_ns))
    return [_row(name, ours, bound), *([row(given)] if given else []), *rows]


def _row(name: str, schedule: Schedule, bound: int | None) -> _Row:
    limited = schedule.pipeline.memory_limit_bytes is not None
    fits = not misfit(schedule) if limited else None
    known = bound if fits is not False else None  # the bound holds within the limit
    return _Row(name, schedule, fits, schedule.value_ns / known - 1 if known else None)


def _table(voice: Voice, schedule: Schedule, rows: Sequence[_Row]) -> None:
    from rich.table import Table
    from rich.text import Text

    from schedopt.render.view import clean, dimensions, percent, title, verdict
    from schedopt.units import format_bytes, format_ns

    span = schedule.objective == "device-span"
    sized = schedule.pipeline.activation_bytes is not None
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("schedule", no_wrap=True)
    for name in ("makespan" + "*" * (not span), "device span" + "*" * span, "bubble"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("peak memory", justify="right", no_wrap=True)
    table.add_column("fits", no_wrap=True)
    table.add_column("gap", justify="right", no_wrap=True)
    for k, row in enumerate(rows):
        one = row.schedule
        table.add_row(
            clean(row.name),
            format_ns(one.makespan_ns),
            format_ns(one.device_span_ns),
            percent(one.bubble),
            format_bytes(max(one.peak_bytes)) if sized else "–",
            "–" if row.fits is None else "yes" if row.fits else "no",
            "–" if row.gap is None else f"{100 * row.gap:.2f} %",
            style="bold" if k == 0 else None,
        )
    bound = schedule.lower_bound_ns
    proof = "" if bound is None else f"; lower bound {format_ns(bound)}: {verdict(schedule)}"
    legend = f"* {'compared' if bound is None else 'minimised'}{proof}"
    memory = "peak memory: activations of the fullest rank"
    voice.result(
        Text(title(schedule), "bold"),
        Text(dimensions(schedule.pipeline), "dim"),
        "",
        table,
        "",
        Text(f"{legend}\n{memory}" if sized else legend, "dim"),
    )


def _document(schedule: Schedule, rows: Sequence[_Row]) -> dict[str, object]:
    return {
        "format": "schedopt/comparison",
        "version": 1,
        "name": schedule.name or schedule.pipeline.name,
        "objective": schedule.objective,
        "status": schedule.status,
        "lower_bound_ns": schedule.lower_bound_ns,
        "rows": [
            {
                "name": row.name,
                "method": row.schedule.method,
                "makespan_ns": row.schedule.makespan_ns,
                "device_span_ns": row.schedule.device_span_ns,
                "bubble": row.schedule.bubble,
                "peak_bytes": max(row.schedule.peak_bytes),
                "fits": row.fits,
                "gap": row.gap,
            }
            for row in rows
        ],
    }
