"""Orders from ticks: an abstract time for every forward and every backward.

A pattern is a table of ticks, nothing else. Where each tick is larger than those of the ops that
must come before, the ranks' orders sorted by tick can't deadlock, whatever the durations: an op
waits only for ops of smaller ticks. Ops of one rank may share a tick; either goes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from schedopt.pipeline import Pipeline
from schedopt.problem import Ints
from schedopt.schedule import Action, Kind, Orders

__all__ = ["chain", "in_place", "sort_by_tick"]


def chain(forward: Sequence[int], turn: int, backward: Sequence[int]) -> Ints:
    """Return the ticks of one microbatch that starts at 0.

    Parameters
    ----------
    forward, backward : sequence of int, length stages − 1
        Ticks from each op to the next, on the way down the stages and on the way back up.
    turn : int
        Ticks from the last forward to the first backward.

    Returns
    -------
    array, shape (2, stages)
        Ticks of the forwards and of the backwards, by stage.
    """
    down = np.cumsum([0, *forward])
    up = down[-1] + turn + np.cumsum([0, *backward])
    return np.stack([down, up[::-1]]).astype(np.int64)


def sort_by_tick(pipeline: Pipeline, ticks: Ints, backward: Literal["I", "B"]) -> Orders:
    """Sort each rank's forwards and backwards by tick.

    Parameters
    ----------
    ticks : array, shape (2, stages, microbatches)
        Of the forwards and of the backwards; larger than those of their predecessors.
    backward : {"I", "B"}
        What to call the backwards.
    """
    kind, stage, microbatch = (index.ravel() for index in np.indices(ticks.shape))
    rank = np.array(pipeline.placement, np.int64)[pipeline.directions()][microbatch, stage]
    order = np.lexsort((ticks.ravel(), rank))
    letters: tuple[Kind, Kind] = ("F", backward)
    rows: Orders = [[] for _ in range(pipeline.ranks)]
    columns = (array[order].tolist() for array in (rank, kind, stage, microbatch))
    for r, k, s, j in zip(*columns, strict=True):
        rows[r].append(Action(letters[k], s, j))
    return rows


def in_place(pipeline: Pipeline, orders: Orders) -> Orders:
    """Write each B as I, then W, where the pipeline's backward is split."""
    if pipeline.fused:
        return orders
    parts: dict[Kind, tuple[Kind, ...]] = {"F": ("F",), "B": ("I", "W")}
    return [
        [Action(part, stage, j) for kind, stage, j in row for part in parts[kind]] for row in orders
    ]
