"""The least device span of given orders.

For orders and a span S the constraints "the last op of a group ends at most S after its first
starts" are differences of starts, like precedences; so S is attainable exactly when pushing first
ops later until all hold comes to rest (Bellman and Ford). The least S is found by bisection.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from schedopt.problem import Ints, Problem, device_span
from schedopt.timing import earliest, fits, orders_of

__all__ = ["compress"]


def compress(problem: Problem, starts: Ints, floor: int = 0, steps: int = 64) -> Ints:
    """Return starts of least device span in the orders of a schedule, or that schedule where its
    orders don't fit the pools at other times.

    Parameters
    ----------
    problem : Problem
        Without choices, closed windows and pins, each pool changed by one resource.
    starts : array, shape (ops,), ns
        The schedule.
    floor : int
        Stop looking below this span, ns.
    steps : int
        Bisections at most; each costs a few passes over all ops.
    """
    orders = orders_of(problem, starts)
    if not fits(problem, orders):
        return starts
    best = earliest(problem, orders)
    low, high = floor, device_span(problem, best)
    for _ in range(steps):
        if low >= high:
            break
        middle = (low + high) // 2
        within = _within(problem, orders, middle)
        if within is None:
            low = middle + 1
        else:
            best, high = within, device_span(problem, within)
    return best


def _within(problem: Problem, orders: Sequence[Ints], span: int) -> Ints | None:
    """Return starts with at most this span, or None."""
    groups: dict[int, list[Ints]] = defaultdict(list)
    for order, resource in zip(orders, problem.resources, strict=True):
        if resource.group >= 0 and len(order):
            groups[resource.group].append(order)
    # Of every group, each resource's last op against each resource's first.
    pairs = [(a[0], b[-1]) for rows in groups.values() for a in rows for b in rows]
    first, last = np.array(pairs, np.int64).reshape(-1, 2).T
    release = problem.release.copy()
    # A chain of pushes visits no first op twice, unless it goes round a cycle that can't be met.
    for _ in range(len(np.unique(first)) + 1):
        starts = earliest(problem, orders, release=release)
        needed = starts[last] + problem.duration[last] - span
        if np.all(needed <= starts[first]):
            return starts
        np.maximum.at(release, first, needed)
    return None
