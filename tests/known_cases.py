"""Uniform linear pipelines, and optima of some of them that were found and proven elsewhere."""

from __future__ import annotations

from typing import Any, NamedTuple

from schedopt.build.pipeline import build
from schedopt.pipeline import Pipeline
from schedopt.problem import Objective, Problem


def line(
    ranks: int,
    microbatches: int,
    activations: int | None = None,
    latency: int = 0,
    times: tuple[int, int, int] = (1, 1, 1),
    **changes: Any,
) -> Problem:
    """Return a linear pipeline of equal stages; a rank holds `activations` microbatches, each from
    the start of F to the end of W.
    """
    forward, backward_input, backward_weight = times
    fields = {
        "ranks": ranks,
        "stages": ranks,
        "microbatches": microbatches,
        "placement": [list(range(ranks))],
        "forward_ns": [forward] * ranks,
        "backward_input_ns": [backward_input] * ranks,
        "backward_weight_ns": [backward_weight] * ranks,
        "latency_ns": [[latency] * ranks] * ranks,
        "activation_bytes": [2] * ranks,
        "released_by_input_bytes": [0] * ranks,
        "memory_limit_bytes": None if activations is None else [2 * activations] * ranks,
        **changes,
    }
    return build(Pipeline(**fields)).problem


class Known(NamedTuple):
    """A problem, an objective, and its optimum."""

    name: str
    problem: Problem
    objective: Objective
    best: int


def _one_slow_link(microbatches_held: int) -> Problem:
    latency = [[0] * 4 for _ in range(4)]
    latency[1][2] = latency[2][1] = 4
    return line(4, 8, microbatches_held, backward="fused", latency_ns=latency)


KNOWN = [
    Known("p4 m8", line(4, 8, 4), "makespan", 27),
    Known("p3 m3", line(3, 3, 3), "makespan", 11),
    Known("p4 m4", line(4, 4, 4), "makespan", 15),
    Known("p4 m8 span, 6 held", line(4, 8, 6), "device-span", 25),
    Known("p4 m8 span, 7 held", line(4, 8, 7), "device-span", 24),
    Known("p4 m8 latency 1", line(4, 8, 4, 1), "makespan", 39),
    Known("p4 m8 latency 2", line(4, 8, 4, 2), "makespan", 51),
    Known("p4 m16 latency 2", line(4, 16, 4, 2), "makespan", 93),
    Known("p4 m8 F10 I12 W8, 4 held", line(4, 8, 4, 1, (10, 12, 8)), "makespan", 294),
    Known("p4 m8 F10 I12 W8, 8 held", line(4, 8, 8, 1, (10, 12, 8)), "makespan", 273),
    Known("fused p2 m4, 2 held", line(2, 4, 2, 2, backward="fused"), "makespan", 23),
    Known("fused p2 m4, 3 held", line(2, 4, 3, 2, backward="fused"), "makespan", 20),
    Known("fused p2 m4, 4 held", line(2, 4, 4, 2, backward="fused"), "makespan", 19),
    Known("fused p4 m8, one slow link, 4 held", _one_slow_link(4), "makespan", 49),
    Known("fused p4 m8, one slow link, 8 held", _one_slow_link(8), "makespan", 41),
]
