"""What all tests share: where the project lies, and the benchmark files beside it, if there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"

sys.path.insert(0, str(ROOT / "scripts"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of benchmark problems and independent checkers; tests skip without it."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the benchmark folder at {SHARED}, which is not part of the project")
    return SHARED
