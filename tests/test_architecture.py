"""Who may import whom: the rules that keep the core free of features and terminals."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from conftest import ROOT

import schedopt

PACKAGE = ROOT / "schedopt"
MODULES = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_the_checker_knows_only_data() -> None:
    ours = {name for name in imports(PACKAGE / "checking.py") if name.startswith("schedopt.")}
    data = {"errors", "pipeline", "problem", "schedule"}
    assert {name.split(".")[1] for name in ours} <= data


@pytest.mark.parametrize("path", sorted((PACKAGE / "solvers").glob("*.py")), ids=lambda p: p.name)
def test_solvers_know_no_pipeline(path: Path) -> None:
    ours = {name for name in imports(path) if name.startswith("schedopt.")}
    allowed = {"problem", "solvers", "timing", "errors", "checking", "jit"}
    assert {name.split(".")[1] for name in ours} <= allowed


def test_no_pipeline_word_in_the_core() -> None:
    tree = ast.parse((PACKAGE / "problem.py").read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    assert not names & {"stage", "microbatch", "rank", "forward", "backward", "pipeline"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_terminals_and_torch_stay_outside(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    top = {name.split(".")[0] for name in imports(path)}
    if room not in ("cli", "render"):
        assert "rich" not in top
    if room not in ("measure", "verify", "annotate", "runtime", "doctor.py"):
        assert "torch" not in top


def test_the_public_surface() -> None:
    assert sorted(schedopt.__all__) == [
        "InfeasibleError",
        "InputError",
        "Interrupted",
        "LimitError",
        "Pipeline",
        "Profile",
        "SchedoptError",
        "Schedule",
        "__version__",
        "check",
        "compare",
        "cut",
        "export",
        "from_orders",
        "load",
        "named",
        "simulate",
        "solve",
    ]
    for name in schedopt.__all__:
        assert getattr(schedopt, name).__doc__
