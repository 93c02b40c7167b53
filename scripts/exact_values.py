"""Cases whose values are known exactly, by proof or from publications; prints ours beside them.

Times have no unit here. Unless said otherwise F=1 and B=2 fused, or F=I=W=1 split, and one
activation per F that is freed when the backward ends. Links, replicas, offload and all-reduce are
built on the problem directly: no solver knows them.

    python scripts/exact_values.py            # all, with the zero-bubble authors' table
    python scripts/exact_values.py --quick    # without the table
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import click
import numpy as np

import schedopt
from schedopt.build.pipeline import build
from schedopt.pipeline import Pipeline
from schedopt.problem import Option, Problem, ProblemBuilder, makespan
from schedopt.schedule import Action, Orders
from schedopt.simulation import replay
from schedopt.solvers.portfolio import Budget, solve

BUDGET = Budget(seconds=60, rounds=40)


@dataclass(frozen=True)
class Case:
    name: str
    wanted: int
    run: Callable[[], tuple[int, bool]]
    """Returns the value and whether it is proven optimal (or simply computed)."""


def uniform(
    ranks: int,
    microbatches: int,
    cap: int | None = None,
    times: tuple[int, int, int] = (1, 1, 1),
    fused: bool = False,
    latency: int = 0,
    boundary: int | None = None,
) -> Pipeline:
    """A linear pipeline of equal stages; latency on every boundary, or on one."""
    lags = [[0] * ranks for _ in range(ranks)]
    for a in range(ranks - 1) if boundary is None else [boundary]:
        lags[a][a + 1] = lags[a + 1][a] = latency
    forward, inputs, weights = times
    return Pipeline(
        ranks=ranks,
        stages=ranks,
        microbatches=microbatches,
        placement=[list(range(ranks))],
        backward="fused" if fused else "split",
        forward_ns=[forward] * ranks,
        backward_input_ns=[inputs] * ranks,
        backward_weight_ns=[weights] * ranks,
        latency_ns=lags,
        activation_bytes=[1] * ranks,
        memory_limit_bytes=None if cap is None else [cap] * ranks,
    )


def bidirectional(ranks: int, microbatches: int, times: tuple[int, int, int]) -> Pipeline:
    up = list(range(ranks))
    return uniform(ranks, microbatches, times=times, fused=True).model_copy(
        update={
            "placement": [up, up[::-1]],
            "direction": [j % 2 for j in range(microbatches)],
        }
    )


def named(pipeline: Pipeline, name: str) -> tuple[int, bool]:
    return schedopt.named(pipeline, name).makespan_ns, True


def optimum(pipeline: Pipeline, objective: str = "makespan") -> tuple[int, bool]:
    schedule = schedopt.solve(
        pipeline, objective=objective, time_limit=BUDGET.seconds, rounds=BUDGET.rounds
    )
    return schedule.value_ns, schedule.status == "optimal"


def of_problem(make: Callable[[], Problem]) -> tuple[int, bool]:
    answer = solve(make(), budget=BUDGET).answer
    assert answer.value is not None
    return answer.value, answer.optimal


def in_place(pipeline: Pipeline) -> tuple[int, bool]:
    """1F1B with W directly after I."""
    fused = pipeline.model_copy(update={"backward": "fused"})
    orders: Orders = [
        [
            half
            for action in row
            for half in (
                [action]
                if action.kind == "F"
                else [Action("I", *action[1:]), Action("W", *action[1:])]
            )
        ]
        for row in schedopt.named(fused, "1f1b").orders()
    ]
    model = build(pipeline)
    return makespan(model.problem, replay(model, orders)), True


def with_transfers(
    ranks: int, microbatches: int, cap: int, transfer: int, full_duplex: bool
) -> Problem:
    """F=1, B=2 fused; activations and gradients occupy the link between neighbours."""
    b = ProblemBuilder()
    compute = [b.resource(f"rank {r}", group=r) for r in range(ranks)]
    pools = [b.pool(f"memory {r}", cap) for r in range(ranks)]
    down = [b.resource(f"link {r} down") for r in range(ranks - 1)]
    up = [b.resource(f"link {r} up") for r in range(ranks - 1)] if full_duplex else down
    rows: dict[tuple[str, int], list[int]] = {}
    for _ in range(microbatches):
        before = -1
        forward = []
        for r in range(ranks):
            op = b.op(1, compute[r])
            b.change(op, pools[r], 1)
            if r:
                send = b.op(transfer, down[r - 1])
                rows.setdefault(("x", r), []).append(send)
                b.edge(before, send)
                b.edge(send, op)
            rows.setdefault(("F", r), []).append(op)
            forward.append(op)
            before = op
        for r in range(ranks)[::-1]:
            op = b.op(2, compute[r])
            b.change(op, pools[r], -1)
            b.edge(forward[r], op)
            if r < ranks - 1:
                send = b.op(transfer, up[r])
                rows.setdefault(("y", r), []).append(send)
                b.edge(before, send)
                b.edge(send, op)
            rows.setdefault(("B", r), []).append(op)
            before = op
    for row in rows.values():
        b.queue(row)
    return b.build()[0]


def with_all_reduce(shared: bool) -> Problem:
    """p2 m3 split; each stage reduces its gradients, 3 long, after its last W."""
    pipeline = uniform(2, 3)
    b = ProblemBuilder()
    compute = [b.resource(f"rank {r}", group=r) for r in range(2)]
    links = (
        [b.resource("network")] * 2 if shared else [b.resource(f"network {r}") for r in range(2)]
    )
    model = build(pipeline)
    p = model.problem
    ops = b.ops(p.duration, np.array(compute)[p.resource])
    b.edge(p.edge_from, p.edge_to, p.edge_lag)
    for queue in p.queues:
        b.queue(queue)
    for stage in range(2):
        last = int(ops[(model.kind == 2) & (model.stage == stage)][-1])
        b.edge(last, b.op(3, links[stage]))
    return b.build()[0]


def two_replicas(taking_turns: bool) -> Problem:
    """Two replicas of two stages over one WAN link, m=2, F=1, B=2, no memory limit.

    Shared in space, each replica has half the link to itself and a transfer takes 4; taking turns,
    both use the whole link at double rate.
    """
    b = ProblemBuilder()
    link = [b.resource(f"wan {way}") for way in ("down", "up")]
    for replica in range(2):
        ranks = [b.resource(f"replica {replica} rank {r}", group=2 * replica + r) for r in range(2)]
        mine = link if taking_turns else [b.resource(f"half {replica} {w}") for w in range(2)]
        length = 2 if taking_turns else 4
        rows: list[list[int]] = [[] for _ in range(6)]
        for _ in range(2):
            ops = [
                b.op(1, ranks[0]),
                b.op(length, mine[0]),
                b.op(1, ranks[1]),
                b.op(2, ranks[1]),
                b.op(length, mine[1]),
                b.op(2, ranks[0]),
            ]
            b.edge(ops[:-1], ops[1:])
            for row, op in zip(rows, ops, strict=True):
                row.append(op)
        for row in rows:
            b.queue(row)
    return b.build()[0]


def with_offload(cap: int) -> Problem:
    """p4 m6 fused; stage 0 may move an activation out and back, 1 each, on a copy engine."""
    pipeline = uniform(4, 6, fused=True)
    model = build(pipeline)
    p = model.problem
    b = ProblemBuilder()
    compute = [b.resource(f"rank {r}", group=r) for r in range(4)]
    engine = b.resource("copy engine")
    pool = b.pool("memory of stage 0", cap)
    ops = b.ops(p.duration, np.array(compute)[p.resource])
    b.edge(p.edge_from, p.edge_to, p.edge_lag)
    for queue in p.queues:
        b.queue(queue)
    for j in range(6):
        forward, backward = (
            int(ops[(model.kind == k) & (model.stage == 0) & (model.microbatch == j)][0])
            for k in (0, 3)
        )
        choice = b.choice(f"offload {j}", Option("keep"), Option("offload"))
        out = b.op(1, engine, when=(choice, 1))
        back = b.op(1, engine, when=(choice, 1))
        b.edge([forward, out, back], [out, back, backward])
        b.change([forward, out, back, backward], pool, [1, -1, 1, -1])
    return b.build()[0]


CASES = [
    Case("1F1B p4 m8 fused", 33, partial(named, uniform(4, 8, fused=True), "1f1b")),
    Case("1F1B p2 m2 fused", 9, partial(named, uniform(2, 2, fused=True), "1f1b")),
    Case("1F1B p4 m4 fused", 21, partial(named, uniform(4, 4, fused=True), "1f1b")),
    Case("split optimum p4 m8, 4 activations", 27, partial(optimum, uniform(4, 8, 4))),
    Case("split optimum p3 m3, 3 activations", 11, partial(optimum, uniform(3, 3, 3))),
    Case("split optimum p4 m4, 4 activations", 15, partial(optimum, uniform(4, 4, 4))),
    Case("1F1B p4 m8, W right after I", 30, partial(in_place, uniform(4, 8))),
    Case("device span p4 m8, 6 activations", 25, partial(optimum, uniform(4, 8, 6), "device-span")),
    Case("device span p4 m8, 7 activations", 24, partial(optimum, uniform(4, 8, 7), "device-span")),
    *(
        Case(
            f"p2 m4 fused, latency 2, {cap} activations",
            wanted,
            partial(optimum, uniform(2, 4, cap, fused=True, latency=2)),
        )
        for cap, wanted in ((2, 23), (3, 20), (4, 19))
    ),
    Case(
        "1F1B p4 m8 fused, latency 4 on boundary 1-2",
        65,
        partial(named, uniform(4, 8, fused=True, latency=4, boundary=1), "1f1b"),
    ),
    *(
        Case(
            f"p4 m8 fused, latency 4 on boundary 1-2, {cap} activations",
            wanted,
            partial(optimum, uniform(4, 8, cap, fused=True, latency=4, boundary=1)),
        )
        for cap, wanted in ((4, 49), (8, 41))
    ),
    *(
        Case(
            f"p4 m{m} split, latency {latency}, 4 activations",
            wanted,
            partial(optimum, uniform(4, m, 4, latency=latency)),
        )
        for m, latency, wanted in ((8, 1, 39), (8, 2, 51), (16, 2, 93))
    ),
    *(
        Case(
            f"p4 m8 F10 I12 W8, latency 1, {cap} activations",
            wanted,
            partial(optimum, uniform(4, 8, cap, (10, 12, 8), latency=1)),
        )
        for cap, wanted in ((4, 294), (8, 273))
    ),
    *(
        Case(
            f"p2 m4 fused, transfers of 3, {'full' if full else 'half'} duplex",
            wanted,
            partial(of_problem, partial(with_transfers, 2, 4, 4, 3, full)),
        )
        for full, wanted in ((True, 21), (False, 27))
    ),
    *(
        Case(
            f"p2 m3 split, all-reduce of 3, {'one shared link' if shared else 'own links'}",
            wanted,
            partial(of_problem, partial(with_all_reduce, shared)),
        )
        for shared, wanted in ((False, 13), (True, 15))
    ),
    *(
        Case(
            f"two replicas over one WAN link, {'in turn' if turns else 'side by side'}",
            wanted,
            partial(of_problem, partial(two_replicas, turns)),
        )
        for turns, wanted in ((False, 18), (True, 16))
    ),
    *(
        Case(f"bidirectional p4 m4 fused, {label}, {what}", wanted, partial(run, *arguments))
        for label, times, values in (("F=B=1", (1, 1, 0), (10, 14)), ("F1 B2", (1, 1, 1), (16, 21)))
        for what, wanted, run, arguments in (
            ("optimum", values[0], optimum, (bidirectional(4, 4, times),)),
            (
                "1F1B on one direction",
                values[1],
                named,
                (uniform(4, 4, times=times, fused=True), "1f1b"),
            ),
        )
    ),
    Case("p4 m6 fused, stage 0 holds 4", 27, partial(of_problem, partial(with_offload, 4))),
    Case(
        "p4 m6 fused, stage 0 offloads and holds 2",
        27,
        partial(of_problem, partial(with_offload, 2)),
    ),
    Case("GPipe p4 m8 fused", 33, partial(named, uniform(4, 8, fused=True), "gpipe")),
    Case("ZB-H1 p4 m8 split", 27, partial(named, uniform(4, 8), "zb-h1")),
    Case(
        "interleaved v2 p4 m8 fused",
        57,
        partial(
            named,
            uniform(8, 8, fused=True).model_copy(
                update={"ranks": 4, "placement": [[0, 1, 2, 3] * 2], "latency_ns": None}
            ),
            "interleaved-1f1b",
        ),
    ),
]

ZERO_BUBBLE = [
    # model, F/I/W/latency (us), ranks, microbatches, 1F1B, ZB-1p, ZB-2p
    ("1.5B", (18522, 18086, 9337, 601), 8, 24, 0.2431, 0.1585, 0.0433),
    ("1.5B", (18546, 18097, 9321, 762), 8, 64, 0.1240, 0.0674, 0.0026),
    ("6.2B", (29718, 29444, 19927, 527), 8, 24, 0.2347, 0.1323, 0.0029),
    ("6.2B", (29802, 29428, 19530, 577), 8, 32, 0.1898, 0.1045, 0.0022),
    ("6.2B", (29935, 29621, 19388, 535), 8, 64, 0.1091, 0.0554, 0.0010),
]
SIZES = {  # activation and what I frees of it, per stage; the ratio is what matters
    "1.5B": (34 * 2304 + 5 * 24 * 1024, 32 * 2304),
    "6.2B": (34 * 4096 + 5 * 32 * 1024, 32 * 4096),
}
"""Of the zero-bubble authors' formula: 34 h + 5 a s bytes per token, 32 h of it until W."""


def published(
    model: str, times: tuple[int, int, int, int], ranks: int, m: int, scale: int
) -> Pipeline:
    forward, inputs, weights, latency = times
    kept, until_weight = SIZES[model]
    pipeline = uniform(ranks, m, times=(forward, inputs, weights), latency=latency)
    return pipeline.model_copy(
        update={
            "activation_bytes": [kept] * ranks,
            "released_by_input_bytes": [kept - until_weight] * ranks,
            "memory_limit_bytes": [scale * ranks * kept] * ranks,
        }
    )


def bubble(pipeline: Pipeline, span: int) -> float:
    """1 - work / device span, as the zero-bubble paper counts it."""
    work = int(pipeline.times()[:, 0].sum())
    return 1 - work / span


def zero_bubble_row(row: tuple, seconds: float) -> tuple[list[float], list[bool]]:
    model, times, ranks, m, *_ = row
    base = published(model, times, ranks, m, 1)
    fused = base.model_copy(update={"backward": "fused"})
    figures = [bubble(base, schedopt.named(fused, "1f1b").device_span_ns)]
    proven = [True]
    for scale in (1, 2):
        pipeline = published(model, times, ranks, m, scale)
        schedule = schedopt.solve(pipeline, objective="device-span", time_limit=seconds)
        figures.append(bubble(pipeline, schedule.device_span_ns))
        proven.append(schedule.status == "optimal")
    return figures, proven


@click.command()
@click.option("--quick", is_flag=True, help="Leave out the zero-bubble authors' table.")
@click.option("--seconds", default=20.0, show_default=True, help="Time limit per table entry.")
def main(quick: bool, seconds: float) -> None:
    """Print every case with the value wanted and ours; exit 1 if any differs."""
    wrong = 0
    for case in CASES:
        got, proven = case.run()
        good = got == case.wanted and proven
        wrong += not good
        click.echo(
            f"{'ok ' if good else 'BAD'} {case.name:58s} wanted {case.wanted:4d} got {got}"
            f"{'' if proven else ' (not proven)'}"
        )
    for row in [] if quick else ZERO_BUBBLE:
        figures, proven = zero_bubble_row(row, seconds)
        good = round(figures[0], 4) == row[4] and all(
            round(f, 4) <= w for f, w in zip(figures[1:], row[5:], strict=True)
        )
        wrong += not good
        ours = "  ".join(
            f"{f:.4f} (theirs {w:.4f}{', ours proven optimal' if p and k else ''})"
            for k, (f, w, p) in enumerate(zip(figures, row[4:], proven, strict=True))
        )
        click.echo(f"{'ok ' if good else 'BAD'} {row[0]} p{row[2]} m{row[3]}: {ours}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
