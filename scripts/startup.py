"""How long a new user waits: `--help`, the first schedule, the second.

    python scripts/startup.py

The first run compiles the kernels into an empty cache. Wall times of whole processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

PROFILE = Path(__file__).parents[1] / "profiles" / "zero-bubble-8stage-measured.json"


def timed(arguments: list[str], cache: str) -> float:
    """Wall time of one `schedopt` process, s."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "schedopt", *arguments],
        env=environment,
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - began


@click.command()
def main() -> None:
    """Print the three times."""
    solve = ["solve", str(PROFILE), "--ranks", "8", "--microbatches", "32"]
    hard = [*solve, "--memory-limit", "0.9x", "--time-limit", "2"]
    with tempfile.TemporaryDirectory() as cache:
        timed(["--help"], cache)
        click.echo(f"--help             {min(timed(['--help'], cache) for _ in range(5)):6.2f} s")
        click.echo(f"first schedule     {timed(solve, cache):6.2f} s (compiles)")
        click.echo(f"second schedule    {timed(solve, cache):6.2f} s")
        click.echo(f"first search       {timed(hard, cache):6.2f} s (compiles; 2 s of search)")
        click.echo(f"second search      {timed(hard, cache):6.2f} s (2 s of search)")


if __name__ == "__main__":
    main()
