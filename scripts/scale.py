"""What the largest real runs cost: 64 ranks, two chunks, 512 microbatches, 196,608 ops.

    python scripts/scale.py

CPU time of each step on its own, after compilation, and the peak memory of the process.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np

import schedopt
from schedopt.assemble import assemble
from schedopt.build.pipeline import build
from schedopt.checking import check_problem, check_schedule
from schedopt.pipeline import Pipeline
from schedopt.solvers.bounds import lower_bound
from schedopt.solvers.construct import ListScheduler


def pipeline(ranks: int, microbatches: int, seed: int = 0) -> Pipeline:
    """A V placement of uneven stages, with the memory of 1F1B."""
    rng = np.random.default_rng(seed)
    stages = 2 * ranks
    down = list(range(ranks))
    return Pipeline(
        ranks=ranks,
        stages=stages,
        microbatches=microbatches,
        placement=[[*down, *down[::-1]]],
        forward_ns=rng.integers(4_000_000, 7_000_000, stages).tolist(),
        backward_input_ns=rng.integers(4_000_000, 7_000_000, stages).tolist(),
        backward_weight_ns=rng.integers(3_000_000, 5_000_000, stages).tolist(),
        activation_bytes=[1000] * stages,
        released_by_input_bytes=[400] * stages,
        memory_limit_bytes=[2000 * ranks] * ranks,
    )


def timed(name: str, step: Callable[[], Any]) -> Any:
    began = time.process_time()
    result = step()
    click.echo(f"{name:22s} {time.process_time() - began:6.2f} s")
    return result


@click.command()
def main() -> None:
    """Print a line for each step."""
    schedopt.solve(pipeline(2, 2), time_limit=2)  # compile outside the clock
    large = pipeline(64, 512)
    model = timed("build", lambda: build(large))
    click.echo(f"{'':22s} {model.problem.size} ops")
    bounds = timed("bounds", lambda: lower_bound(model.problem))
    scheduler = ListScheduler(model.problem, bounds.shape)
    starts = timed("one construction", lambda: scheduler.run(-0.01 * bounds.tail))
    schedule = timed("assemble", lambda: assemble(model, starts, bound=bounds.best))
    wrong = timed("check the problem", lambda: check_problem(model.problem, starts))
    wrong += timed("check the schedule", lambda: check_schedule(schedule))
    timed("write as JSON", schedule.text)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    click.echo(f"{'peak memory':22s} {peak:6.0f} MiB")
    click.echo(f"violations: {len(wrong)}; gap {100 * (schedule.gap or 0):.2f} %")


if __name__ == "__main__":
    main()
