"""Make orders fit their pools by putting off what raises them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schedopt.jit import kernel
from schedopt.problem import Ints, Problem
from schedopt.solvers.improve import levels_of
from schedopt.solvers.shape import Shape
from schedopt.timing import Deadlock, earliest

__all__ = ["repair"]


def repair(problem: Problem, shape: Shape, orders: Sequence[Ints]) -> Ints | None:
    """Return the earliest starts of these orders, changed as little as the pools demand.

    On each resource an op whose rise does not fit waits, with all that must follow it there,
    until enough has been released. That may deadlock: then the answer is None.

    Parameters
    ----------
    problem : Problem
        Such that `can_anneal`: every pool belongs to one resource.
    """
    rise, fall, room = levels_of(problem)
    repaired = []
    for r, order in enumerate(orders):
        fitting = np.empty_like(order)
        if room[r] < 0:
            repaired.append(order)
            continue
        done = _put_off(
            order, rise, fall, room[r], shape.queue, shape.position, shape.column,
            shape.ancestors, fitting,
        )  # fmt: skip
        if done < len(order):
            return None
        repaired.append(fitting)
    try:
        return earliest(problem, repaired)
    except Deadlock:
        return None


@kernel
def _put_off(order, rise, fall, room, queue, position, column, ancestors, out):  # type: ignore[no-untyped-def]
    """Write the fitting order to `out`; return how many ops it got."""
    waiting = np.empty(len(order), np.int64)
    count, done, level = 0, 0, 0
    for k in range(len(order)):
        i = order[k]
        waiting[count] = i
        count += 1
        moved = True
        while moved:  # whatever fits now, in its order
            moved = False
            for w in range(count):
                j = waiting[w]
                if level + rise[j] > room:
                    continue
                free = True
                for v in range(w):
                    e = waiting[v]
                    if queue[e] == queue[j] or ancestors[j, column[queue[e]]] > position[e]:
                        free = False
                        break
                if not free:
                    continue
                out[done] = j
                done += 1
                level += rise[j] + fall[j]
                for v in range(w, count - 1):
                    waiting[v] = waiting[v + 1]
                count -= 1
                moved = True
                break
    return done
