"""The colours of the ops, the same in all pictures."""

from __future__ import annotations

from dataclasses import dataclass

from schedopt.pipeline import Pipeline
from schedopt.render.view import KIND_NAMES, chunks

__all__ = ["COLOURS", "Look", "contrast", "ink", "looks"]

COLOURS = {"F": "#24559c", "I": "#f0ad3f", "W": "#3fae7e", "B": "#c9603a"}
"""Apart in hue and in lightness, so that they stay apart for colour-blind eyes and on paper."""
_INKS = ("#ffffff", "#000000")
_LIGHTEST = 0.5  # how far the last chunk of a rank goes from its kind's colour to white


@dataclass(frozen=True)
class Look:
    """How the ops of one kind and chunk are drawn.

    Attributes
    ----------
    kind : str
        Letter of the kind.
    chunk : int
        Position of the stage among those of its rank: direction 0 first, then along the
        forward pass.
    colour, ink : str
        Fill and the text on it, ``#rrggbb``.
    """

    kind: str
    chunk: int
    colour: str
    ink: str


def looks(pipeline: Pipeline) -> list[Look]:
    """Return all looks of a pipeline: kind by kind, chunk by chunk, the later the lighter."""
    last = int(chunks(pipeline).max())
    result = []
    for kind in KIND_NAMES:
        for chunk in range(last + 1):
            shade = _lighter(COLOURS[kind], _LIGHTEST * chunk / max(1, last))
            result.append(Look(kind, chunk, shade, ink(shade)))
    return result


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, 1 to 21 (WCAG 2.2, "contrast ratio")."""
    low, high = sorted(_luminance(colour) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def ink(colour: str) -> str:
    """Return the text colour that reads best on a colour."""
    return max(_INKS, key=lambda candidate: contrast(candidate, colour))


def _channels(colour: str) -> list[int]:
    return [int(colour[k : k + 2], 16) for k in (1, 3, 5)]


def _luminance(colour: str) -> float:
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (channel / 255 for channel in _channels(colour))
    ]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _lighter(colour: str, share: float) -> str:
    """Mix a colour with white."""
    return "#" + "".join(f"{round(c + (255 - c) * share):02x}" for c in _channels(colour))
