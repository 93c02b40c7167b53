"""Solve benchmark problems and compare with the best answers known.

    python scripts/bench.py ../shared/bench/pipelines --max-ops 400
    python scripts/bench.py FILE … --time-limit 30 --markdown

Every schedule goes through the independent checker beside the benchmark folder, if there is one.
CPU time is that of the process after compilation, both threads together.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pandas as pd
from judge import SHARED, checker

import schedopt


def files(paths: tuple[Path, ...]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.glob("*.json")) if path.is_dir() else [path]


def best_known(path: Path) -> dict:
    table = path.parent.parent / "best_known.json"
    known = json.loads(table.read_text()) if table.is_file() else {}
    return known.get(path.stem, {})


def run(path: Path, time_limit: float, objective: str, seed: int) -> dict:
    """Solve one file and judge the answer."""
    pipeline = schedopt.load(path)
    cpu, wall = time.process_time(), time.perf_counter()
    schedule = schedopt.solve(pipeline, time_limit=time_limit, objective=objective, seed=seed)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    known = best_known(path) if objective == "makespan" else {}
    best = known.get("best_makespan_ns")
    judge = checker()
    errors = []
    if judge is not None:
        errors, _ = judge.check(json.loads(path.read_text()), json.loads(schedule.text()))
    return {
        "problem": path.stem,
        "ops": len(schedule.ops),
        "bound": schedule.lower_bound_ns,
        "ours": schedule.value_ns,
        "gap %": 100 * (schedule.gap or 0.0),
        "proven": "yes" if schedule.status == "optimal" else "",
        "over best %": 100 * (schedule.value_ns / best - 1) if best else float("nan"),
        "best proven": "yes" if known.get("proven") else "",
        "by": schedule.method,
        "proof": schedule.certificate.bound if schedule.certificate else "",
        "CPU s": cpu,
        "wall s": wall,
        "checker": "no checker" if judge is None else "; ".join(errors[:2]) or "ok",
    }


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--time-limit", default=10.0, show_default=True, help="Seconds for each problem.")
@click.option("--max-ops", default=10**9, help="Leave out larger problems.")
@click.option("--objective", default="makespan", type=click.Choice(["makespan", "device-span"]))
@click.option("--seed", default=0)
@click.option("--markdown", is_flag=True, help="Print the table for a README.")
def main(
    paths: tuple[Path, ...],
    time_limit: float,
    max_ops: int,
    objective: str,
    seed: int,
    markdown: bool,
) -> None:
    """Solve each problem; exit 1 if a checker objects or a proven best is contradicted."""
    rows = []
    for path in files(paths or (SHARED / "bench" / "pipelines",)):
        pipeline = schedopt.load(path)
        if (2 if pipeline.fused else 3) * pipeline.stages * pipeline.microbatches > max_ops:
            continue
        if not rows:  # compile outside the clock
            schedopt.solve(pipeline, time_limit=1)
        row = run(path, time_limit, objective, seed)
        rows.append(row)
        click.echo(
            f"{row['problem']:50s} {row['ops']:7d} gap {row['gap %']:7.3f} % {row['proven']:4s}"
            f"over best {row['over best %']:7.3f} % by {row['by']}, {row['CPU s']:.1f} CPU s, "
            f"checker {row['checker']}",
            err=True,
        )
    table = pd.DataFrame(rows)
    click.echo(table.to_markdown(index=False) if markdown else table.to_string(index=False))
    proven = (table["proven"] == "yes").sum()
    click.echo(
        f"{len(table)} problems, {proven} proven, mean gap {table['gap %'].mean():.3f} %, "
        f"worst over best {table['over best %'].max():.3f} %"
    )
    contradicted = (table["best proven"] == "yes") & (table["over best %"] < 0)
    sys.exit(
        int(
            ((table["checker"] != "ok") & (table["checker"] != "no checker")).any()
            or contradicted.any()
        )
    )


if __name__ == "__main__":
    main()
