"""``schedopt solve``: a profile or a pipeline to the best schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from schedopt.cli.inputs import FILE, about, load, pipeline_of, warn
from schedopt.cli.options import (
    cut_options,
    json_option,
    output_option,
    search_options,
    voice_options,
    words,
)
from schedopt.cli.present import Remark, misfit, present
from schedopt.cli.program import Command
from schedopt.cli.progress import reporting
from schedopt.cli.voice import Voice

if TYPE_CHECKING:
    from schedopt.pipeline import Pipeline
    from schedopt.schedule import Schedule

__all__ = ["command", "search_for"]


@click.command(
    "solve",
    cls=Command,
    example="schedopt solve profile.json --ranks 8 --microbatches 32 -o schedule.json",
)
@click.argument("file", type=FILE)
@cut_options
@search_options
@output_option("the schedule")
@json_option("the schedule")
@voice_options
@click.pass_obj
def command(
    voice: Voice, file: str, output: str | None, cut: dict[str, Any], search: dict[str, Any]
) -> None:
    """Find the best schedule, with a proof of how good it is.

    FILE is a profile, which --ranks, --microbatches and the options after them cut into a
    pipeline, or a pipeline that has all that; - is standard input. Ctrl-C ends the search early
    and keeps the best schedule so far.
    """
    from schedopt.api import Interrupted
    from schedopt.files import check_writable

    pipeline, notes = pipeline_of(file, load(file), cut)
    warn(voice, pipeline, notes)
    if output is not None:
        check_writable(output)
    try:
        with about(file):
            schedule = search_for(voice, pipeline, notes, search)
    except Interrupted as stop:
        if stop.best is not None:
            present(voice, stop.best, output, _against_1f1b(stop.best))
        raise
    present(voice, schedule, output, _against_1f1b(schedule))
    if output is None:
        voice.next_step("solve", file, words(cut), words(search), "-o", "schedule.json")
    elif len(pipeline.placement) > 1:  # no runtime's file holds two directions
        voice.next_step("show", output, "--html", "schedule.html")
    else:
        voice.next_step("export", output, "--to", "torch-csv", "-o", "schedule.csv")


def search_for(
    voice: Voice, pipeline: Pipeline, notes: list[str], search: dict[str, Any]
) -> Schedule:
    """Solve, with progress."""
    from schedopt import api

    with reporting(voice) as report:
        return api.solve(pipeline, notes=notes, report=report, **search)


def _against_1f1b(schedule: Schedule) -> Remark:
    """Compare the minimised value with what people run."""
    from schedopt.api import named
    from schedopt.build.placement import shape_of
    from schedopt.patterns import applicable
    from schedopt.units import format_ns

    pipeline = schedule.pipeline
    if "1f1b" not in applicable(pipeline):
        return None
    other = named(pipeline, "1f1b")
    span = schedule.objective == "device-span"
    theirs = other.device_span_ns if span else other.makespan_ns
    ours = schedule.value_ns
    name = "1F1B" if pipeline.fused else "1F1B with W directly after I"
    shape = shape_of(pipeline.placement, pipeline.ranks)
    if shape != "linear":
        name += f" on the same {shape.upper() if shape == 'v' else shape} placement"
    takes = f"{name} takes {format_ns(theirs)}"
    excess = misfit(other)
    if excess:
        return "vs 1F1B", f"{takes} and does not fit: {excess}"
    if ours == theirs:
        return "vs 1F1B", f"equal; {takes}"
    change = f"{100 * abs(1 - ours / theirs):.3g} % {'shorter' if ours < theirs else 'longer'}"
    return "vs 1F1B", f"{change}; {takes}"
