"""Published schedules by name, as orders of actions on any pipeline that they fit.

They are the baselines: simulated, checked and exported like any other schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from schedopt.errors import Fault, InputError, did_you_mean
from schedopt.patterns import blocks, rules
from schedopt.patterns.shapes import Shape, shape
from schedopt.pipeline import Pipeline
from schedopt.schedule import Orders

__all__ = ["PATTERNS", "Pattern", "Shape", "applicable", "orders", "shape"]


@dataclass(frozen=True)
class Pattern:
    """A published schedule.

    Attributes
    ----------
    name, title : str
        As typed, and as the field writes it.
    source : str
        Where it was published.
    make : callable
        Pipeline to orders; called only where the pattern fits.
    fits : Shape or None
        The only placement for which the pattern is defined; None: any.
    split : bool
        Whether it needs the backward split into I and W.
    fills : bool
        Whether it needs at least as many microbatches as stages.
    """

    name: str
    title: str
    source: str
    make: Callable[[Pipeline], Orders]
    fits: Shape | None = None
    split: bool = False
    fills: bool = False


_ZERO_BUBBLE = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024"
_MEMORY = "Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024"

PATTERNS = {
    pattern.name: pattern
    for pattern in (
        Pattern(
            "1f1b",
            "1F1B",
            "Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, ICML 2021",
            rules.one_f_one_b,
        ),
        Pattern(
            "interleaved-1f1b",
            "Interleaved 1F1B",
            "Narayanan et al., Efficient Large-Scale Language Model Training, SC 2021",
            rules.interleaved,
            fits="loop",
        ),
        Pattern("zb-h1", "ZB-H1", _ZERO_BUBBLE, blocks.zb_h1, fits="linear", split=True),
        Pattern("zb-h2", "ZB-H2", _ZERO_BUBBLE, blocks.zb_h2, fits="linear", split=True),
        Pattern("zb-v", "ZB-V", _MEMORY, blocks.zb_v, fits="v", split=True),
        Pattern("v-half", "V-Half", _MEMORY, blocks.v_half, fits="v", split=True),
        Pattern("v-min", "V-Min", _MEMORY, blocks.v_min, fits="v", split=True),
        Pattern(
            "dualpipe-v",
            "DualPipe-V",
            "DeepSeek-AI, DualPipe, 2025, after DeepSeek-V3, 2024",
            rules.dualpipe_v,
            fits="v",
            split=True,
            fills=True,
        ),
        Pattern(
            "chimera",
            "Chimera",
            "Li and Hoefler, Chimera, SC 2021",
            rules.chimera,
            fits="bidirectional",
        ),
        Pattern("gpipe", "GPipe", "Huang et al., GPipe, NeurIPS 2019", rules.gpipe),
    )
}
"""Every pattern, by name."""

_PLACEMENTS: dict[Shape, str] = {
    "linear": "each stage on a rank of its own",
    "loop": "stages round and round the ranks, such as 0 1 0 1",
    "v": "stages down the ranks and back up, such as 0 1 1 0",
    "bidirectional": "two directions, the second with the ranks of the first reversed",
    "free": "anything else",
}


def orders(name: str, pipeline: Pipeline) -> Orders:
    """Return each rank's actions in the order of a named pattern.

    Patterns with a fused backward (GPipe, 1F1B, interleaved 1F1B, Chimera) run W directly after
    I where the pipeline's backward is split. No order deadlocks; none looks at memory limits.

    Raises
    ------
    InputError
        When there is no such pattern, or it isn't defined for the pipeline; it says why.
    """
    pattern = PATTERNS.get(name)
    if pattern is None:
        hint = did_you_mean(name, PATTERNS)
        raise InputError("pattern", Fault("", repr(name), f"one of {', '.join(PATTERNS)}", hint))
    faults = _misfits(pattern, pipeline)
    if faults:
        raise InputError(f"pattern {pattern.name}", faults)
    return pattern.make(pipeline)


def applicable(pipeline: Pipeline) -> list[str]:
    """Return the names of the patterns that are defined for a pipeline."""
    return [pattern.name for pattern in PATTERNS.values() if not _misfits(pattern, pipeline)]


def _misfits(pattern: Pattern, pipeline: Pipeline) -> list[Fault]:
    faults = []
    found = shape(pipeline)
    if pattern.fits is not None and pattern.fits != found:
        expected = f"{pattern.fits} ({_PLACEMENTS[pattern.fits]})"
        faults.append(Fault("placement", f"{found} ({_PLACEMENTS[found]})", expected))
    if pattern.split and pipeline.fused:
        hint = "It moves W away from I."
        faults.append(Fault("backward", "fused", "split", hint))
    if pattern.fills and pipeline.microbatches < pipeline.stages:
        expected = f"at least {pipeline.stages}, two per rank"
        faults.append(Fault("microbatches", str(pipeline.microbatches), expected))
    return faults
