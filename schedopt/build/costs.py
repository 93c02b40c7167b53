"""What a layer, or a stage of layers, costs on a device: time and memory of one microbatch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple

from schedopt.errors import Fault, InputError
from schedopt.profile import Layer, LayerTimes, Profile

__all__ = ["Backward", "Cost", "choose_backward", "layer_costs", "layers_on", "without"]

MAX_LAYERS = 16_384

Backward = Literal["split", "fused"]


class Cost(NamedTuple):
    """Times in ns, sizes in bytes; see `schedopt.pipeline.Pipeline`.

    ``static`` is held for the whole step. A fused backward is all ``backward_input``; sizes that
    are not known are 0.
    """

    forward: int = 0
    backward_input: int = 0
    backward_weight: int = 0
    activation: int = 0
    released: int = 0
    static: int = 0

    @classmethod
    def total(cls, costs: Iterable[Cost]) -> Cost:
        """Add up the layers of a stage."""
        return cls(*map(sum, zip(*costs, strict=True)))


def layers_on(profile: Profile, device: str) -> list[Layer]:
    """Return the layers one by one; InputError when they can't be used on the device."""
    faults = []
    count = sum(layer.count for layer in profile.layers)
    if count > MAX_LAYERS:
        faults.append(Fault("layers", str(count), f"at most {MAX_LAYERS}"))
    for k, layer in enumerate(profile.layers):
        if device not in layer.times:
            found = f"no times of {layer.name} on {device}"
            faults.append(Fault(f"layers[{k}].times", found, "times to cut with"))
        held, kept = layer.activation_bytes, layer.kept_after_input_bytes
        if held and kept and kept.median > held.median:
            place, most = f"{layer.name}.kept_after_input_bytes", held.median
            faults.append(Fault(place, str(kept.median), f"at most {most}, all it keeps"))
    if faults:
        raise InputError(profile.name, faults)
    return profile.expanded()


def without(layers: Sequence[Layer], field: str) -> str:
    """Name the layers that lack a field; empty if none does."""
    return _some([layer.name for layer in layers if getattr(layer, field) is None])


def choose_backward(
    profile: Profile, layers: list[Layer], device: str, wanted: str | None, share: float | None
) -> Backward:
    """Choose between a split and a fused backward.

    `share` is what to take as the input gradient's part of a backward that was only timed whole.

    Raises
    ------
    InputError
        When a split is wanted that was neither measured nor assumed, or assumed though it was
        measured or is not wanted.
    """
    if wanted not in (None, "split", "fused"):
        raise InputError("options", Fault("backward", repr(wanted), "split or fused"))
    if share is not None and (wanted == "fused" or not 0 < share < 1):
        expected = "a share between 0 and 1, such as 0.5, of a split backward"
        raise InputError("options", Fault("split_backward", str(share), expected))
    whole = _some([layer.name for layer in layers if not layer.times[device].split])
    if share is not None and not whole:
        hint = "Leave the option out: measured times are used as they are."
        found, expected = f"{share:g}", "none: the profile has both gradients of every layer"
        raise InputError(profile.name, Fault("split_backward", found, expected, hint))
    if wanted == "split" and whole and share is None:
        hint = "Assume a split with --split-backward 0.5, or use --backward fused."
        found, expected = f"only the whole backward of {whole}", "both gradients of every layer"
        raise InputError(profile.name, Fault("backward", found, expected, hint))
    return "fused" if wanted == "fused" or (whole and share is None) else "split"


def layer_costs(
    layers: list[Layer], device: str, backward: Backward, share: float | None, notes: list[str]
) -> list[Cost]:
    """Return what each layer costs, and note what was assumed about it."""
    times = [layer.times[device] for layer in layers]
    _note_times(times, backward, share, notes)
    unknown, unclear = (without(layers, f"{x}_bytes") for x in ("activation", "kept_after_input"))
    if unknown:
        notes.append(f"memory: activation bytes of {unknown} not known; no limit applied")
    elif unclear and backward == "split":
        notes.append(f"memory: kept after I not known of {unclear}: all, until W ends")
    # The decimal number that the user wrote, not the binary one next to it.
    part = Fraction(str(share or 0)) if backward == "split" else Fraction(1)
    costs = []
    for layer, time in zip(layers, times, strict=True):
        held = layer.activation_bytes.median if layer.activation_bytes else 0
        kept = layer.kept_after_input_bytes.median if layer.kept_after_input_bytes else held
        halves = _halves(time, backward, part)
        costs.append(Cost(time.forward_ns.median, *halves, held, held - kept, layer.static_bytes))
    return costs


def _some(names: Sequence[str]) -> str:
    """Name one layer, and count the others."""
    if len(names) < 2:
        return "".join(names)
    others = len(names) - 1
    return f"{names[0]} and {others} other layer{'s' * (others > 1)}"


def _note_times(
    times: list[LayerTimes], backward: Backward, share: float | None, notes: list[str]
) -> None:
    whole = sum(not time.split for time in times)
    of = f"of {len(times)} layers"
    if whole and backward == "fused":
        notes.append("backward: input and weight gradients were not timed apart; one fused op")
    elif whole:
        notes.append(f"backward: split assumed, {share:g} of it input gradient, for {whole} {of}")
    guessed = sum(
        any(
            m and m.basis == "assumed"
            for m in (t.forward_ns, t.backward_ns, t.backward_input_ns, t.backward_weight_ns)
        )
        for t in times
    )
    if guessed:
        notes.append(f"times: those of {guessed} {of} are partly assumed")


def _halves(times: LayerTimes, backward: Backward, part: Fraction) -> tuple[int, int]:
    """Return input and weight gradient, ns; they sum to the whole exactly."""
    first, second = times.backward_input_ns, times.backward_weight_ns
    if backward == "split" and first is not None and second is not None:
        return first.median, second.median
    assumed = round(part * times.backward_total)
    return assumed, times.backward_total - assumed
