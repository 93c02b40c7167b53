"""`schedopt/schedule`: an answer, with its value, its proof, and what was assumed."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from schedopt.errors import Fault
from schedopt.files import Document, Part
from schedopt.pipeline import Amount, Pipeline
from schedopt.problem import Objective

__all__ = [
    "Action",
    "Certificate",
    "Columns",
    "Objective",
    "Op",
    "Orders",
    "Provenance",
    "Schedule",
]

Kind = Literal["F", "I", "W", "B"]


class Action(NamedTuple):
    """What a rank does next, without a time."""

    kind: Kind
    stage: int
    microbatch: int


Orders = list[list[Action]]
"""Each rank's actions in the order in which it runs them: all that a training runtime needs."""


class Op(TypedDict):
    """One op at its time."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]

    kind: Kind
    stage: Amount
    microbatch: Amount
    rank: Amount
    start_ns: Amount
    end_ns: Amount


class Certificate(Part):
    """Why nothing shorter exists: which bound, where, and the numbers to redo it by hand.

    Attributes
    ----------
    bound : str
        ``chain``, ``machine``, ``window``, ``memory`` or ``cp-sat`` / ``milp``.
    rank : int, optional
        The rank that the bound looks at.
    reason : str
        The argument in one sentence.
    terms : dict of str to int
        The numbers that add up to the bound, ns.
    """

    bound: str
    rank: int | None = None
    reason: str
    terms: dict[str, int] = {}


class Provenance(Part):
    """What the answer came from: equal provenance, equal file."""

    input_sha256: str
    options: dict[str, str | int | float | bool | None] = {}
    versions: dict[str, str] = {}


class Columns(NamedTuple):
    """The ops as arrays, in the file's order; `kind` holds the letters."""

    kind: npt.NDArray[np.str_]
    stage: npt.NDArray[np.int64]
    microbatch: npt.NDArray[np.int64]
    rank: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]


class Schedule(Document):
    """A schedule of a pipeline.

    Attributes
    ----------
    objective : {"makespan", "device-span"}
        What was minimised; `lower_bound_ns` and `gap` are about it.
    status : {"optimal", "feasible"}
        ``optimal`` only when the value equals a proven bound.
    makespan_ns : int
        From the start of the first op to the end of the last on any rank.
    device_span_ns : int
        Largest time between the first start and the last end on one rank.
    lower_bound_ns : int, optional
        Proven; absent for a schedule that was not solved but imported or named.
    gap : float, optional
        value / bound − 1.
    bubble : float
        1 − busy time / (ranks × makespan).
    peak_bytes : list of int, shape (ranks,)
        Largest sum of activations held.
    assumptions : list of str
        What the answer takes for granted.
    pipeline : Pipeline
        The problem that was solved, whole, so that the file stands alone.
    """

    FORMAT: ClassVar[str] = "schedopt/schedule"

    format: Literal["schedopt/schedule"] = "schedopt/schedule"
    version: Literal[1] = 1
    name: str = ""
    method: str = ""
    objective: Objective = "makespan"
    status: Literal["optimal", "feasible"]
    makespan_ns: Amount
    device_span_ns: Amount
    lower_bound_ns: Amount | None = None
    gap: Annotated[float, Field(ge=0)] | None = None
    bubble: float
    peak_bytes: list[Amount]
    certificate: Certificate | None = None
    assumptions: list[str] = []
    provenance: Provenance | None = None
    pipeline: Pipeline
    ops: list[Op]

    @model_validator(mode="after")
    def _inside_the_pipeline(self) -> Self:
        bounds = (
            ("rank", self.columns.rank, self.pipeline.ranks),
            ("stage", self.columns.stage, self.pipeline.stages),
            ("microbatch", self.columns.microbatch, self.pipeline.microbatches),
        )
        faults = []
        for name, values, count in bounds:
            for k in np.flatnonzero(values >= count)[:5].tolist():
                found, expected = str(values[k]), f"a {name} from 0 to {count - 1}"
                faults.append(Fault(f"ops[{k}].{name}", found, expected))
        if len(self.peak_bytes) != self.pipeline.ranks:
            found = f"{len(self.peak_bytes)} entries"
            faults.append(Fault("peak_bytes", found, f"{self.pipeline.ranks}, one per rank"))
        if faults:
            raise ValueError(*faults)
        return self

    @property
    def value_ns(self) -> int:
        """The value of the objective."""
        return self.device_span_ns if self.objective == "device-span" else self.makespan_ns

    @cached_property
    def columns(self) -> Columns:
        """The ops as arrays."""
        names = ("stage", "microbatch", "rank", "start_ns", "end_ns")
        numbers = [np.array([op[name] for op in self.ops], np.int64) for name in names]  # type: ignore[literal-required]
        return Columns(np.array([op["kind"] for op in self.ops], "U1"), *numbers)

    def orders(self) -> Orders:
        """Return what each rank does in which order."""
        return [
            [Action(op["kind"], op["stage"], op["microbatch"]) for op in row]
            for row in self.by_rank()
        ]

    def by_rank(self) -> list[list[Op]]:
        """Return each rank's ops in the order of their starts."""
        rows: list[list[Op]] = [[] for _ in range(self.pipeline.ranks)]
        for op in self.ops:
            rows[op["rank"]].append(op)
        for row in rows:
            row.sort(key=lambda op: (op["start_ns"], op["end_ns"]))
        return rows
