"""The compute-only CSV of ``torch.distributed.pipelining`` (torch 2.6 and later).

One row per rank of the pipeline group, its cells the rank's actions in order, each
``<stage><kind><microbatch>`` with F, I, W or B, the full backward. The runtime takes the
placement from the rows in which a stage appears and adds all communication itself:
``_PipelineScheduleRuntime(stages, n_microbatches, ...)._load_csv(path)``.
"""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from schedopt.errors import Fault, InputError
from schedopt.schedule import Action, Orders, Schedule

__all__ = ["from_torch_csv", "placement_of", "to_torch_csv"]

_COMPUTE = re.compile(r"([0-9]{1,7})([FIWB])([0-9]{1,7})")
_OVERLAPPED = re.compile(r"\((.*)\)OVERLAP_F_B")
_OTHER = re.compile(r"[0-9]{1,7}(?:(?:SEND|RECV)_[FB][0-9]{1,7}|UNSHARD|RESHARD|REDUCE_GRAD)")
_EXPECTED = "<stage><F, I, W or B><microbatch>, such as 0F3"


def to_torch_csv(schedule: Schedule) -> str:
    """Write what each rank computes, without communication.

    Raises
    ------
    InputError
        With every reason why the runtime can't run the schedule: a stage on two ranks, a rank
        without stages, or a stage whose F, whose I or B, or whose W don't run through all
        microbatches in ascending order. The runtime lists losses and outputs as they come and
        looks them up by microbatch: another order is an error or, silently, wrong gradients.
    """
    orders = schedule.orders()
    # Order means nothing for a stage whose actions lie on two ranks.
    faults = [*_unplaced(orders), *_empty_ranks(orders)] or [
        *_out_of_order(orders, schedule.pipeline.stages, schedule.pipeline.microbatches)
    ]
    if faults:
        raise InputError("torch-csv", faults)
    return "".join(",".join(map(_token, row)) + "\n" for row in orders)


def from_torch_csv(text: str, source: str) -> Orders:
    """Read a compute-only CSV, or the computations of one with communication.

    The merged ``(0F1;3B0)OVERLAP_F_B`` becomes its parts, in their order. SEND, RECV, UNSHARD,
    RESHARD and REDUCE_GRAD are checked for their form and dropped: where they stand follows from
    the computations. Empty cells, which some writers use to align time steps, mean nothing.

    torch itself takes ``0F0xyz`` for ``0F0``, runs a repeated action twice and counts a blank
    line as a rank; all three are refused here.

    Raises
    ------
    InputError
        With every fault of the file, by row and column from 1.
    """
    orders: Orders = []
    faults: list[Fault] = []
    first_place: dict[Action, str] = {}
    for r, row in enumerate(_rows(text, source), 1):
        order: list[Action] = []
        readable = True
        for c, cell in enumerate(row, 1):
            place, actions = f"row {r}, column {c}", _actions(cell.strip())
            if actions is None:
                readable = False
                faults.append(Fault(place, _short(cell), _EXPECTED))
                continue
            for action in actions:
                if action in first_place:
                    expected = f"each action once; the first is at {first_place[action]}"
                    faults.append(Fault(place, f"{_token(action)} again", expected))
                first_place.setdefault(action, place)
            order += actions
        if readable and not order:
            hint = "" if any(row) else "A blank line counts as a rank: delete it."
            faults.append(Fault(f"row {r}", "no computation", f"those of rank {r - 1}", hint))
        orders.append(order)
    if not faults:
        faults += _lonely(first_place)
    if not orders:
        faults.append(Fault("", "an empty file", "one row of actions per rank"))
    if faults:
        raise InputError(source, faults)
    return orders


def placement_of(orders: Orders) -> list[int]:
    """Return the rank of each stage.

    Raises
    ------
    InputError
        When a stage runs on two ranks, or a stage below the highest on none.
    """
    faults = list(_unplaced(orders))
    if faults:
        raise InputError("orders", faults)
    ranks = _ranks_of_stages(orders)
    return [min(ranks[stage]) for stage in range(len(ranks))]


def _token(action: Action) -> str:
    return f"{action.stage}{action.kind}{action.microbatch}"


def _lonely(places: Mapping[Action, str]) -> Iterator[Fault]:
    """Yield an action that has the highest stage or microbatch for itself: a slip of the pen.

    Whatever runs forward runs backward. Said here, it is one fault at its place; later, all would
    seem to be missing that lies below it.
    """
    for name in ("stage", "microbatch"):
        numbers = [getattr(action, name) for action in places]
        highest = max(numbers, default=0)
        if len(numbers) > 1 and numbers.count(highest) == 1:
            action = [*places][numbers.index(highest)]
            expected = f"more than one action of {name} {highest}"
            yield Fault(places[action], _token(action), expected)


def _short(cell: str) -> str:
    return repr(cell if len(cell) <= 40 else f"{cell[:39]}…")


def _rows(text: str, source: str) -> Iterator[list[str]]:
    stream = io.StringIO(text.removeprefix("\ufeff"), newline="")
    reader = csv.reader(stream, strict=True, skipinitialspace=True)
    try:
        yield from reader
    except csv.Error as error:
        fault = Fault(f"line {reader.line_num}", str(error), "cells separated by commas")
        raise InputError(source, fault) from None


def _actions(cell: str) -> list[Action] | None:
    """Return the computations of a cell; None when it can't be read."""
    if not cell or _OTHER.fullmatch(cell):
        return []
    overlapped = _OVERLAPPED.fullmatch(cell)
    parts = overlapped[1].split(";") if overlapped else [cell]
    matches = [_COMPUTE.fullmatch(part.strip()) for part in parts]
    actions = [
        Action(match[2], int(match[1]), int(match[3]))  # type: ignore[arg-type]  # one of FIWB
        for match in matches
        if match
    ]
    return actions if len(actions) == len(parts) else None


def _ranks_of_stages(orders: Orders) -> dict[int, set[int]]:
    ranks: dict[int, set[int]] = defaultdict(set)
    for rank, row in enumerate(orders):
        for action in row:
            ranks[action.stage].add(rank)
    return ranks


def _unplaced(orders: Orders) -> Iterator[Fault]:
    """Yield the stages that don't run on exactly one rank."""
    ranks = _ranks_of_stages(orders)
    for stage in sorted(ranks):
        if len(ranks[stage]) > 1:
            found = f"computations on ranks {', '.join(map(str, sorted(ranks[stage])))}"
            hint = "The runtime has no bidirectional placement."
            yield Fault(f"stage {stage}", found, "one rank", hint)
    top = max(ranks, default=-1)
    missing = top + 1 - len(ranks)
    if missing:
        first = next(stage for stage in range(top) if stage not in ranks)
        found = "no computation" + (f", nor of {missing - 1} others" if missing > 1 else "")
        yield Fault(f"stage {first}", found, f"stages 0 to {top} without gaps")


def _empty_ranks(orders: Orders) -> Iterator[Fault]:
    for rank, row in enumerate(orders):
        if not row:
            hint = "Give it a stage, or use fewer ranks."
            yield Fault(f"rank {rank}", "no stage", "at least one stage on each rank", hint)


def _out_of_order(orders: Orders, stages: int, microbatches: int) -> Iterator[Fault]:
    """Yield the stages whose F, backward or W doesn't run through all microbatches in order."""
    columns: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in orders:
        for action in row:
            role = "I or B" if action.kind in "IB" else action.kind
            columns[role, action.stage].append(action.microbatch)
            if action.kind == "I":
                columns["I", action.stage].append(action.microbatch)
    everything = list(range(microbatches))
    for stage in range(stages):
        for role, wanted in (
            ("F", everything),
            ("I or B", everything),
            ("W", sorted(columns["I", stage])),
        ):
            found = columns[role, stage]
            if found != wanted:
                expected = f"{_sequence(wanted)}, ascending"
                yield Fault(f"stage {stage}, {role}", _sequence(found), expected)


def _sequence(microbatches: Sequence[int]) -> str:
    """Write a list of microbatches up to its first step that isn't + 1, or its ends."""
    if not microbatches:
        return "no microbatch"
    for before, after in pairwise(microbatches):
        if after != before + 1:
            return f"microbatch {after} after {before}"
    return f"microbatches {microbatches[0]} to {microbatches[-1]}"
