"""A pipeline as a problem: the one place that knows what F, I, W and B mean to the solver."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedopt.pipeline import Pipeline
from schedopt.problem import Ints, Problem, ProblemBuilder

__all__ = ["KINDS", "Model", "build", "memory_changes"]

KINDS = ("F", "I", "W", "B")


@dataclass(frozen=True)
class Model:
    """A problem and what its ops stand for.

    Attributes
    ----------
    pipeline : Pipeline
        What was built.
    problem : Problem
        One resource and one pool per rank, in the order of the ranks.
    kind, stage, microbatch : array, shape (ops,)
        `kind` counts in `KINDS`.
    """

    pipeline: Pipeline
    problem: Problem
    kind: Ints
    stage: Ints
    microbatch: Ints

    def find(self) -> dict[tuple[str, int, int], int]:
        """Return the op number of every (kind letter, stage, microbatch)."""
        letters = (KINDS[k] for k in self.kind.tolist())
        keys = zip(letters, self.stage.tolist(), self.microbatch.tolist(), strict=True)
        return {key: op for op, key in enumerate(keys)}


def build(pipeline: Pipeline) -> Model:
    """Build the problem of a plain pipeline.

    Ops are added microbatch by microbatch, forward down the stages and backward up, W directly
    after I: run one after another they need the memory of one microbatch.

    All ops of one kind, stage and direction form a queue. For equal microbatches it loses nothing:
    sort the starts of such ops in any schedule and hand them out in order, and every edge still
    holds, since the k-th smallest end of the predecessors is at most the k-th smallest start of
    the successors. For different microbatches it is an assumption.
    """
    builder = ProblemBuilder()
    for rank in range(pipeline.ranks):
        builder.resource(f"rank {rank}", group=rank)
    for rank in range(pipeline.ranks):
        limits = pipeline.memory_limit_bytes
        builder.pool(f"memory of rank {rank}", limits[rank] if limits else None)
    kinds, stages, microbatches = _labels(pipeline)
    ranks = _ranks(pipeline)
    owner = ranks[microbatches, stages]
    builder.ops(_durations(pipeline)[kinds, stages, microbatches], owner)
    builder.change(np.arange(len(kinds)), owner, memory_changes(pipeline)[kinds, stages])
    _add_edges(builder, pipeline, ranks)
    _add_queues(builder, pipeline, kinds, stages, microbatches)
    problem, _ = builder.build()
    return Model(pipeline, problem, kinds, stages, microbatches)


def _labels(pipeline: Pipeline) -> tuple[Ints, Ints, Ints]:
    """Kind, stage and microbatch of every op, in the order in which they are added."""
    stages, m = pipeline.stages, pipeline.microbatches
    down, up = np.arange(stages), np.arange(stages)[::-1]
    backward = [KINDS.index(kind) for kind in ("B" if pipeline.fused else "IW")]
    kind = np.concatenate([np.full(stages, KINDS.index("F")), np.tile(backward, stages)])
    stage = np.concatenate([down, np.repeat(up, len(backward))])
    return np.tile(kind, m), np.tile(stage, m), np.repeat(np.arange(m), len(kind))


def _ranks(pipeline: Pipeline) -> Ints:
    """Rank of every (microbatch, stage)."""
    return np.array(pipeline.placement, np.int64)[pipeline.directions()]


def _durations(pipeline: Pipeline) -> Ints:
    times = pipeline.times()
    return np.concatenate([times, times[1:2] + times[2:3]])


def memory_changes(pipeline: Pipeline) -> Ints:
    """Return the bytes by which each op changes what its rank holds, shape (kinds, stages).

    The kinds are in the order of `KINDS`. A rise counts from the op's start, a fall from its end.
    """
    kept, freed = pipeline.activations()
    return np.stack([kept, -freed, freed - kept, -kept])


def _add_edges(builder: ProblemBuilder, pipeline: Pipeline, ranks: Ints) -> None:
    stages, m = pipeline.stages, pipeline.microbatches
    step = 1 if pipeline.fused else 2
    first = np.arange(m)[:, None] * stages * (1 + step)
    forward = first + np.arange(stages)
    backward = first + stages + step * np.arange(stages)[::-1]
    latency = pipeline.latency()
    builder.edge(
        forward[:, :-1].ravel(),
        forward[:, 1:].ravel(),
        latency[ranks[:, :-1], ranks[:, 1:]].ravel(),
    )
    builder.edge(
        backward[:, 1:].ravel(),
        backward[:, :-1].ravel(),
        latency[ranks[:, 1:], ranks[:, :-1]].ravel(),
    )
    builder.edge(forward.ravel(), backward.ravel())
    if not pipeline.fused:
        builder.edge(backward.ravel(), backward.ravel() + 1)


def _add_queues(
    builder: ProblemBuilder, pipeline: Pipeline, kinds: Ints, stages: Ints, microbatches: Ints
) -> None:
    exact = pipeline.uniform_microbatches
    direction = np.array(pipeline.directions(), np.int64)[microbatches]
    key = (direction * len(KINDS) + kinds) * pipeline.stages + stages
    order = np.argsort(key, kind="stable")
    for queue in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
        builder.queue(queue, exact)
