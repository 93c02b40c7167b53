"""Even out the load of ranks that hold several stages, by local search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from schedopt.build.placement import Rows

__all__ = ["even_ranks", "rank_loads"]

Floats = npt.NDArray[np.float64]
Cuts = npt.NDArray[np.int64]
Value = tuple[float, float, float]

MOST_STAGES = 256
"""A split into more is left as it is: the search would take minutes."""


def rank_loads(stage_times: Sequence[int], rows: Rows, ranks: int) -> list[int]:
    """Return the time of one microbatch of every direction on each rank, shape (ranks,), ns."""
    loads = [0] * ranks
    for row in rows:
        for time, rank in zip(stage_times, row, strict=True):
            loads[rank] += time
    return loads


def even_ranks(
    times: Sequence[int],
    sizes: Sequence[int],
    rows: Rows,
    ranks: int,
    least: int,
    fits: Callable[[list[int]], bool],
) -> list[int]:
    """Improve a split of layers into stages until no small change makes it more even.

    What limits the throughput of ranks that hold several stages is first the load of the fullest
    rank, which is the sum of its stages, and then its largest stage, which a pipeline waits for
    when it fills and drains. So the value of a split is (largest load of a rank, largest stage,
    sum of squared stages), compared in this order. A step shifts one cut by one layer; or it
    takes a layer from a stage, the worst first, and gives any other one more, by shifting all cuts
    between them; or it shifts two cuts, of which the first eases one of the worst stages. The
    best of the first kind that helps is taken. The result is a local optimum: nothing proves that
    no better split exists.

    Parameters
    ----------
    times : sequence of int, shape (layers,)
        ns. Compared as floats, which is exact below 2^53 ns (104 days).
    sizes : sequence of int, shape (stages,)
        Number of layers of each stage to begin with.
    rows : list of list of int, shape (directions, stages)
        Rank of each stage; each direction carries the same share of the microbatches.
    least : int
        Fewest layers of a stage.
    fits : callable
        Whether a split (its sizes) is within memory; asked of better splits only.

    Returns
    -------
    list of int, shape (stages,)
        A split that is no worse, and fits if the first did.
    """
    if len(sizes) > MOST_STAGES:
        return list(sizes)
    clock = np.concatenate([[0], np.cumsum(np.array(times, np.float64))])
    share = np.zeros((len(sizes), ranks))
    for row in rows:
        share[np.arange(len(row)), row] += 1
    cuts = np.concatenate([[0], np.cumsum(sizes)])
    while True:
        now = _value(clock, share, cuts)
        better = _step(clock, share, cuts, now, least, fits)
        if better is None:
            return [int(size) for size in np.diff(cuts)]
        cuts = better


def _value(clock: Floats, share: Floats, cuts: Cuts) -> Value:
    largest, longest, squares = _values(clock, share, cuts[None])
    return float(largest[0]), float(longest[0]), float(squares[0])


def _values(clock: Floats, share: Floats, many: Cuts) -> tuple[Floats, Floats, Floats]:
    """Return the values of splits, three arrays of shape (splits,)."""
    stages = np.diff(clock[many], axis=1)
    return (stages @ share).max(axis=1), stages.max(axis=1), (stages**2).sum(axis=1)


def _step(
    clock: Floats,
    share: Floats,
    cuts: Cuts,
    now: Value,
    least: int,
    fits: Callable[[list[int]], bool],
) -> Cuts | None:
    """Return a better neighbour of a split that fits, or None."""
    for many in _neighbours(clock, share, cuts):
        many = many[np.diff(many, axis=1).min(axis=1) >= least]
        if not len(many):
            continue
        largest, longest, squares = _values(clock, share, many)
        for k in np.lexsort((squares, longest, largest)).tolist():
            if (largest[k], longest[k], squares[k]) >= now:
                break
            if fits(np.diff(many[k]).tolist()):
                return np.asarray(many[k])
    return None


def _neighbours(clock: Floats, share: Floats, cuts: Cuts) -> Iterator[Cuts]:
    """Yield neighbours of a split, the closest first."""
    stages = np.diff(clock[cuts])
    loads = stages @ share
    worst = share[:, loads == loads.max()].any(axis=1) | (stages == stages.max())
    inner = np.eye(len(cuts), dtype=np.int64)[1:-1]
    moves = np.concatenate([inner, -inner])
    yield cuts + moves
    for stage in np.argsort(~worst, kind="stable"):
        yield cuts + _transfers(int(stage), len(cuts))
    for move in moves:
        at = int(np.flatnonzero(move)[0])
        if worst[at - 1] or worst[at]:
            yield cuts + move + moves


def _transfers(stage: int, cuts: int) -> Cuts:
    """Return the shifts of the cuts that take one layer from a stage and give each other one."""
    to, cut = np.arange(cuts - 1)[:, None], np.arange(cuts)
    down, up = (stage < cut) & (cut <= to), (to < cut) & (cut <= stage)
    return up.astype(np.int64) - down.astype(np.int64)
