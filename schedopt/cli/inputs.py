"""From the names and options on the command line to profiles, pipelines and schedules."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from schedopt.cli.options import flag, given
from schedopt.errors import Fault, InfeasibleError, InputError

if TYPE_CHECKING:
    from schedopt.cli.voice import Voice
    from schedopt.pipeline import Pipeline
    from schedopt.profile import Profile
    from schedopt.schedule import Schedule

__all__ = [
    "FILE",
    "about",
    "blaming",
    "cut_profile",
    "load",
    "pipeline_of",
    "read_like",
    "read_schedule",
    "refuse_options",
    "warn",
]

FILE = click.Path(allow_dash=True, readable=False)
"""A file to read; ``-`` is standard input."""

SHORT_NS = 1000
"""No stage of a real model is as quick; times in microseconds look like it."""

Options = dict[str, Any]


@contextmanager
def about(file: str) -> Iterator[None]:
    """Name the file that the answer "no" is about."""
    try:
        yield
    except InfeasibleError as error:
        raise InfeasibleError(f"{file}: {error}") from None


@contextmanager
def blaming(file: str) -> Iterator[None]:
    """Name the file that faults were found in, whatever the finder called it."""
    try:
        yield
    except InputError as error:
        raise InputError(file, error.faults) from None


def load(file: str) -> Profile | Pipeline | Schedule:
    """Read a profile, a pipeline or a schedule."""
    from schedopt.api import load

    return load(file)


def read_like(file: str, schedule: Schedule) -> Pipeline:
    """Read the pipeline to lay beside that of a schedule.

    Of a schedule it is its own; a profile is cut like that of `schedule`: the same layers in each
    stage, on the same ranks, and its memory limit.
    """
    from schedopt.profile import Profile
    from schedopt.schedule import Schedule

    document = load(file)
    if isinstance(document, Schedule):
        return document.pipeline
    if isinstance(document, Profile):
        return _cut_like(file, document, schedule.pipeline)
    return document


def _cut_like(file: str, profile: Profile, pipeline: Pipeline) -> Pipeline:
    from schedopt import api

    count = sum(layer.count for layer in profile.layers)
    counts = [1] * count if count == pipeline.stages else None
    if pipeline.layers is not None:
        counts = [len(names) for names in pipeline.layers]
    if counts is None:
        found = f"{count} layers, and a schedule that does not say which are in which stage"
        expected = f"a pipeline, or a profile of {pipeline.stages} layers, one per stage"
        raise InputError(file, Fault("layers", found, expected))
    with blaming(file), about(file):
        result, _ = api.cut(
            profile,
            ranks=pipeline.ranks,
            microbatches=pipeline.microbatches,
            placement=pipeline.placement,
            layers=counts,
            backward=pipeline.backward,
            memory_limit="none",
            allow_empty=True,
        )
    update: dict[str, object] = {"direction": pipeline.direction}
    if result.activation_bytes is not None:
        update["memory_limit_bytes"] = pipeline.memory_limit_bytes
    return result.model_copy(update=update)


def read_schedule(file: str) -> Schedule:
    """Read a schedule, and say so if the file is something else."""
    from schedopt.schedule import Schedule

    document = load(file)
    if not isinstance(document, Schedule):
        hint = f"Make one: schedopt solve {shlex.quote(file)} -o schedule.json"
        raise _other(file, document.FORMAT, Schedule.FORMAT, hint)
    return document


def pipeline_of(
    file: str, document: Profile | Pipeline | Schedule, cut: Options
) -> tuple[Pipeline, list[str]]:
    """Return the pipeline of a profile, cut as the options say, or of a pipeline file.

    Returns
    -------
    pipeline : Pipeline
    notes : list of str
        What was assumed on the way.
    """
    from schedopt.pipeline import Pipeline
    from schedopt.profile import Profile

    if isinstance(document, Profile):
        return cut_profile(file, document, cut)
    if isinstance(document, Pipeline):
        refuse_options(file, "a pipeline", cut)
        return document, []
    hint = f"To look at a schedule: schedopt show {shlex.quote(file)}"
    raise _other(file, document.FORMAT, "schedopt/profile or schedopt/pipeline", hint)


def cut_profile(file: str, profile: Profile, cut: Options) -> tuple[Pipeline, list[str]]:
    """Cut a profile as the options say."""
    from schedopt import api

    options = given(cut)
    missing = [
        Fault(f"--{name}", "nothing", f"how many {name} the pipeline has")
        for name in ("ranks", "microbatches")
        if name not in options
    ]
    if missing:
        raise InputError(file, missing)
    if isinstance(options.get("placement"), str):
        options["placement"] = _placement(options["placement"])
    try:
        with about(file):
            return api.cut(profile, **options)
    except InputError as error:
        raise _as_typed(error, file, profile.name, cut) from None


def refuse_options(file: str, what: str, cut: Options) -> None:
    """Refuse options that cut a profile, for a file that is none."""
    faults = [
        Fault(flag(name), f"this option for {what} file", "it for a profile only")
        for name in given(cut)
    ]
    if faults:
        hint = "The file states all that itself: leave the option out, or edit the file."
        last = faults[-1]
        faults[-1] = Fault(last.place, last.found, last.expected, hint)
        raise InputError(file, faults)


def warn(voice: Voice, pipeline: Pipeline, notes: Sequence[str]) -> None:
    """Say aloud what makes an answer worth little, before a search for it begins.

    Parameters
    ----------
    notes : sequence of str
        What was assumed when a profile was cut.
    """
    import numpy as np

    if float(np.median(pipeline.times()[0])) < SHORT_NS:
        voice.warn("times: most forwards take less than 1 us: are they nanoseconds?")
    if pipeline.activation_bytes is None:
        for note in notes:
            if note.startswith("memory:"):
                voice.warn(note)


def _other(file: str, found: str, expected: str, hint: str = "") -> InputError:
    return InputError(file, Fault("format", found, expected, hint))


def _placement(text: str) -> str | list[list[int]]:
    """Return a placement's name, or the rows in a file."""
    if not (text.endswith(".json") or Path(text).is_file()):
        return text
    from schedopt.files import read_json

    rows = read_json(text)
    if (
        isinstance(rows, list)
        and rows
        and all(isinstance(row, list) and all(type(rank) is int for rank in row) for row in rows)
    ):
        return rows
    expected = "rows of ranks, one per direction, such as [[0, 1, 1, 0]]"
    flat = isinstance(rows, list) and rows and not any(isinstance(row, list) for row in rows)
    found, hint = ("a flat list", "rows: [[0, 1, …]]") if flat else ("something else", "")
    raise InputError(text, Fault("placement", found, expected, hint))


def _as_typed(error: InputError, file: str, profile: str, cut: Options) -> InputError:
    """Name the file instead of the profile, and options as they are typed."""

    def place(fault: Fault) -> str:
        name = fault.place
        if error.source in cut:
            return flag(error.source)
        if name in cut:
            return flag(name)
        return name if error.source in ("options", profile) else f"{error.source}: {name}"

    return InputError(file, [Fault(place(f), f.found, f.expected, f.hint) for f in error.faults])
