"""Tiny random problems and pipelines, from a seed or from hypothesis.

Each generator asks for numbers only through `pick(low, high)`, so that one text serves both: a
seeded random stream for plain loops, hypothesis where shrinking helps.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import strategies as st

from schedopt.pipeline import Pipeline
from schedopt.problem import FREE, Option, Problem, ProblemBuilder

Pick = Callable[[int, int], int]


def random_problem(seed: int, ops: int = 6) -> Problem:
    """Return the problem of a seed: 1 to `ops` ops, any feature of the IR, maybe infeasible."""
    return make_problem(random.Random(seed).randint, ops)


def random_pipeline(seed: int, stages: int = 6, microbatches: int = 4) -> Pipeline:
    """Return the pipeline of a seed: 1 to 3 ranks, at least one microbatch fits in memory."""
    return make_pipeline(random.Random(seed).randint, stages, microbatches)


@st.composite
def problems(draw: st.DrawFn, ops: int = 6) -> Problem:
    """Draw what `random_problem` makes."""
    return make_problem(lambda low, high: draw(st.integers(low, high)), ops)


@st.composite
def pipelines(draw: st.DrawFn, stages: int = 6, microbatches: int = 4) -> Pipeline:
    """Draw what `random_pipeline` makes."""
    return make_pipeline(lambda low, high: draw(st.integers(low, high)), stages, microbatches)


def make_problem(pick: Pick, ops: int) -> Problem:
    """Make a problem: durations 0 to 4 and every other feature with some chance."""
    builder = ProblemBuilder()
    resources = [_resource(builder, pick, k) for k in range(pick(1, 3))]
    choices = [_choice(builder, pick, k) for k in range(max(0, pick(-2, 2)))]
    size = pick(1, ops)
    on, guard = [], []
    for _ in range(size):
        on.append(resources[pick(0, len(resources) - 1)])
        guard.append(_guard(pick, choices))
        release = max(0, pick(-8, 4))
        pinned = pick(0, 10) if pick(0, 19) == 19 else FREE
        builder.op(pick(0, 4), on[-1], release=release, pinned=pinned, when=guard[-1])
    for i in range(size):
        for j in range(i + 1, size):
            if pick(0, 3) == 3:
                builder.edge(i, j, max(0, pick(-4, 3)))
    for r in resources:
        mine = [i for i in range(size) if on[i] == r]
        if pick(0, 2) == 2 and len(mine) > 1:
            builder.queue(mine[: pick(2, len(mine))])
    for k in range(pick(0, 2)):
        _pool(builder, pick, k, size)
    return builder.build()[0]


def _resource(builder: ProblemBuilder, pick: Pick, number: int) -> int:
    """Add a resource: alone, in a group with others or in none, sometimes with closed windows."""
    closed, time = [], 0
    for _ in range(max(0, pick(-2, 2))):
        opens = time + pick(0, 5)
        time = opens + pick(0, 3)
        closed.append((opens, time))
    return builder.resource(f"resource {number}", group=pick(-1, 2), closed=closed)


def _choice(builder: ProblemBuilder, pick: Pick, number: int) -> tuple[int, int]:
    """Add a choice; return its number and its count of options."""
    options = [Option(f"option {k}", cost=pick(-2, 3)) for k in range(pick(1, 3))]
    return builder.choice(f"choice {number}", *options), len(options)


def _guard(pick: Pick, choices: list[tuple[int, int]]) -> tuple[int, int]:
    if not choices or pick(0, 1):
        return -1, -1
    choice, options = choices[pick(0, len(choices) - 1)]
    return choice, pick(0, options - 1)


def _pool(builder: ProblemBuilder, pick: Pick, number: int, size: int) -> None:
    """Add a pool that any op may change, wherever it runs, often with little room."""
    initial = pick(0, 2)
    capacity = initial + pick(0, 5) if pick(0, 5) else None
    pool = builder.pool(f"pool {number}", capacity, initial)
    for i in range(size):
        kind = pick(0, 3)
        if kind in (1, 3):
            builder.change(i, pool, pick(1, 3))
        if kind in (2, 3):
            builder.change(i, pool, -pick(1, 3))


def make_pipeline(pick: Pick, stages: int, microbatches: int) -> Pipeline:
    """Make a pipeline: 1 to 3 ranks, 1 or 2 stages on each, uneven, up or down, with latency."""
    ranks = pick(1, min(3, stages))
    per_rank = pick(1, min(2, stages // ranks))
    count, m = ranks * per_rank, pick(1, microbatches)
    linear = [stage % ranks for stage in range(count)]
    back = [ranks - 1 - rank if stage // ranks else rank for stage, rank in enumerate(linear)]
    placement = [back if pick(0, 1) else linear]
    direction = None
    if pick(0, 2) == 2:
        placement.append([ranks - 1 - rank for rank in placement[0]])
        direction = [pick(0, 1) for _ in range(m)]
    kept = [pick(1, 3) for _ in range(count)]
    need = [
        max(sum(k for k, r in zip(kept, row, strict=True) if r == rank) for row in placement)
        for rank in range(ranks)
    ]

    def times(low: int) -> list[int]:
        return [pick(low, 4) for _ in range(count)]

    return Pipeline(
        ranks=ranks,
        stages=count,
        microbatches=m,
        placement=placement,
        direction=direction,
        backward="fused" if pick(0, 1) else "split",
        forward_ns=times(1),
        backward_input_ns=times(1),
        backward_weight_ns=times(0),
        latency_ns=(
            [[pick(0, 2) for _ in range(ranks)] for _ in range(ranks)] if pick(0, 1) else None
        ),
        activation_bytes=kept,
        released_by_input_bytes=[pick(0, k) for k in kept],
        memory_limit_bytes=[n + pick(0, n * m) for n in need] if pick(0, 2) else None,
    )


# Larger ones, for CP-SAT instead of brute force ---------------------------------------------------


def wide_pipeline(seed: int) -> Pipeline:
    """Return the pipeline of a seed: up to 4 ranks and 6 microbatches, any placement, memory from
    too little to plenty, times that may be 0 or differ between microbatches.
    """
    return make_wide_pipeline(random.Random(seed).randint)


def pooled_problem(seed: int) -> Problem:
    """Return the problem of a seed whose pools mostly have the regular form that bounds exploit:
    one resource each, every fall after a rise at its place in the queues; or nearly so.
    """
    return make_pooled_problem(random.Random(seed).randint)


def make_wide_pipeline(pick: Pick) -> Pipeline:
    """Make a pipeline of at most about 72 ops."""
    ranks = pick(1, 4)
    chunks = pick(1, 3 if ranks < 3 else 2)
    count = ranks * chunks
    m = pick(1, min(6, 24 // count))
    placement, direction = [_placement(pick, ranks, chunks)], None
    if pick(0, 3) == 3:
        placement.append([ranks - 1 - rank for rank in placement[0]])
        direction = [pick(0, 1) for _ in range(m)]
    top = (1, 3, 10)[pick(0, 2)]
    low = 0 if pick(0, 5) == 5 else 1
    same, each = pick(0, 2) == 2, pick(0, 5) == 5

    def times() -> list[int | list[int]]:
        equal = pick(low, top)
        return [
            [pick(low, top) for _ in range(m)] if each else equal if same else pick(low, top)
            for _ in range(count)
        ]

    kept = [pick(1, 4) for _ in range(count)] if pick(0, 2) else [2] * count
    need = [
        max(sum(k for k, r in zip(kept, row, strict=True) if r == rank) for row in placement)
        for rank in range(ranks)
    ]
    limits = None
    if pick(0, 4):
        spare = pick(0, 3 * m)
        limits = [max(0, n + n * spare // 4 - (pick(0, 9) == 9)) for n in need]
    return Pipeline(
        ranks=ranks,
        stages=count,
        microbatches=m,
        placement=placement,
        direction=direction,
        backward="fused" if pick(0, 2) == 2 else "split",
        forward_ns=times(),
        backward_input_ns=times(),
        backward_weight_ns=times(),
        latency_ns=(
            [[pick(0, top) for _ in range(ranks)] for _ in range(ranks)] if pick(0, 1) else None
        ),
        activation_bytes=kept,
        released_by_input_bytes=[pick(0, k) for k in kept] if pick(0, 2) else [0] * count,
        memory_limit_bytes=limits,
    )


def _placement(pick: Pick, ranks: int, chunks: int) -> list[int]:
    """Place stages interleaved, in a V, or anyhow."""
    kind = pick(0, 6)
    if kind == 0:
        return [pick(0, ranks - 1) for _ in range(ranks * chunks)]
    return [
        ranks - 1 - s % ranks if kind > 3 and (s // ranks) % 2 else s % ranks
        for s in range(ranks * chunks)
    ]


def make_pooled_problem(pick: Pick) -> Problem:
    """Make a problem of columns and places: at each place, one op of each column that is so long.

    Columns of one resource are queues (or not); edges lead from column to column at one place,
    sometimes to the next place. A column raises a pool of its resource, or lowers it by part of
    what an earlier column raised at the same place.
    """
    builder = ProblemBuilder()
    resources = [_plain_resource(builder, pick, k) for k in range(pick(1, 3))]
    columns = [pick(0, len(resources) - 1) for _ in range(pick(2, 6))]
    places = pick(1, max(1, min(5, 18 // len(columns))))
    lengths = [places if pick(0, 4) else pick(1, places) for _ in columns]
    uniform, longest = pick(0, 2) > 0, (5, 5, 1)[pick(0, 2)]
    usual = [pick(0, longest) for _ in columns]
    ops: dict[tuple[int, int], int] = {}
    for k in range(places):
        for c, resource in enumerate(columns):
            if k < lengths[c]:
                duration = usual[c] if uniform else pick(0, longest)
                release = max(0, pick(-30, 6))
                pinned = pick(0, 30) if pick(0, 149) == 149 else FREE
                ops[c, k] = builder.op(duration, resource, release=release, pinned=pinned)
    for a in range(len(columns)):
        for b in range(a + 1, len(columns)):
            if pick(0, 2) == 2:
                lag = max(0, pick(-3, 4))
                both = [k for k in range(places) if (a, k) in ops and (b, k) in ops]
                for k in both:
                    if pick(0, 15):
                        builder.edge(ops[a, k], ops[b, k], lag)
            if pick(0, 9) == 9:
                for k in range(places - 1):
                    if (a, k) in ops and (b, k + 1) in ops:
                        builder.edge(ops[a, k], ops[b, k + 1])
    for c in range(len(columns)):
        if lengths[c] > 1 and pick(0, 5):
            builder.queue([ops[c, k] for k in range(lengths[c])])
    for resource in resources:
        for _ in range(1 if pick(0, 3) else 2):
            mine = [c for c, r in enumerate(columns) if r == resource]
            _regular_pool(builder, pick, resource, mine, ops, places)
    return builder.build()[0]


def _plain_resource(builder: ProblemBuilder, pick: Pick, number: int) -> int:
    closed = [(t := pick(0, 20), t + pick(0, 4))] if pick(0, 9) == 9 else []
    group = number if pick(0, 5) else pick(-1, 1)
    return builder.resource(f"resource {number}", group=group, closed=closed)


def _regular_pool(
    builder: ProblemBuilder,
    pick: Pick,
    resource: int,
    columns: list[int],
    ops: dict[tuple[int, int], int],
    places: int,
) -> None:
    """Add a pool with about as much room as running place by place takes."""
    changes: dict[tuple[int, int], int] = {}
    held: dict[int, int] = {}
    for c in columns:
        role = pick(0, 2)
        raising = [a for a in held if held[a]]
        if role == 1 or (role == 2 and not raising):
            held[c] = pick(1, 4)
            changes |= {(c, k): held[c] for k in range(places) if (c, k) in ops}
        elif role == 2:
            a = raising[pick(0, len(raising) - 1)]
            part = pick(1, held[a])
            held[a] -= part
            for k in range(places):
                if (a, k) in ops and (c, k) in ops:
                    builder.edge(ops[a, k], ops[c, k])
                    if pick(0, 19):
                        changes[c, k] = -part
    level = top = 0
    for key in ops:
        level += changes.get(key, 0)
        top = max(top, level)
    initial = max(0, pick(-3, 1))
    room = top + max(-1, pick(-2, 6)) if pick(0, 9) else None
    pool = builder.pool(
        f"pool of resource {resource}", None if room is None else max(0, initial + room), initial
    )
    for key, amount in changes.items():
        builder.change(ops[key], pool, amount)
