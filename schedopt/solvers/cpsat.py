"""The exact solver: any problem as a CP-SAT model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
from ortools.sat.python import cp_model

from schedopt.problem import ABSENT, FREE, Choice, Ints, Objective, Problem, value
from schedopt.solvers.answer import Answer
from schedopt.solvers.bounds import Bounds
from schedopt.solvers.shape import Shape

__all__ = ["Limits", "solve_cpsat"]


@dataclass(frozen=True)
class Limits:
    """When to stop.

    Attributes
    ----------
    seconds : float
        Wall time of the search; building the model comes on top.
    effort : float or None
        Deterministic time; with it, and before `seconds` run out, equal inputs give equal
        answers.
    """

    seconds: float
    effort: float | None = None


def solve_cpsat(
    problem: Problem,
    objective: Objective = "makespan",
    *,
    limits: Limits,
    bounds: Bounds | None = None,
    incumbent: Answer | None = None,
    seed: int = 0,
) -> Answer:
    """Solve a problem, choices included.

    One worker runs CP-SAT's portfolio of strategies interleaved, which is deterministic and, on
    these problems, proves more than a single strategy does.

    Parameters
    ----------
    bounds : Bounds, optional
        Of the same problem; its heads and tails become the domains.
    incumbent : Answer, optional
        The search is for something at most as long; it is the hint, and comes back unless
        something better is found.

    Returns
    -------
    Answer
        With `infeasible` when no schedule exists; `interrupted` on KeyboardInterrupt, with the
        best until then.
    """
    unit = _unit(problem, incumbent) if objective == "makespan" else 1
    if unit > 1:
        answer = solve_cpsat(
            _divided(problem, unit), objective, limits=limits,
            bounds=bounds and bounds.divided(unit),
            incumbent=incumbent and incumbent.divided(unit), seed=seed,
        )  # fmt: skip
        return answer.times(unit)
    model = _Model(problem, objective, bounds, incumbent)
    if model.empty or (incumbent is not None and incumbent.value == model.floor):
        return _closed(incumbent)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 8
    solver.parameters.interleave_search = True
    # Limits and interruptions are seen between batches only: small ones, a task per worker.
    solver.parameters.interleave_batch_size = 8
    solver.parameters.random_seed = seed
    solver.parameters.max_time_in_seconds = limits.seconds
    if limits.effort is not None:
        solver.parameters.max_deterministic_time = limits.effort
    solver.parameters.catch_sigint_signal = False
    status, interrupted = _stoppable(solver, model.model)
    answer = _answer(problem, objective, model, solver, status, incumbent)
    return replace(answer, interrupted=interrupted)


def _stoppable(
    solver: cp_model.CpSolver, model: cp_model.CpModel
) -> tuple[cp_model.CpSolverStatus, bool]:
    """Solve in a thread of its own: only so do Python's signals get through meanwhile.

    Returns the status, of what was found until then if the user interrupted.
    """
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(solver.solve, model)
        try:
            return future.result(), False
        except KeyboardInterrupt:
            solver.stop_search()
            return future.result(), True


def _unit(problem: Problem, incumbent: Answer | None) -> int:
    """Return the largest time that all times are multiples of, those of the incumbent among
    them; some shortest schedule then has all its starts at multiples too. (For the device span
    this does not hold.)
    """
    known = incumbent.starts if incumbent is not None else None
    known = np.empty(0, np.int64) if known is None else known[known != ABSENT]
    closed = [t for r in problem.resources for window in r.closed for t in window]
    costs = [o.cost for c in problem.choices for o in c.options]
    pinned = problem.pinned[problem.pinned != FREE]
    parts = (problem.duration, problem.edge_lag, problem.release, pinned, closed, costs, known)
    return int(np.gcd.reduce(np.concatenate([np.asarray(x, np.int64) for x in parts])))


def _divided(problem: Problem, unit: int) -> Problem:
    """Return the problem with all times in multiples of `unit`."""
    return problem.replace(
        resources=tuple(
            replace(r, closed=tuple((a // unit, b // unit) for a, b in r.closed))
            for r in problem.resources
        ),
        choices=tuple(
            Choice(c.name, tuple(replace(o, cost=o.cost // unit) for o in c.options))
            for c in problem.choices
        ),
        duration=problem.duration // unit,
        edge_lag=problem.edge_lag // unit,
        release=problem.release // unit,
        pinned=np.where(problem.pinned == FREE, FREE, problem.pinned // unit),
    )


def _closed(incumbent: Answer | None) -> Answer:
    """Return the answer when the domains are empty: nothing is as short as was asked for."""
    if incumbent is None or incumbent.value is None:
        return Answer(infeasible=True)
    return Answer(incumbent.starts, incumbent.selected, incumbent.value, incumbent.value)


def _answer(
    problem: Problem,
    objective: Objective,
    model: _Model,
    solver: cp_model.CpSolver,
    status: cp_model.CpSolverStatus,
    incumbent: Answer | None,
) -> Answer:
    if status == cp_model.INFEASIBLE:
        return _closed(incumbent)
    bound = model.floor + max(0, int(np.ceil(solver.best_objective_bound - 1e-6)))
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        selected = tuple(
            next(k for k, option in enumerate(options) if solver.boolean_value(option))
            for options in model.options
        )
        starts = np.full(problem.size, ABSENT, np.int64)
        for i in np.flatnonzero(problem.present(selected)).tolist():
            starts[i] = solver.value(model.start[i])
        found = value(problem, objective, starts, selected)
        if status == cp_model.OPTIMAL:
            bound = found
        if incumbent is None or incumbent.value is None or found <= incumbent.value:
            return Answer(starts, selected, found, min(bound, found))
    if incumbent is not None and incumbent.value is not None:
        bound = min(bound, incumbent.value)
        return Answer(incumbent.starts, incumbent.selected, incumbent.value, bound)
    return Answer(bound=bound)


@dataclass
class _Model:
    """The CP-SAT model and its variables."""

    problem: Problem
    objective: Objective
    bounds: Bounds | None
    incumbent: Answer | None
    model: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    start: list[cp_model.IntVar] = field(default_factory=list)
    options: list[list[cp_model.IntVar]] = field(default_factory=list)
    empty: bool = False
    floor: int = 0

    def __post_init__(self) -> None:
        self.horizon = self._horizon()
        self._choices()
        self._ops()
        if self.empty:
            return
        self._resources()
        self._edges()
        self._pools()
        self._goal()

    def _horizon(self) -> int:
        """Return an end that some optimal schedule meets.

        With an incumbent for the makespan it is the incumbent's value. A schedule with the least
        device span may be long; there, and without an incumbent, everything in a row is a limit.
        """
        p = self.problem
        known = self.incumbent.value if self.incumbent is not None else None
        least = sum(min(o.cost for o in c.options) for c in p.choices)
        if known is not None and self.objective == "makespan":
            return known - least
        closed = max((end for r in p.resources for _, end in r.closed), default=0)
        first = max(int(p.release.max(initial=0)), int(p.pinned.max(initial=0)), closed)
        lags = int(p.edge_lag.sum()) if len(p.edge_lag) else 0
        return first + 2 * int(p.duration.sum()) + lags + closed

    def _choices(self) -> None:
        for c, choice in enumerate(self.problem.choices):
            literals = [
                self.model.new_bool_var(f"choice{c}.{o}") for o in range(len(choice.options))
            ]
            self.model.add_exactly_one(literals)
            self.options.append(literals)

    def _literal(self, op: int) -> cp_model.IntVar | None:
        c = int(self.problem.guard_choice[op])
        return self.options[c][int(self.problem.guard_option[op])] if c >= 0 else None

    def _ops(self) -> None:
        p = self.problem
        usable = self.bounds is not None and not p.choices
        self.interval = []
        for i in range(p.size):
            low, high = int(p.release[i]), self.horizon - int(p.duration[i])
            if usable and self.bounds is not None:
                low = max(low, int(self.bounds.head[i]))
                if self.objective == "makespan":
                    high -= int(self.bounds.tail[i])
            if p.pinned[i] != FREE:
                low, high = max(low, int(p.pinned[i])), min(high, int(p.pinned[i]))
            literal, length = self._literal(i), int(p.duration[i])
            if low > high:
                if literal is None:
                    self.empty = True
                    return
                self.model.add(literal == 0)  # an op without a place in time must be absent
                high = low
            start = self.model.new_int_var(low, high, f"s{i}")
            self.start.append(start)
            self.interval.append(
                self.model.new_fixed_size_interval_var(start, length, f"i{i}")
                if literal is None
                else self.model.new_optional_fixed_size_interval_var(
                    start, length, literal, f"i{i}"
                )
            )

    def _resources(self) -> None:
        p = self.problem
        for r, resource in enumerate(p.resources):
            rows = [self.interval[i] for i in np.flatnonzero(p.resource == r).tolist()]
            rows += [
                self.model.new_fixed_size_interval_var(a, b - a, f"closed{r}.{a}")
                for a, b in resource.closed
            ]
            if len(rows) > 1:
                self.model.add_no_overlap(rows)

    def _edges(self) -> None:
        p = self.problem
        for a, b, lag in self._links():
            both = [x for x in (self._literal(a), self._literal(b)) if x is not None]
            after = self.start[b] >= self.start[a] + int(p.duration[a]) + lag
            self.model.add(after).only_enforce_if(both)

    def _links(self) -> Iterator[tuple[int, int, int]]:
        """Yield edges and queues as (from, to, lag), queues also across ops that may be absent."""
        p = self.problem
        columns = (p.edge_from, p.edge_to, p.edge_lag)
        yield from zip(*(column.tolist() for column in columns), strict=True)
        for queue in p.queues:
            members = queue.tolist()
            for k, a in enumerate(members):
                for b in members[k + 1 :]:
                    yield a, b, 0
                    if self._literal(b) is None:
                        break

    def _pools(self) -> None:
        """Bound every pool by one cumulative.

        A rise that a later fall undoes holds its amount between the two. What is not paired is a
        block from its start to the horizon, or, for a fall, from 0 to its end: the capacity then
        grows by what all falls give.
        """
        p = self.problem
        shape = self.bounds.shape if self.bounds is not None and not p.choices else None
        for k, pool in enumerate(p.pools):
            if pool.capacity is None:
                continue
            if pool.initial > pool.capacity:
                self.empty = True
                return
            mine = np.flatnonzero(p.change_pool == k)
            if shape is not None and shape.exact_pool[k]:
                self._held(k, pool.capacity - pool.initial, shape)
                continue
            self._blocks(k, mine, pool.capacity - pool.initial)

    def _held(self, pool: int, room: int, shape: Shape) -> None:
        p, m = self.problem, self.model
        rises = np.flatnonzero((p.change_pool == pool) & (p.change_amount > 0))
        kept = dict(zip(p.change_op[rises].tolist(), p.change_amount[rises].tolist(), strict=True))
        rows, sizes = [], []
        for f in np.flatnonzero(shape.pool == pool).tolist():
            for c in np.flatnonzero(shape.undone[f]).tolist():
                q = shape.resource_queue[shape.resource_at[p.resource[f]] + c]
                i = int(shape.queue_op[shape.queue_at[q] + shape.position[f]])
                amount = int(shape.undone[f, c])
                kept[i] -= amount
                length = m.new_int_var(0, self.horizon, f"d{i}.{f}")
                end = self.start[f] + int(p.duration[f])
                rows.append(m.new_interval_var(self.start[i], length, end, f"h{i}.{f}"))
                sizes.append(amount)
        for i, amount in kept.items():
            if amount > 0:
                rows.append(self._until_the_end(i))
                sizes.append(amount)
        self._cumulative(rows, sizes, room)

    def _blocks(self, pool: int, mine: Ints, room: int) -> None:
        p, m = self.problem, self.model
        rows, sizes = [], []
        for k in mine.tolist():
            i, amount = int(p.change_op[k]), int(p.change_amount[k])
            if amount > 0:
                rows.append(self._until_the_end(i))
            else:
                end, literal = self.start[i] + int(p.duration[i]), self._literal(i)
                room -= amount
                rows.append(
                    m.new_interval_var(0, end, end, f"f{pool}.{k}")
                    if literal is None
                    else m.new_optional_interval_var(0, end, end, literal, f"f{pool}.{k}")
                )
                if literal is not None:  # an absent fall gives nothing: its block never ends
                    rows.append(
                        m.new_optional_fixed_size_interval_var(
                            0, self.horizon + 1, literal.negated(), f"n{pool}.{k}"
                        )
                    )
                    sizes.append(-amount)
            sizes.append(abs(amount))
        self._cumulative(rows, sizes, room)

    def _until_the_end(self, i: int) -> cp_model.IntervalVar:
        m, literal, end = self.model, self._literal(i), self.horizon + 1
        length = m.new_int_var(0, end, f"u{i}")
        if literal is None:
            return m.new_interval_var(self.start[i], length, end, f"r{i}")
        return m.new_optional_interval_var(self.start[i], length, end, literal, f"r{i}")

    def _cumulative(self, rows: list[cp_model.IntervalVar], sizes: list[int], room: int) -> None:
        if sum(sizes) > room:
            self.model.add_cumulative(rows, sizes, room)

    def _goal(self) -> None:
        p, m = self.problem, self.model
        known = self.incumbent.value if self.incumbent is not None else None
        least = sum(min(o.cost for o in c.options) for c in p.choices)
        most = sum(max(o.cost for o in c.options) for c in p.choices)
        self.floor = least
        if self.bounds is not None and not p.choices:
            self.floor = self.bounds.best.value
        high = known if known is not None else self.horizon + most
        if high < self.floor:
            self.empty = True
            return
        time = m.new_int_var(0, self.horizon, "time")
        if self.objective == "makespan":
            self._after_ends(time, range(p.size))
        else:
            self._spans(time)
        costs = [
            o.cost * literal
            for choice, literals in zip(p.choices, self.options, strict=True)
            for o, literal in zip(choice.options, literals, strict=True)
            if o.cost
        ]
        # Never negative: stopped before it has a bound, CP-SAT states 0.
        excess = m.new_int_var(0, high - self.floor, "excess")
        m.add(self.floor + excess == time + sum(costs))
        if high > self.floor:  # OR-Tools 9.15 can abort on an objective without any choice
            m.minimize(excess)
        self._hint()

    def _after_ends(self, time: cp_model.IntVar, ops: range | list[int]) -> None:
        p, m = self.problem, self.model
        # Without choices, an op that is waited for does not end last.
        waited_for = set() if p.choices else set(p.links()[0].tolist())
        for i in sorted(set(ops) - waited_for):
            literal = self._literal(i)
            late = m.add(time >= self.start[i] + int(p.duration[i]))
            if literal is not None:
                late.only_enforce_if(literal)

    def _spans(self, time: cp_model.IntVar) -> None:
        p, m = self.problem, self.model
        members: dict[int, list[int]] = defaultdict(list)
        for i, r in enumerate(p.resource.tolist()):
            members[p.resources[r].group].append(i)
        members.pop(-1, None)
        for group, ops in members.items():
            first = m.new_int_var(0, self.horizon, f"first{group}")
            for i in ops:
                literals = [x for x in [self._literal(i)] if x is not None]
                m.add(first <= self.start[i]).only_enforce_if(literals)
                end = self.start[i] + int(p.duration[i])
                m.add(time >= end - first).only_enforce_if(literals)

    def _hint(self) -> None:
        if self.incumbent is None or self.incumbent.starts is None:
            return
        for i, t in enumerate(self.incumbent.starts.tolist()):
            if t != ABSENT:
                self.model.add_hint(self.start[i], t)
        for literals, k in zip(self.options, self.incumbent.selected, strict=True):
            for o, literal in enumerate(literals):
                self.model.add_hint(literal, o == k)
