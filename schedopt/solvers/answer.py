"""What a solver says of a problem."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from schedopt.problem import ABSENT, Ints

__all__ = ["Answer"]


@dataclass(frozen=True)
class Answer:
    """A solver's result; any part may be missing.

    Attributes
    ----------
    starts : array, shape (ops,), or None
        Best schedule found, ns; -1 for absent ops.
    selected : tuple of int
        Option taken by each choice.
    value : int or None
        Objective of `starts`.
    bound : int
        Proven: no schedule has a smaller objective.
    infeasible : bool
        Proven: no schedule exists (below the limit given to the solver, if one was).
    interrupted : bool
        The search was stopped by the user.
    """

    starts: Ints | None = None
    selected: tuple[int, ...] = ()
    value: int | None = None
    bound: int = 0
    infeasible: bool = False
    interrupted: bool = False

    @property
    def optimal(self) -> bool:
        """Whether value and bound are equal as integers."""
        return self.value is not None and self.value == self.bound

    def divided(self, unit: int) -> Answer:
        """Return the answer in multiples of `unit`, of which all its times are."""
        value = None if self.value is None else self.value // unit
        starts = self.starts
        if starts is not None:
            starts = np.where(starts == ABSENT, ABSENT, starts // unit)
        return replace(self, starts=starts, value=value, bound=-(-self.bound // unit))

    def times(self, unit: int) -> Answer:
        """Return the answer in units of which `unit` make one."""
        starts = self.starts
        if starts is not None:
            starts = np.where(starts == ABSENT, ABSENT, starts * unit)
        value = None if self.value is None else self.value * unit
        return replace(self, starts=starts, value=value, bound=self.bound * unit)
