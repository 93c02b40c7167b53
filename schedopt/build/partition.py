"""From a profile to a pipeline: cut the layers into stages and place the stages on ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schedopt.build.balance import balance, groups
from schedopt.build.costs import Backward, Cost, choose_backward, layer_costs, layers_on, without
from schedopt.build.latency import latencies
from schedopt.build.limits import Limit, activation_limits, read_limit
from schedopt.build.placement import Rows, place, shape_of, stages_of_ranks
from schedopt.build.rank_balance import even_ranks, rank_loads
from schedopt.errors import Fault, InfeasibleError, InputError
from schedopt.pipeline import Pipeline
from schedopt.profile import Profile

__all__ = ["Cut", "cut"]


@dataclass(frozen=True)
class Cut:
    """How to cut a profile into a pipeline.

    Attributes
    ----------
    ranks, microbatches : int
        Counts.
    placement : {"linear", "interleaved", "v", "bidirectional"} or list of list of int
        ``linear``: stage s on rank s. ``interleaved``: stage s on rank s mod ranks. ``v``: chunks
        run down and up the ranks in turn. ``bidirectional``: each rank holds two stages, the
        weights exist twice, and the microbatches go down and up in turn. Or the rank of each
        stage, one row per direction.
    chunks : int, optional
        Stages per rank and direction; 2 for ``interleaved`` and ``v``, else 1.
    layers : sequence of int, optional
        Layers of each stage; absent: the most even split, exact for one stage per rank (see
        `balance`), else a local optimum that first evens out the ranks (see `even_ranks`).
    backward : {"split", "fused"}, optional
        Absent: ``split`` if the profile has both gradients of every layer, or `split_backward` is
        given; else ``fused``.
    split_backward : float, optional
        Share of a backward that is the input gradient, where the profile has only the whole.
    memory_limit : int or str, optional
        What a rank may hold: bytes for parameters, gradients, optimizer and activations (a number
        or ``80GiB``); ``2x``, activations only, as a multiple of what 1F1B needs; ``none``.
        Absent: 80 % of the device's memory, or ``1x`` where the profile does not state it.
    device, link : str, optional
        Device type, and scope of the link between neighbours; absent: the only one, and the first.
    allow_empty : bool
        Let stages have no layer.
    """

    ranks: int
    microbatches: int
    placement: str | Sequence[Sequence[int]] = "linear"
    chunks: int | None = None
    layers: Sequence[int] | None = None
    backward: Backward | None = None
    split_backward: float | None = None
    memory_limit: int | str | None = None
    device: str | None = None
    link: str | None = None
    allow_empty: bool = False


def cut(profile: Profile, options: Cut) -> tuple[Pipeline, list[str]]:
    """Cut a profile into a pipeline.

    Returns
    -------
    pipeline : Pipeline
    notes : list of str
        What was assumed on the way, for the user to read.

    Raises
    ------
    InputError
        When an option does not fit the profile or the other options.
    InfeasibleError
        When there are too few layers, or some rank can't hold one microbatch.
    """
    notes: list[str] = []
    ranks, share = options.ranks, options.split_backward
    rows, direction = place(ranks, options.microbatches, options.placement, options.chunks)
    device = profile.device(options.device)
    layers = layers_on(profile, device)
    backward = choose_backward(profile, layers, device, options.backward, share)
    costs = layer_costs(layers, device, backward, share, notes)
    limit = read_limit(profile, layers, device, options.memory_limit, notes)
    sizes = _fixed_sizes(profile, options, len(rows[0]), len(layers))
    if sizes is None:
        least = 0 if options.allow_empty else 1
        sizes = _even_sizes(costs, rows, ranks, limit, least, notes)
    stages = [Cost.total(group) for group in groups(costs, sizes)]
    parts = groups(layers, sizes)
    sized = not without(layers, "activation_bytes")
    halves = sized and backward == "split"
    pipeline = Pipeline.parse(
        {
            "format": Pipeline.FORMAT,
            "version": 1,
            "name": _name(profile, options, rows),
            "ranks": ranks,
            "stages": len(sizes),
            "microbatches": options.microbatches,
            "placement": rows,
            "direction": direction,
            "backward": backward,
            "forward_ns": [stage.forward for stage in stages],
            "backward_input_ns": [stage.backward_input for stage in stages],
            "backward_weight_ns": [stage.backward_weight for stage in stages],
            "latency_ns": latencies(profile, options.link, rows, ranks, parts, notes),
            "activation_bytes": [stage.activation for stage in stages] if sized else None,
            "released_by_input_bytes": [stage.released for stage in stages] if halves else None,
            "memory_limit_bytes": activation_limits(stages, rows, ranks, limit),
            "layers": [[layer.name for layer in part] for part in parts],
        },
        profile.name,
    )
    return pipeline, notes


def _name(profile: Profile, options: Cut, rows: Rows) -> str:
    shape = shape_of(rows, options.ranks)
    chunks = -(-len(rows[0]) // options.ranks)
    return f"{profile.name}-{shape}-p{options.ranks}-v{chunks}-m{options.microbatches}"


def _fixed_sizes(profile: Profile, options: Cut, stages: int, layers: int) -> list[int] | None:
    """Return the number of layers of each stage, or None where there is something to choose."""
    if options.layers is not None:
        faults = list(_faults(profile, options.layers, stages, layers, options.allow_empty))
        if faults:
            raise InputError("options", faults)
        return list(options.layers)
    if stages <= layers or options.allow_empty:
        return None
    raise InfeasibleError(
        f"{stages} stages need as many layers, and {profile.name} has {layers} "
        f"({'each a whole stage' if profile.unit == 'stage' else 'to cut between'}). "
        f"Use at most {layers} stages, or allow empty ones with --allow-empty."
    )


def _faults(
    profile: Profile, sizes: Sequence[int], stages: int, layers: int, allow_empty: bool
) -> Iterator[Fault]:
    if len(sizes) != stages:
        yield Fault("layers", f"{len(sizes)} numbers", f"{stages}, one per stage")
    if sum(sizes) != layers:
        hint = f"The layers of {profile.name}, embedding and head included."
        yield Fault("layers", f"a sum of {sum(sizes)}", str(layers), hint)
    if min(sizes, default=0) < 0:
        yield Fault("layers", str(min(sizes)), "0 or more")
    if 0 in sizes and not allow_empty:
        hint = "Allow it with --allow-empty."
        yield Fault("layers", "a stage without layers", "at least 1 per stage", hint)


def _even_sizes(
    costs: list[Cost],
    rows: Rows,
    ranks: int,
    limit: Limit | None,
    least: int,
    notes: list[str],
) -> list[int]:
    """Return the most even split whose ranks fit a limit.

    It is exact for one stage per rank. Where stages share a rank, an exact split into stages that
    fits is made more even among the ranks by local search.
    """
    time = [cost.forward + cost.backward_input + cost.backward_weight for cost in costs]

    def fits(sizes: list[int]) -> bool:
        try:
            activation_limits([Cost.total(x) for x in groups(costs, sizes)], rows, ranks, limit)
        except InfeasibleError:
            return False
        return True

    sizes = _even_stages(costs, time, rows, ranks, limit)
    if _most_per_rank(rows) == 1:
        return sizes
    sizes = even_ranks(time, sizes, rows, ranks, least, fits)
    loads = rank_loads([sum(part) for part in groups(time, sizes)], rows, ranks)
    if max(loads) * ranks > sum(loads):
        notes.append("partition: ranks hold several stages; the most even split found, not proven")
    return sizes


def _even_stages(
    costs: list[Cost], time: list[int], rows: Rows, ranks: int, limit: Limit | None
) -> list[int]:
    """Return a split into even stages whose ranks fit a limit.

    A limit on single stages is exact for one stage per rank. Where stages share a rank it is only
    necessary, so what comes of it is tried first, then an equal share for each stage, which is
    enough but not needed, and last the split that evens out bytes.
    """
    stages, shared = len(rows[0]), _most_per_rank(rows)
    if stages > len(costs):
        tries: list[list[int] | None] = [[1] * len(costs) + [0] * (stages - len(costs))]
    elif limit is None or limit.bytes is None:
        tries = [balance(time, stages)]
    else:
        size = [cost.static + cost.activation for cost in costs]
        tries = [
            balance(time, stages, size, limit.bytes),
            balance(time, stages, size, limit.bytes // shared),
            balance(size, stages),
        ]
    reason = ""
    for sizes in tries:
        if sizes is None:
            continue
        try:
            activation_limits([Cost.total(x) for x in groups(costs, sizes)], rows, ranks, limit)
        except InfeasibleError as error:
            reason = str(error)
        else:
            return sizes
    if shared > 1:
        reason += " Other splits of stages that share a rank were not tried."
    raise InfeasibleError(reason)


def _most_per_rank(rows: Rows) -> int:
    return max(Counter(rank for rank, _ in stages_of_ranks(rows)).values())
