"""Optima of tiny problems by trying everything."""

from __future__ import annotations

from itertools import pairwise, product

from schedopt.problem import FREE, Objective, Problem

Starts = tuple[int | None, ...]
"""Start of each op; None: not yet started; `PAST`: so long ago that it no longer matters."""
PAST = -(10**9)


def brute_force(problem: Problem, objective: Objective = "makespan") -> int | None:
    """Return the smallest objective value, None when there is no schedule.

    Exact because it goes through all schedules that can matter. Every combination of options is
    tried. For each, time runs forward; at every time considered, every set of ops that the rules
    let start then is tried, the empty one too. Partial schedules that agree in all that the
    future can see are kept once.

    Which times are considered:

    - makespan: time 0, releases, pins, ends of closed windows, ends of ops, ends of lags. Take an
      optimal schedule with the least sum of starts: all ops that start at a time t > 0 can't
      start 1 earlier together, so one of them is kept by its release, its pin or a window; or an
      op that started before ends at t (and frees a resource or lowers a pool), or its lag does.
      Without such a fall at t, starting earlier raises no level above what it is at t.
    - device span: every integer, for starting later can shorten a span. Once all releases, pins
      and windows are past, time in which nothing runs and no lag passes is cut out of a schedule
      without lengthening a span; so then something must start.

    Meant for about 9 ops, and times of a few units.
    """
    if any(p.capacity is not None and p.initial > p.capacity for p in problem.pools):
        return None
    values = []
    for selected in product(*(range(len(choice.options)) for choice in problem.choices)):
        best = _Search(problem.select(selected)[0], objective).best()
        if best is not None:
            chosen = zip(problem.choices, selected, strict=True)
            values.append(best + sum(choice.options[k].cost for choice, k in chosen))
    return min(values, default=None)


class _Search:
    """All schedules of a problem without choices."""

    def __init__(self, problem: Problem, objective: Objective) -> None:
        self.spans = objective == "device-span"
        self.size = problem.size
        self.duration = problem.duration.tolist()
        self.resource = problem.resource.tolist()
        self.release = problem.release.tolist()
        self.pinned = problem.pinned.tolist()
        self.closed = [problem.resources[r].closed for r in self.resource]
        groups = [problem.resources[r].group for r in self.resource]
        names = sorted({g for g in groups if g >= 0}) if self.spans else []
        self.groups = [[i for i in range(self.size) if groups[i] == g] for g in names]
        self.preds: list[list[tuple[int, int]]] = [[] for _ in range(self.size)]
        self.lags: list[set[int]] = [{0} for _ in range(self.size)]
        edges = (problem.edge_from, problem.edge_to, problem.edge_lag)
        links = [*zip(*(column.tolist() for column in edges), strict=True)]
        for queue in problem.queues:
            links += [(i, j, 0) for i, j in pairwise(queue.tolist())]
        for i, j, lag in links:
            self.preds[j].append((i, lag))
            self.lags[i].add(lag)
        self.pools = [(p.initial, p.capacity, []) for p in problem.pools if p.capacity is not None]
        number = [k for k, p in enumerate(problem.pools) if p.capacity is not None]
        for i, k, amount in zip(
            problem.change_op.tolist(),
            problem.change_pool.tolist(),
            problem.change_amount.tolist(),
            strict=True,
        ):
            if k in number:
                self.pools[number.index(k)][2].append((i, amount))
        windows = {t for windows in self.closed for _, t in windows}
        self.moments = {0, *self.release, *windows, *(t for t in self.pinned if t != FREE)}

    def best(self) -> int | None:
        """Return the least makespan, or largest span, of any schedule."""
        none = (None,) * len(self.groups)
        # time → (starts, first start of each unfinished group) → least largest finished span
        waiting = {0: {((None,) * self.size, none): 0}}
        best: int | None = None
        while waiting:
            time = min(waiting)
            for (starts, first), worst in waiting.pop(time).items():
                for more in self._started(starts, time):
                    opened, largest = self._spans(more, first, worst, time)
                    if None not in more:
                        ends = [s + d for s, d in zip(more, self.duration, strict=True)]
                        value = largest if self.spans else max(ends, default=0)
                        best = value if best is None else min(best, value)
                        continue
                    after = self._next(more, time)
                    if after is None or (best is not None and largest >= best):
                        continue
                    if not self.spans and best is not None and after >= best:
                        continue
                    layer = waiting.setdefault(after, {})
                    state = (self._forget(more, after), opened)
                    layer[state] = min(largest, layer.get(state, largest))
        return best

    def _started(self, starts: Starts, time: int) -> set[Starts]:
        """Return what can come of starting any set of ops at this time."""
        seen, stack = {starts}, [starts]
        while stack:
            now = stack.pop()
            for i in range(self.size):
                if now[i] is None and self._can_start(now, i, time):
                    more = (*now[:i], time, *now[i + 1 :])
                    if more not in seen:
                        seen.add(more)
                        stack.append(more)
        return {more for more in seen if more == starts or self._fits(more, time)}

    def _can_start(self, starts: Starts, i: int, time: int) -> bool:
        """Whether release, pin, resource, windows, edges and queues allow it; not the pools."""
        if time < self.release[i] or self.pinned[i] not in (FREE, time):
            return False
        end = time + self.duration[i]
        if any(time < closes and end > opens for opens, closes in self.closed[i]):
            return False
        for j, s in enumerate(starts):
            busy = s is not None and s + self.duration[j] > time
            if busy and self.resource[j] == self.resource[i]:
                return False
        for j, lag in self.preds[i]:
            s = starts[j]
            if s is None or s + self.duration[j] + lag > time:
                return False
        return True

    def _fits(self, starts: Starts, time: int) -> bool:
        """Whether all pools keep their capacity after everything that happens at this time."""
        for level, capacity, changes in self.pools:
            for i, amount in changes:
                s = starts[i]
                if s is not None and s + (0 if amount > 0 else self.duration[i]) <= time:
                    level += amount
            if level > capacity:
                return False
        return True

    def _spans(self, starts: Starts, first: Starts, worst: int, time: int) -> tuple[Starts, int]:
        """Open the groups that have just started, close those that have no op left."""
        opened = list(first)
        for k, mine in enumerate(self.groups):
            if opened[k] is None and any(starts[i] == time for i in mine):
                opened[k] = time
            if opened[k] is not None and all(starts[i] is not None for i in mine):
                end = max(starts[i] + self.duration[i] for i in mine)
                worst, opened[k] = max(worst, end - opened[k]), None
        return tuple(opened), worst

    def _next(self, starts: Starts, time: int) -> int | None:
        """Return the next time to consider, None when waiting is pointless."""
        events = set(self.moments)
        for i, s in enumerate(starts):
            if s is not None:
                events |= {s + self.duration[i] + lag for lag in self.lags[i]}
        last = max(events)
        if last <= time:
            return None
        if self.spans:
            return time + 1
        return min(t for t in events if t > time)

    def _forget(self, starts: Starts, time: int) -> Starts:
        """Replace starts whose ends and lags are past."""
        return tuple(
            PAST if s is not None and s + self.duration[i] + max(self.lags[i]) <= time else s
            for i, s in enumerate(starts)
        )
