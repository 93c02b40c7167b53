"""Break schedules in known ways and see whether the checker notices; leave others intact and see
whether it stays quiet.

Every mutation says whether its result is valid by construction, or that only another judge can
tell. The standalone checker of the benchmark, where it lies beside the repository, is that second
judge: the two must agree on everything that both look at.

    python scripts/mutate_check.py --count 3000 --seed 0
"""

from __future__ import annotations

import copy
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from judge import checker

from schedopt.checking import check_schedule
from schedopt.pipeline import Pipeline
from schedopt.schedule import Schedule

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from helpers import OpRow, figures, schedule_from  # noqa: E402

Doc = dict[str, Any]
Key = tuple[str, int, int]


# Schedules to start from ------------------------------------------------------------------------


def pipelines(rng: random.Random) -> Iterator[Pipeline]:
    """Yield pipelines of every kind, with random times and sizes."""
    shapes: dict[str, Doc] = {
        "linear": {"ranks": 3, "stages": 3, "placement": [[0, 1, 2]]},
        "interleaved": {"ranks": 2, "stages": 4, "placement": [[0, 1, 0, 1]]},
        "v": {"ranks": 3, "stages": 6, "placement": [[0, 1, 2, 2, 1, 0]]},
        "bidirectional": {"ranks": 3, "stages": 3, "placement": [[0, 1, 2], [2, 1, 0]]},
        "one rank": {"ranks": 1, "stages": 2, "placement": [[0, 0]]},
    }
    for name, shape in shapes.items():
        for backward in ("split", "fused"):
            for extras in range(8):
                yield _pipeline(rng, f"{name} {backward}", shape, backward, extras)


def _pipeline(rng: random.Random, name: str, shape: Doc, backward: str, extras: int) -> Pipeline:
    stages, ranks, m = shape["stages"], shape["ranks"], rng.randint(2, 5)

    def time() -> int:
        return rng.choice([0, 0, 5]) if extras & 4 else rng.randint(1, 20)

    def times() -> list[Any]:
        return [[time() for _ in range(m)] if extras & 1 else time() for _ in range(stages)]

    document = {
        "format": Pipeline.FORMAT,
        "version": 1,
        **shape,
        "name": name,
        "microbatches": m,
        "backward": backward,
    }
    document |= {f"{k}_ns": times() for k in ("forward", "backward_input", "backward_weight")}
    if len(shape["placement"]) > 1:
        document["direction"] = [rng.randint(0, 1) for _ in range(m)]
    kept = [rng.randint(1, 50) for _ in range(stages)]
    document["activation_bytes"] = kept
    document["released_by_input_bytes"] = [rng.randint(0, size) for size in kept]
    if extras & 2:
        document["latency_ns"] = [[rng.randint(0, 9) for _ in range(ranks)] for _ in range(ranks)]
    return Pipeline.parse(document, name)


def predecessors(p: Pipeline, key: Key) -> list[Key]:
    """Return the ops that must end before this one starts."""
    kind, s, j = key
    back = "B" if p.fused else "I"
    if kind == "F":
        return [("F", s - 1, j)] if s else []
    if kind == "W":
        return [("I", s, j)]
    return [("F", s, j)] + ([(back, s + 1, j)] if s + 1 < p.stages else [])


def rank_of(p: Pipeline, key: Key) -> int:
    direction = p.direction[key[2]] if p.direction else 0
    return p.placement[direction][key[1]]


def lag(p: Pipeline, before: Key, after: Key) -> int:
    a, b = rank_of(p, before), rank_of(p, after)
    return p.latency_ns[a][b] if p.latency_ns and a != b else 0


def duration(p: Pipeline, key: Key) -> int:
    kind, s, j = key
    fields = {"F": ("forward_ns",), "I": ("backward_input_ns",), "W": ("backward_weight_ns",)}
    names = fields.get(kind, ("backward_input_ns", "backward_weight_ns"))
    values = [getattr(p, name)[s] for name in names]
    return sum(value[j] if isinstance(value, list) else value for value in values)


def run_at_random(rng: random.Random, p: Pipeline) -> list[OpRow]:
    """Run the ops in a random order that precedences allow, each as early as it can."""
    kinds = "FB" if p.fused else "FIW"
    waiting = [(k, s, j) for k in kinds for s in range(p.stages) for j in range(p.microbatches)]
    end: dict[Key, int] = {}
    free = [0] * p.ranks
    rows: list[OpRow] = []
    while waiting:
        key = rng.choice([k for k in waiting if all(b in end for b in predecessors(p, k))])
        waiting.remove(key)
        rank = rank_of(p, key)
        start = max([free[rank], *(end[b] + lag(p, b, key) for b in predecessors(p, key))])
        free[rank] = end[key] = start + duration(p, key)
        rows.append((*key, rank, start, end[key]))
    return rows


@dataclass(frozen=True)
class Case:
    """A valid schedule in which every op starts as early as its order allows."""

    pipeline: Pipeline
    doc: Doc

    @property
    def instant(self) -> bool:
        """Whether some op takes no time."""
        return any(op["start_ns"] == op["end_ns"] for op in self.doc["ops"])

    def tight(self) -> list[tuple[Doc, Doc]]:
        """Return pairs of ops of one rank of which the second starts when the first ends."""
        return [
            (a, b)
            for a in self.doc["ops"]
            for b in self.doc["ops"]
            if a["rank"] == b["rank"] and a["end_ns"] == b["start_ns"] and a is not b
        ]

    def late(self) -> list[tuple[Doc, Doc]]:
        """Return pairs of ops on two ranks of which the second waits for the first, no longer."""
        by_key = {key_of(op): op for op in self.doc["ops"]}
        pairs = [
            (by_key[before], op)
            for op in self.doc["ops"]
            for before in predecessors(self.pipeline, key_of(op))
        ]
        return [
            (a, b)
            for a, b in pairs
            if a["rank"] != b["rank"]
            and b["start_ns"] == a["end_ns"] + lag(self.pipeline, key_of(a), key_of(b))
        ]


def key_of(op: Doc) -> Key:
    return op["kind"], op["stage"], op["microbatch"]


def cases(rng: random.Random) -> list[Case]:
    """Return schedules of all pipelines, half of them with the memory that they need, no more."""
    result = []
    for pipeline in pipelines(rng):
        rows = run_at_random(rng, pipeline)
        if rng.random() < 0.5:
            peaks = figures(pipeline, rows)["peak_bytes"]
            document = pipeline.model_dump(exclude_none=True) | {"memory_limit_bytes": peaks}
            pipeline = Pipeline.parse(document, "tight memory")
        objective = rng.choice(["makespan", "device-span"])
        span = figures(pipeline, rows)["device_span_ns"]
        bound = rng.choice([None, rng.randint(0, span)])
        schedule = schedule_from(pipeline, rows, objective, bound)
        result.append(Case(pipeline, schedule.model_dump(mode="json", exclude_none=True)))
    return result


# Mutations --------------------------------------------------------------------------------------

Mutation = Callable[[random.Random, Case, Doc], bool]
"""Changes the document, a copy of the case's; False where it doesn't apply to the case."""


def refresh(doc: Doc) -> None:
    """State the true figures again."""
    names = ("kind", "stage", "microbatch", "rank", "start_ns", "end_ns")
    rows = [tuple(op[name] for name in names) for op in doc["ops"]]
    doc.update(figures(Pipeline.parse(doc["pipeline"], "pipeline"), rows))
    if doc.get("lower_bound_ns"):
        doc["gap"] = max(0.0, value_of(doc) / doc["lower_bound_ns"] - 1)


def value_of(doc: Doc) -> int:
    value: int = doc["device_span_ns" if doc["objective"] == "device-span" else "makespan_ns"]
    return value


def move(op: Doc, by: int) -> None:
    op["start_ns"] += by
    op["end_ns"] += by


def find(doc: Doc, key: Key) -> Doc:
    return next(op for op in doc["ops"] if key_of(op) == key)


def earlier(rng: random.Random, case: Case, doc: Doc) -> bool:
    """Every op starts as early as it can: 1 ns earlier is too early."""
    late = [op for op in doc["ops"] if op["start_ns"]]
    move(rng.choice(late), -1)
    refresh(doc)
    return True


def later(rng: random.Random, case: Case, doc: Doc) -> bool:
    """1 ns into the next op of the rank."""
    pairs = case.tight()
    if not pairs:
        return False
    move(find(doc, key_of(rng.choice(pairs)[0])), 1)
    refresh(doc)
    return True


def backward_first(rng: random.Random, case: Case, doc: Doc) -> bool:
    """Exchange the starts of a forward and its backward."""
    forward = rng.choice([op for op in doc["ops"] if op["kind"] == "F"])
    kind = "B" if case.pipeline.fused else "I"
    exchange(forward, find(doc, (kind, forward["stage"], forward["microbatch"])))
    refresh(doc)
    return True


def weight_first(rng: random.Random, case: Case, doc: Doc) -> bool:
    """Exchange the starts of an input backward and its weight backward."""
    if case.pipeline.fused:
        return False
    into = rng.choice([op for op in doc["ops"] if op["kind"] == "I"])
    exchange(into, find(doc, ("W", into["stage"], into["microbatch"])))
    refresh(doc)
    return True


def exchange(a: Doc, b: Doc) -> None:
    by = b["start_ns"] - a["start_ns"]
    move(a, by)
    move(b, -by)


def wrong_rank(rng: random.Random, case: Case, doc: Doc) -> bool:
    if case.pipeline.ranks == 1:
        return False
    op = rng.choice(doc["ops"])
    op["rank"] = rng.choice([r for r in range(case.pipeline.ranks) if r != op["rank"]])
    refresh(doc)
    return True


def missing(rng: random.Random, case: Case, doc: Doc) -> bool:
    doc["ops"].remove(rng.choice(doc["ops"]))
    refresh(doc)
    return True


def repeated(rng: random.Random, case: Case, doc: Doc) -> bool:
    op = dict(rng.choice(doc["ops"]))
    move(op, rng.choice([0, doc["makespan_ns"]]))
    doc["ops"].insert(rng.randint(0, len(doc["ops"])), op)
    refresh(doc)
    return True


def wrong_duration(rng: random.Random, case: Case, doc: Doc) -> bool:
    rng.choice(doc["ops"])["end_ns"] += rng.choice([-1, 1])
    refresh(doc)
    return True


def wrong_kind(rng: random.Random, case: Case, doc: Doc) -> bool:
    """One letter becomes another: then an op is missing, and another foreign or repeated."""
    op = rng.choice(doc["ops"])
    op["kind"] = rng.choice([kind for kind in "FIWB" if kind != op["kind"]])
    refresh(doc)
    return True


def wrong_makespan(rng: random.Random, case: Case, doc: Doc) -> bool:
    doc["makespan_ns"] += rng.choice([-1, 1])
    return True


def wrong_span(rng: random.Random, case: Case, doc: Doc) -> bool:
    doc["device_span_ns"] += rng.choice([-1, 1])
    return True


def wrong_bubble(rng: random.Random, case: Case, doc: Doc) -> bool:
    doc["bubble"] += rng.choice([-1, 1]) * 1e-6
    return True


def wrong_peak(rng: random.Random, case: Case, doc: Doc) -> bool:
    rank = rng.choice([r for r, peak in enumerate(doc["peak_bytes"]) if peak])
    doc["peak_bytes"][rank] += rng.choice([-1, 1])
    return True


def wrong_gap(rng: random.Random, case: Case, doc: Doc) -> bool:
    doc["lower_bound_ns"] = rng.randint(1, value_of(doc))
    doc["gap"] = value_of(doc) / doc["lower_bound_ns"] - 1 + 1e-5
    return True


def no_gap(rng: random.Random, case: Case, doc: Doc) -> bool:
    doc["lower_bound_ns"] = rng.randint(1, value_of(doc))
    doc.pop("gap", None)
    return True


def bound_too_high(rng: random.Random, case: Case, doc: Doc) -> bool:
    doc["lower_bound_ns"], doc["gap"] = value_of(doc) + 1, 0.0
    return True


def not_optimal(rng: random.Random, case: Case, doc: Doc) -> bool:
    bound = value_of(doc) - 1
    doc |= {"status": "optimal", "lower_bound_ns": bound, "gap": value_of(doc) / bound - 1}
    return True


def optimal_unproven(rng: random.Random, case: Case, doc: Doc) -> bool:
    doc["status"] = "optimal"
    doc.pop("lower_bound_ns", None)
    return True


def memory_short_by_one(rng: random.Random, case: Case, doc: Doc) -> bool:
    limits = list(doc["peak_bytes"])
    limits[rng.choice([r for r, peak in enumerate(limits) if peak])] -= 1
    doc["pipeline"]["memory_limit_bytes"] = limits
    return True


def latency_longer_by_one(rng: random.Random, case: Case, doc: Doc) -> bool:
    pairs, ranks = case.late(), case.pipeline.ranks
    if not pairs:
        return False
    a, b = rng.choice(pairs)
    latency = doc["pipeline"].setdefault("latency_ns", [[0] * ranks for _ in range(ranks)])
    latency[a["rank"]][b["rank"]] += 1
    return True


def stage_slower(rng: random.Random, case: Case, doc: Doc) -> bool:
    """The pipeline asks for more time than the schedule gives."""
    times = doc["pipeline"][rng.choice(["forward_ns", "backward_input_ns", "backward_weight_ns"])]
    stage = rng.randrange(len(times))
    if isinstance(times[stage], list):
        times[stage][rng.randrange(len(times[stage]))] += 1
    else:
        times[stage] += 1
    return True


def permuted(rng: random.Random, case: Case, doc: Doc) -> bool:
    rng.shuffle(doc["ops"])
    return True


def last_delayed(rng: random.Random, case: Case, doc: Doc) -> bool:
    """Nothing waits for the last op of all, and memory falls when it ends."""
    move(max(doc["ops"], key=lambda op: (op["end_ns"], op["start_ns"])), rng.randint(1, 50))
    refresh(doc)
    return True


def all_delayed(rng: random.Random, case: Case, doc: Doc) -> bool:
    by = rng.randint(1, 50)
    for op in doc["ops"]:
        move(op, by)
    refresh(doc)
    return True


def memory_just_enough(rng: random.Random, case: Case, doc: Doc) -> bool:
    doc["pipeline"]["memory_limit_bytes"] = list(doc["peak_bytes"])
    return True


def proven_optimal(rng: random.Random, case: Case, doc: Doc) -> bool:
    doc["objective"] = rng.choice(["makespan", "device-span"])
    doc |= {"status": "optimal", "lower_bound_ns": value_of(doc), "gap": 0.0}
    return True


def bound_of_zero(rng: random.Random, case: Case, doc: Doc) -> bool:
    doc["lower_bound_ns"] = 0
    doc.pop("gap", None)
    return True


def latency_shorter(rng: random.Random, case: Case, doc: Doc) -> bool:
    """Also on the diagonal, where it means nothing."""
    ranks = case.pipeline.ranks
    old = doc["pipeline"].get("latency_ns", [[0] * ranks for _ in range(ranks)])
    new = [[rng.randint(0, old[a][b]) for b in range(ranks)] for a in range(ranks)]
    for rank in range(ranks):
        new[rank][rank] = rng.randint(0, 99)
    doc["pipeline"]["latency_ns"] = new
    return True


def spelled_out(rng: random.Random, case: Case, doc: Doc) -> bool:
    """Write what may be left out or shortened."""
    pipeline = doc["pipeline"]
    m = pipeline["microbatches"]
    pipeline.setdefault("direction", [0] * m)
    for name in ("forward_ns", "backward_input_ns", "backward_weight_ns"):
        pipeline[name] = [t if isinstance(t, list) else [t] * m for t in pipeline[name]]
    return True


def moved_at_random(rng: random.Random, case: Case, doc: Doc) -> bool:
    op = rng.choice(doc["ops"])
    move(op, rng.randint(-min(op["start_ns"], 20), 20))
    refresh(doc)
    return True


def neighbours_swapped(rng: random.Random, case: Case, doc: Doc) -> bool:
    """Run two neighbours of a rank the other way round, in the time that they had."""
    pairs = case.tight()
    if not pairs:
        return False
    a, b = (find(doc, key_of(op)) for op in rng.choice(pairs))
    move(b, a["start_ns"] - b["start_ns"])
    move(a, b["end_ns"] - a["start_ns"])
    refresh(doc)
    return True


def microbatches_swapped(rng: random.Random, case: Case, doc: Doc) -> bool:
    """Exchange two microbatches of one kind and stage."""
    a = rng.choice(doc["ops"])
    same = [op for op in doc["ops"] if (op["kind"], op["stage"]) == (a["kind"], a["stage"])]
    b = rng.choice([op for op in same if op is not a])
    a["microbatch"], b["microbatch"] = b["microbatch"], a["microbatch"]
    refresh(doc)
    return True


def spread_out(rng: random.Random, case: Case, doc: Doc) -> bool:
    """Delay all that starts after some moment: the orders, and so the memory, stay the same."""
    moment, by = rng.randint(0, doc["makespan_ns"]), rng.randint(1, 9)
    for op in doc["ops"]:
        if op["start_ns"] >= moment:
            move(op, by)
    refresh(doc)
    return True


INVALID: tuple[Mutation, ...] = (
    earlier,
    later,
    backward_first,
    weight_first,
    wrong_rank,
    missing,
    repeated,
    wrong_duration,
    wrong_kind,
    wrong_makespan,
    wrong_span,
    wrong_bubble,
    wrong_peak,
    wrong_gap,
    no_gap,
    bound_too_high,
    not_optimal,
    optimal_unproven,
    memory_short_by_one,
    latency_longer_by_one,
    stage_slower,
)
VALID: tuple[Mutation, ...] = (
    permuted,
    last_delayed,
    all_delayed,
    memory_just_enough,
    proven_optimal,
    bound_of_zero,
    latency_shorter,
    spelled_out,
    spread_out,
)
OPEN: tuple[Mutation, ...] = (moved_at_random, neighbours_swapped, microbatches_swapped)
INSTANT = (*OPEN, permuted, all_delayed, memory_just_enough, proven_optimal, spread_out)
"""What keeps its meaning where ops take no time and many happen at one moment."""
OURS_ONLY: tuple[Mutation, ...] = (wrong_bubble, wrong_peak)
"""What the second judge does not look at."""


# Judging ----------------------------------------------------------------------------------------


def second_judge() -> Callable[[Doc], bool] | None:
    """Return the benchmark's checker as a function that says "valid", where it can be found."""
    module = checker()
    return module and (lambda doc: not module.check(doc["pipeline"], doc)[0])


def run(count: int, seed: int) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Judge `count` mutants.

    Returns
    -------
    counts : Counter of (mutation, "accepted" or "rejected")
    misjudged : list of str
        One line for each mutant on which the checker was wrong or the two judges differ.
    """
    rng = random.Random(seed)
    judge = second_judge()
    expected = {**dict.fromkeys(INVALID, False), **dict.fromkeys(VALID, True)}
    mutations = (*INVALID, *VALID, *OPEN)
    counts: Counter[tuple[str, str]] = Counter()
    misjudged = []
    stock: list[Case] = []
    for number in range(count):
        mutation = mutations[number % len(mutations)]
        if number % 200 == 0:
            stock = cases(rng)
        applied = False
        while not applied:
            case = rng.choice(stock)
            doc = copy.deepcopy(case.doc)
            applied = (mutation in INSTANT or not case.instant) and mutation(rng, case, doc)
        wrong = check_schedule(Schedule.parse(doc, "mutant"))
        name, verdict = mutation.__name__, "rejected" if wrong else "accepted"
        counts[name, verdict] += 1
        told = f"{name}, mutant {number} of {case.pipeline.name}: {verdict}"
        if expected.get(mutation, not wrong) == bool(wrong):
            misjudged.append(f"{told}, expected otherwise ({wrong[0] if wrong else 'silence'})")
        if judge and judge(doc) == bool(wrong) and mutation not in OURS_ONLY:
            misjudged.append(f"{told}, the second judge differs ({wrong[:1]})")
    return counts, misjudged


@click.command()
@click.option("--count", default=3000, show_default=True, type=click.IntRange(1), help="Mutants.")
@click.option("--seed", default=0, show_default=True, help="Seed of all that is random.")
def main(count: int, seed: int) -> None:
    """Judge mutated schedules; exit 1 when the checker misjudged one.

    Example: python scripts/mutate_check.py --count 3000 --seed 0
    """
    counts, misjudged = run(count, seed)
    click.echo(f"{'mutation':24}{'expected':>10}{'accepted':>10}{'rejected':>10}")
    for group, expected in ((INVALID, "rejected"), (VALID, "accepted"), (OPEN, "either")):
        for name in (mutation.__name__ for mutation in group):
            accepted, rejected = counts[name, "accepted"], counts[name, "rejected"]
            click.echo(f"{name:24}{expected:>10}{accepted:>10}{rejected:>10}")
    judges = "two judges" if checker() else "one judge: the standalone checker is not here"
    click.echo(f"{counts.total()} mutants, {len(misjudged)} misjudged, {judges}")
    for line in misjudged[:20]:
        click.echo(line, err=True)
    sys.exit(1 if misjudged else 0)


if __name__ == "__main__":
    main()
