"""One tree of errors; each knows its exit code and says what to do next.

Nothing that a user can type, and no file that a user can pass, may end in a traceback: whatever
goes wrong is raised as one of these, and the command line prints it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = [
    "Fault",
    "InfeasibleError",
    "InputError",
    "LimitError",
    "SchedoptError",
    "did_you_mean",
]


class SchedoptError(Exception):
    """Base of all errors that schedopt raises on purpose.

    Attributes
    ----------
    exit_code : int
        Exit code of the command line: 1 "the answer is no", 2 bad input, 3 a limit was reached.
    """

    exit_code = 70


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with an input.

    Attributes
    ----------
    place : str
        Where in the file, option or value, e.g. ``forward_ns[3]``; may be empty.
    found, expected : str
        What stands there, and what should.
    hint : str
        What to do next; may be empty.
    """

    place: str
    found: str
    expected: str
    hint: str = ""

    def __str__(self) -> str:
        head = f"{self.place}: " if self.place else ""
        text = f"{head}found {self.found}, expected {self.expected}"
        return f"{text}. {self.hint}" if self.hint else text


class InputError(SchedoptError):
    """A file, option or value can't be used; carries every fault found, not just the first."""

    exit_code = 2

    def __init__(self, source: str, faults: Fault | Iterable[Fault]) -> None:
        self.source = source
        self.faults: Sequence[Fault] = (faults,) if isinstance(faults, Fault) else tuple(faults)
        super().__init__("\n".join(f"{source}: {fault}" for fault in self.faults))


class InfeasibleError(SchedoptError):
    """No schedule exists; the message names the rank, the bytes and the smallest mend."""

    exit_code = 1


class LimitError(SchedoptError):
    """A limit was reached with nothing to show for it."""

    exit_code = 3


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` for the closest known word, or an empty string."""
    from difflib import get_close_matches

    close = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else ""
