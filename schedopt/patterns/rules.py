"""Patterns whose order is a rule of counts: it knows no durations."""

from __future__ import annotations

import numpy as np

from schedopt.patterns.ticks import chain, in_place, sort_by_tick
from schedopt.pipeline import Pipeline
from schedopt.problem import Ints
from schedopt.schedule import Action, Orders

__all__ = ["chimera", "dualpipe_v", "eager_ticks", "gpipe", "interleaved", "one_f_one_b"]


def gpipe(pipeline: Pipeline) -> Orders:
    """All forwards, then all backwards."""
    m = pipeline.microbatches
    return _fused(pipeline, _steady(pipeline, hop=1, turn=m, start=np.arange(m)))


def one_f_one_b(pipeline: Pipeline) -> Orders:
    """As many forwards as stages lie below, then one backward, one forward, in turns."""
    return _fused(pipeline, eager_ticks(pipeline, hop=1))


def eager_ticks(pipeline: Pipeline, hop: int) -> Ints:
    """Return ticks of 1F1B, in which each stage warms up `hop` forwards ahead of the next.

    Stage s runs ``hop · (stages − 1 − s) + 1`` forwards before its first backward: 1F1B for 1,
    and the deeper warm-up that hides a round trip between neighbours for 2.
    """
    return _steady(pipeline, hop, turn=1, start=2 * np.arange(pipeline.microbatches))


def interleaved(pipeline: Pipeline) -> Orders:
    """Interleaved 1F1B: groups of microbatches run chunk by chunk, forwards and backwards in turns.

    A group has as many microbatches as there are ranks. Where that doesn't divide their number,
    the rest is shared out, so that no group is too small to keep the ranks busy for a lap.
    """
    stages, m = pipeline.stages, pipeline.microbatches
    ranks = len(set(pipeline.placement[pipeline.directions()[0]]))
    chunks = stages // ranks
    groups = np.array_split(np.arange(m), max(1, m // ranks))
    # A lap must be no shorter than the ranks are many, or a chunk would wait for the one before.
    laps = [max(len(group), ranks) for group in groups]
    chunk, rank = np.divmod(np.arange(stages), ranks)
    ticks = np.empty((2, stages, m), np.int64)
    first_backward = 2 * (ranks - 1) + 2 * (chunks - 1) * laps[0] + 1
    start = 0
    for group, lap in zip(groups, laps, strict=True):
        turn = start + np.arange(len(group))
        down = rank + chunk * lap
        up = ranks - 1 - rank + (chunks - 1 - chunk) * lap
        ticks[0][:, group] = 2 * (down[:, None] + turn)
        ticks[1][:, group] = first_backward + 2 * (up[:, None] + turn)
        start += chunks * lap
    return _fused(pipeline, ticks)


def chimera(pipeline: Pipeline) -> Orders:
    """1F1B in both directions at once, half a pipeline's depth of microbatches at a time.

    With one tick per op the two directions of such a unit never meet on a rank (of an even
    number of ranks); units follow each other at the rate at which a rank works.
    """
    depth, unit = pipeline.stages, max(1, pipeline.stages // 2)
    seen: dict[int, int] = {}
    start = np.empty(pipeline.microbatches, np.int64)
    for j, d in enumerate(pipeline.directions()):
        k = seen[d] = seen.get(d, -1) + 1
        start[j] = 2 * depth * (k // unit) + 2 * (k % unit)
    return _fused(pipeline, _steady(pipeline, hop=1, turn=1, start=start))


def dualpipe_v(pipeline: Pipeline) -> Orders:
    """DualPipe-V: the eight steps of each rank, without overlap of forward and backward.

    The published schedule runs a forward and a backward at once, each hiding the other's
    communication; a rank that computes one op at a time runs the forward first.
    """
    row, ranks = pipeline.placement[pipeline.directions()[0]], pipeline.stages // 2
    orders: Orders = [[] for _ in range(pipeline.ranks)]
    for position in range(ranks):
        orders[row[position]] = _dualpipe_v_rank(position, ranks, pipeline.microbatches)
    return orders


def _dualpipe_v_rank(position: int, ranks: int, microbatches: int) -> list[Action]:
    """Run the steps of the rank that holds stages `position` and its mirror."""
    after = ranks - 1 - position
    rank = _Rank((position, 2 * ranks - 1 - position))
    for _ in range(2 * after):
        rank.forward(0)
    for _ in range(position + 1):
        rank.forward(0)
        rank.forward(1)
    for _ in range(after):
        rank.input_grad(1)
        rank.weight_grad()
        rank.forward(1)
    for _ in range(microbatches - 2 * ranks + position + 1):
        rank.forward(0)
        rank.backward(1)
        rank.forward(1)
        rank.backward(0)
    for _ in range(after):
        rank.backward(1)
        rank.forward(1)
        rank.backward(0)
    # From half-way on, weight gradients are put off to fill the drain.
    grads = [1, 0] * (position + 1)
    for k, chunk in enumerate(grads):
        if k < position + 1:
            rank.backward(chunk)
        else:
            rank.input_grad(chunk)
    for _ in range(after):
        rank.weight_grad()
        rank.input_grad(0)
    for _ in range(position + 1):
        rank.weight_grad()
    return rank.actions


class _Rank:
    """A rank's actions, with the next microbatch of each op of each chunk."""

    def __init__(self, stages: tuple[int, int]) -> None:
        self.actions: list[Action] = []
        self._stages = stages
        self._forwards = [0, 0]
        self._backwards = [0, 0]
        self._put_off: list[Action] = []

    def forward(self, chunk: int) -> None:
        self.actions.append(Action("F", self._stages[chunk], self._forwards[chunk]))
        self._forwards[chunk] += 1

    def input_grad(self, chunk: int) -> None:
        action = Action("I", self._stages[chunk], self._backwards[chunk])
        self._backwards[chunk] += 1
        self.actions.append(action)
        self._put_off.append(action._replace(kind="W"))

    def weight_grad(self) -> None:
        self.actions.append(self._put_off.pop(0))

    def backward(self, chunk: int) -> None:
        self.input_grad(chunk)
        self.actions.append(self._put_off.pop())


def _fused(pipeline: Pipeline, ticks: Ints) -> Orders:
    return in_place(pipeline, sort_by_tick(pipeline, ticks, "B"))


def _steady(pipeline: Pipeline, hop: int, turn: int, start: Ints) -> Ints:
    """Ticks of microbatches that all move alike, microbatch j from tick ``start[j]``."""
    hops = [hop] * (pipeline.stages - 1)
    return chain(hops, turn, hops)[:, :, None] + start
