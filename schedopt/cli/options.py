"""Options that several commands share."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from schedopt.cli.voice import Voice

__all__ = [
    "Finite",
    "cut_options",
    "flag",
    "given",
    "json_option",
    "output_option",
    "search_options",
    "seed_option",
    "voice_options",
    "words",
]

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[Any], Any]

MAX_SECONDS = 10**6
"""Longer than anybody waits, shorter than what timers overflow at."""


class Finite(click.FloatRange):
    """A range of numbers that NaN is not in."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Refuse NaN, which compares as inside every range."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


def _placements(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Complete the named placements and files."""
    from click.shell_completion import CompletionItem

    from schedopt.build.placement import PLACEMENTS

    names = [CompletionItem(n) for n in PLACEMENTS if n.startswith(incomplete)]
    return [*names, CompletionItem(incomplete, type="file")]


def _counts(ctx: click.Context, param: click.Parameter, value: str | None) -> list[int] | None:
    """Read whole numbers separated by commas."""
    try:
        return None if value is None else [int(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list such as 9,9,8,6.") from None


def _voice(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def store(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        setattr(ctx.ensure_object(Voice), name, value)

    return store


def _voice_option(name: str, *flags: str, **options: Any) -> Decorator:
    return click.option(*flags, expose_value=False, callback=_voice(name), **options)


def voice_options(command: F) -> Any:
    """Add ``-q`` and ``-v``; they go to the `Voice`."""
    command = _voice_option(
        "verbose", "-v", "--verbose", count=True, show_default=False,
        help="Say more; show where a bug of schedopt happened.",
    )(command)  # fmt: skip
    return _voice_option(
        "quiet", "-q", "--quiet", is_flag=True, help="Nothing but results and errors.",
    )(command)  # fmt: skip


def json_option(what: str) -> Decorator:
    """Add ``--json``; it goes to the `Voice`."""
    return _voice_option("json", "--json", is_flag=True, help=f"Print {what} as one JSON document.")


def output_option(what: str) -> Decorator:
    """Add ``-o``."""
    return click.option(
        "-o", "--output", metavar="FILE", type=click.Path(), help=f"Write {what} here."
    )


def seed_option(command: F) -> Any:
    """Add ``--seed``."""
    return click.option(
        "--seed",
        type=click.IntRange(0, 2**31 - 1),
        metavar="N",
        default=0,
        help="Of all that is random.",
    )(command)


def _packed(name: str, *options: Decorator) -> Decorator:
    """Return a decorator that adds options and hands their values over as one dict."""

    def decorate(command: F) -> F:
        own: set[str] = set()

        @functools.wraps(command)
        def packed(*args: Any, **values: Any) -> Any:
            pack = {key: values.pop(key) for key in [*values] if key in own}
            return command(*args, **values, **{name: pack})

        before = list(getattr(packed, "__click_params__", []))
        for option in reversed(options):
            packed = option(packed)
        added = [p for p in packed.__click_params__ if p not in before]  # type: ignore[attr-defined]
        own.update(p.name for p in added)
        return packed  # type: ignore[return-value]

    return decorate


cut_options: Decorator = _packed(
    "cut",
    click.option("--ranks", type=int, metavar="N", help="Pipeline ranks."),
    click.option("--microbatches", type=int, metavar="N", help="Microbatches of a step."),
    click.option(
        "--placement", shell_complete=_placements, metavar="NAME|FILE",
        help="linear (the default), interleaved, v or bidirectional, or a JSON file with the "
        "rank of each stage, one row per direction.",
    ),
    click.option(
        "--chunks", type=int, metavar="N",
        help="Stages per rank; 2 for interleaved and v unless given.",
    ),
    click.option(
        "--layers", callback=_counts, metavar="N,N,…",
        help="Layers of each stage; the most even split unless given.",
    ),
    click.option(
        "--backward", type=click.Choice(["split", "fused"]),
        help="Input and weight gradient apart, or as one op; split where both were measured.",
    ),
    click.option(
        "--split-backward", type=float, metavar="SHARE",
        help="Split a backward that was measured whole: this share is the input gradient.",
    ),
    click.option(
        "--memory-limit", metavar="80GiB|2x|none",
        help="What a rank may hold: bytes of everything, or activations as a multiple of what "
        "1F1B needs. 80 % of the device's memory unless given, or 1x where that is not known.",
    ),
    click.option("--device", metavar="NAME", help="Device type, where the profile has several."),
    click.option("--link", metavar="NAME", help="Link between ranks; the first unless given."),
    click.option("--allow-empty", is_flag=True, help="Let stages have no layer."),
)  # fmt: skip
"""Options that cut a profile into a pipeline, as the argument `cut`."""

search_options: Decorator = _packed(
    "search",
    click.option(
        "--objective", type=click.Choice(["makespan", "device-span"]), default="makespan",
        help="What to minimise: first start to last end on any rank, or on one rank at most.",
    ),
    click.option(
        "--time-limit", type=Finite(0, MAX_SECONDS, min_open=True), default=10.0,
        metavar="SECONDS", help="Stop searching after this long.",
    ),
    click.option(
        "--rounds", type=click.IntRange(0), metavar="N",
        help="Stop after as many rounds of annealing: same input, same file.",
    ),
    seed_option,
    click.option(
        "--solver", type=click.Choice(["auto", "cpsat", "milp", "construct"]), default="auto",
        help="auto combines them; milp is an independent opinion on small pipelines.",
    ),
)  # fmt: skip
"""Options of a search, as the argument `search`."""


def flag(name: str) -> str:
    """Return an option as it is typed."""
    return "--" + name.replace("_", "-")


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given."""
    return {k: value for k, value in options.items() if value is not None and value is not False}


def words(options: dict[str, Any]) -> list[str]:
    """Return the options as they were typed, without defaults, to repeat them in a command."""
    source = click.get_current_context().get_parameter_source
    result = []
    for name, value in given(options).items():
        if source(name) is ParameterSource.DEFAULT:
            continue
        result.append(flag(name))
        if isinstance(value, list):
            result.append(",".join(map(str, value)))
        elif value is not True:
            result.append(str(value))
    return result
