"""Put weight gradients into the gaps of an order of forwards and input gradients.

The zero-bubble patterns say in which order a rank runs F and I; W may run at any time after its
I. Here the ranks run with the pipeline's own durations and latencies, and each fills its waits:

- with the oldest W, when the wait for the next op is long enough for it;
- where asked, with a forward from later in the order, if it fits into the wait and memory has
  room for it until its own turn: this squeezes out the bubbles that a repeated block leaves in
  the warm-up (Qi et al., 2024).

A forward that would exceed the memory lets a W go first. None of this can deadlock: fillers run
only when what they wait for has run, and the rest keeps its order.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from schedopt.pipeline import Pipeline
from schedopt.schedule import Action, Kind, Orders

__all__ = ["fill_gaps", "sizes"]


def sizes(pipeline: Pipeline) -> tuple[list[int], list[int]]:
    """Return, by stage, the bytes that F charges and those that I frees; where none are known,
    one per forward, freed by W.
    """
    kept, freed = pipeline.activations()
    return (kept.tolist() if kept.any() else [1] * pipeline.stages), freed.tolist()


def fill_gaps(
    pipeline: Pipeline, plan: Orders, memory: Sequence[int], *, early_forwards: bool = False
) -> Orders:
    """Return the plan with each W where it costs least.

    Two rules are tried, W into waits that hold all of it and into waits that hold half of it,
    and the shorter schedule is kept: which one wins depends on the durations.

    Parameters
    ----------
    plan : Orders
        F and I of each rank, in orders that don't deadlock, microbatches of a stage ascending.
    memory : sequence of int, one per rank
        Activations up to which W (and early forwards) may be put off, in the unit of `sizes`.
        A plan that needs more by itself gets more.
    early_forwards : bool
        Whether forwards may fill waits too.
    """
    runs = [_Run(pipeline, plan, memory, early_forwards, parts) for parts in (1, 2)]
    return min((run.result() for run in runs), key=lambda result: result[0])[1]


@dataclass
class _Rank:
    plan: list[Action]
    memory: int
    at: int = 0
    free: int = 0
    level: int = 0
    weights: deque[Action] = field(default_factory=deque)
    early: set[Action] = field(default_factory=set)
    forwards: dict[int, int] = field(default_factory=dict)
    """Next forward of each of the rank's stages."""
    actions: list[Action] = field(default_factory=list)


class _Run:
    """One run of all ranks, in the order of time."""

    def __init__(
        self,
        pipeline: Pipeline,
        plan: Orders,
        memory: Sequence[int],
        early_forwards: bool,
        parts: int,
    ) -> None:
        forward, input_grad, weight_grad = pipeline.times().tolist()
        self._duration: dict[Kind, list[list[int]]] = {
            "F": forward,
            "I": input_grad,
            "W": weight_grad,
        }
        self._last = pipeline.stages - 1
        self._microbatches = pipeline.microbatches
        self._rank_of = np.array(pipeline.placement, np.int64)[pipeline.directions()].tolist()
        self._latency = pipeline.latency().tolist()
        self._kept, self._freed = sizes(pipeline)
        self._early_forwards = early_forwards
        self._parts = parts
        self._ranks = [_Rank(*row) for row in zip(plan, memory, strict=True)]
        for rank in self._ranks:
            rank.forwards = {action.stage: 0 for action in rank.plan}
        blank = [-1] * pipeline.microbatches
        self._end = {kind: [list(blank) for _ in range(pipeline.stages)] for kind in ("F", "I")}
        self._events = [(0, r) for r in range(pipeline.ranks)]

    def result(self) -> tuple[int, Orders]:
        """Run, and return the end of the last op and the orders."""
        while self._events:
            now, r = heapq.heappop(self._events)
            if self._ranks[r].free <= now:
                self._decide(r, now)
        return max(rank.free for rank in self._ranks), [rank.actions for rank in self._ranks]

    def _decide(self, r: int, now: int) -> None:
        """Start something on a free rank, or nothing: a later event asks again."""
        rank = self._ranks[r]
        while rank.at < len(rank.plan) and rank.plan[rank.at] in rank.early:
            rank.early.remove(rank.plan[rank.at])
            rank.at += 1
        if rank.at == len(rank.plan):
            if rank.weights:
                self._start(r, rank.weights.popleft(), now)
            return
        action = rank.plan[rank.at]
        full = action.kind == "F" and rank.level + self._kept[action.stage] > rank.memory
        if full and rank.weights:
            self._start(r, rank.weights.popleft(), now)
            return
        ready = self._no_earlier(action, now)
        if ready <= now:
            rank.at += 1
            self._start(r, action, now)
        elif rank.weights and self._time(rank.weights[0]) <= (ready - now) * self._parts:
            self._start(r, rank.weights.popleft(), now)
        elif self._early_forwards:
            self._start_early(r, now, ready)

    def _start_early(self, r: int, now: int, until: int) -> None:
        """Start a later forward that is ready and fits into the wait and into memory."""
        rank = self._ranks[r]
        for stage, microbatch in rank.forwards.items():
            if microbatch == self._microbatches:
                continue
            action = Action("F", stage, microbatch)
            ready = self._ready(action)
            if ready is None or ready > now or now + self._time(action) > until:
                continue
            if self._room(rank, action):
                rank.early.add(action)
                self._start(r, action, now)
                return

    def _room(self, rank: _Rank, early: Action) -> bool:
        """Whether memory holds one more forward from now to its turn in the plan."""
        level, room = rank.level, rank.memory - self._kept[early.stage]
        for k in range(rank.at, len(rank.plan)):
            action = rank.plan[k]
            if level > room:
                return False
            if action == early:
                return True
            if action not in rank.early:
                # What an I leaves behind can be freed by its W before the next forward.
                kept = self._kept[action.stage]
                level += kept if action.kind == "F" else -kept
        return False

    def _start(self, r: int, action: Action, now: int) -> None:
        rank, (kind, stage, microbatch) = self._ranks[r], action
        rank.actions.append(action)
        rank.free = now + self._time(action)
        heapq.heappush(self._events, (rank.free, r))
        if kind == "W":
            rank.level -= self._kept[stage] - self._freed[stage]
            return
        self._end[kind][stage][microbatch] = rank.free
        if kind == "F":
            rank.level += self._kept[stage]
            rank.forwards[stage] = microbatch + 1
        else:
            rank.level -= self._freed[stage]
            rank.weights.append(action._replace(kind="W"))
        follower = self._after(action)
        if follower is not None:
            # Its rank may now know how long it has to wait, and later that the wait is over.
            other = self._rank_of[microbatch][follower.stage]
            heapq.heappush(self._events, (now, other))
            heapq.heappush(self._events, (rank.free + self._lag(action, follower), other))

    def _ready(self, action: Action) -> int | None:
        """When what the action waits for has ended and arrived; None: that isn't known yet."""
        before = self._before(action)
        if before is None:
            return 0
        end = self._end[before.kind][before.stage][before.microbatch]
        return None if end < 0 else end + self._lag(before, action)

    def _no_earlier(self, action: Action, now: int) -> int:
        """When the action can be ready at the earliest; exact once its predecessor started."""
        waiting = [action]
        while (time := self._ready(waiting[-1])) is None:
            before = self._before(waiting[-1])
            assert before is not None
            waiting.append(before)
        while len(waiting) > 1:
            before = waiting.pop()
            free = self._ranks[self._rank_of[before.microbatch][before.stage]].free
            time = max(time, now, free) + self._time(before) + self._lag(before, waiting[-1])
        return time

    def _before(self, action: Action) -> Action | None:
        kind, stage, microbatch = action
        if kind == "F":
            return Action("F", stage - 1, microbatch) if stage else None
        if stage == self._last:
            return Action("F", stage, microbatch)
        return Action("I", stage + 1, microbatch)

    def _after(self, action: Action) -> Action | None:
        kind, stage, microbatch = action
        if kind == "I":
            return Action("I", stage - 1, microbatch) if stage else None
        if stage == self._last:
            return Action("I", stage, microbatch)
        return Action("F", stage + 1, microbatch)

    def _time(self, action: Action) -> int:
        return self._duration[action.kind][action.stage][action.microbatch]

    def _lag(self, before: Action, after: Action) -> int:
        rank_of = self._rank_of[before.microbatch]
        lag: int = self._latency[rank_of[before.stage]][rank_of[after.stage]]
        return lag
