"""Cut a row of layers into consecutive stages, as evenly as possible."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TypeVar

__all__ = ["balance", "groups"]

T = TypeVar("T")


def groups(row: Sequence[T], sizes: Sequence[int]) -> list[Sequence[T]]:
    """Cut a row into consecutive groups of the given sizes."""
    return [row[start:end] for start, end in pairwise(accumulate(sizes, initial=0))]


def balance(
    times: Sequence[int],
    stages: int,
    sizes: Sequence[int] | None = None,
    limit: int | None = None,
) -> list[int] | None:
    """Cut a row of layers into consecutive non-empty stages, as evenly as possible.

    Two exact steps: the smallest time of the largest stage, by bisection over a greedy fill; and,
    among the splits that have it, the smallest sum of squared stage times, by a dynamic program.
    (The sum of the times is fixed, so that is the smallest variance.)

    Parameters
    ----------
    times : sequence of int, shape (layers,)
        Not negative.
    stages : int
        From 1 to the number of layers.
    sizes : sequence of int, shape (layers,), optional
        Bytes of each layer.
    limit : int, optional
        Most bytes of one stage.

    Returns
    -------
    list of int, shape (stages,), or None
        Number of layers of each stage; None when no split is within the limit.
    """
    n = len(times)
    clock = list(accumulate(times, initial=0))
    held = list(accumulate(sizes or [0] * n, initial=0))
    most = held[-1] if limit is None else limit

    def reach(start: int, longest: int) -> int:
        """Return the furthest end of a stage that starts at a layer."""
        in_time = bisect_right(clock, clock[start] + longest) - 1
        return min(in_time, bisect_right(held, held[start] + most) - 1)

    def enough(longest: int) -> bool:
        end = 0
        for _ in range(stages):
            end = reach(end, longest)
        return end == n

    low, high = max(times), clock[-1]
    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return _least_squares(clock, [reach(start, high) for start in range(n + 1)], stages)


def _least_squares(clock: list[int], reach: list[int], stages: int) -> list[int]:
    """Return the split with the smallest sum of squares.

    Squared sums of intervals satisfy the quadrangle inequality, also where only short intervals
    are allowed, so the best last cut of a prefix lies between that with one stage less and that of
    the next longer prefix (Yao, "Efficient dynamic programming using quadrangle inequalities",
    STOC 1980). That makes the program quadratic in the number of layers.

    Parameters
    ----------
    clock : list of int, shape (layers + 1,)
        Time of all layers before each.
    reach : list of int, shape (layers + 1,)
        Furthest end of a stage that starts at each layer.
    """
    n = len(reach) - 1
    first = [bisect_left(reach, end) for end in range(n + 1)]
    # The prefix of k stages ends where k stages can reach and the others can still finish.
    most = list(accumulate(range(stages), lambda end, _: reach[end], initial=0))
    least = list(accumulate(range(stages), lambda end, _: first[end], initial=n))[::-1]
    ends = [range(max(k, least[k]), min(most[k], n - stages + k) + 1) for k in range(stages + 1)]
    best = {0: 0}
    cuts: list[dict[int, int]] = [{}]
    for before, here in pairwise(ends):
        values, chosen, high = {}, {}, n
        for end in reversed(here):
            low = max(before.start, first[end], cuts[-1].get(end, 0))
            high = min(high, before.stop - 1, end - 1)
            squares = (
                (best[at] + (clock[end] - clock[at]) ** 2, at) for at in range(low, high + 1)
            )
            values[end], high = min(squares)
            chosen[end] = high
        best = values
        cuts.append(chosen)
    bounds = [n]
    for chosen in reversed(cuts[1:]):
        bounds.append(chosen[bounds[-1]])
    return [end - start for end, start in pairwise(bounds)][::-1]
