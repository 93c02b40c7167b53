"""``schedopt export``: a schedule in the form that others read."""

from __future__ import annotations

import click

from schedopt.cli.inputs import FILE, read_schedule
from schedopt.cli.options import output_option, voice_options
from schedopt.cli.program import Command
from schedopt.cli.voice import Voice
from schedopt.errors import InputError
from schedopt.exporters import EXPORTERS, export

__all__ = ["command"]


def _list(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        for one in EXPORTERS.values():
            click.echo(f"{one.name:<14}{one.description}")
        ctx.exit()


@click.command(
    "export",
    cls=Command,
    example="schedopt export schedule.json --to torch-csv -o schedule.csv",
)
@click.argument("schedule", type=FILE)
@click.option(
    "--to", "consumer", required=True, type=click.Choice([*EXPORTERS]), help="Who reads it."
)
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list,
    help="List the consumers.",
)
@output_option("it")
@voice_options
@click.pass_obj
def command(voice: Voice, schedule: str, consumer: str, output: str | None) -> None:
    """Write a schedule for PyTorch or a trace viewer."""
    from schedopt.files import write_text

    document = read_schedule(schedule)
    try:
        text = export(document, consumer)
    except InputError as error:
        raise InputError(f"{schedule}: {error.source}", error.faults) from None
    write_text(output or "-", text)
    if output is not None and output != "-":
        voice.say(f"wrote {output}")
        voice.say("next: " + EXPORTERS[consumer].then(output))
