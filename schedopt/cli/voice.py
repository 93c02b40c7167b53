"""Result on stdout, narration on stderr: the one place that writes to either."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from schedopt.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Voice"]

MOST_FAULTS = 20


@dataclass
class Voice:
    """How a command speaks.

    Attributes
    ----------
    quiet : bool
        No narration.
    verbose : int
        Narrate the search; show tracebacks of our own bugs.
    json : bool
        One document on stdout, nothing else.
    stopped : bool
        Whether a signal has asked to stop.
    stop_code : int
        Exit code when interrupted; the signal's handler sets it.
    """

    quiet: bool = False
    verbose: int = 0
    json: bool = False
    stopped: bool = False
    stop_code: int = 130

    def result(self, *parts: RenderableType, width: int | None = None) -> None:
        """Show a result on stdout."""
        from rich.console import Console

        console = Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)
        with console.capture() as capture:
            console.print(*parts, sep="\n")
        text = capture.get()
        if not console.is_terminal:
            text = "\n".join(line.rstrip() for line in text.split("\n"))
        _write(text)

    def lines(self, texts: Iterable[str]) -> None:
        """Show lines on stdout that no width should break."""
        _write("".join(f"{_visible(text)}\n" for text in texts))

    def document(self, data: Mapping[str, object]) -> None:
        """Write a JSON document to stdout."""
        from schedopt.files import dumps

        sys.stdout.write(dumps(data))

    def say(self, text: str) -> None:
        """Narrate."""
        if not self.quiet:
            self.stderr(text)

    def warn(self, text: str) -> None:
        """Narrate what the user should not overlook."""
        self.say(f"warning: {text}")

    def next_step(self, *words: str | Sequence[str]) -> None:
        """Name the next command to try, given as words; none after a file that can't be reread."""
        flat = [w for word in words for w in ([word] if isinstance(word, str) else word)]
        if not self.json and "-" not in flat:
            self.say("next: " + shlex.join(["schedopt", *flat]))

    def error(self, message: str) -> None:
        """Say that something went wrong, and what."""
        self.stderr(f"error: {message}")

    def faults(self, error: InputError) -> None:
        """Say everything that is wrong with an input, a line each."""
        for fault in error.faults[:MOST_FAULTS]:
            self.error(f"{error.source}: {fault}" if error.source else str(fault))
        if len(error.faults) > MOST_FAULTS:
            self.error(f"{error.source}: {len(error.faults) - MOST_FAULTS} more faults")

    def stderr(self, text: str) -> None:
        """Write lines to stderr; what a file could smuggle in to steer a terminal is escaped."""
        sys.stdout.flush()  # so that what was said before stands before
        print("\n".join(map(_visible, text.split("\n"))), file=sys.stderr)


def _write(text: str) -> None:
    """Write to stdout, with a question mark for what its encoding lacks."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))


def _visible(line: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
