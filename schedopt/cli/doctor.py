"""``schedopt doctor``: what is installed, what is missing, and how to get it."""

from __future__ import annotations

import click

from schedopt.cli.options import json_option, voice_options
from schedopt.cli.program import Command
from schedopt.cli.voice import Voice

__all__ = ["command"]


@click.command("doctor", cls=Command, example="schedopt doctor")
@json_option("the facts")
@voice_options
@click.pass_obj
def command(voice: Voice) -> int:
    """Say what is installed and what is missing.

    Versions, solvers, torch, GPUs and the cache of compiled kernels. Exit code 1 if something is
    missing that schedopt can't do without.
    """
    from schedopt.doctor import facts

    found = facts()
    well = all(fact.ok or not fact.needed for fact in found)
    if voice.json:
        rows = [vars(fact) for fact in found]
        voice.document({"format": "schedopt/doctor", "version": 1, "ok": well, "facts": rows})
        return 0 if well else 1
    wide = max(len(fact.name) for fact in found)
    for fact in found:
        mark = "ok" if fact.ok else "missing" if fact.needed else "–"
        head = f"{fact.name:<{wide}}  {mark:<7}  "
        hints = [" " * len(head) + fact.hint] if fact.hint else []
        voice.lines([head + fact.found, *hints])  # paths stay whole, to be copied
    voice.next_step("solve", "profile.json", "--ranks", "8", "--microbatches", "32")
    return 0 if well else 1
