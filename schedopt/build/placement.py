"""Which rank has which stage, in each direction, and which microbatch goes which way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schedopt.errors import Fault, InputError, did_you_mean
from schedopt.pipeline import MAX_OPS

__all__ = ["PLACEMENTS", "Rows", "place", "shape_of", "stages_of_ranks"]

PLACEMENTS = ("linear", "interleaved", "v", "bidirectional")
MAX_RANKS = 4_096
MAX_CHUNKS = 1_024

Rows = list[list[int]]
"""Rank of each stage, one row per direction."""


def place(
    ranks: int, microbatches: int, shape: str | Sequence[Sequence[int]], chunks: int | None
) -> tuple[Rows, list[int] | None]:
    """Place stages on ranks; the parameters are those of `schedopt.build.partition.Cut`.

    Returns
    -------
    rows : list of list of int, shape (directions, stages)
    direction : list of int, shape (microbatches,), or None
        Row of each microbatch; None where there is only one.

    Raises
    ------
    InputError
        With all that is wrong with the parameters.
    """
    faults = list(_faults(ranks, microbatches, shape, chunks))
    if faults:
        raise InputError("options", faults)
    if isinstance(shape, str):
        rows = _rows(ranks, shape, chunks or 2)
    else:
        rows = [[int(rank) for rank in row] for row in shape]
    return rows, [j % len(rows) for j in range(microbatches)] if len(rows) > 1 else None


def shape_of(rows: Rows, ranks: int) -> str:
    """Return the name of a placement, or ``free``."""
    chunks = len(rows[0]) // ranks
    return next((name for name in PLACEMENTS if rows == _rows(ranks, name, chunks)), "free")


def _rows(ranks: int, shape: str, laps: int) -> Rows:
    down = list(range(ranks))
    up = down[::-1]
    match shape:
        case "linear":
            return [down]
        case "interleaved":
            return [down * laps]
        case "v":
            return [[rank for lap in range(laps) for rank in (up if lap % 2 else down)]]
        case _:
            return [down, up]


def stages_of_ranks(rows: Rows) -> set[tuple[int, int]]:
    """Return the pairs of a rank and a stage whose parameters it holds."""
    return {(rank, stage) for row in rows for stage, rank in enumerate(row)}


def _faults(
    ranks: int, microbatches: int, shape: str | Sequence[Sequence[int]], chunks: int | None
) -> Iterator[Fault]:
    if not 1 <= ranks <= MAX_RANKS:
        yield Fault("ranks", str(ranks), f"1 to {MAX_RANKS}")
    if not 1 <= microbatches <= MAX_OPS:
        yield Fault("microbatches", str(microbatches), f"1 to {MAX_OPS}")
    if not isinstance(shape, str):
        if chunks is not None:
            yield Fault("chunks", str(chunks), "none beside a placement of each stage")
        yield from _row_faults(shape, ranks)
    elif shape not in PLACEMENTS:
        expected = f"one of {', '.join(PLACEMENTS)}, or rows of ranks"
        yield Fault("placement", repr(shape), expected, did_you_mean(shape, PLACEMENTS))
    elif chunks is not None:
        low, high = (2, MAX_CHUNKS) if shape in ("interleaved", "v") else (1, 1)
        if not low <= chunks <= high:
            expected = f"1 for linear and bidirectional, 2 to {MAX_CHUNKS} for interleaved and v"
            yield Fault("chunks", str(chunks), expected)


def _row_faults(rows: Sequence[Sequence[int]], ranks: int) -> Iterator[Fault]:
    lengths = sorted({len(row) for row in rows})
    if len(lengths) != 1 or lengths == [0]:
        expected = "rows of equal length, a rank for each stage"
        yield Fault("placement", f"rows of length {lengths}", expected)
    for d, row in enumerate(rows):
        for stage, rank in enumerate(row):
            if not 0 <= rank < ranks:
                expected = f"a rank from 0 to {ranks - 1}"
                yield Fault(f"placement[{d}][{stage}]", str(rank), expected)
