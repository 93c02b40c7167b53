"""How a schedule is shown and saved, whichever command made it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedopt.cli.voice import Voice

if TYPE_CHECKING:
    from schedopt.schedule import Schedule

__all__ = ["Remark", "draw", "misfit", "present"]

Remark = tuple[str, str] | None
_NAME = 11  # columns of the names in a summary


def present(voice: Voice, schedule: Schedule, output: str | None, remark: Remark = None) -> None:
    """Write a new schedule to its file, then show it on stdout.

    Parameters
    ----------
    output : str, optional
        The file; ``-`` is stdout, which then gets nothing else.
    remark : (str, str), optional
        A name and what there is to say, between numbers and picture.
    """
    voice.json = voice.json or output == "-"
    if output not in (None, "-"):
        schedule.write(output)
        voice.say(f"wrote {output}")
    if voice.json:
        schedule.write("-")
        for assumption in schedule.assumptions:
            voice.say(f"assumed: {assumption}")
    else:
        draw(voice, schedule, remark)
        if output is None:
            voice.say("not saved: add -o schedule.json to keep it")


def draw(voice: Voice, schedule: Schedule, remark: Remark = None, width: int | None = None) -> None:
    """Show numbers and picture on stdout."""
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    from schedopt.render.terminal import gantt, stages, summary

    columns = width or Console().width
    numbers: list[RenderableType] = [summary(schedule)]
    if remark:
        line = Table.grid(padding=(0, 2))
        line.add_column(style="dim", min_width=_NAME)
        line.add_row(*remark)
        numbers.append(line)
    if voice.verbose:
        numbers += [Text(), stages(schedule.pipeline)]
    voice.result(*numbers, "", gantt(schedule, columns), width=columns)


def misfit(schedule: Schedule) -> str:
    """Say which rank holds more than it may, or return an empty string."""
    from schedopt.units import format_bytes

    limits = schedule.pipeline.memory_limit_bytes
    if limits is None:
        return ""
    peaks = schedule.peak_bytes
    worst = max(range(len(peaks)), key=lambda rank: peaks[rank] - limits[rank])
    if peaks[worst] <= limits[worst]:
        return ""
    held, limit = format_bytes(peaks[worst]), format_bytes(limits[worst])
    return f"rank {worst} would hold {held} of {limit}"
