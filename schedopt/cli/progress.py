"""Where a search stands, on stderr: live on a terminal, line by line with ``-v``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from schedopt.cli.voice import Voice

if TYPE_CHECKING:
    from schedopt.solvers.portfolio import Progress

__all__ = ["reporting"]

Report = Callable[["Progress"], None]

PATIENCE = 2.0
"""Seconds without news after which the first run's compilation is explained."""


@contextmanager
def reporting(voice: Voice) -> Iterator[Report | None]:
    """Give a search something to report to, if somebody wants to hear it."""
    if voice.quiet:
        yield None
    elif voice.verbose:
        yield lambda state: voice.say(f"{state.seconds:7.1f} s  {_line(state)}")
    elif sys.stderr.isatty():
        with _live() as report:
            yield report
    else:
        yield None


@contextmanager
def _live() -> Iterator[Report]:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    began = time.monotonic()
    latest: list[Progress] = []

    def show() -> Text:
        seconds = time.monotonic() - began
        text = "preparing"
        if latest:
            text = _line(latest[-1])
        elif seconds > PATIENCE:
            text = "compiling, on the first run only"
        return Text(f"{seconds:7.1f} s  {text}", no_wrap=True, overflow="ellipsis")

    console = Console(stderr=True, highlight=False)
    with Live(get_renderable=show, console=console, transient=True, refresh_per_second=8):
        yield latest.append


def _line(state: Progress) -> str:
    from schedopt.units import format_ns

    text = f"{state.stage:<9}  bound {format_ns(state.bound)}"
    if state.best is None:
        return text
    gap = f"{100 * (state.best / state.bound - 1):.2f} %" if state.bound else "unknown"
    return f"{text}  best {format_ns(state.best)}  gap {gap}"
