"""Compiled kernels: numba with a cache on disk, so that only the first run on a machine compiles.

Kernels release the interpreter's lock: they run side by side, and Ctrl-C gets through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

__all__ = ["kernel"]


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function on first use, and keep the result where the user may write."""
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:  # nowhere to keep it: compile in every run
        return njit(nogil=True)(function)
