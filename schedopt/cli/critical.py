"""A critical path in a few readable lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from schedopt.build.pipeline import KINDS
from schedopt.simulation import Simulation

__all__ = ["Segment", "Visit", "segments", "visits"]


@dataclass(frozen=True)
class Segment:
    """Neighbours on a critical path that one line describes.

    Attributes
    ----------
    start, end : int
        ns.
    words : str
        What happens.
    """

    start: int
    end: int
    words: str

    @property
    def length(self) -> int:
        """ns."""
        return self.end - self.start


class Visit(NamedTuple):
    """One op of the path, in the words of a pipeline."""

    kind: str
    stage: int
    microbatch: int
    rank: int
    start_ns: int
    end_ns: int
    waited_for: str

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


def segments(run: Simulation) -> list[Segment]:
    """Cut a critical path into stretches on one rank, and microbatches passing through ranks.

    Whichever of the two reaches further is taken first, over and over.
    """
    path = visits(run)
    result = []
    at = 0
    while at < len(path):
        work = _reach(path, at, lambda a, b: a.rank == b.rank)
        travel = _reach(path, at, _passes_on)
        end, describe = (travel, _travel) if travel > work else (work, _work)
        part = path[at:end]
        result.append(Segment(part[0].start_ns, part[-1].end_ns, describe(part)))
        at = end
    return result


def visits(run: Simulation) -> list[Visit]:
    """Return the ops of a critical path."""
    model = run.model
    return [
        Visit(
            kind=KINDS[model.kind[step.op]],
            stage=int(model.stage[step.op]),
            microbatch=int(model.microbatch[step.op]),
            rank=int(model.problem.resource[step.op]),
            start_ns=step.start,
            end_ns=step.end,
            waited_for=step.waited_for,
        )
        for step in run.critical
    ]


def _reach(path: list[Visit], at: int, joined: Callable[[Visit, Visit], bool]) -> int:
    end = at + 1
    while end < len(path) and joined(path[end - 1], path[end]):
        end += 1
    return end


def _passes_on(a: Visit, b: Visit) -> bool:
    step = 1 if a.kind == "F" else -1
    return (a.kind, a.microbatch, a.stage + step) == (b.kind, b.microbatch, b.stage)


def _travel(part: list[Visit]) -> str:
    first, last = part[0], part[-1]
    ranks = " to ".join(str(rank) for rank in _turns([visit.rank for visit in part]))
    stages = f"stages {first.stage} to {last.stage}"
    return f"{first.kind} of microbatch {first.microbatch}, {stages}, ranks {ranks}"


def _turns(ranks: list[int]) -> list[int]:
    """Return the first and the last of a sequence, and those where it turns round."""
    visited = [rank for rank, _ in groupby(ranks)]
    inner = zip(visited, visited[1:], visited[2:], strict=False)
    return [visited[0], *(b for a, b, c in inner if (b - a) * (c - b) < 0), *visited[1:][-1:]]


def _work(part: list[Visit]) -> str:
    first, last = part[0], part[-1]
    if len(part) == 1:
        return f"rank {first.rank} runs {first}"
    busy = sum(visit.end_ns - visit.start_ns for visit in part)
    idle = last.end_ns - first.start_ns - busy
    waits = "" if idle else ", without a pause"
    return f"rank {first.rank} runs {len(part)} ops, {first} to {last}{waits}"
