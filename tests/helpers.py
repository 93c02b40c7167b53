"""Schedules for tests, their summary figures computed in plain Python, apart from the package."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from schedopt.build.pipeline import KINDS, Model
from schedopt.pipeline import Pipeline
from schedopt.problem import Ints
from schedopt.schedule import Schedule

OpRow = tuple[str, int, int, int, int, int]
"""Kind, stage, microbatch, rank, start, end."""


def schedule_of(
    model: Model,
    starts: Ints | Sequence[int],
    objective: str = "makespan",
    bound: int | None = None,
    status: str = "feasible",
) -> Schedule:
    """Make the schedule of a plain pipeline whose op i starts at ``starts[i]``."""
    rows = [
        (KINDS[kind], stage, microbatch, rank, start, start + duration)
        for kind, stage, microbatch, rank, start, duration in zip(
            model.kind.tolist(),
            model.stage.tolist(),
            model.microbatch.tolist(),
            model.problem.resource.tolist(),
            [int(start) for start in starts],
            model.problem.duration.tolist(),
            strict=True,
        )
    ]
    return schedule_from(model.pipeline, rows, objective, bound, status)


def schedule_from(
    pipeline: Pipeline,
    rows: Iterable[OpRow],
    objective: str = "makespan",
    bound: int | None = None,
    status: str = "feasible",
) -> Schedule:
    """Make a schedule of these ops, with true summary figures; the ops need not be right."""
    rows = list(rows)
    names = ("kind", "stage", "microbatch", "rank", "start_ns", "end_ns")
    document = {
        "format": Schedule.FORMAT,
        "version": 1,
        "objective": objective,
        "status": status,
        "pipeline": pipeline.model_dump(mode="json", exclude_none=True),
        "ops": [dict(zip(names, row, strict=True)) for row in rows],
        **figures(pipeline, rows),
    }
    if bound is not None:
        value = document["device_span_ns" if objective == "device-span" else "makespan_ns"]
        document["lower_bound_ns"] = bound
        document["gap"] = (value - bound) / bound if bound else None
    return Schedule.parse(document, "test schedule")


def figures(pipeline: Pipeline, rows: Iterable[OpRow]) -> dict[str, Any]:
    """Return makespan, device span, bubble and peaks of these ops."""
    by_rank: list[list[OpRow]] = [[] for _ in range(pipeline.ranks)]
    for row in rows:
        by_rank[row[3]].append(row)
    spans = [(min(r[4] for r in mine), max(r[5] for r in mine)) for mine in by_rank if mine]
    makespan = max((end for _, end in spans), default=0)
    busy = sum(end - start for mine in by_rank for *_, start, end in mine)
    return {
        "makespan_ns": makespan,
        "device_span_ns": max((end - start for start, end in spans), default=0),
        "bubble": 1 - busy / (pipeline.ranks * makespan) if makespan else 0.0,
        "peak_bytes": [_peak(pipeline, mine) for mine in by_rank],
    }


def _peak(pipeline: Pipeline, rows: Iterable[OpRow]) -> int:
    kept = pipeline.activation_bytes or [0] * pipeline.stages
    freed = pipeline.released_by_input_bytes or [0] * pipeline.stages
    events = []
    for kind, stage, _, _, start, end in rows:
        if kind == "F":
            events.append((start, kept[stage]))
        else:
            part = {"I": freed[stage], "W": kept[stage] - freed[stage], "B": kept[stage]}[kind]
            events.append((end, -part))
    level = peak = 0
    for _, change in sorted(events):  # at equal times the falls come first
        level += change
        peak = max(peak, level)
    return peak
