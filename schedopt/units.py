"""Bytes and nanoseconds, to and from what people write."""

from __future__ import annotations

import re
from fractions import Fraction

from schedopt.errors import Fault, InputError

__all__ = ["MAX_INT", "format_bytes", "format_ns", "parse_bytes"]

MAX_INT = 2**62
"""Largest time or size accepted: sums of a few stay inside a signed 64-bit integer."""

_BYTES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_NUMBER_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_bytes(text: str, place: str = "size") -> int:
    """Read ``80GiB``, ``40GB`` or ``123456`` as a number of bytes.

    Raises
    ------
    InputError
        When the text is no number with a known unit, or is absurdly large.
    """
    match = _NUMBER_UNIT.fullmatch(text)
    unit = _BYTES.get(match[2].lower()) if match else None
    if match is None or unit is None:
        expected = "a number with a unit such as 80GiB, 40GB or 512MiB"
        raise InputError(place, Fault("", repr(text), expected))
    value = int(Fraction(match[1]) * unit)
    if value > MAX_INT:
        raise InputError(place, Fault("", repr(text), "at most 2^62 bytes"))
    return value


def format_bytes(value: int) -> str:
    """Write bytes with a binary unit and three significant digits: ``1.50 GiB``."""
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{value} B" if unit == "B" else f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"


def format_ns(value: float) -> str:
    """Write nanoseconds in the unit that suits them: ``1.31 s``, ``270 us``."""
    for unit, scale in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if abs(value) >= scale:
            return f"{value / scale:.6g} {unit}"
    return f"{value:g} ns"
