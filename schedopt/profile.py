"""`schedopt/profile`: what was measured, layer by layer, and how far to trust each number."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from schedopt.errors import Fault, InputError, did_you_mean
from schedopt.files import Document, Part
from schedopt.pipeline import Amount, Count
from schedopt.units import MAX_INT

__all__ = ["Device", "Layer", "LayerTimes", "Link", "Measure", "Profile", "Provenance", "Source"]

Positive = Annotated[int, Field(ge=1, le=MAX_INT)]


class Measure(Part):
    """A number with its pedigree.

    Attributes
    ----------
    median : int
        The value used; ns or bytes, as the field's name says.
    basis : {"measured", "derived", "assumed"}
        Timed or read off a tool; computed from measured numbers; or neither.
    n, p5, p95 : int, optional
        Samples, and their 5th and 95th percentile.
    note : str, optional
        How it was derived, or why it was assumed.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"median": 5_000_000, "basis": "measured"}]}
    )

    median: Amount
    basis: Literal["measured", "derived", "assumed"]
    n: Count | None = None
    p5: Amount | None = None
    p95: Amount | None = None
    note: str | None = None


class LayerTimes(Part):
    """Times of one layer on one device type; the backward fused, or split, or both.

    A layer that was measured takes some time: zero is refused, except for one half of a split
    backward (an embedding has no input gradient).
    """

    forward_ns: Measure
    backward_ns: Measure | None = None
    backward_input_ns: Measure | None = None
    backward_weight_ns: Measure | None = None
    recompute_ns: Measure | None = None

    @model_validator(mode="after")
    def _has_backward(self) -> Self:
        halves = (self.backward_input_ns, self.backward_weight_ns)
        if self.backward_ns is None and None in halves:
            expected = "backward_ns, or backward_input_ns and backward_weight_ns"
            raise ValueError(Fault("", "no complete backward", expected))
        found, hint = "0, a layer that takes no time", "Leave out what was not measured."
        if self.forward_ns.median == 0:
            raise ValueError(Fault("forward_ns", found, "a duration", hint))
        if self.backward_total == 0:
            raise ValueError(Fault("backward", found, "a duration", hint))
        return self

    @property
    def split(self) -> bool:
        """Whether the input and weight gradients were timed apart."""
        return self.backward_input_ns is not None and self.backward_weight_ns is not None

    @property
    def backward_total(self) -> int:
        """Time of the whole backward, ns."""
        if self.backward_ns is not None:
            return self.backward_ns.median
        if self.backward_input_ns is None or self.backward_weight_ns is None:
            return 0
        return self.backward_input_ns.median + self.backward_weight_ns.median


class Layer(Part):
    """A layer, or `count` equal ones in a row; the pipeline can be cut before each.

    Attributes
    ----------
    times : dict of str to LayerTimes
        By device type.
    activation_bytes : Measure, optional
        Kept from the start of F to the end of the backward.
    kept_after_input_bytes : Measure, optional
        The part of it that is still needed after I, until W ends.
    parameter_bytes, gradient_bytes, optimizer_bytes : Measure, optional
        Held for the whole step.
    output_bytes : Measure, optional
        Sent to the next stage when the pipeline is cut after this layer.
    """

    name: str
    count: Count = 1
    times: dict[str, LayerTimes]
    activation_bytes: Measure | None = None
    kept_after_input_bytes: Measure | None = None
    parameter_bytes: Measure | None = None
    gradient_bytes: Measure | None = None
    optimizer_bytes: Measure | None = None
    output_bytes: Measure | None = None

    @property
    def static_bytes(self) -> int:
        """Bytes held for the whole step, as far as they are known."""
        parts = (self.parameter_bytes, self.gradient_bytes, self.optimizer_bytes)
        return sum(part.median for part in parts if part is not None)


class LinkPoint(Part):
    """One measured message size."""

    bytes: Positive
    ns: Measure


class Link(Part):
    """Time to send to the next stage: a table over sizes, or of the one boundary message.

    Attributes
    ----------
    scope : str
        Where it was measured, e.g. ``intra-node``.
    table : list of LinkPoint, optional
        Ascending sizes. Between two sizes time is interpolated; outside, it is refused.
    boundary_ns : Measure, optional
        Time of the boundary message itself, where its size is not stated.
    """

    scope: str
    table: list[LinkPoint] | None = None
    boundary_ns: Measure | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.table is None) == (self.boundary_ns is None):
            raise ValueError(Fault("", "no single form", "either table or boundary_ns"))
        sizes = [point.bytes for point in self.table or []]
        if self.table is not None and (not sizes or sizes != sorted(set(sizes))):
            raise ValueError(Fault("table", f"sizes {sizes[:8]}", "ascending sizes"))
        return self

    def time_ns(self, size: int | None) -> int:
        """Return the time of a message of `size` bytes.

        Raises
        ------
        InputError
            When the size is unknown or outside what was measured.
        """
        if self.boundary_ns is not None:
            return self.boundary_ns.median
        points = self.table or []
        sizes = [point.bytes for point in points]
        if size is None or not sizes[0] <= size <= sizes[-1]:
            expected = f"a size from {sizes[0]} to {sizes[-1]} bytes, as measured"
            found, remedy = f"a boundary of {size} bytes", "Measure the link at that size"
            if size is None:
                found, remedy = "a boundary of unknown size", "Add output_bytes to the layers"
            hint = f"{remedy}, or remove the link from the profile to take latency as 0."
            raise InputError(f"link {self.scope}", Fault("table", found, expected, hint))
        k = bisect_left(sizes, size)
        if sizes[k] == size:
            return points[k].ns.median
        low, high = points[k - 1], points[k]
        slope = (high.ns.median - low.ns.median) * (size - low.bytes)
        return low.ns.median + round(slope / (high.bytes - low.bytes))


class Device(Part):
    """A device type that layers were timed on."""

    memory_bytes: Positive | None = None
    description: str | None = None


class Source(Part):
    """Where numbers come from."""

    what: str
    url: str | None = None
    licence: str | None = None
    sha256: str | None = None


class Provenance(Part):
    """How the profile came about; what is not stated is absent."""

    sources: list[Source]
    model: str | None = None
    gpu: str | None = None
    dtype: str | None = None
    sequence_length: Count | None = None
    microbatch_size: Count | None = None
    tensor_parallel: Count | None = None
    notes: list[str] = []


class Profile(Document):
    """Measured layers of a model.

    Attributes
    ----------
    unit : {"layer", "stage"}
        What one entry of `layers` is: a layer, or a whole stage of the measured run.
    devices : dict of str to Device
        Device types; the keys of every layer's `times`.
    layers : list of Layer
        In the order of the forward pass.
    links : list of Link
        Between neighbouring stages; the first is used unless another is named.
    measured_microbatches, measured_iteration_ns : int, optional
        The run that the numbers were taken from, to compare a simulation with.
    """

    FORMAT: ClassVar[str] = "schedopt/profile"

    format: Literal["schedopt/profile"] = "schedopt/profile"
    version: Literal[1] = 1
    name: str
    description: str = ""
    unit: Literal["layer", "stage"] = "layer"
    provenance: Provenance
    devices: Annotated[dict[str, Device], Field(min_length=1)]
    layers: Annotated[list[Layer], Field(min_length=1)]
    links: list[Link] = []
    measured_microbatches: Count | None = None
    measured_iteration_ns: Positive | None = None

    @model_validator(mode="after")
    def _devices_agree(self) -> Self:
        faults = list(self._wrong_devices())
        if faults:
            raise ValueError(*faults)
        return self

    def _wrong_devices(self) -> Iterator[Fault]:
        for k, layer in enumerate(self.layers):
            for name in layer.times.keys() - self.devices.keys():
                hint = did_you_mean(name, self.devices)
                place = f"layers[{k}].times.{name}"
                yield Fault(place, "a device that is not listed", "a key of devices", hint)
            if not layer.times:
                yield Fault(f"layers[{k}].times", "no device", "times on a device")

    def expanded(self) -> list[Layer]:
        """Return the layers one by one, `count` unrolled, with distinct names."""
        return [
            layer.model_copy(
                update={"count": 1, "name": f"{layer.name}.{i}" if layer.count > 1 else layer.name}
            )
            for layer in self.layers
            for i in range(layer.count)
        ]

    def device(self, name: str | None = None) -> str:
        """Return the name of the device to use.

        Raises
        ------
        InputError
            When `name` is not in the profile, or is absent and there are several.
        """
        known = ", ".join(self.devices)
        if name is None and len(self.devices) == 1:
            return next(iter(self.devices))
        if name is None or name not in self.devices:
            found = "no choice" if name is None else repr(name)
            hint = did_you_mean(name or "", self.devices) or "Choose one with --device."
            raise InputError(self.name, Fault("device", found, f"one of {known}", hint))
        return name
