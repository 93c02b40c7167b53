"""``schedopt schema``: the JSON Schemas of the files."""

from __future__ import annotations

import json
from importlib import import_module

import click

from schedopt.cli.options import voice_options
from schedopt.cli.program import Command
from schedopt.cli.voice import Voice

__all__ = ["command"]

_THEN = {
    "profile": "solve profile.json --ranks 8 --microbatches 32",
    "pipeline": "solve pipeline.json",
    "schedule": "check schedule.json",
}
"""The formats, and what to do with a file of each."""


@click.command("schema", cls=Command, example="schedopt schema profile > profile.schema.json")
@click.argument("kind", type=click.Choice([*_THEN]))
@voice_options
@click.pass_obj
def command(voice: Voice, kind: str) -> None:
    """Print the JSON Schema of a file format."""
    document = getattr(import_module(f"schedopt.{kind}"), kind.capitalize())
    schema = document.model_json_schema()
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{document.FORMAT.replace('/', ':')}:1",
        "title": f"{document.FORMAT}, version 1",
    }
    del schema["title"]
    required = ["format", "version", *schema.pop("required", [])]
    voice.lines(json.dumps({**head, **schema, "required": required}, indent=1).split("\n"))
    voice.next_step(_THEN[kind].split())
