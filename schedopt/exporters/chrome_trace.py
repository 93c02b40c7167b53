"""A timeline in the Trace Event format, for ui.perfetto.dev and chrome://tracing.

Format: "Trace Event Format" of the Chromium project. Each rank is a process with one thread of
computations, arrows for what it sends to other ranks, and a counter of the activations it holds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from schedopt.build.pipeline import KINDS, memory_changes
from schedopt.files import dumps
from schedopt.pipeline import Pipeline
from schedopt.schedule import Op, Schedule

__all__ = ["to_chrome_trace"]

Event = dict[str, Any]


def to_chrome_trace(schedule: Schedule) -> str:
    """Write a schedule as a JSON trace; equal schedules give equal bytes.

    Times are in µs, exact to the ns up to 2^50 ns (13 days). ``otherData`` carries the figures
    that the picture can't show: makespan, bound and gap.
    """
    arrivals, departures = _flows(schedule)
    events: list[Event] = []
    for rank, ops in enumerate(schedule.by_rank()):
        events += _names(rank)
        for op in ops:
            # A viewer ties an arrow to the last slice that began before it on the thread.
            events.append(_slice(op))
            events += arrivals.get(_key(op), [])
            events += departures.get(_key(op), [])
        events += _memory(schedule.pipeline, rank, ops)
    figures = {
        "name": schedule.name,
        "objective": schedule.objective,
        "status": schedule.status,
        "makespan_ns": schedule.makespan_ns,
        "device_span_ns": schedule.device_span_ns,
        "lower_bound_ns": schedule.lower_bound_ns,
        "gap": schedule.gap,
        "bubble": schedule.bubble,
    }
    return dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": figures})


def _us(ns: int) -> float:
    """Return µs that come back as the same ns from ``int(us * 1000)``, as Perfetto reads them."""
    us = ns / 1000
    return us if int(us * 1000) >= ns else math.nextafter(us, math.inf)


def _track(rank: int) -> Event:
    """Process and thread of a rank: from 1, since Perfetto gives 0 to the idle process."""
    return {"pid": rank + 1, "tid": rank + 1}


def _names(rank: int) -> Iterator[Event]:
    for name, args in (
        ("process_name", {"name": f"rank {rank}"}),
        ("process_sort_index", {"sort_index": rank}),
        ("thread_name", {"name": "compute"}),
    ):
        yield {"name": name, "ph": "M", **_track(rank), "args": args}


def _slice(op: Op) -> Event:
    return {
        "name": f"{op['kind']} s{op['stage']} mb{op['microbatch']}",
        "cat": op["kind"],
        "ph": "X",
        "ts": _us(op["start_ns"]),
        "dur": _us(op["end_ns"] - op["start_ns"]),
        **_track(op["rank"]),
        "args": {"stage": op["stage"], "microbatch": op["microbatch"], "kind": op["kind"]},
    }


Key = tuple[str, int, int]


def _key(op: Op) -> Key:
    """Place of an op in the pass of its microbatch; I and B have the same one."""
    return ("B" if op["kind"] == "I" else op["kind"], op["stage"], op["microbatch"])


def _flows(schedule: Schedule) -> tuple[dict[Key, list[Event]], dict[Key, list[Event]]]:
    """Return the ends and the beginnings of arrows, by the op that receives or sends."""
    latency = schedule.pipeline.latency()
    ops = {_key(op): op for op in schedule.ops}
    arrivals: dict[Key, list[Event]] = {}
    departures: dict[Key, list[Event]] = {}
    for key, op in sorted(ops.items()):
        kind, stage, microbatch = key
        step, name = (1, "activation") if kind == "F" else (-1, "gradient")
        receiver = ops.get((kind, stage + step, microbatch)) if kind != "W" else None
        if receiver is None or receiver["rank"] == op["rank"]:
            continue
        flow = {
            "name": name,
            "cat": "transfer",
            "id": len(departures) + 1,
            "args": {"latency_ns": int(latency[op["rank"], receiver["rank"]])},
        }
        # An arrow must begin inside its slice, or it may be taken for one of the next slice.
        leaves = max(op["start_ns"], op["end_ns"] - 1)
        departures[key] = [{**flow, "ph": "s", "ts": _us(leaves), **_track(op["rank"])}]
        arrives = {"ph": "f", "bp": "e", "ts": _us(receiver["start_ns"])}
        arrivals[_key(receiver)] = [{**flow, **arrives, **_track(receiver["rank"])}]
    return arrivals, departures


def _memory(pipeline: Pipeline, rank: int, ops: list[Op]) -> Iterator[Event]:
    """Yield the bytes of activations held after each time at which they change.

    One value per time: what falls and what rises at that time are taken together, and as falls
    come first the level between them is no peak.
    """
    changes = dict(zip(KINDS, memory_changes(pipeline).tolist(), strict=True))
    total: dict[int, int] = defaultdict(int)
    for op in ops:
        change = changes[op["kind"]][op["stage"]]
        total[op["start_ns"] if change > 0 else op["end_ns"]] += change
    level = 0
    for time in sorted(total):
        if total[time]:
            level += total[time]
            yield {
                "name": "activation memory",
                "ph": "C",
                "ts": _us(time),
                **_track(rank),
                "args": {"bytes": level},
            }
