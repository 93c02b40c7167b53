"""The shared benchmark problems of up to 400 ops, judged by the checker beside them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import SHARED
from judge import checker

import schedopt


@cache
def best_known() -> dict[str, dict[str, Any]]:
    path = SHARED / "bench" / "best_known.json"
    return json.loads(path.read_text()) if path.is_file() else {}


SMALL = sorted(name for name, known in best_known().items() if known["ops"] <= 400)


@pytest.mark.parametrize("name", SMALL or ["no benchmark folder"])
def test_no_worse_than_the_best_known(name: str, shared: Path) -> None:
    path, known = shared / "bench" / "pipelines" / f"{name}.json", best_known()[name]
    schedule = schedopt.solve(schedopt.load(path), rounds=9, time_limit=120)
    judge = checker()
    assert judge is not None
    errors, _ = judge.check(json.loads(path.read_text()), json.loads(schedule.text()))
    assert not errors
    if known["proven"]:
        assert schedule.makespan_ns == known["best_makespan_ns"]
    assert schedule.makespan_ns <= known["best_makespan_ns"]
    assert schedule.lower_bound_ns <= known["best_makespan_ns"]
