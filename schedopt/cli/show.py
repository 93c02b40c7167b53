"""``schedopt show``: a schedule as a picture."""

from __future__ import annotations

from pathlib import Path

import click

from schedopt.cli.inputs import FILE, read_schedule
from schedopt.cli.options import voice_options
from schedopt.cli.present import draw
from schedopt.cli.program import Command
from schedopt.cli.voice import Voice

__all__ = ["command"]


@click.command("show", cls=Command, example="schedopt show schedule.json --html schedule.html")
@click.argument("schedule", type=FILE)
@click.option("--svg", type=click.Path(), metavar="FILE", help="Draw it as SVG into this file.")
@click.option(
    "--html", type=click.Path(), metavar="FILE", help="Make a page to zoom, without links outside."
)
@click.option(
    "--width", type=click.IntRange(40, 1000), metavar="N", help="Columns; the terminal's otherwise."
)
@voice_options
@click.pass_obj
def command(
    voice: Voice, schedule: str, svg: str | None, html: str | None, width: int | None
) -> None:
    """Draw a schedule: terminal, SVG or HTML."""
    from schedopt.files import write_text

    document = read_schedule(schedule)
    if svg:
        from schedopt.render.svg import to_svg

        write_text(svg, to_svg(document))
    if html:
        from schedopt.render.html import to_html

        write_text(html, to_html(document))
    if "-" not in (svg, html):
        draw(voice, document, width=width)
    for path in (svg, html):
        if path and path != "-":
            voice.say(f"wrote {path}: open {Path(path).resolve().as_uri()}")
    if not (svg or html):
        voice.next_step("show", schedule, "--html", "schedule.html")
    else:
        voice.next_step("compare", schedule)
