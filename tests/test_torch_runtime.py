"""torch itself reads and runs what is exported for it, and gets the right gradients."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from export_cases import backward_first, pipeline

from schedopt.exporters.torch_csv import from_torch_csv, to_torch_csv
from schedopt.pipeline import Pipeline

torch = pytest.importorskip("torch", reason="torch is not installed")
schedules = pytest.importorskip("torch.distributed.pipelining.schedules")

CASES = {
    "linear split": pipeline([0, 1], microbatches=4),
    "V split": pipeline([0, 1, 1, 0], microbatches=5),
    "linear fused": pipeline([0, 1, 2, 3], microbatches=6, backward="fused"),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def torch_actions(text: str) -> dict[int, list[Any]]:
    read = schedules._Action.from_str
    return {
        rank: [read(cell) for cell in row.split(",")] for rank, row in enumerate(text.splitlines())
    }


@each_case
def test_torch_accepts_the_text(case: Pipeline) -> None:
    schedule = backward_first(case)
    actions = torch_actions(to_torch_csv(schedule))
    assert all(action.is_compute_op for row in actions.values() for action in row)
    stage_to_rank = schedules._validate_schedule(
        actions, case.ranks, case.stages, case.microbatches
    )
    assert [stage_to_rank[s] for s in range(case.stages)] == case.placement[0]
    assert [
        [(a.computation_type.value, a.stage_index, a.microbatch_index) for a in row]
        for row in actions.values()
    ] == schedule.orders()


@each_case
def test_text_that_torch_has_lowered_is_read_back(case: Pipeline) -> None:
    schedule = backward_first(case)
    lowered = schedules._add_send_recv(
        {
            rank: schedules._add_reduce_grad(schedules._add_unshard_reshard(row), case.microbatches)
            for rank, row in torch_actions(to_torch_csv(schedule)).items()
        },
        stage_to_rank=lambda stage: case.placement[0][stage],
        num_stages=case.stages,
    )
    text = "".join(",".join(map(repr, lowered[r])) + "\n" for r in range(case.ranks))
    assert "RECV_F" in text
    assert "REDUCE_GRAD" in text
    assert from_torch_csv(text, "text of torch") == schedule.orders()


def test_merged_actions_that_torch_writes_are_read() -> None:
    kind = schedules._ComputationType
    parts = (
        schedules._Action(0, kind.FORWARD, 1),
        schedules._Action(3, kind.FULL_BACKWARD, 0),
    )
    merged = schedules._Action(-1, kind.OVERLAP_F_B, None, parts)
    text = f"0F0,3F0,{merged},3F1,3B1,0B0,0B1\n"
    read = from_torch_csv(text, "text of torch")[0]
    assert read[2:4] == [("F", 0, 1), ("B", 3, 0)]
    assert len(read) == 8


def run_on_torch(csv: Path, ranks: int, folder: Path) -> list[list[dict[str, Any]]]:
    """Run a process per rank and return each one's results; fail with what they printed."""
    worker = Path(__file__).with_name("torch_worker.py")
    command = [sys.executable, str(worker), str(csv), str(ranks), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(ranks)]


@each_case
def test_losses_and_gradients_are_those_of_one_process(case: Pipeline, tmp_path: Path) -> None:
    from torch_worker import reference

    csv = tmp_path / "schedule.csv"
    csv.write_text(to_torch_csv(backward_first(case)))
    by_rank = run_on_torch(csv, case.ranks, tmp_path)
    for step, expected in enumerate(reference(case.stages, case.microbatches)):
        results = [rank_results[step] for rank_results in by_rank]
        last = results[case.placement[0][-1]]
        torch.testing.assert_close(last["losses"], expected["losses"], rtol=1e-5, atol=0)
        gradients = {name: g for r in results for name, g in r["gradients"].items()}
        torch.testing.assert_close(gradients, expected["gradients"], rtol=1e-5, atol=1e-12)
