"""Provably good pipeline-parallel training schedules from measured profiles.

Everything public is here and loads on first use, so that importing the package is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from schedopt._version import __version__

if TYPE_CHECKING:
    from schedopt.api import (
        Interrupted,
        check,
        compare,
        cut,
        export,
        from_orders,
        load,
        named,
        simulate,
        solve,
    )
    from schedopt.errors import InfeasibleError, InputError, LimitError, SchedoptError
    from schedopt.pipeline import Pipeline
    from schedopt.profile import Profile
    from schedopt.schedule import Schedule

__all__ = [
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

_HOME = {
    "InfeasibleError": "errors",
    "InputError": "errors",
    "LimitError": "errors",
    "SchedoptError": "errors",
    "Pipeline": "pipeline",
    "Profile": "profile",
    "Schedule": "schedule",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'schedopt' has no attribute '{name}'")
    return getattr(import_module(f"schedopt.{_HOME.get(name, 'api')}"), name)
