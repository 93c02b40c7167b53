"""``schedopt import``: the schedule that a runtime already runs, as one of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from schedopt.cli.inputs import FILE, about, blaming, cut_profile, load, pipeline_of, warn
from schedopt.cli.options import cut_options, json_option, output_option, voice_options, words
from schedopt.cli.present import misfit, present
from schedopt.cli.program import Command
from schedopt.cli.voice import Voice
from schedopt.errors import Fault, InputError

if TYPE_CHECKING:
    from schedopt.pipeline import Pipeline
    from schedopt.schedule import Orders

__all__ = ["command"]

MOST_NAMED = 5


@click.command(
    "import",
    cls=Command,
    example="schedopt import schedule.csv --pipeline profile.json -o schedule.json",
)
@click.argument("csv", type=FILE)
@click.option(
    "--pipeline",
    type=FILE,
    required=True,
    metavar="FILE",
    help="The profile or pipeline with the times of what the CSV runs.",
)
@cut_options
@output_option("the schedule")
@json_option("the schedule")
@voice_options
@click.pass_obj
def command(voice: Voice, csv: str, pipeline: str, output: str | None, cut: dict[str, Any]) -> None:
    """Read the CSV of a schedule that PyTorch runs.

    CSV is what torch.distributed.pipelining loads; every op starts as early as it allows. Of a
    profile, ranks, microbatches, placement and the form of the backward are those of the CSV
    unless options say otherwise.
    """
    from schedopt.api import from_orders
    from schedopt.exporters.torch_csv import from_torch_csv, placement_of
    from schedopt.files import check_writable, read_text
    from schedopt.profile import Profile

    if output is not None:
        check_writable(output)
    orders = from_torch_csv(read_text(csv, "a CSV of torch.distributed.pipelining"), csv)
    with blaming(csv):
        placement = placement_of(orders)
    document = load(pipeline)
    if isinstance(document, Profile):
        target, notes = cut_profile(pipeline, document, _like(orders, placement, cut))
    else:
        target, notes = pipeline_of(pipeline, document, cut)
    faults = [*_differences(orders, placement, target)] or [*_missing(orders, target)]
    if faults:
        raise InputError(csv, faults)
    with about(csv), blaming(csv):
        schedule = from_orders(target, orders)
    warn(voice, target, notes)
    assumed = [*schedule.assumptions, *notes]
    excess = misfit(schedule)
    present(
        voice,
        schedule.model_copy(update={"assumptions": assumed}),
        output,
        remark=("memory", f"does not fit: {excess}") if excess else None,
    )
    if output is None:
        again = ("import", csv, "--pipeline", pipeline, words(cut))
        voice.next_step(*again, "-o", "schedule.json")
    else:
        voice.next_step("compare", output)


def _like(orders: Orders, placement: list[int], cut: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a cut, those that are absent taken from the orders."""
    found: dict[str, Any] = {
        "ranks": len(orders),
        "microbatches": _microbatches(orders),
        "placement": [placement],
        "backward": "fused" if "B" in _kinds(orders) else "split",
    }
    if cut["chunks"] is not None:  # then the user places the stages
        del found["placement"]
    return {name: found.get(name) if value is None else value for name, value in cut.items()}


def _microbatches(orders: Orders) -> int:
    return 1 + max(action.microbatch for row in orders for action in row)


def _kinds(orders: Orders) -> set[str]:
    return {action.kind for row in orders for action in row}


def _differences(orders: Orders, placement: list[int], pipeline: Pipeline) -> Iterator[Fault]:
    """Say how the CSV and the pipeline differ, as far as the orders need not be read one by one."""
    counts = (
        ("rows", len(orders), pipeline.ranks, "ranks"),
        ("stages", len(placement), pipeline.stages, "stages"),
        ("microbatches", _microbatches(orders), pipeline.microbatches, "microbatches"),
    )
    for place, found, wanted, what in counts:
        if found != wanted:
            yield Fault(place, str(found), f"the {wanted} {what} of the pipeline")
    yield from _other_placement(placement, pipeline)
    yield from _other_backward(_kinds(orders), pipeline)


def _missing(orders: Orders, pipeline: Pipeline) -> Iterator[Fault]:
    """Say in one fault what the CSV lacks of the pipeline's actions."""
    present = {action for row in orders for action in row}
    missing = [
        f"{stage}{kind}{microbatch}"
        for stage in range(pipeline.stages)
        for microbatch in range(pipeline.microbatches)
        for kind in ("FB" if pipeline.fused else "FIW")
        if (kind, stage, microbatch) not in present
    ]
    if missing:
        some = ", ".join(missing[:MOST_NAMED]) + ", …" * (len(missing) > MOST_NAMED)
        found = f"no {some}: {len(missing)} missing"
        yield Fault("actions", found, "every action of the pipeline once")


def _other_placement(placement: list[int], pipeline: Pipeline) -> Iterator[Fault]:
    if len(placement) != pipeline.stages:
        return
    if len(pipeline.placement) > 1:
        yield Fault("placement", "one direction", f"the {len(pipeline.placement)} of the pipeline")
        return
    for stage, (row, rank) in enumerate(zip(placement, pipeline.placement[0], strict=True)):
        if row != rank:
            expected = f"it on rank {rank}, as in the pipeline"
            yield Fault(f"stage {stage}", f"it in row {row + 1}", expected)
            return


def _other_backward(kinds: set[str], pipeline: Pipeline) -> Iterator[Fault]:
    if "B" in kinds and kinds & {"I", "W"}:
        yield Fault("backward", "B beside I and W", "every backward whole, or every one split")
    elif pipeline.fused and kinds & {"I", "W"}:
        hint = "Set its backward to split, or use --backward split for a profile."
        yield Fault("backward", "I and W", "B, as the pipeline's backward is fused", hint)
    elif not pipeline.fused and "B" in kinds:
        hint = "Set its backward to fused, or use --backward fused for a profile."
        yield Fault("backward", "B", "I and W, as the pipeline's backward is split", hint)
