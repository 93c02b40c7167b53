"""The core: what a problem accepts, keeps, and turns into."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from known_cases import line
from random_problems import pooled_problem, problems, random_problem

from schedopt.build.pipeline import build
from schedopt.errors import InputError
from schedopt.pipeline import Pipeline
from schedopt.problem import (
    ABSENT,
    FREE,
    Option,
    Problem,
    ProblemBuilder,
    device_span,
    makespan,
    value,
)
from schedopt.solvers.bounds import lower_bound
from schedopt.solvers.cpsat import Limits, solve_cpsat


def _small() -> Problem:
    """Two ops on one resource and one on another, a pool, a choice."""
    builder = ProblemBuilder()
    resources = [builder.resource("a", group=0), builder.resource("b", group=1, closed=[(3, 4)])]
    pool = builder.pool("pool", 5, initial=1)
    choice = builder.choice("choice", Option("no"), Option("yes", cost=2))
    first, second = builder.ops([2, 3], resources[0])
    other = builder.op(1, resources[1], release=1, when=(choice, 1))
    builder.edge([first, first], [second, other], [0, 7])
    builder.change([first, second], pool, [2, -2])
    builder.queue([first, second])
    return builder.build()[0]


# Size -------------------------------------------------------------------------------------------


def test_two_hundred_thousand_ops() -> None:
    stages, microbatches = 16, 4167
    pipeline = Pipeline(
        ranks=16,
        stages=stages,
        microbatches=microbatches,
        placement=[list(range(16))],
        forward_ns=[3] * stages,
        backward_input_ns=[4] * stages,
        backward_weight_ns=[2] * stages,
    )
    problem = build(pipeline).problem
    assert problem.size == 3 * stages * microbatches == 200_016
    assert len(problem.edge_from) == microbatches * (2 * (stages - 1) + 2 * stages)
    assert [len(queue) for queue in problem.queues] == [microbatches] * 3 * stages
    assert problem.queue_exact.all()
    graph = problem.graph
    links = len(problem.edge_from) + 3 * stages * (microbatches - 1)
    assert len(graph.pred) == len(graph.succ) == links
    assert np.all(np.repeat(np.arange(problem.size), np.diff(graph.pred_at)) > graph.pred)
    assert np.all(np.repeat(np.arange(problem.size), np.diff(graph.succ_at)) < graph.succ)


def test_a_long_chain_added_backwards() -> None:
    """Sequencing does not recurse."""
    builder = ProblemBuilder()
    ops = builder.ops(np.ones(20_000, np.int64), builder.resource("r"))
    builder.edge(ops[1:], ops[:-1])
    problem, number = builder.build()
    assert number.tolist() == list(range(20_000))[::-1]
    assert np.all(problem.edge_from < problem.edge_to)


# Validation -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"duration": [-1, 3, 1]}, "duration[0]"),
        ({"duration": [2, 2**62 + 1, 1]}, "duration[1]"),
        ({"duration": [2**61, 2**61, 2**61]}, "duration"),
        ({"release": [0, 0, -1]}, "release[2]"),
        ({"release": [0, 0]}, "release"),
        ({"pinned": [FREE, -2, FREE]}, "pinned[1]"),
        ({"resource": [0, 0, 2]}, "resource[2]"),
        ({"edge_lag": [0, -1]}, "edge_lag[1]"),
        ({"edge_to": [1, 3]}, "edge_to[1]"),
        ({"edge_from": [0, 2]}, "edge 1"),
        ({"change_pool": [0, 1]}, "change_pool[1]"),
        ({"change_op": [1, 0]}, "change_op"),
        ({"guard_choice": [-1, -1, 1]}, "guard_choice[2]"),
        ({"guard_option": [-1, -1, 2]}, "guard_option[2]"),
        ({"queue_op": [1, 0]}, "queue 0"),
        ({"queue_op": [0, 2]}, "queue 0"),
        ({"queue_at": [0, 1]}, "queue_at"),
        ({"queue_exact": []}, "queue_exact"),
        ({"queue_at": [0, 1, 2], "queue_op": [0, 0], "queue_exact": [True] * 2}, "queue_op"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], place: str) -> None:
    with pytest.raises(InputError) as caught:
        _small().replace(**{k: np.array(v) for k, v in changes.items()})
    assert place in [fault.place for fault in caught.value.faults]


@pytest.mark.parametrize("closed", [[(3, 2)], [(-1, 2)], [(0, 3), (2, 4)], [(5, 6), (1, 2)]])
def test_closed_windows_ascend(closed: list[tuple[int, int]]) -> None:
    builder = ProblemBuilder()
    builder.resource("r", closed=closed)
    with pytest.raises(InputError, match="ascending, disjoint windows"):
        builder.build()


@pytest.mark.parametrize("links", [[(0, 1), (1, 0)], [(0, 0)], [(0, 1), (1, 2), (2, 0)]])
def test_cycles_are_refused(links: list[tuple[int, int]]) -> None:
    builder = ProblemBuilder()
    builder.ops([1, 1, 1], builder.resource("r"))
    for before, after in links:
        builder.edge(before, after)
    with pytest.raises(InputError, match="cycle"):
        builder.build()


def test_a_cycle_through_a_queue_is_refused() -> None:
    builder = ProblemBuilder()
    a, b = builder.ops([1, 1], builder.resource("r"))
    builder.edge(a, b)
    builder.queue([b, a])
    with pytest.raises(InputError, match="cycle"):
        builder.build()


@pytest.mark.parametrize("handle", [-1, 2])
def test_an_edge_to_no_op_is_refused(handle: int) -> None:
    builder = ProblemBuilder()
    builder.ops([1, 1], builder.resource("r"))
    builder.edge(0, handle)
    with pytest.raises(InputError, match="a handle of no op"):
        builder.build()


def test_nobody_can_change_a_problem() -> None:
    durations = np.array([2, 3, 1])
    problem = _small().replace(duration=durations)
    durations[0] = 9
    assert problem.duration.tolist() == [2, 3, 1]
    with pytest.raises(ValueError):
        problem.duration[0] = 9


# Sequential order -------------------------------------------------------------------------------


def test_handles_are_kept_where_precedences_ascend() -> None:
    builder = ProblemBuilder()
    ops = builder.ops([1, 2, 3], builder.resource("r"))
    builder.edge(ops[0], ops[2])
    _, number = builder.build()
    assert number.tolist() == [0, 1, 2]


def test_what_was_added_first_ends_first() -> None:
    """Op 0 needs 3, which needs 4; 1 and 2 wait until that is done."""
    builder = ProblemBuilder()
    builder.ops([10, 11, 12, 13, 14], builder.resource("r"))
    builder.edge([3, 4], [0, 3])
    problem, number = builder.build()
    assert problem.duration.tolist() == [14, 13, 10, 11, 12]
    assert number.tolist() == [2, 3, 4, 1, 0]


@given(st.randoms(use_true_random=False))
def test_all_precedences_ascend(rng: random.Random) -> None:
    """Whatever the order in which ops are added, all data follows its op."""
    builder = ProblemBuilder()
    resource, pool = builder.resource("r"), builder.pool("p")
    size = rng.randint(1, 12)
    ops = builder.ops(range(size), resource)
    builder.change(ops, pool, 100 + ops)
    hidden = rng.sample(range(size), size)
    pairs = [(i, j) for i in range(size) for j in range(i) if rng.random() < 0.3]
    for i, j in pairs:
        builder.edge(hidden[j], hidden[i], 50 + i)
    queue = sorted(rng.sample(range(size), rng.randint(0, size)))
    builder.queue([hidden[k] for k in queue])
    problem, number = builder.build()
    assert sorted(number.tolist()) == list(range(size))
    assert np.all(problem.edge_from < problem.edge_to)
    assert all(np.all(np.diff(q) > 0) for q in problem.queues)
    assert problem.duration[number].tolist() == list(range(size))
    assert problem.change_amount[number].tolist() == [100 + k for k in range(size)]
    edges = zip(problem.edge_from, problem.edge_to, problem.edge_lag, strict=True)
    assert sorted(edges) == sorted((number[hidden[j]], number[hidden[i]], 50 + i) for i, j in pairs)


def test_links_are_edges_and_queues() -> None:
    builder = ProblemBuilder()
    ops = builder.ops([1] * 5, builder.resource("r"))
    builder.queue([])
    builder.queue(ops[:3])
    builder.queue([])
    builder.queue(ops[3:])
    builder.edge(0, 4, 7)
    head, tail, lag = builder.build()[0].links()
    assert sorted(zip(head, tail, lag, strict=True)) == [(0, 1, 0), (0, 4, 7), (1, 2, 0), (3, 4, 0)]


# What it turns into -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_reversed_twice_is_the_same(seed: int) -> None:
    problem = pooled_problem(seed) if seed % 2 else random_problem(seed)
    once = problem.reverse()
    back = once.reverse()
    plain = problem.replace(
        release=np.zeros(problem.size, np.int64),
        pinned=np.full(problem.size, FREE),
        resources=tuple(type(r)(r.name, r.group) for r in problem.resources),
    )
    assert _canonical(back) == _canonical(plain)
    assert once.size == problem.size
    assert once.duration.tolist() == problem.duration[::-1].tolist()


def _canonical(problem: Problem) -> list[object]:
    """All data, where the order of rows means nothing sorted."""
    changes = zip(problem.change_op, problem.change_pool, problem.change_amount, strict=True)
    edges = zip(problem.edge_from, problem.edge_to, problem.edge_lag, strict=True)
    columns = ("duration", "resource", "release", "pinned", "guard_choice", "guard_option")
    return [
        [getattr(problem, name).tolist() for name in columns],
        sorted(changes),
        sorted(edges),
        [queue.tolist() for queue in problem.queues],
        (problem.resources, problem.pools, problem.choices),
    ]


@pytest.mark.parametrize("seed", range(12))
def test_time_backwards_has_the_same_optimum(seed: int) -> None:
    problem = pooled_problem(seed)
    problem = problem.replace(
        release=np.zeros(problem.size, np.int64),
        pinned=np.full(problem.size, FREE),
        resources=tuple(type(r)(r.name, r.group) for r in problem.resources),
    )
    limits = Limits(20.0, 1.0)
    there, back = (solve_cpsat(p, limits=limits) for p in (problem, problem.reverse()))
    assert there.value == back.value
    if there.value is not None:
        for either in (problem, problem.reverse()):
            assert lower_bound(either).best.value <= there.value


def test_select_keeps_what_is_present() -> None:
    problem = _small()
    without, kept = problem.select((0,))
    assert kept.tolist() == [0, 1]
    assert (without.size, without.choices) == (2, ())
    assert without.edge_from.tolist() == [0]
    assert without.queue_op.tolist() == [0, 1]
    with_it, kept = problem.select((1,))
    assert kept.tolist() == [0, 1, 2]
    assert with_it.edge_lag.tolist() == [0, 7]
    assert np.all(with_it.guard_choice == -1)


@settings(max_examples=50, deadline=None)
@given(problems(6), st.data())
def test_selecting_fits_the_parts_together(problem: Problem, data: st.DataObject) -> None:
    selected = [data.draw(st.integers(0, len(c.options) - 1)) for c in problem.choices]
    part, kept = problem.select(selected)
    assert kept.tolist() == np.flatnonzero(problem.present(selected)).tolist()
    assert part.duration.tolist() == problem.duration[kept].tolist()
    assert np.all(np.isin(kept[part.edge_from], problem.edge_from))
    there = [[i for i in q.tolist() if i in kept] for q in problem.queues]
    assert [kept[q].tolist() for q in part.queues] == there


def test_values_are_by_the_definitions() -> None:
    problem = _small()
    starts = np.array([1, 4, 10])
    assert makespan(problem, starts) == 11
    assert device_span(problem, starts) == 6
    assert value(problem, "makespan", starts, (1,)) == 13
    assert value(problem, "device-span", np.array([1, 4, ABSENT]), (0,)) == 6


# Names and numbers ------------------------------------------------------------------------------


def test_a_digest_does_not_know_names() -> None:
    problem = _small()
    renamed = problem.replace(
        resources=tuple(type(r)(f"x{r.name}", r.group, r.closed) for r in problem.resources),
        pools=tuple(type(p)("", p.capacity, p.initial) for p in problem.pools),
        choices=tuple(
            type(c)("", tuple(type(o)("", o.cost) for o in c.options)) for c in problem.choices
        ),
    )
    assert renamed.digest() == problem.digest()


@pytest.mark.parametrize(
    "changes",
    [
        {"duration": np.array([2, 3, 2])},
        {"release": np.array([0, 0, 2])},
        {"pinned": np.array([FREE, 3, FREE])},
        {"edge_lag": np.array([0, 6])},
        {"change_amount": np.array([2, -1])},
        {"guard_option": np.array([-1, -1, 0])},
        {"queue_exact": np.array([False])},
        {"resources": tuple(_small().resources[::-1])},
        {"pools": (type(_small().pools[0])("pool", None, 1),)},
        {"pools": (type(_small().pools[0])("pool", 5, 2),)},
        {"choices": (type(_small().choices[0])("choice", (Option("no"), Option("yes", 3))),)},
    ],
)
def test_a_digest_knows_all_data(changes: dict[str, Any]) -> None:
    assert _small().replace(**changes).digest() != _small().digest()


@pytest.mark.parametrize("seed", range(20))
def test_nothing_depends_on_names_and_insertion_order(seed: int) -> None:
    """Rename all, add all in another order, call every queue an assumption."""
    problem = (pooled_problem, random_problem)[seed % 2](seed)
    other = _disguised(problem, random.Random(seed))
    for objective in ("makespan", "device-span"):
        here, there = (
            solve_cpsat(p, objective, limits=Limits(20.0, 2.0)) for p in (problem, other)
        )
        assert (here.value, here.infeasible) == (there.value, there.infeasible)


@pytest.mark.parametrize("activations", [2, 3, 5])
def test_nor_do_bounds_of_pipelines(activations: int) -> None:
    problem = line(3, 5, activations, 1, (3, 4, 2), released_by_input_bytes=[1, 0, 2])
    other = _disguised(problem, random.Random(activations), keep_sequence=True)
    for objective in ("makespan", "device-span"):
        here, there = (lower_bound(p, objective).best for p in (problem, other))
        assert here.value == there.value


def _disguised(problem: Problem, rng: random.Random, keep_sequence: bool = False) -> Problem:
    """Return the same problem under other names and numbers."""
    builder = ProblemBuilder()

    def shuffled(count: int) -> list[int]:
        return rng.sample(range(count), count)

    resource, pool, choice, op = {}, {}, {}, {}
    for r in shuffled(len(problem.resources)):
        old = problem.resources[r]
        resource[r] = builder.resource(
            f"x{rng.random()}", old.group + 10 if old.group >= 0 else -1, old.closed
        )
    for k in shuffled(len(problem.pools)):
        pool[k] = builder.pool(
            f"y{rng.random()}", problem.pools[k].capacity, problem.pools[k].initial
        )
    for c in shuffled(len(problem.choices)):
        options = [Option(f"z{rng.random()}", o.cost) for o in problem.choices[c].options]
        choice[c] = builder.choice(f"c{rng.random()}", *options)
    choice[-1] = -1
    for i in range(problem.size) if keep_sequence else shuffled(problem.size):
        op[i] = builder.op(
            int(problem.duration[i]),
            resource[int(problem.resource[i])],
            release=int(problem.release[i]),
            pinned=int(problem.pinned[i]),
            when=(choice[int(problem.guard_choice[i])], int(problem.guard_option[i])),
        )
    for e in shuffled(len(problem.edge_from)):
        a, b = op[int(problem.edge_from[e])], op[int(problem.edge_to[e])]
        builder.edge(a, b, int(problem.edge_lag[e]))
    for k in shuffled(len(problem.change_op)):
        changed, target = op[int(problem.change_op[k])], pool[int(problem.change_pool[k])]
        builder.change(changed, target, int(problem.change_amount[k]))
    for q in rng.sample(problem.queues, len(problem.queues)):
        builder.queue([op[i] for i in q.tolist()], exact=False)
    return builder.build()[0]
