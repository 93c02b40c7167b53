"""``schedopt simulate``: a schedule's orders under other durations, or under jitter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from schedopt.cli.inputs import FILE, about, blaming, read_like, read_schedule
from schedopt.cli.options import Finite, json_option, seed_option, voice_options
from schedopt.cli.program import Command
from schedopt.cli.voice import Voice

if TYPE_CHECKING:
    from schedopt.pipeline import Pipeline
    from schedopt.schedule import Schedule
    from schedopt.simulation import Simulation

__all__ = ["command"]

MOST_LINES = 24


@click.command("simulate", cls=Command, example="schedopt simulate schedule.json --jitter 0.1")
@click.argument("schedule", type=FILE)
@click.option(
    "--durations",
    type=FILE,
    metavar="FILE",
    help="Run it with the times of this pipeline, schedule or profile (cut alike), not its own.",
)
@click.option(
    "--jitter",
    type=Finite(0, 10),
    metavar="SHARE",
    default=0.05,
    help="Standard deviation of each duration, as a share of it; 0: none.",
)
@click.option(
    "--samples", type=click.IntRange(1, 10**6), metavar="N", default=200, help="Runs with jitter."
)
@seed_option
@json_option("the figures")
@voice_options
@click.pass_obj
def command(
    voice: Voice, schedule: str, durations: str | None, jitter: float, samples: int, seed: int
) -> None:
    """Run a schedule with other durations or jitter.

    Its orders stay, and every op starts as early as they allow. Shows the makespan, its median and
    95th percentile under jitter, and the critical path: what had to be faster for the whole to be
    faster.
    """
    from schedopt.problem import device_span

    document = read_schedule(schedule)
    pipeline = read_like(durations, document) if durations else None
    with about(schedule), blaming(schedule):
        run = _run(document, pipeline, jitter, samples, seed)
    figures: dict[str, object] = {
        "format": "schedopt/simulation",
        "version": 1,
        "makespan_ns": run.makespan_ns,
        "schedule_makespan_ns": document.makespan_ns,
        "device_span_ns": device_span(run.model.problem, run.starts),
        "jitter": jitter,
        "samples": len(run.samples),
        "seed": seed,
        "p50_ns": run.percentile(50),
        "p95_ns": run.percentile(95),
    }
    if voice.json:
        from schedopt.cli.critical import visits

        path = [visit._asdict() for visit in visits(run)]
        voice.document({**figures, "critical_path": path})
    else:
        _table(voice, document, run, jitter, seed)
    voice.next_step("show", schedule, "--html", "schedule.html")


def _run(
    schedule: Schedule, pipeline: Pipeline | None, jitter: float, samples: int, seed: int
) -> Simulation:
    from schedopt.api import from_orders, simulate
    from schedopt.timing import Deadlock

    try:
        return simulate(schedule, pipeline, jitter=jitter, samples=samples, seed=seed)
    except Deadlock:
        from_orders(pipeline or schedule.pipeline, schedule.orders())  # says who waits for whom
        raise


def _table(voice: Voice, schedule: Schedule, run: Simulation, jitter: float, seed: int) -> None:
    from rich.table import Table

    from schedopt.cli.critical import segments
    from schedopt.problem import device_span
    from schedopt.units import format_ns

    def beside(value: int, other: int) -> str:
        return f"{100 * (value / other - 1):+.2f} %" if other and value != other else ""

    figures = Table.grid(padding=(0, 2))
    span = device_span(run.model.problem, run.starts)
    for name, value, stated in (
        ("makespan", run.makespan_ns, schedule.makespan_ns),
        ("device span", span, schedule.device_span_ns),
    ):
        change = beside(value, stated)
        planned = f"{change} on what the schedule states" if change else "as the schedule states"
        figures.add_row(name, format_ns(value), planned)
    if len(run.samples):
        how = f"makespan with {100 * jitter:g} % jitter, {len(run.samples)} runs, seed {seed}"
        for name, q in (("median", 50), ("95th percentile", 95)):
            value = run.percentile(q)
            figures.add_row(name, format_ns(value), f"{beside(value, run.makespan_ns)} {how}")
            how = ""
    path = Table("from", "takes", "what", box=None, pad_edge=False, header_style="dim")
    lines = segments(run)
    hidden = max(0, len(lines) - MOST_LINES)
    for k, line in enumerate(lines):
        if k == MOST_LINES // 2 and hidden:
            path.add_row("…", "", f"{hidden} more lines; --json has every op")
        if not MOST_LINES // 2 <= k < MOST_LINES // 2 + hidden:
            path.add_row(format_ns(line.start), format_ns(line.length), line.words)
    voice.result(figures, "", f"critical path ({len(run.critical)} ops)", path)
