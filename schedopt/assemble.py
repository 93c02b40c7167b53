"""From starts of ops back to a schedule that people and runtimes read."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import numpy as np

from schedopt._version import __version__
from schedopt.build.pipeline import KINDS, Model
from schedopt.problem import Ints, Objective, device_span, makespan
from schedopt.schedule import Certificate, Op, Provenance, Schedule
from schedopt.solvers.bounds import Bound
from schedopt.solvers.windows import Window
from schedopt.timing import peaks
from schedopt.units import format_ns

__all__ = ["assemble", "assumptions", "certificate", "label", "provenance"]


def assemble(
    model: Model,
    starts: Ints,
    *,
    objective: Objective = "makespan",
    bound: Bound | None = None,
    method: str = "",
    notes: list[str] | None = None,
    source: Provenance | None = None,
) -> Schedule:
    """Make a schedule from the starts of a model's ops.

    Parameters
    ----------
    bound : Bound, optional
        The proof; without it the schedule says nothing of how good it is.
    notes : list of str, optional
        Assumptions to state beside those of the model itself.
    """
    problem, pipeline = model.problem, model.pipeline
    time, span = makespan(problem, starts), device_span(problem, starts)
    worth = span if objective == "device-span" else time
    busy = int(problem.duration.sum())
    proven = bound is not None and bound.value == worth
    return Schedule.model_construct(
        name=pipeline.name,
        method=method,
        objective=objective,
        status="optimal" if proven else "feasible",
        makespan_ns=time,
        device_span_ns=span,
        lower_bound_ns=bound.value if bound is not None else None,
        gap=worth / bound.value - 1 if bound is not None and bound.value else None,
        bubble=1 - busy / (pipeline.ranks * time) if time else 0.0,
        peak_bytes=peaks(problem, starts).tolist(),
        certificate=certificate(model, bound) if bound is not None else None,
        assumptions=[*assumptions(model), *(notes or [])],
        provenance=source,
        pipeline=pipeline,
        ops=_ops(model, starts),
    )


def _ops(model: Model, starts: Ints) -> list[Op]:
    """Rank by rank, in the order of time."""
    problem = model.problem
    order = np.lexsort((starts + problem.duration, starts, problem.resource))
    columns = (model.kind, model.stage, model.microbatch, problem.resource, starts)
    rows = zip(*(x[order].tolist() for x in columns), problem.duration[order].tolist(), strict=True)
    return [
        Op(
            kind=KINDS[kind],  # type: ignore[typeddict-item]
            stage=stage,
            microbatch=microbatch,
            rank=rank,
            start_ns=start,
            end_ns=start + duration,
        )
        for kind, stage, microbatch, rank, start, duration in rows
    ]


def assumptions(model: Model) -> list[str]:
    """Return what any schedule of the model takes for granted."""
    notes = []
    if model.pipeline.latency_ns is not None:
        notes.append("transfers take their latency and never wait for each other")
    if not np.all(model.problem.queue_exact):
        notes.append(
            "microbatches differ and keep their order (first in, first out); the bound allows any"
        )
    return notes


def label(model: Model, op: int) -> str:
    """Return words for an op: ``F of microbatch 3 on stage 2``."""
    kind = KINDS[model.kind[op]]
    return f"{kind} of microbatch {model.microbatch[op]} on stage {model.stage[op]}"


def certificate(model: Model, bound: Bound) -> Certificate:
    """Put a bound into words."""
    rank = bound.resource if bound.resource >= 0 else None
    return Certificate(bound=bound.kind, rank=rank, reason=_reason(model, bound), terms=bound.terms)


def _reason(model: Model, bound: Bound) -> str:
    terms = {name: format_ns(number) for name, number in bound.terms.items()}
    if bound.kind == "chain":
        return (
            f"{label(model, bound.first)} can't start before {terms['head']}, takes "
            f"{terms['duration']}, and what must follow takes {terms['tail']}"
        )
    if bound.kind == "machine":
        return (
            f"rank {bound.resource} has {terms['work']} of work, and whatever order it takes, "
            f"waits for arrivals and for the end of others come to {terms['waits']}"
        )
    if bound.kind == "window":
        parts = [f"rank {bound.resource} has {terms['work']} of work"]
        if bound.before is not None and bound.before.op >= 0:
            parts.append(_wait(model, bound.before, "before", "which can't start before"))
        if bound.after is not None and bound.after.op >= 0:
            parts.append(_wait(model, bound.after, "after", "which must be followed by another"))
        return "; ".join(parts)
    if bound.kind in ("cp-sat", "milp"):
        return f"{bound.kind} searched everything below {format_ns(bound.value)}: nothing is there"
    return "times are not negative"


def _wait(model: Model, window: Window, side: str, why: str) -> str:
    return (
        f"idles {format_ns(window.idle)} {side} {label(model, window.op)}, {why} "
        f"{format_ns(window.arrival)} while memory and order admit {format_ns(window.work)} of work"
    )


def provenance(
    input_sha256: str, options: dict[str, str | int | float | bool | None]
) -> Provenance:
    """Return where an answer came from."""
    versions = {"schedopt": __version__}
    for name in ("ortools", "numpy", "numba", "highspy", "pulp"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return Provenance(input_sha256=input_sha256, options=options, versions=versions)
