"""The independent judge of schedules: what is wrong with them, from the definitions alone.

It shares no code with solvers, builders and simulators and reads only the raw fields of its
arguments, so that a mistake elsewhere cannot vouch for itself. `check_problem` judges starts
against a problem, `check_schedule` a schedule file against its pipeline.

All arithmetic is on exact integers that cannot overflow: of times up to 2^62 only differences are
compared with lags, and levels that might not fit 64 bits are summed as Python integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from schedopt.pipeline import Pipeline
from schedopt.problem import ABSENT, FREE, Ints, Problem, Resource
from schedopt.schedule import Schedule

__all__ = ["Violation", "check_problem", "check_schedule"]

SHOWN = 20
"""Violations of one rule that are listed one by one; the rest is counted."""

TOP = 2**62
"""Where 64 bits get tight: starts stay below it, levels that may pass it are Python integers."""

TOLERANCE = 1e-9
"""Relative error allowed in the figures that are stored as fractions (gap, bubble)."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Violation:
    """One rule that a schedule breaks.

    Attributes
    ----------
    place : str
        Which op, rank, resource or figure.
    found, expected : str
        What the schedule does or states, and what the rule asks for.
    """

    place: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.place}: found {self.found}, expected {self.expected}"


def _listed(rule: str, wrong: Ints, tell: Callable[[int], Violation]) -> Iterator[Violation]:
    """Yield a violation for the first few of `wrong`, and one that counts the rest."""
    yield from map(tell, wrong[:SHOWN].tolist())
    if len(wrong) > SHOWN:
        yield Violation(rule, f"{len(wrong) - SHOWN} more violations", "none")


def _clashes(machine: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return neighbours in time on one machine of which the second starts before the first ends.

    By start, then end: an op without duration may stand at the start of another. If any two ops
    of a machine overlap, then so does the earlier of them with its neighbour.
    """
    order = np.lexsort((end, start, machine))
    first, second = order[:-1], order[1:]
    wrong = (machine[first] == machine[second]) & (start[second] < end[first])
    return first[wrong], second[wrong]


def _peaks(initial: Ints, pool: Ints, time: Ints, amount: Ints) -> list[tuple[int, int]]:
    """Return for each pool its highest level and the time at which it is first reached.

    Parameters
    ----------
    initial : array, shape (pools,)
        Level before time 0.
    pool, time, amount : array, shape (changes,)
        Changes; at equal times falls come before rises.
    """
    if not len(initial):
        return []
    pools = np.arange(len(initial))
    pool = np.concatenate([pools, pool])
    time = np.concatenate([np.full(len(initial), -1), time])
    amount = np.concatenate([initial, amount])
    order = np.lexsort((amount > 0, time, pool))
    pool, time, change = pool[order], time[order], amount[order]
    if np.abs(amount).sum(dtype=np.float64) >= TOP:
        change = change.astype(object)
    first = np.searchsorted(pool, pools)
    level = np.cumsum(change)
    level -= (level[first] - change[first])[pool]
    peak = np.maximum.reduceat(level, first)
    reached = np.flatnonzero(level == peak[pool])
    when = time[reached[np.searchsorted(pool[reached], pools)]]
    return list(zip(peak.tolist(), np.maximum(when, 0).tolist(), strict=True))


# Problems ---------------------------------------------------------------------------------------


def check_problem(problem: Problem, starts: Ints, selected: Sequence[int] = ()) -> list[Violation]:
    """Say what is wrong with a solution of a problem.

    Every choice takes one of its options; present ops have a start, absent ones have none;
    releases and pins are kept; no two ops overlap on a resource and none runs in a closed window;
    edges between present ops keep their lag; queues run in order; no pool rises above its
    capacity. Without valid options and starts the other rules mean nothing and are not applied.

    Parameters
    ----------
    problem : Problem
        What was to be solved.
    starts : array of int64, shape (ops,)
        ns; -1 for absent ops.
    selected : sequence of int, shape (choices,)
        Option that each choice takes.

    Returns
    -------
    list of Violation
        Empty when the solution is right; at most a few per rule, then their number.
    """
    wrong = [*_wrong_shape(problem, starts), *_wrong_options(problem, selected)]
    if wrong:
        return wrong
    present = np.ones(len(starts), np.bool_)
    guarded = np.flatnonzero(problem.guard_choice >= 0)
    chosen = np.array(selected, np.int64)[problem.guard_choice[guarded]]
    present[guarded] = chosen == problem.guard_option[guarded]
    wrong = [*_wrong_presence(starts, present)]
    if wrong:
        return wrong
    rules = (
        _wrong_release,
        _wrong_pins,
        _wrong_overlaps,
        _wrong_windows,
        _wrong_edges,
        _wrong_queues,
        _wrong_pools,
    )
    return [violation for rule in rules for violation in rule(problem, starts, present)]


def _wrong_shape(p: Problem, starts: Ints) -> Iterator[Violation]:
    if starts.dtype != np.int64 or starts.shape != p.duration.shape:
        found = f"{starts.dtype}, shape {starts.shape}"
        yield Violation("starts", found, f"int64, shape {p.duration.shape}")


def _wrong_options(p: Problem, selected: Sequence[int]) -> Iterator[Violation]:
    if len(selected) != len(p.choices):
        yield Violation("selected", f"{len(selected)} options", f"one for {len(p.choices)} choices")
        return
    counts = np.array([len(choice.options) for choice in p.choices], np.int64)
    options = np.array(selected, np.int64)

    def tell(c: int) -> Violation:
        expected = f"an option of {p.choices[c].name!r}, 0 to {counts[c] - 1}"
        return Violation(f"selected[{c}]", str(options[c]), expected)

    yield from _listed("selected", np.flatnonzero((options < 0) | (options >= counts)), tell)


def _wrong_presence(starts: Ints, present: Mask) -> Iterator[Violation]:
    def untimed(i: int) -> Violation:
        return Violation(f"op {i}", f"start {starts[i]}", "a start from 0 to below 2^62")

    def unwanted(i: int) -> Violation:
        return Violation(f"op {i}", f"start {starts[i]}", f"{ABSENT}, since no option asks for it")

    outside = (starts < 0) | (starts >= TOP)
    yield from _listed("present ops", np.flatnonzero(present & outside), untimed)
    yield from _listed("absent ops", np.flatnonzero(~present & (starts != ABSENT)), unwanted)


def _wrong_release(p: Problem, starts: Ints, present: Mask) -> Iterator[Violation]:
    def tell(i: int) -> Violation:
        return Violation(f"op {i}", f"start {starts[i]}", f"its release {p.release[i]} or later")

    yield from _listed("releases", np.flatnonzero(present & (starts < p.release)), tell)


def _wrong_pins(p: Problem, starts: Ints, present: Mask) -> Iterator[Violation]:
    def tell(i: int) -> Violation:
        return Violation(f"op {i}", f"start {starts[i]}", f"its pinned start {p.pinned[i]}")

    moved = (p.pinned != FREE) & (starts != p.pinned)
    yield from _listed("pins", np.flatnonzero(present & moved), tell)


def _wrong_overlaps(p: Problem, starts: Ints, present: Mask) -> Iterator[Violation]:
    ops = np.flatnonzero(present)
    start, end = starts[ops], starts[ops] + p.duration[ops]
    first, second = _clashes(p.resource[ops], start, end)

    def tell(k: int) -> Violation:
        i, j = ops[first[k]], ops[second[k]]
        expected = f"{end[first[k]]} or later, when op {i} ends"
        return Violation(
            f"op {j} on {p.resources[p.resource[j]].name}", f"start {starts[j]}", expected
        )

    yield from _listed("overlaps", np.arange(len(first)), tell)


def _wrong_windows(p: Problem, starts: Ints, present: Mask) -> Iterator[Violation]:
    for number, resource in enumerate(p.resources):
        if resource.closed:
            ops = np.flatnonzero(present & (p.resource == number))
            yield from _runs_when_closed(p, resource, ops, starts[ops])


def _runs_when_closed(
    p: Problem, resource: Resource, ops: Ints, starts: Ints
) -> Iterator[Violation]:
    ends = starts + p.duration[ops]
    closed = np.array(resource.closed, np.int64)
    # Windows ascend: only the first that has not ended when the op starts can be met first.
    window = np.searchsorted(closed[:, 1], starts, side="right")
    met = np.append(closed[:, 0], np.iinfo(np.int64).max)[window] < ends

    def tell(k: int) -> Violation:
        found, (a, b) = f"a run from {starts[k]} to {ends[k]}", closed[window[k]]
        return Violation(f"op {ops[k]} on {resource.name}", found, f"none from {a} to {b}")

    yield from _listed(f"closed windows of {resource.name}", np.flatnonzero(met), tell)


def _wrong_edges(p: Problem, starts: Ints, present: Mask) -> Iterator[Violation]:
    before, after, lag = p.edge_from, p.edge_to, p.edge_lag
    wait = starts[after] - (starts[before] + p.duration[before])

    def tell(k: int) -> Violation:
        i, j = before[k], after[k]
        expected = f"op {i} to have ended at {starts[i] + p.duration[i]}, and a lag of {lag[k]}"
        return Violation(f"op {j}", f"start {starts[j]}", expected)

    both = present[before] & present[after]
    yield from _listed("edges", np.flatnonzero(both & (wait < lag)), tell)


def _wrong_queues(p: Problem, starts: Ints, present: Mask) -> Iterator[Violation]:
    queue = np.repeat(np.arange(len(p.queue_at) - 1), np.diff(p.queue_at))
    kept = present[p.queue_op]
    queue, ops = queue[kept], p.queue_op[kept]
    before, after = ops[:-1], ops[1:]
    early = starts[after] < starts[before] + p.duration[before]

    def tell(k: int) -> Violation:
        i, j = before[k], after[k]
        expected = f"op {i}, which ends at {starts[i] + p.duration[i]}, to run before it"
        return Violation(f"op {j} of queue {queue[k]}", f"start {starts[j]}", expected)

    yield from _listed("queues", np.flatnonzero((queue[:-1] == queue[1:]) & early), tell)


def _wrong_pools(p: Problem, starts: Ints, present: Mask) -> Iterator[Violation]:
    kept = present[p.change_op]
    op, pool, amount = p.change_op[kept], p.change_pool[kept], p.change_amount[kept]
    time = np.where(amount > 0, starts[op], starts[op] + p.duration[op])
    peaks = _peaks(np.array([q.initial for q in p.pools], np.int64), pool, time, amount)
    above = [
        k
        for k, ((peak, _), q) in enumerate(zip(peaks, p.pools, strict=True))
        if q.capacity is not None and peak > q.capacity
    ]

    def tell(k: int) -> Violation:
        peak, when = peaks[k]
        return Violation(
            f"pool {k} ({p.pools[k].name})",
            f"level {peak} at {when}",
            f"at most {p.pools[k].capacity}",
        )

    yield from _listed("pools", np.array(above, np.int64), tell)


# Schedule files ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Plan:
    """What a pipeline asks for, read from its fields.

    Attributes
    ----------
    ranks : int
    kinds : str
        The letters of its ops: ``FIW`` or ``FB``.
    placement : array, shape (stages, microbatches)
        Rank.
    duration : array, shape (kinds, stages, microbatches)
        ns.
    latency : array, shape (ranks, ranks), or None
        ns, where any two ranks have one.
    change : array, shape (kinds, stages)
        Bytes that a rank holds more: from the start of F, from the end of the others.
    limit : list of int or None
        Bytes by rank.
    """

    ranks: int
    kinds: str
    placement: Ints
    duration: Ints
    latency: Ints | None
    change: Ints
    limit: list[int] | None

    @property
    def shape(self) -> tuple[int, ...]:
        """Kinds, stages, microbatches."""
        return self.duration.shape

    def name(self, index: int) -> str:
        """Name an op by its position among all (kind, stage, microbatch): ``2F5``."""
        kind, stage, microbatch = np.unravel_index(index, self.shape)
        return f"{stage}{self.kinds[kind]}{microbatch}"


def _plan(p: Pipeline) -> _Plan:
    forward, into, weight = (
        np.array([np.full(p.microbatches, time, np.int64) for time in times], np.int64)
        for times in (p.forward_ns, p.backward_input_ns, p.backward_weight_ns)
    )
    direction = np.zeros(p.microbatches, np.int64) if p.direction is None else p.direction
    kept = np.array(p.activation_bytes or [0] * p.stages, np.int64)
    freed = np.array(p.released_by_input_bytes or [0] * p.stages, np.int64)
    latency = None
    if p.latency_ns is not None:
        latency = np.array(p.latency_ns, np.int64)
        latency[np.arange(p.ranks), np.arange(p.ranks)] = 0
    fused = p.backward == "fused"
    return _Plan(
        ranks=p.ranks,
        kinds="FB" if fused else "FIW",
        placement=np.array(p.placement, np.int64)[direction].T,
        duration=np.stack([forward, into + weight] if fused else [forward, into, weight]),
        latency=latency if latency is not None and latency.any() else None,
        change=np.stack([kept, -kept] if fused else [kept, -freed, freed - kept]),
        limit=p.memory_limit_bytes,
    )


@dataclass(frozen=True, eq=False)
class _Timetable:
    """Every op of a plan at its time; arrays of shape (kinds × stages × microbatches,).

    Attributes
    ----------
    row : array
        Where the op stands in the file.
    rank, start, end : array
        Rank; ns.
    """

    plan: _Plan
    row: Ints
    rank: Ints
    start: Ints
    end: Ints

    def place(self, index: int) -> str:
        """Name an op and its place in the file."""
        return f"ops[{self.row[index]}] ({self.plan.name(index)})"


def check_schedule(schedule: Schedule, pipeline: Pipeline | None = None) -> list[Violation]:
    """Say what is wrong with a schedule of a plain pipeline.

    Each op of the pipeline stands there exactly once, on its rank and for its time; no two overlap
    on a rank; F(s) → F(s + 1) and I/B(s + 1) → I/B(s) keep the latency between their ranks, F(s)
    precedes I/B(s) and I(s) precedes W(s); no rank holds more activations than its limit (charged
    when F starts, freed when I and W, or B, end; a fall at t comes before a rise at t); and every
    stated figure is the true one. Where ops are missing, foreign, repeated or on a wrong rank, the
    other rules mean little and are not applied.

    Parameters
    ----------
    schedule : Schedule
        What to judge.
    pipeline : Pipeline, optional
        Judge against this one, and say where the schedule's own differs from it.

    Returns
    -------
    list of Violation
        Empty when the schedule is right; at most a few per rule, then their number.
    """
    wrong = []
    plan = _plan(schedule.pipeline)
    if pipeline is not None:
        own, plan = plan, _plan(pipeline)
        wrong = [*_differences(own, plan)]
    key = _keys(schedule, plan)
    misplaced = [*_wrong_ops(schedule, plan, key)]
    if misplaced:
        return [*wrong, *misplaced]
    row = np.empty(len(key), np.int64)
    row[key] = np.arange(len(key))
    columns = schedule.columns
    table = _Timetable(plan, row, columns.rank[row], columns.start[row], columns.end[row])
    return [
        *wrong,
        *_wrong_durations(table),
        *_overlapping_ops(table),
        *_wrong_precedences(table),
        *_wrong_memory(schedule, table),
        *_wrong_figures(schedule, table),
    ]


def _differences(own: _Plan, given: _Plan) -> Iterator[Violation]:
    """Compare what two pipelines ask for, whatever they are called and however they write it."""
    for item in fields(_Plan):
        a: npt.NDArray[Any] = np.asarray(getattr(own, item.name))
        b: npt.NDArray[Any] = np.asarray(getattr(given, item.name))
        if np.array_equal(a, b):
            continue
        place, found, wanted = f"pipeline: {item.name}", str(a), str(b)
        if a.shape != b.shape:
            found, wanted = (f"shape {x.shape}" if x.shape else str(x) for x in (a, b))
        elif a.shape:
            at = tuple(np.argwhere(a != b)[0].tolist())
            place, found, wanted = f"{place}{list(at)}", str(a[at]), str(b[at])
        yield Violation(place, found, f"{wanted}, as in the given pipeline")


def _keys(schedule: Schedule, plan: _Plan) -> Ints:
    """Return the position of each op of the file among (kind, stage, microbatch); -1: foreign."""
    columns = schedule.columns
    kind = np.full(len(columns.kind), -1, np.int64)
    for number, letter in enumerate(plan.kinds):
        kind[columns.kind == letter] = number
    _, stages, microbatches = plan.shape
    known = (kind >= 0) & (columns.stage < stages) & (columns.microbatch < microbatches)
    key = (kind * stages + columns.stage) * microbatches + columns.microbatch
    return np.where(known, key, -1)


def _wrong_ops(schedule: Schedule, plan: _Plan, key: Ints) -> Iterator[Violation]:
    columns = schedule.columns
    count = np.bincount(key[key >= 0], minlength=plan.duration.size)
    rank = np.append(np.tile(plan.placement.ravel(), len(plan.kinds)), -1)[key]

    def foreign(k: int) -> Violation:
        name = f"{columns.stage[k]}{columns.kind[k]}{columns.microbatch[k]}"
        expected = f"an op of the pipeline: one of {', '.join(plan.kinds)}, of its stages"
        return Violation(f"ops[{k}]", name, f"{expected} and microbatches")

    def missing(index: int) -> Violation:
        return Violation("ops", f"no {plan.name(index)}", "it once")

    def repeated(index: int) -> Violation:
        rows = np.flatnonzero(key == index).tolist()
        found = f"{plan.name(index)} {len(rows)} times, first in ops[{rows[0]}] and ops[{rows[1]}]"
        return Violation("ops", found, "it once")

    def elsewhere(k: int) -> Violation:
        place = f"ops[{k}] ({plan.name(int(key[k]))})"
        return Violation(place, f"rank {columns.rank[k]}", f"rank {rank[k]}")

    yield from _listed("foreign ops", np.flatnonzero(key < 0), foreign)
    yield from _listed("missing ops", np.flatnonzero(count == 0), missing)
    yield from _listed("repeated ops", np.flatnonzero(count > 1), repeated)
    away = (key >= 0) & (columns.rank != rank)
    yield from _listed("ops on a wrong rank", np.flatnonzero(away), elsewhere)


def _wrong_durations(table: _Timetable) -> Iterator[Violation]:
    wanted = table.plan.duration.ravel()
    lasts = table.end - table.start

    def tell(index: int) -> Violation:
        return Violation(table.place(index), f"{lasts[index]} ns", f"{wanted[index]} ns")

    yield from _listed("durations", np.flatnonzero(lasts != wanted), tell)


def _overlapping_ops(table: _Timetable) -> Iterator[Violation]:
    first, second = _clashes(table.rank, table.start, table.end)

    def tell(k: int) -> Violation:
        i, j = int(first[k]), int(second[k])
        expected = (
            f"{table.end[i]} or later, when {table.plan.name(i)} ends on rank {table.rank[i]}"
        )
        return Violation(table.place(j), f"start {table.start[j]}", expected)

    yield from _listed("overlaps", np.arange(len(first)), tell)


def _wrong_precedences(table: _Timetable) -> Iterator[Violation]:
    plan = table.plan
    index = np.arange(plan.duration.size).reshape(plan.shape)
    forward, backward = index[0], index[1]
    pairs = [
        (forward[:-1], forward[1:]),
        (backward[1:], backward[:-1]),
        (forward, backward),
        *[(backward, weight) for weight in index[2:]],
    ]
    before = np.concatenate([a.ravel() for a, _ in pairs])
    after = np.concatenate([b.ravel() for _, b in pairs])
    lag = np.zeros(len(before), np.int64)
    if plan.latency is not None:
        lag = plan.latency[table.rank[before], table.rank[after]]

    def tell(k: int) -> Violation:
        i, j = int(before[k]), int(after[k])
        expected = f"{plan.name(i)} to have ended at {table.end[i]}, and a latency of {lag[k]}"
        return Violation(table.place(j), f"start {table.start[j]}", expected)

    early = table.start[after] - table.end[before] < lag
    yield from _listed("precedences", np.flatnonzero(early), tell)


def _wrong_memory(schedule: Schedule, table: _Timetable) -> Iterator[Violation]:
    plan = table.plan
    amount = np.broadcast_to(plan.change[:, :, None], plan.shape).ravel()
    charged = np.arange(len(amount)) < plan.duration[0].size  # F stands first
    time = np.where(charged, table.start, table.end)
    peaks = _peaks(np.zeros(plan.ranks, np.int64), table.rank, time, amount)
    limit, stated = plan.limit or [], schedule.peak_bytes

    def above(rank: int) -> Violation:
        found = f"{peaks[rank][0]} bytes of activations at {peaks[rank][1]}"
        return Violation(f"memory of rank {rank}", found, f"at most {limit[rank]}")

    def misstated(rank: int) -> Violation:
        return Violation(f"peak_bytes[{rank}]", str(stated[rank]), str(peaks[rank][0]))

    over = [k for k, ((peak, _), top) in enumerate(zip(peaks, limit, strict=False)) if peak > top]
    yield from _listed("memory", np.array(over, np.int64), above)
    if len(stated) != plan.ranks:
        yield Violation("peak_bytes", f"{len(stated)} entries", f"{plan.ranks}, one per rank")
        return
    off = [k for k, (peak, _) in enumerate(peaks) if peak != stated[k]]
    yield from _listed("peak_bytes", np.array(off, np.int64), misstated)


def _wrong_figures(schedule: Schedule, table: _Timetable) -> Iterator[Violation]:
    first = np.full(table.plan.ranks, np.iinfo(np.int64).max)
    last = np.zeros(table.plan.ranks, np.int64)
    np.minimum.at(first, table.rank, table.start)
    np.maximum.at(last, table.rank, table.end)
    makespan = int(last.max())
    span = int((last - first).max(initial=0))
    for name, figure in (("makespan_ns", makespan), ("device_span_ns", span)):
        stated = getattr(schedule, name)
        if stated != figure:
            yield Violation(name, str(stated), str(figure))
    busy = float((table.end - table.start).sum(dtype=np.float64))
    bubble = 1 - busy / (table.plan.ranks * makespan) if makespan else 0.0
    if abs(schedule.bubble - bubble) > TOLERANCE:
        yield Violation("bubble", f"{schedule.bubble!r}", f"{bubble!r}")
    yield from _wrong_proof(schedule, span if schedule.objective == "device-span" else makespan)


def _wrong_proof(schedule: Schedule, value: int) -> Iterator[Violation]:
    """Compare bound, gap and status with the value of the objective, ns."""
    bound = schedule.lower_bound_ns
    if bound is not None and bound > value:
        yield Violation("lower_bound_ns", str(bound), f"at most the {schedule.objective}, {value}")
    if bound:
        ratio = value / bound
        tolerance = min(TOLERANCE * ratio, 1e-6)
        if schedule.gap is None or abs(schedule.gap - (ratio - 1)) > tolerance:
            yield Violation("gap", f"{schedule.gap!r}", f"{ratio - 1!r}")
    if schedule.status == "optimal" and bound != value:
        found = "optimal" if bound is not None else "optimal without a lower_bound_ns"
        yield Violation("status", found, f"feasible, unless the bound is {value}")
