"""How much memory a rank may use, and what that leaves for activations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from schedopt.build.costs import Cost, without
from schedopt.build.placement import Rows, stages_of_ranks
from schedopt.errors import Fault, InfeasibleError, InputError
from schedopt.profile import Layer, Profile
from schedopt.units import format_bytes, parse_bytes

__all__ = ["Limit", "activation_limits", "read_limit"]

LEAST_BARE = 1024
"""A smaller number without a unit is meant in some unit."""

_BARE = re.compile(r"\d{1,9}(\.\d{1,9})?")
_MULTIPLE = re.compile(r"(\d{0,6}\.?\d{1,9})\s*x")


@dataclass(frozen=True)
class Limit:
    """What a rank may hold: bytes of everything, or a multiple of 1F1B's activations."""

    what: str
    bytes: int | None = None
    factor: Fraction = Fraction(1)


def read_limit(
    profile: Profile, layers: list[Layer], device: str, wanted: int | str | None, notes: list[str]
) -> Limit | None:
    """Read what the user wants, see `schedopt.build.partition.Cut`; None is no limit.

    Raises
    ------
    InputError
        When it is neither bytes nor a multiple, or the profile has no sizes to limit.
    """
    text = None if wanted is None else str(wanted).strip().lower()
    if isinstance(wanted, int):
        text = f"{wanted}b"
    unknown = without(layers, "activation_bytes")
    if text == "none" or (text is None and unknown):
        return None
    limit = _default(profile.devices[device].memory_bytes, notes) if text is None else _read(text)
    if unknown:
        hint = "Add activation_bytes to the profile, or use --memory-limit none."
        fault = Fault("memory_limit", str(wanted), "none, as activation bytes are not known", hint)
        raise InputError(profile.name, fault)
    if limit.bytes is not None:
        for field in ("parameter_bytes", "gradient_bytes", "optimizer_bytes"):
            if names := without(layers, field):
                notes.append(f"memory: {field} of {names} not known, taken as 0")
    return limit


def activation_limits(
    stages: Sequence[Cost], rows: Rows, ranks: int, limit: Limit | None
) -> list[int] | None:
    """Return the bytes of activations that each rank may hold; None is no limit.

    Raises
    ------
    InfeasibleError
        When a rank can't hold one microbatch.
    """
    if limit is None:
        return None
    held = [[0] * len(rows) for _ in range(ranks)]
    for way, row in enumerate(rows):
        for stage, rank in enumerate(row):
            held[rank][way] += stages[stage].activation
    one = [max(ways) for ways in held]
    if limit.bytes is None:
        # 1F1B keeps up to `ranks` microbatches, which the directions share.
        return _multiples(one, [Fraction(ranks * sum(ways), len(rows)) for ways in held], limit)
    static = [0] * ranks
    for rank, stage in stages_of_ranks(rows):
        static[rank] += stages[stage].static
    need = [a + b for a, b in zip(static, one, strict=True)]
    worst = max(range(ranks), key=need.__getitem__)
    if need[worst] > limit.bytes:
        raise InfeasibleError(
            f"rank {worst} needs {format_bytes(need[worst])} ({format_bytes(static[worst])} of "
            f"parameters, gradients and optimizer, {format_bytes(one[worst])} of activations for "
            f"one microbatch) and has {format_bytes(limit.bytes)}, {limit.what}. A limit of "
            f"{need[worst]} bytes would do (--memory-limit {_ready(need[worst])}), or more ranks, "
            "or a smaller microbatch."
        )
    return [limit.bytes - size for size in static]


def _ready(size: int) -> str:
    """Write bytes to be typed as a limit, rounded up: ``7.83GiB``."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >> power:
            return f"{-(-size * 100 >> power) / 100:g}{unit}"
    return f"{size}B"


def _multiples(one: list[int], full: list[Fraction], limit: Limit) -> list[int]:
    """Return a multiple of what 1F1B needs in full, if it holds one microbatch."""
    for rank, (need, size) in enumerate(zip(one, full, strict=True)):
        if need > limit.factor * size:
            factor = max(a / b for a, b in zip(one, full, strict=True) if b)
            raise InfeasibleError(
                f"rank {rank} needs {format_bytes(need)} of activations for one microbatch and has "
                f"{format_bytes(int(limit.factor * size))}, {limit.what}. "
                f"A limit of {ceil(factor * 10_000) / 10_000:g}x would do."
            )
    return [int(limit.factor * size) for size in full]


def _default(device_bytes: int | None, notes: list[str]) -> Limit:
    if device_bytes is None:
        notes.append("memory: that of the device not stated; limited to what 1F1B needs")
        return Limit("what 1F1B needs")
    what = f"80 % of the device's {format_bytes(device_bytes)}"
    notes.append(f"memory: limited to {what}")
    # The rest is for buffers and fragmentation.
    return Limit(what, device_bytes * 4 // 5)


def _read(text: str) -> Limit:
    if _BARE.fullmatch(text) and float(text) < LEAST_BARE:
        expected = "a size with its unit, or a multiple of what 1F1B needs, such as 1.5x"
        raise InputError("options", Fault("memory_limit", text, expected, f"{text}GiB?"))
    if not text.endswith("x"):
        return Limit("the memory limit", parse_bytes(text, "memory_limit"))
    match = _MULTIPLE.fullmatch(text)
    factor = Fraction(match[1]) if match else Fraction(0)
    if not factor:
        expected = "80GiB, a multiple such as 1.5x, or none"
        raise InputError("options", Fault("memory_limit", repr(text), expected))
    return Limit(f"{text} of what 1F1B needs", factor=factor)
