"""What this machine has of what schedopt needs, and how to get the rest."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from schedopt._version import __version__

__all__ = ["Fact", "facts"]

GPU_SECONDS = 10
"""How long the driver may take to list its GPUs."""


@dataclass(frozen=True)
class Fact:
    """One thing looked at.

    Attributes
    ----------
    name, found : str
        What, and in which version or state.
    ok : bool
        Whether it is there and works.
    needed : bool
        Whether nothing works without it.
    hint : str
        What it is for and how to get it; empty when it is there.
    """

    name: str
    found: str
    ok: bool = True
    needed: bool = False
    hint: str = ""


def facts() -> list[Fact]:
    """Look at everything; takes about a second."""
    return [
        Fact("python", f"{platform.python_version()}, {sys.executable}"),
        Fact("schedopt", f"{__version__}, {Path(__file__).parent}"),
        *map(_package, ("numpy", "numba", "ortools", "pulp")),
        *_milp(),
        _cache(),
        _torch(),
        _gpus(),
    ]


def _package(name: str) -> Fact:
    try:
        return Fact(name, version(name), needed=True)
    except PackageNotFoundError:
        return Fact(name, "not installed", ok=False, needed=True, hint=f"pip install {name}")


def _milp() -> Iterator[Fact]:
    """Yield which solvers PuLP can call; they are for a second opinion only."""
    try:
        import pulp
    except ImportError:
        return
    known = set(pulp.listSolvers(onlyAvailable=True))
    for name, programs, package in (
        ("HiGHS", {"HiGHS"}, "highspy"),
        ("CBC", {"PULP_CBC_CMD", "COIN_CMD"}, "pulp[cbc]"),
    ):
        if known & programs:
            yield Fact(name, "available to PuLP")
        else:
            hint = f"For --solver milp: pip install '{package}'"
            yield Fact(name, "not available to PuLP", ok=False, hint=hint)


def _cache() -> Fact:
    """Say where compiled kernels are kept; without such a place every run compiles them anew."""
    name, hint = "cache", "Name a folder you may write to in NUMBA_CACHE_DIR."
    try:
        from schedopt.timing import _earliest
    except ImportError as error:
        return Fact(name, str(error), ok=False, hint=hint)
    path = getattr(getattr(_earliest, "stats", None), "cache_path", None)
    if path is None:
        return Fact(name, "nowhere to keep compiled kernels", ok=False, hint=hint)
    parent = next(folder for folder in (Path(path), *Path(path).parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=parent):
            return Fact(name, f"{path}, writable")
    except OSError as error:
        return Fact(name, f"{path}: {error.strerror}", ok=False, hint=hint)


def _torch() -> Fact:
    """Say which torch is installed, without the seconds that importing it takes."""
    try:
        return Fact("torch", version("torch"))
    except PackageNotFoundError:
        hint = 'To run schedules: pip install "torch>=2.12"'
        return Fact("torch", "not installed", ok=False, hint=hint)


def _gpus() -> Fact:
    """List NVIDIA GPUs as the driver sees them."""
    none = "None is needed to solve; to run schedules, any that torch supports."
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Fact("GPUs", "no nvidia-smi", ok=False, hint=none)
    try:
        done = subprocess.run(
            [tool, "-L"], capture_output=True, text=True, timeout=GPU_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Fact("GPUs", f"nvidia-smi failed: {error}", ok=False, hint=none)
    names = [line.split(" (UUID")[0] for line in done.stdout.splitlines() if line.strip()]
    if done.returncode or not names:
        found = (done.stderr or done.stdout).strip().split(os.linesep)[0] or "nvidia-smi lists none"
        return Fact("GPUs", found, ok=False, hint=none)
    return Fact("GPUs", "; ".join(names))
