"""The independent checker beside the benchmark folder: it shares no code with the project."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

SHARED = Path(__file__).parents[2] / "shared"


def checker() -> ModuleType | None:
    """Load it, or return None where it is absent."""
    path = SHARED / "tools" / "check_schedule.py"
    if not path.is_file():
        return None
    spec = importlib.util.spec_from_file_location("check_schedule", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
