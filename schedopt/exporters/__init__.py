"""Schedules in the form that others read: one module per consumer, loaded when it is used."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from schedopt.errors import Fault, InputError, did_you_mean

if TYPE_CHECKING:
    from schedopt.schedule import Schedule

__all__ = ["EXPORTERS", "Exporter", "export"]


@dataclass(frozen=True)
class Exporter:
    """One consumer of schedules.

    Attributes
    ----------
    name : str
        What people type.
    description : str
        One line: who reads it.
    then : callable
        File name to what to do with the file.
    write : callable
        Schedule to text; raises InputError with the reasons where the consumer can't run it.
    """

    name: str
    description: str
    then: Callable[[str], str]
    write: Callable[[Schedule], str]


def _torch_csv(schedule: Schedule) -> str:
    from schedopt.exporters.torch_csv import to_torch_csv

    return to_torch_csv(schedule)


def _chrome_trace(schedule: Schedule) -> str:
    from schedopt.exporters.chrome_trace import to_chrome_trace

    return to_chrome_trace(schedule)


EXPORTERS: dict[str, Exporter] = {
    exporter.name: exporter
    for exporter in (
        Exporter(
            "torch-csv",
            "torch.distributed.pipelining, torchtitan",
            lambda file: (
                "load it: _PipelineScheduleRuntime(stages, n_microbatches, ...)"
                f"._load_csv({file!r})"
            ),
            _torch_csv,
        ),
        Exporter(
            "chrome-trace",
            "ui.perfetto.dev, chrome://tracing",
            lambda file: f"open {shlex.quote(file)} at https://ui.perfetto.dev",
            _chrome_trace,
        ),
    )
}


def export(schedule: Schedule, to: str) -> str:
    """Write a schedule for the consumer named `to`.

    Raises
    ------
    InputError
        When no consumer has that name, or it can't run the schedule.
    """
    exporter = EXPORTERS.get(to)
    if exporter is None:
        expected = f"one of {', '.join(EXPORTERS)}"
        raise InputError("export", Fault("", repr(to), expected, did_you_mean(to, EXPORTERS)))
    return exporter.write(schedule)
