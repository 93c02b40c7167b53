"""Runs two training steps of a pipeline on torch as a CSV says, each rank a process on gloo.

Usage: torch_worker.py CSV RANKS FOLDER. Each rank saves its losses and gradients in the folder;
`reference` gets them in one process, without stages.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
from torch.multiprocessing import start_processes

from schedopt.exporters.torch_csv import from_torch_csv, placement_of

STEPS = 2
WIDTH = 6
ROWS = 3  # per microbatch
Result = dict[str, Any]


def stage_modules(stages: int) -> list[nn.Module]:
    torch.manual_seed(0)
    return [
        nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH, dtype=torch.float64),
            nn.Tanh(),
            nn.Linear(2 * WIDTH, WIDTH, dtype=torch.float64),
        )
        for _ in range(stages)
    ]


def batch(step: int, microbatches: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    shape = (2, ROWS * microbatches, WIDTH)
    x, y = torch.randn(shape, generator=generator, dtype=torch.float64)
    return x, y


def take_gradients(modules: dict[int, nn.Module]) -> dict[str, Tensor]:
    """Return gradients by stage and name, and make a step of SGD with them."""
    gradients = {}
    for stage, module in modules.items():
        for name, parameter in module.named_parameters():
            assert parameter.grad is not None
            gradients[f"{stage}.{name}"] = parameter.grad.clone()
            parameter.data.sub_(parameter.grad, alpha=0.1)
            parameter.grad = None
    return gradients


def reference(stages: int, microbatches: int) -> list[Result]:
    modules = stage_modules(stages)
    results = []
    for step in range(STEPS):
        x, y = batch(step, microbatches)
        losses = []
        for part, target in zip(x.chunk(microbatches), y.chunk(microbatches), strict=True):
            loss = nn.functional.mse_loss(nn.Sequential(*modules)(part), target) / microbatches
            loss.backward()
            losses.append(loss.detach())
        results.append({"losses": losses, "gradients": take_gradients(dict(enumerate(modules)))})
    return results


def run(csv: Path, rank: int) -> list[Result]:
    orders = from_torch_csv(csv.read_text(), str(csv))
    placement = placement_of(orders)
    stages, last = len(placement), len(placement) - 1
    microbatches = 1 + max(action.microbatch for action in orders[0])
    every = stage_modules(stages)
    modules = {s: every[s] for s in range(stages) if placement[s] == rank}
    schedule = _PipelineScheduleRuntime(
        [PipelineStage(module, s, stages, torch.device("cpu")) for s, module in modules.items()],
        n_microbatches=microbatches,
        loss_fn=lambda y, target: nn.functional.mse_loss(y, target) / microbatches,
        scale_grads=False,
    )
    schedule._load_csv(str(csv), format="compute_only")
    results = []
    for step in range(STEPS):
        x, y = batch(step, microbatches)
        losses: list[Tensor] = []
        inputs = (x,) if 0 in modules else ()
        target = y if last in modules else None
        schedule.step(*inputs, target=target, losses=losses)
        losses = [loss.detach() for loss in losses]
        results.append({"losses": losses, "gradients": take_gradients(modules)})
    return results


def work(rank: int, csv: Path, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'store'}",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=30),
    )
    torch.save(run(csv, rank), folder / f"rank{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    path, count, out = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    # Forked: torch is imported once. One that fails ends the others.
    start_processes(work, (path, count, out), nprocs=count, start_method="fork")
