"""Make the files in profiles/ from the published measurements that they quote.

python scripts/make_profiles.py --samples ../shared/samples --into profiles
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import click

from schedopt.files import read_json, sha256
from schedopt.profile import (
    Device,
    Layer,
    LayerTimes,
    Link,
    Measure,
    Profile,
    Provenance,
    Source,
)

ROOT = Path(__file__).parents[1]
NS = {"s": 10**9, "ms": 10**6, "us": 10**3}
MB = 10**6

ZERO_BUBBLE_MODELS = {"1.5b": 24, "6.2b": 24, "14.6b": 48, "28.3b": 96}
"""The measured row that stands for each model, by its number of microbatches: the smallest."""
ZERO_BUBBLE_WIDTH = {"1.5b": 2304, "6.2b": 4096, "14.6b": 5120, "28.3b": 6144}
ZERO_BUBBLE_SEQUENCE = 1024
"""`s` in v_schedule.py, next to the rows."""


def measure(
    value: float | str | Fraction,
    unit: int,
    basis: Literal["measured", "derived", "assumed"] = "measured",
    note: str | None = None,
) -> Measure:
    """Convert a published number to ns or bytes without binary rounding."""
    exact = value if isinstance(value, Fraction) else Fraction(str(value))
    return Measure(median=round(exact * unit), basis=basis, note=note)


def source(path: Path, what: str, url: str, licence: str) -> Source:
    return Source(what=what, url=url, licence=licence, sha256=sha256(path.read_bytes()))


# Zero bubble


def _zero_bubble_sources(path: Path, script: str) -> list[Source]:
    url = (
        "https://github.com/sail-sg/zero-bubble-pipeline-parallelism/blob/zero-bubble-v0.1.0/"
        f"megatron/core/pipeline_parallel/{script}"
    )
    what = f"numbers at the end of {script}; the sha256 is that of the transcription used"
    return [
        source(path, what, url, "BSD-style (NVIDIA Megatron-LM fork)"),
        Source(what="Zero Bubble Pipeline Parallelism", url="https://arxiv.org/abs/2401.10241"),
    ]


def zero_bubble(samples: Path, model: str, microbatches: int | None = None) -> Profile:
    """Return a model of the zero-bubble paper, timed by the stage."""
    path = samples / "good/19_zero_bubble_profiles/zb_profiles.json"
    microbatches = microbatches or ZERO_BUBBLE_MODELS[model]
    row = next(
        row
        for row in _read(path)["uniform_profiles"]
        if row["h"] == ZERO_BUBBLE_WIDTH[model] and row["m"] == microbatches
    )
    p, layers = row["p"], row["layers"]
    tokens = ZERO_BUBBLE_SEQUENCE * Fraction(layers, p)
    kept = 32 * row["h"]
    activation = 34 * row["h"] + 5 * row["a"] * ZERO_BUBBLE_SEQUENCE
    formula = (
        "{} bytes per token and layer, as the scheduler script counts, × 1024 tokens × "
        f"{layers // p} layers; one sequence: multiply by the microbatch size"
    )
    times = LayerTimes(
        forward_ns=measure(row["f"], NS["us"]),
        backward_input_ns=measure(row["b"], NS["us"]),
        backward_weight_ns=measure(row["w"], NS["us"]),
    )
    stage = Layer(
        name="stage",
        count=p,
        times={"gpu": times},
        activation_bytes=measure(activation * tokens, 1, "derived", formula.format("34h + 5as")),
        kept_after_input_bytes=measure(kept * tokens, 1, "derived", formula.format("32h")),
    )
    return Profile(
        name=f"zero-bubble-{model}",
        description=f"GPT {model.upper()} of the zero-bubble paper: {p} equal stages, F, I and W",
        unit="stage",
        provenance=Provenance(
            sources=_zero_bubble_sources(path, "v_schedule.py"),
            model=f"GPT, {layers} layers, hidden {row['h']}, {row['a']} heads",
            sequence_length=ZERO_BUBBLE_SEQUENCE,
            notes=[
                "GPU, precision and microbatch size are not stated beside the numbers.",
                f"One number for all {p} stages: embedding and head do not show in it.",
                f"Measured with {microbatches} microbatches; the script has two more rows.",
                "Activation bytes follow a formula and hold for one sequence: their ratios and "
                "limits relative to 1F1B are right, absolute limits need the microbatch size.",
            ],
        ),
        devices={"gpu": Device(description="not stated")},
        layers=[stage],
        links=[_zero_bubble_link(row["c"])],
        measured_microbatches=microbatches,
    )


def _zero_bubble_link(microseconds: int) -> Link:
    return Link(scope="next stage", boundary_ns=measure(microseconds, NS["us"]))


def zero_bubble_measured(samples: Path) -> Profile:
    """Return the zero-bubble profile whose stages were timed one by one."""
    path = samples / "good/19_zero_bubble_profiles/zb_profiles.json"
    data = _read(path)["per_stage_profile"]
    columns = zip(
        *(data[key] for key in ("cost_f", "cost_b", "cost_w", "mem_f", "mem_w")), strict=True
    )
    layers = []
    for k, (f, i, w, kept, freed_by_w) in enumerate(columns):
        times = LayerTimes(
            forward_ns=measure(f, NS["us"]),
            backward_input_ns=measure(i, NS["us"]),
            backward_weight_ns=measure(w, NS["us"]),
        )
        layer = Layer(
            name=f"stage.{k}",
            times={"gpu": times},
            activation_bytes=measure(kept, MB),
            kept_after_input_bytes=measure(-freed_by_w, MB),
        )
        layers.append(layer)
    return Profile(
        name="zero-bubble-8stage-measured",
        description="8 uneven stages of a GPT, the last with the LM head: F, I, W and memory",
        unit="stage",
        provenance=Provenance(
            sources=_zero_bubble_sources(path, "auto_schedule.py"),
            notes=[
                "Model, GPU, precision and microbatch size are not stated beside the numbers.",
                "Memory was read in units of 10^6 bytes, rounded down.",
                "1240 MB are what the formula in v_schedule.py gives for 4 layers of the 6.2B model"
                " and one sequence. A second, even example in auto_schedule.py has about the same "
                "times and 3720 MB, so this memory may be that of one sequence of a microbatch of "
                "three. Ratios and limits relative to 1F1B do not depend on it.",
            ],
        ),
        devices={"gpu": Device(description="not stated")},
        layers=layers,
        links=[_zero_bubble_link(data["cost_comm"])],
        measured_microbatches=data["m"],
    )


# Sailor


def sailor(samples: Path) -> Profile:
    """Return Llama-3-8B-like layers on a GH200."""
    folder = samples / "good/21_sailor_one_measurement_many_formats"
    path, sizes = folder / "sailor_llama3-8_GH-96.json", folder / "piper_llama3-8_GH-96.json"
    timed = list(_read(path)["1"]["1"].values())
    planned = _read(sizes)["1"]
    names = ["embedding", "block.first", *["block"] * (len(timed) - 4), "norm", "head"]
    # The other format has no entry for the head: its 34 are embedding, blocks and norm.
    parameters = [node["TMPCs"]["1"][0]["parameterSize"] for node in planned["nodes"]]
    sent = [edge["communicationCost"] for edge in planned["edges"]]
    entries = list(
        zip(
            names,
            [tuple(row[:2]) for row in timed],
            [*parameters, None],
            [*sent, sent[-1], None],
            strict=True,
        )
    )
    layers = [_sailor_layer(entry, len(list(same))) for entry, same in groupby(entries)]
    url = "https://github.com/eth-easl/sailor/tree/cf2c8e3c/sailor/Planner"
    return Profile(
        name="llama3-8b-gh200-sailor",
        description="Llama-3-8B-like layers on a GH200, microbatch 1, TP 1, whole backward",
        provenance=Provenance(
            sources=[
                source(path, "Sailor profile: times, s", url, "MIT"),
                source(sizes, "the same in Piper's format: sizes, bytes", url, "MIT"),
                Source(what="Sailor, SOSP '25", url="https://doi.org/10.1145/3731569.3764839"),
            ],
            model="Llama-3-8B (Sailor's variant)",
            gpu="GH200 96 GB",
            microbatch_size=1,
            tensor_parallel=1,
            notes=[
                "All blocks but the first have the same times: one was timed and repeated.",
                "Optimizer time (9.272 ms per entry) is left out: no part of a microbatch.",
                "Sequence length and precision are not stated. At 4 bytes a block would have 268 "
                "million parameters; Llama-3-8B's have 218 million.",
                "Memory per layer in the planners' formats is left out: it does not cover the "
                "head, and how it was measured is not stated. So there is no memory model.",
                "Links are published as fitted curves without their points, and left out.",
            ],
        ),
        devices={
            "GH200-96": Device(
                memory_bytes=planned["maxMemoryPerDevice"],
                description="NVIDIA GH200, memory as given to the planner",
            )
        },
        layers=layers,
    )


def _sailor_layer(entry: tuple[str, tuple[float, float], int | None, int | None], n: int) -> Layer:
    name, (forward, backward), parameters, sent = entry
    copied = f"one value for all {n}" if n > 1 else None
    times = LayerTimes(
        forward_ns=measure(forward, NS["s"], note=copied),
        backward_ns=measure(backward, NS["s"], note=copied),
    )
    size = "from the model's definition"
    return Layer(
        name=name,
        count=n,
        times={"GH200-96": times},
        parameter_bytes=None if parameters is None else measure(parameters, 1, "derived", size),
        output_bytes=None if sent is None else measure(sent, 1, "derived", size),
    )


# Aceso


def aceso(samples: Path) -> Profile:
    """Return the stages of a GPT-6.7B that ran on eight L4s."""
    folder = samples / "good/03_aceso_runtime_8stages/l4"
    plan = _read(folder / "plan.json")
    paths = sorted(folder.glob("gpt_6_7B_8stages_*_stage*_rank*.csv"))
    rows = [_csv_row(path) for path in paths]
    microbatches = plan["global_batch_size"] // plan["micro_batch_size"]
    url = (
        "https://github.com/Dazz993/Mist/tree/d69e530a/"
        "benchmark/superscaler/results-ref/logs-mist-all-l4/aceso"
    )
    note = f"timer sum / {microbatches} microbatches"

    def layer(k: int, row: dict[str, str]) -> Layer:
        def each(key: str) -> Measure:
            return measure(Fraction(row[key]) / microbatches, NS["ms"], "derived", note)

        times = LayerTimes(forward_ns=each("forward-compute"), backward_ns=each("backward-compute"))
        return Layer(name=f"stage.{k}", times={"L4": times})

    return Profile(
        name="aceso-gpt-6.7b-l4",
        description="GPT-6.7B on eight L4s: stages of an Aceso plan, with the measured iteration",
        unit="stage",
        provenance=Provenance(
            sources=[
                source(path, f"Aceso runtime: {path.name}", url, "Apache-2.0")
                for path in [*paths, folder / "plan.json"]
            ],
            model=f"GPT-6.7B, {plan['num_layers']} layers, hidden {plan['hidden_size']}",
            gpu="NVIDIA L4",
            sequence_length=plan["seq_length"],
            microbatch_size=plan["micro_batch_size"],
            tensor_parallel=1,
            notes=[
                "Backward times contain the recomputation that the plan chose op by op.",
                "Send and receive timers contain waiting, so there is no link.",
                "Memory was reported per stage in use and at its peak, not by what holds it, so "
                "there is no memory model; precision is not stated.",
                "The measured iteration also has the gradient reduction and the optimizer.",
            ],
        ),
        devices={"L4": Device(description="NVIDIA L4")},
        layers=[layer(k, row) for k, row in enumerate(rows)],
        measured_microbatches=microbatches,
        measured_iteration_ns=max(measure(row["time"], NS["ms"]).median for row in rows),
    )


def _csv_row(path: Path) -> dict[str, str]:
    with path.open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    return row


# Galvatron


def galvatron(samples: Path) -> Profile:
    """Return Llama-2-7B layers with a forward time only; the backward is assumed."""
    path = samples / "good/05_galvatron/computation_profiling_bf16_llama2-7b_all.json"
    data = _read(path)
    two, four = (Fraction(str(data[f"layernum[{n}]_bsz1_seq2048"])) for n in (2, 4))
    block = (four - two) / 2
    rest = two - 2 * block

    def layer(name: str, count: int, forward: Fraction, how: str) -> Layer:
        times = LayerTimes(
            forward_ns=measure(forward, NS["ms"], "derived", how),
            backward_ns=measure(2 * forward, NS["ms"], "assumed", "2 × forward; not measured"),
        )
        return Layer(name=name, count=count, times={"gpu": times})

    return Profile(
        name="llama2-7b-galvatron",
        description="Llama-2-7B: measured forward, assumed backward; a planner's own input",
        provenance=Provenance(
            sources=[
                source(
                    path,
                    "Galvatron compute profile: forward times, ms",
                    "https://github.com/PKU-DAIR/Hetu-Galvatron/tree/cea12ffb",
                    "Apache-2.0",
                )
            ],
            model="Llama-2-7B",
            dtype="bf16",
            sequence_length=2048,
            microbatch_size=1,
            tensor_parallel=1,
            notes=[
                "Only the forward was measured. Every backward is assumed to take twice as long.",
                "Embedding and head are one number, all of it here at the end, as 'head'.",
                "The file times models of 2 and 4 blocks; the 32 blocks are Llama-2-7B's.",
                "GPU is not stated. Memory and bandwidth files do not fit one microbatch, stage "
                "and message, and are left out.",
            ],
        ),
        devices={"gpu": Device(description="not stated")},
        layers=[
            layer("block", 32, block, "(4 blocks − 2 blocks) / 2"),
            layer("head", 1, rest, "2 blocks − 2 × one block: embedding and head together"),
        ],
    )


def _read(path: Path) -> Any:
    return read_json(path)


def profiles(samples: Path) -> Iterator[Profile]:
    """Make all profiles."""
    for model in ZERO_BUBBLE_MODELS:
        yield zero_bubble(samples, model)
    others: list[Callable[[Path], Profile]] = [zero_bubble_measured, sailor, aceso, galvatron]
    for make in others:
        yield make(samples)


@click.command()
@click.option(
    "--samples",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=ROOT.parent / "shared" / "samples",
    help="Folder with the published measurements.",
)
@click.option(
    "--into",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=ROOT / "profiles",
    help="Folder to write to.",
)
def main(samples: Path, into: Path) -> None:
    """Make the files in profiles/ from the published measurements that they quote."""
    for profile in profiles(samples):
        profile.write(into / f"{profile.name}.json")
        click.echo(f"{profile.name}.json", err=True)


if __name__ == "__main__":
    main()
