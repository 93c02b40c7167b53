"""What all pictures show: the rows of ops, the marks of the time axis, and the words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schedopt.build.pipeline import KINDS, memory_changes
from schedopt.pipeline import Pipeline
from schedopt.problem import Ints
from schedopt.schedule import Schedule
from schedopt.units import format_bytes, format_ns

__all__ = [
    "IDLE",
    "KIND_NAMES",
    "Row",
    "chunks",
    "clean",
    "dimensions",
    "extent",
    "headline",
    "layers_line",
    "looks_of",
    "memory",
    "percent",
    "raster",
    "rows",
    "sample",
    "stage_table",
    "ticks",
    "title",
    "top_bytes",
    "verdict",
]

_NAMES = ("forward", "input gradient", "weight gradient", "backward")
KIND_NAMES = dict(zip(KINDS, _NAMES, strict=True))
IDLE = -1
"""Stands for no op in a raster."""


@dataclass(frozen=True)
class Row:
    """The ops of one rank, in the order of their starts.

    Attributes
    ----------
    rank : int
    look : array, shape (ops,)
        Number in `schedopt.render.palette.looks`.
    stage, microbatch, start, end : array, shape (ops,)
        Times in ns.
    """

    rank: int
    look: Ints
    stage: Ints
    microbatch: Ints
    start: Ints
    end: Ints

    @property
    def busy_ns(self) -> int:
        """Sum of the durations, ns."""
        return int((self.end - self.start).sum())

    def bubble(self, makespan_ns: int) -> float:
        """Return the share of the makespan during which the rank does nothing."""
        return 1 - self.busy_ns / max(1, makespan_ns)


def clean(text: str, most: int = 200) -> str:
    """Make a string from a file fit to show: one line, nothing invisible, not endless.

    Control characters would steer a terminal, and are forbidden in XML even when escaped.
    """
    line = " ".join(text.split())
    line = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line
    )
    return line if len(line) <= most else f"{line[: most - 1]}…"


def percent(share: float) -> str:
    """Write a share: ``12.3 %``."""
    return f"{100 * share:.1f} %"


def verdict(schedule: Schedule) -> str:
    """Say how good the schedule is known to be."""
    if schedule.status == "optimal":
        return "optimal (proven)"
    gap = _gap(schedule)
    return f"within {gap} of the bound" if gap else "feasible"


def title(schedule: Schedule, most: int = 200) -> str:
    """Name a schedule: by its own name, or by that of its pipeline."""
    return clean(schedule.name or schedule.pipeline.name, most) or "Pipeline schedule"


def dimensions(pipeline: Pipeline) -> str:
    """Say how large the pipeline is."""
    counts = (
        (pipeline.ranks, "rank", "ranks"),
        (pipeline.stages, "stage", "stages"),
        (pipeline.microbatches, "microbatch", "microbatches"),
    )
    words = [f"{n} {one if n == 1 else several}" for n, one, several in counts]
    return " · ".join([*words, f"{pipeline.backward} backward"])


def headline(schedule: Schedule) -> list[tuple[str, str]]:
    """Return the numbers that matter, as (name, value)."""
    span = schedule.objective == "device-span"
    bound = schedule.lower_bound_ns
    mark = " (minimised)" if bound is not None else ""  # nobody minimised what was imported
    proof = [] if bound is None else [("lower bound", format_ns(bound))]
    return [
        ("status", verdict(schedule)),
        ("makespan", format_ns(schedule.makespan_ns) + mark * (not span)),
        ("device span", format_ns(schedule.device_span_ns) + mark * span),
        *proof,
        *([("gap", _gap(schedule) or "unknown")] if proof else []),
        ("bubble", percent(schedule.bubble)),
    ]


def layers_line(pipeline: Pipeline) -> str:
    """Say how many layers each stage has: ``9, 9, 8, 8 (embedding … head)``; may be empty."""
    names = [name for stage in pipeline.layers or [] for name in stage]
    if not names:
        return ""
    counts = ", ".join(str(len(stage)) for stage in pipeline.layers or [])
    return f"{counts} ({_ends(names)})"


def stage_table(pipeline: Pipeline) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of a table of stages: where they are and what they cost."""
    heads = ["stage", "rank" if len(pipeline.placement) == 1 else "ranks"]
    heads += ["layers"] * (pipeline.layers is not None)
    times = pipeline.times()
    kinds: tuple[str, ...] = KINDS[:3]
    if pipeline.fused:
        kinds, times = (KINDS[0], KINDS[3]), np.stack([times[0], times[1] + times[2]])
    heads += kinds
    sizes = pipeline.activation_bytes
    heads += ["activations"] * (sizes is not None)
    table = []
    for stage in range(pipeline.stages):
        line = [str(stage), ", ".join(str(row[stage]) for row in pipeline.placement)]
        if pipeline.layers is not None:
            line.append(_ends(pipeline.layers[stage]))
        line += [_range_ns(time[stage]) for time in times]
        if sizes is not None:
            line.append(format_bytes(sizes[stage]))
        table.append(line)
    return heads, table


def _ends(names: Sequence[str]) -> str:
    """Name the first and the last of some layers."""
    return " … ".join(clean(name, 40) for name in dict.fromkeys([*names[:1], *names[-1:]]))


def _range_ns(times: Ints) -> str:
    """Write the time of a stage, which may differ between microbatches."""
    shortest, longest = format_ns(int(times.min())), format_ns(int(times.max()))
    return shortest if shortest == longest else f"{shortest}–{longest}"


def rows(schedule: Schedule, ranks: Iterable[int]) -> list[Row]:
    """Return the rows of some ranks."""
    columns, pipeline = schedule.columns, schedule.pipeline
    chunk = chunks(pipeline)
    kind = np.zeros(len(columns.kind), np.int64)
    for number, letter in enumerate(KINDS):
        kind[columns.kind == letter] = number
    direction = np.array(pipeline.directions(), np.int64)
    look = kind * (int(chunk.max()) + 1) + chunk[direction[columns.microbatch], columns.stage]
    order = np.lexsort((columns.end, columns.start, columns.rank))
    by_rank = columns.rank[order]
    result = []
    for rank in ranks:
        mine = order[np.searchsorted(by_rank, rank) : np.searchsorted(by_rank, rank + 1)]
        values = (look, columns.stage, columns.microbatch, columns.start, columns.end)
        result.append(Row(rank, *(value[mine] for value in values)))
    return result


def sample(ranks: int, most: int) -> list[int]:
    """Return all ranks, or `most` of them evenly spread, first and last among them."""
    if ranks <= most:
        return list(range(ranks))
    return [k * (ranks - 1) // (most - 1) for k in range(most)]


def extent(schedule: Schedule) -> tuple[int, int]:
    """Return the first start and the last end, ns, never equal."""
    if not schedule.ops:
        return 0, max(1, schedule.makespan_ns)
    start, end = int(schedule.columns.start.min()), int(schedule.columns.end.max())
    return start, max(end, start + 1)


def ticks(start: int, end: int, most: int) -> list[int]:
    """Return round times of [start, end], at most `most`: multiples of 1, 2 or 5 × 10^k ns."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            first, last = -(-start // (factor * step)), end // (factor * step)
            if last - first < most:
                return [k * factor * step for k in range(first, last + 1)]
        step *= 10


def chunks(pipeline: Pipeline) -> Ints:
    """Number the stages of each rank, shape (directions, stages), from 0."""
    placement = np.array(pipeline.placement, np.int64)
    flat = placement.ravel()
    order = np.argsort(flat, kind="stable")
    first = np.searchsorted(flat[order], flat[order])
    result = np.empty(len(flat), np.int64)
    result[order] = np.arange(len(flat)) - first
    return result.reshape(placement.shape)


def memory(pipeline: Pipeline, row: Row) -> tuple[Ints, Ints]:
    """Return when a rank's activation memory changes, and its level from then on.

    Returns
    -------
    times, levels : array, shape (ops,)
        ns ascending; bytes. At one time, falls come before rises.
    """
    kind = row.look // (int(chunks(pipeline).max()) + 1)
    change = memory_changes(pipeline)[kind, row.stage]
    time = np.where(change > 0, row.start, row.end)
    order = np.lexsort((change > 0, time))
    return time[order], np.cumsum(change[order])


def top_bytes(schedule: Schedule) -> int:
    """Return the most that any rank holds or may hold, never 0."""
    return max([1, *schedule.peak_bytes, *(schedule.pipeline.memory_limit_bytes or [])])


def looks_of(pictured: Sequence[Row]) -> list[int]:
    """Return the looks that occur in some rows, ascending."""
    return sorted({look for row in pictured for look in np.unique(row.look).tolist()})


def raster(pictured: Sequence[Row], start: int, end: int, columns: int, count: int) -> Ints:
    """Say in one look for each column of time what a rank does there.

    Where ops are narrower than a column, a column holds several looks. Showing the largest would
    hide the others in a whole regular phase; so each column carries what it could not show over
    to the next (error diffusion), and the looks appear in proportion to their time. A column
    never shows what does not occur in it.

    Parameters
    ----------
    start, end : int
        Time pictured, ns.
    count : int
        Number of looks.

    Returns
    -------
    array, shape (rows, columns)
        Number of a look, or `IDLE`.
    """
    share = np.zeros((len(pictured), count + 1, columns))  # the last look is idle
    edges = np.linspace(0, end - start, columns + 1)
    for r, row in enumerate(pictured):
        for look in np.unique(row.look).tolist():
            mine = row.look == look
            begun = _time_since(row.start[mine] - start, edges)
            share[r, look] = np.diff(begun - _time_since(row.end[mine] - start, edges))
    share *= columns / (end - start)
    share[:, -1] = 1 - share[:, :-1].sum(axis=1)
    present = share > 1e-6
    result = np.full((len(pictured), columns), IDLE)
    owed = np.zeros((len(pictured), count + 1))
    every = np.arange(len(pictured))
    for column in range(columns):
        owed += share[:, :, column]
        shown = np.where(present[:, :, column], owed, -np.inf).argmax(axis=1)
        owed[every, shown] -= 1
        result[:, column] = np.where(shown < count, shown, IDLE)
    return result


def _time_since(moments: Ints, at: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return, for each time `at`, the sum over the moments before it of the time since."""
    moments = np.sort(moments)
    before = np.searchsorted(moments, at)
    total = np.concatenate([[0.0], np.cumsum(moments, dtype=np.float64)])
    result: npt.NDArray[np.float64] = before * at - total[before]
    return result


def _gap(schedule: Schedule) -> str:
    """Write the gap in per cent, rounded up so that "within" holds; empty without a bound."""
    bound = schedule.lower_bound_ns
    if not bound:
        return ""
    hundredths = -(-(schedule.value_ns - bound) * 10_000 // bound)
    return f"{hundredths / 100:g} %"
