"""``schedopt check``: what is wrong with a schedule."""

from __future__ import annotations

import click

from schedopt.cli.inputs import FILE, read_like, read_schedule
from schedopt.cli.options import json_option, voice_options
from schedopt.cli.program import Command
from schedopt.cli.voice import Voice

__all__ = ["command"]


@click.command("check", cls=Command, example="schedopt check schedule.json")
@click.argument("schedule", type=FILE)
@click.option(
    "--against",
    type=FILE,
    metavar="FILE",
    help="Judge it against this pipeline, schedule or profile (cut alike), not against the "
    "pipeline that it states itself.",
)
@json_option("the violations")
@voice_options
@click.pass_obj
def command(voice: Voice, schedule: str, against: str | None) -> int:
    """Judge a schedule.

    Every op once, in order, on its rank and within memory, and all figures true. The judge shares
    no code with the solvers. Exit code 1 if anything is wrong.
    """
    from schedopt.api import check

    document = read_schedule(schedule)
    wrong = check(document, read_like(against, document) if against else None)
    if voice.json:
        places = [{"place": v.place, "found": v.found, "expected": v.expected} for v in wrong]
        voice.document(
            {"format": "schedopt/check", "version": 1, "valid": not wrong, "violations": places}
        )
    elif wrong:
        voice.lines(f"{schedule}: {violation}" for violation in wrong)
    else:
        voice.lines([f"{schedule}: valid, {len(document.ops)} ops, nothing wrong"])
    if wrong:
        voice.next_step("show", schedule)
    else:
        voice.next_step("simulate", schedule)
    return 1 if wrong else 0
