"""Small files for tests of the command line, and how they run it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from schedopt.cli import main

Doc = dict[str, Any]


def pipeline(ranks: int = 3, microbatches: int = 4, **fields: Any) -> Doc:
    """Make a linear pipeline in which F, I and W take 1 ns."""
    return {
        "format": "schedopt/pipeline",
        "version": 1,
        "name": "tiny",
        "ranks": ranks,
        "stages": ranks,
        "microbatches": microbatches,
        "placement": [[*range(ranks)]],
        "forward_ns": [1] * ranks,
        "backward_input_ns": [1] * ranks,
        "backward_weight_ns": [1] * ranks,
        "activation_bytes": [1] * ranks,
        "memory_limit_bytes": [ranks] * ranks,
        **fields,
    }


def hard_pipeline() -> Doc:
    """Make a V at half memory that no search closes within minutes."""
    ranks, microbatches = 8, 16
    stages = 2 * ranks
    return pipeline(
        ranks,
        microbatches,
        stages=stages,
        placement=[[*range(ranks), *reversed(range(ranks))]],
        forward_ns=[5674] * stages,
        backward_input_ns=[5624] * stages,
        backward_weight_ns=[4066] * stages,
        activation_bytes=[1000] * stages,
        released_by_input_bytes=[400] * stages,
        memory_limit_bytes=[8000] * ranks,
    )


def layer(name: str = "block", count: int = 6, **times: Any) -> Doc:
    """Make a layer; `times` replace those of the forward and of both gradients."""
    given = {"forward_ns": 100, "backward_input_ns": 110, "backward_weight_ns": 90, **times}
    measures = {
        key: {"median": value, "basis": "measured"} if isinstance(value, int | float) else value
        for key, value in given.items()
        if value is not None
    }
    size = {"median": 1000, "basis": "measured"}
    return {"name": name, "count": count, "times": {"gpu": measures}, "activation_bytes": size}


def profile(*layers: Doc, **fields: Any) -> Doc:
    """Make a profile of one device type."""
    return {
        "format": "schedopt/profile",
        "version": 1,
        "name": "model",
        "provenance": {"sources": [{"what": "made up for a test"}]},
        "devices": {"gpu": {}},
        "layers": list(layers) or [layer()],
        **fields,
    }


def save(path: Path, document: object) -> str:
    """Write a document and return its path as typed."""
    path.write_text(json.dumps(document))
    return str(path)


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(main, arguments, input=stdin)
