"""How long the data between neighbouring stages is on its way."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from schedopt.build.placement import Rows
from schedopt.errors import Fault, InputError, did_you_mean
from schedopt.profile import Layer, Link, Profile

__all__ = ["latencies"]


def latencies(
    profile: Profile,
    wanted: str | None,
    rows: Rows,
    ranks: int,
    stages: Sequence[Sequence[Layer]],
    notes: list[str],
) -> list[list[int]] | None:
    """Return the latency between ranks, shape (ranks, ranks), ns: that of the largest boundary.

    Without a `wanted` link it is the first; without any link it is 0, with a note.

    Raises
    ------
    InputError
        When the wanted link is not in the profile, or the link was not measured at the size of a
        boundary: a latency silently taken as 0 would flatter every schedule.
    """
    link = _link(profile, wanted, notes)
    if link is None or all(len(set(row)) == 1 for row in rows):
        return None
    sent: list[int | None] = []
    size = None
    for layers in stages:
        if layers:  # else it sends what it got
            output = layers[-1].output_bytes
            size = output.median if output else None
        sent.append(size)
    faults: list[Fault] = []
    result = [[0] * ranks for _ in range(ranks)]
    for row in rows:
        for (a, b), size in zip(pairwise(row), sent, strict=False):  # the last stage sends nothing
            if a != b:
                try:
                    time = link.time_ns(size)
                except InputError as error:
                    faults += [fault for fault in error.faults if fault not in faults]
                    continue
                result[a][b] = result[b][a] = max(result[a][b], time)
    if faults:
        raise InputError(f"link {link.scope}", faults)
    return result


def _link(profile: Profile, wanted: str | None, notes: list[str]) -> Link | None:
    scopes = [link.scope for link in profile.links]
    if wanted in scopes:
        return profile.links[scopes.index(wanted)]
    if wanted is not None:
        expected = f"one of {', '.join(scopes)}" if scopes else "none: the profile has no link"
        fault = Fault("link", repr(wanted), expected, did_you_mean(wanted, scopes))
        raise InputError(profile.name, fault)
    if not scopes:
        notes.append("latency: not in the profile, taken as 0")
    elif len(scopes) > 1:
        notes.append(f"latency: that of link {scopes[0]}, the first of {len(scopes)}")
    return profile.links[0] if scopes else None
