"""How a pipeline lies on its ranks, recognised from its placement."""

from __future__ import annotations

from typing import Literal

from schedopt.pipeline import Pipeline

__all__ = ["Shape", "shape"]

Shape = Literal["linear", "loop", "v", "bidirectional", "free"]


def shape(pipeline: Pipeline) -> Shape:
    """Name the placement that the microbatches follow, whatever the ranks are called.

    Rows of `placement` that no microbatch follows don't count.

    Returns
    -------
    {"linear", "loop", "v", "bidirectional", "free"}
        ``linear``: each stage on a rank of its own. ``loop``: round and round the same ranks
        (interleaved). ``v``: down the ranks and back up. ``bidirectional``: two linear rows, one
        the reverse of the other. ``free``: anything else.
    """
    rows = sorted({tuple(pipeline.placement[d]) for d in set(pipeline.directions())})
    if len(rows) == 1:
        return _one_way(rows[0])
    distinct = len(set(rows[0])) == pipeline.stages
    return "bidirectional" if len(rows) == 2 and distinct and rows[0] == rows[1][::-1] else "free"


def _one_way(row: tuple[int, ...]) -> Shape:
    ranks = len(set(row))
    lap = row[:ranks]
    if len(set(lap)) < ranks:
        return "free"
    if row == lap:
        return "linear"
    if row == lap * (len(row) // ranks):
        return "loop"
    return "v" if row == lap + lap[::-1] else "free"
