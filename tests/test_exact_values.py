"""Values known by proof or publication."""

from __future__ import annotations

import pytest
from exact_values import CASES, ZERO_BUBBLE, Case, bubble, published, zero_bubble_row

import schedopt


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    assert case.run() == (case.wanted, True)


@pytest.mark.parametrize("row", ZERO_BUBBLE, ids=lambda row: f"{row[0]}-m{row[3]}")
def test_1f1b_has_the_published_bubble(row: tuple) -> None:
    model, times, ranks, m, one_f_one_b, *_ = row
    fused = published(model, times, ranks, m, 1).model_copy(update={"backward": "fused"})
    span = schedopt.named(fused, "1f1b").device_span_ns
    assert round(bubble(fused, span), 4) == one_f_one_b


def test_ours_is_no_worse_than_the_published_scheduler() -> None:
    row = ZERO_BUBBLE[0]
    figures, proven = zero_bubble_row(row, seconds=60)
    assert all(round(f, 4) <= w for f, w in zip(figures, row[4:], strict=True))
    assert proven[1], "at the memory of 1F1B the bound meets the schedule"
