"""`schedopt/pipeline`: a pipeline stage by stage, the input of the solver."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Discriminator, Field, Tag, model_validator

from schedopt.errors import Fault
from schedopt.files import Document
from schedopt.units import MAX_INT

__all__ = ["MAX_OPS", "Amount", "Count", "Pipeline"]

MAX_OPS = 4_000_000
"""More operations than any real run has; beyond it a typo is likelier."""

Count = Annotated[int, Field(ge=1, le=MAX_OPS)]
Index = Annotated[int, Field(ge=0, le=MAX_OPS)]
Amount = Annotated[int, Field(ge=0, le=MAX_INT)]
StageTime = Annotated[
    Annotated[Amount, Tag("<number>")] | Annotated[list[Amount], Tag("<list>")],
    Discriminator(lambda value: "<list>" if isinstance(value, list) else "<number>"),
]


class Pipeline(Document):
    """A pipeline-parallel training step: stages, where they run, how long and how large they are.

    Attributes
    ----------
    ranks, stages, microbatches : int
        Counts.
    placement : list of list of int, shape (directions, stages)
        Rank of each stage, one row per direction.
    direction : list of int, shape (microbatches,), optional
        Row of `placement` that each microbatch follows; absent: all 0.
    forward_ns, backward_input_ns, backward_weight_ns : list, shape (stages,)
        Durations; each a number, or a list over the microbatches.
    backward : {"split", "fused"}
        ``split``: I then W as two ops; ``fused``: one op B of I + W.
    latency_ns : list of list of int, shape (ranks, ranks), optional
        Time from the end of an op on one rank to the start of its successor on another.
    activation_bytes, released_by_input_bytes : list of int, shape (stages,), optional
        Charged when F starts; freed when I ends (the rest when W ends; all when a fused B ends).
    memory_limit_bytes : list of int, shape (ranks,), optional
        Largest sum of activations that a rank may hold; absent: no limit.
    layers : list of list of str, shape (stages, any), optional
        Names of the layers of each stage, where the pipeline was cut from a profile.
    """

    FORMAT: ClassVar[str] = "schedopt/pipeline"

    format: Literal["schedopt/pipeline"] = "schedopt/pipeline"
    version: Literal[1] = 1
    name: str = ""
    ranks: Count
    stages: Count
    microbatches: Count
    placement: list[list[Index]]
    direction: list[Index] | None = None
    backward: Literal["split", "fused"] = "split"
    forward_ns: list[StageTime]
    backward_input_ns: list[StageTime]
    backward_weight_ns: list[StageTime]
    latency_ns: list[list[Amount]] | None = None
    activation_bytes: list[Amount] | None = None
    released_by_input_bytes: list[Amount] | None = None
    memory_limit_bytes: list[Amount] | None = None
    layers: list[list[str]] | None = None

    @model_validator(mode="after")
    def _agree(self) -> Self:
        faults = list(self._disagreements())
        if faults:
            raise ValueError(*faults)
        return self

    def _disagreements(self) -> Iterator[Fault]:
        """Yield every way in which single fields are fine but don't fit together."""
        ops = 3 * self.stages * self.microbatches
        if ops > MAX_OPS:
            yield Fault("stages × microbatches", f"{ops} operations", f"at most {MAX_OPS}")
            return
        yield from self._wrong_placement()
        for name in ("forward_ns", "backward_input_ns", "backward_weight_ns"):
            values = getattr(self, name)
            yield from _wrong_length(name, values, self.stages, "one per stage")
            for stage, value in enumerate(values):
                if isinstance(value, list):
                    place = f"{name}[{stage}]"
                    yield from _wrong_length(place, value, self.microbatches, "one per microbatch")
        yield from self._wrong_latency()
        yield from self._wrong_memory()
        if self.layers is not None:
            yield from _wrong_length("layers", self.layers, self.stages, "one list per stage")

    def _wrong_placement(self) -> Iterator[Fault]:
        if not self.placement:
            yield Fault("placement", "no rows", "one row per direction")
        for d, row in enumerate(self.placement):
            yield from _wrong_length(f"placement[{d}]", row, self.stages, "a rank for each stage")
            for stage, rank in enumerate(row):
                if rank >= self.ranks:
                    expected = f"a rank from 0 to {self.ranks - 1}"
                    yield Fault(f"placement[{d}][{stage}]", str(rank), expected)
        if self.direction is not None:
            expected = "one per microbatch"
            yield from _wrong_length("direction", self.direction, self.microbatches, expected)
            for j, d in enumerate(self.direction):
                if d >= len(self.placement):
                    expected = f"a row of placement, 0 to {len(self.placement) - 1}"
                    yield Fault(f"direction[{j}]", str(d), expected)

    def _wrong_latency(self) -> Iterator[Fault]:
        if self.latency_ns is None:
            return
        yield from _wrong_length("latency_ns", self.latency_ns, self.ranks, "one row per rank")
        for a, row in enumerate(self.latency_ns):
            yield from _wrong_length(f"latency_ns[{a}]", row, self.ranks, "one number per rank")

    def _wrong_memory(self) -> Iterator[Fault]:
        activation, released = self.activation_bytes, self.released_by_input_bytes
        total = self.microbatches * sum(activation or [])
        if total > MAX_INT:
            yield Fault("activation_bytes", f"{total} bytes in all microbatches", "at most 2^62")
        for name, values in (
            ("activation_bytes", activation),
            ("released_by_input_bytes", released),
        ):
            if values is not None:
                yield from _wrong_length(name, values, self.stages, "one per stage")
        if released is not None and activation is None:
            yield Fault("activation_bytes", "nothing", "a size, since something is released")
        for stage, (kept, freed) in enumerate(zip(activation or [], released or [], strict=False)):
            if freed > kept:
                expected = f"at most the {kept} of activation_bytes[{stage}]"
                yield Fault(f"released_by_input_bytes[{stage}]", str(freed), expected)
        if self.memory_limit_bytes is not None:
            expected = "one per rank"
            yield from _wrong_length(
                "memory_limit_bytes", self.memory_limit_bytes, self.ranks, expected
            )
            if activation is None:
                hint = "A limit without sizes limits nothing."
                yield Fault("activation_bytes", "nothing", "sizes for memory_limit_bytes", hint)

    @property
    def fused(self) -> bool:
        """Whether the backward is one op."""
        return self.backward == "fused"

    @property
    def uniform_microbatches(self) -> bool:
        """Whether all microbatches of a stage take the same time."""
        return all(len(np.unique(row)) == 1 for times in self.times() for row in times)

    def directions(self) -> list[int]:
        """Return the row of `placement` for each microbatch."""
        return self.direction if self.direction is not None else [0] * self.microbatches

    def times(self) -> npt.NDArray[np.int64]:
        """Return forward, backward-input and backward-weight times.

        Returns
        -------
        array of int64, shape (3, stages, microbatches), ns
        """
        result = np.empty((3, self.stages, self.microbatches), np.int64)
        fields = (self.forward_ns, self.backward_input_ns, self.backward_weight_ns)
        for k, field in enumerate(fields):
            for stage, value in enumerate(field):
                result[k, stage] = value
        return result

    def latency(self) -> npt.NDArray[np.int64]:
        """Return the latency between ranks, shape (ranks, ranks), ns; 0 on one rank."""
        if self.latency_ns is None:
            return np.zeros((self.ranks, self.ranks), np.int64)
        result = np.array(self.latency_ns, np.int64)
        np.fill_diagonal(result, 0)
        return result

    def activations(self) -> npt.NDArray[np.int64]:
        """Return bytes charged by F and freed by I, shape (2, stages)."""
        activation = self.activation_bytes or [0] * self.stages
        released = self.released_by_input_bytes or [0] * self.stages
        return np.array([activation, released], np.int64)


def _wrong_length(place: str, values: Sized, wanted: int, what: str) -> Iterator[Fault]:
    if len(values) != wanted:
        yield Fault(place, f"{len(values)} entries", f"{wanted}, {what}")
