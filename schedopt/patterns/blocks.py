"""Zero-bubble patterns: a block of ops repeated for every microbatch, then squeezed.

A block is the ticks of one microbatch. Repeated at a fixed interval it orders F and I; the
weight gradients, which nothing waits for, go where the measured durations leave gaps.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations, product

import numpy as np

from schedopt.patterns.fill import fill_gaps, sizes
from schedopt.patterns.rules import eager_ticks
from schedopt.patterns.ticks import chain, sort_by_tick
from schedopt.pipeline import Pipeline
from schedopt.problem import Ints
from schedopt.schedule import Orders

__all__ = ["v_half", "v_min", "zb_h1", "zb_h2", "zb_v"]

INTERVAL = 6
"""Ticks of a V rank's work on one microbatch: F, I and W of two chunks."""


def zb_h1(pipeline: Pipeline) -> Orders:
    """1F1B with W put off as far as the memory of 1F1B's first rank allows on every rank."""
    plan = sort_by_tick(pipeline, eager_ticks(pipeline, hop=1), "I")
    return fill_gaps(pipeline, plan, _memory(pipeline, pipeline.stages))


def zb_h2(pipeline: Pipeline) -> Orders:
    """ZB-H1 with a warm-up that fills the bubble before the first backward: 2p − 1 forwards."""
    plan = sort_by_tick(pipeline, eager_ticks(pipeline, hop=2), "I")
    return fill_gaps(pipeline, plan, _memory(pipeline, 2 * pipeline.stages - 1))


def zb_v(pipeline: Pipeline) -> Orders:
    """Two chunks in a V at the memory of 1F1B, with next to no bubble."""
    return _v(pipeline, down=4, up=2, early_forwards=True)


def v_half(pipeline: Pipeline) -> Orders:
    """Two chunks in a V at half the memory of 1F1B and a constant."""
    return _v(pipeline, down=2, up=1, early_forwards=True)


def v_min(pipeline: Pipeline) -> Orders:
    """Two chunks in a V at a third of the memory of 1F1B and a constant."""
    return _v(pipeline, down=1, up=1, early_forwards=False)


def _v(pipeline: Pipeline, down: int, up: int, early_forwards: bool) -> Orders:
    block, chunks = _v_block(pipeline.stages // 2, down, up)
    ticks = block[:, :, None] + INTERVAL * np.arange(pipeline.microbatches)
    plan = sort_by_tick(pipeline, ticks, "I")
    memory = _memory(pipeline, chunks)
    return fill_gaps(pipeline, plan, memory, early_forwards=early_forwards)


@lru_cache(maxsize=64)
def _v_block(ranks: int, down: int, up: int) -> tuple[Ints, int]:
    """Return the V block with the given hops that holds the fewest activations.

    A hop takes `down` ticks towards the last rank, forward and backward alike, and `up` ticks
    towards the first. The two add up to a divisor of the interval, so that all ranks meet the
    same few phases; what is left to choose is how long a microbatch stays on a rank where it
    turns: at the foot of the V, at the loss, and at the foot again. No rank may meet two ops at
    one tick. Among equals the quickest block wins.

    Returns
    -------
    block : array, shape (2, 2 · ranks)
    chunks : int
        Activations of one chunk that a rank holds at most.
    """
    best: tuple[int, int, Ints] | None = None
    lower, upper = [down] * (ranks - 1), [up] * (ranks - 1)
    for turns in sorted(product(range(1, INTERVAL + 1), repeat=3), key=sum):
        block = chain([*lower, turns[0], *upper], turns[1], [*lower, turns[2], *upper])
        held = _held(block)
        if held is not None and (best is None or held < best[0]):
            best = held, sum(turns), block
    assert best is not None, "every V has a block: a test holds it"
    return best[2], best[0]


def _held(block: Ints) -> int | None:
    """Activations held at most by a rank when the block repeats; None: two ops at one tick."""
    stages = block.shape[1]
    worst = 0
    for position in range(stages // 2):
        mine = block[:, [position, stages - 1 - position]]
        idle = set(range(INTERVAL)) - set((mine % INTERVAL).ravel().tolist())
        if len(idle) > 2:
            return None
        spans = [tuple(span) for span in mine.T.tolist()]
        worst = max(worst, min(_level(spans, phases) for phases in permutations(idle)))
    return worst


def _level(spans: list[tuple[int, int]], phases: tuple[int, ...]) -> int:
    """Highest number of activations alive, where chunk k's W runs in the idle phase k."""
    alive = []
    for (start, backward), phase in zip(spans, phases, strict=True):
        end = backward + 2 + (phase - backward - 1) % INTERVAL
        alive.append([(t - start) // INTERVAL - (t - end) // INTERVAL for t in range(INTERVAL)])
    return max(map(sum, zip(*alive, strict=True)))


def _memory(pipeline: Pipeline, chunks: int) -> list[int]:
    """Size of that many activations of a mean chunk of each rank."""
    kept, _ = sizes(pipeline)
    mine: list[list[int]] = [[] for _ in range(pipeline.ranks)]
    for rank, size in zip(pipeline.placement[pipeline.directions()[0]], kept, strict=True):
        mine[rank].append(size)
    return [chunks * sum(row) // max(1, len(row)) for row in mine]
