"""Pipelines and schedules for the tests of exporters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from helpers import schedule_of

from schedopt.build.pipeline import KINDS, Model, build
from schedopt.pipeline import Pipeline
from schedopt.schedule import Schedule


def pipeline(
    placement: list[int],
    microbatches: int = 4,
    backward: Literal["split", "fused"] = "split",
) -> Pipeline:
    """Uneven stages in one direction, with latencies and activations."""
    stages, ranks = len(placement), max(placement) + 1
    return Pipeline(
        ranks=ranks,
        stages=stages,
        microbatches=microbatches,
        placement=[placement],
        backward=backward,
        forward_ns=[1001 + 10 * s for s in range(stages)],
        backward_input_ns=[1203 + 7 * s for s in range(stages)],
        backward_weight_ns=[907 + 3 * s for s in range(stages)],
        latency_ns=[[0 if a == b else 57 + a for b in range(ranks)] for a in range(ranks)],
        activation_bytes=[1000 + s for s in range(stages)],
        released_by_input_bytes=[300 + s for s in range(stages)],
    )


def list_schedule(model: Model, priority: Callable[[int], float]) -> Schedule:
    """Schedule a pipeline op by op: what can start first, then what has the least priority."""
    problem = model.problem
    graph, resource = problem.graph, problem.resource.tolist()
    waiting = np.diff(graph.pred_at).tolist()
    arrived, starts = [0] * problem.size, [0] * problem.size
    free = [0] * len(problem.resources)
    ready = {op for op, count in enumerate(waiting) if count == 0}
    while ready:
        op = min(ready, key=lambda i: (max(free[resource[i]], arrived[i]), priority(i), i))
        ready.remove(op)
        starts[op] = max(free[resource[op]], arrived[op])
        end = free[resource[op]] = starts[op] + int(problem.duration[op])
        for k in range(graph.succ_at[op], graph.succ_at[op + 1]):
            successor = int(graph.succ[k])
            arrived[successor] = max(arrived[successor], end + int(graph.succ_lag[k]))
            waiting[successor] -= 1
            if waiting[successor] == 0:
                ready.add(successor)
    return schedule_of(model, starts)


def backward_first(case: Pipeline) -> Schedule:
    """Schedule a pipeline with backward before forward, and W where nothing else is ready."""
    model = build(case)
    rank = {"I": 0, "B": 0, "F": 1, "W": 2}
    return list_schedule(model, lambda op: rank[KINDS[model.kind[op]]])
