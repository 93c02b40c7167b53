"""The command line: one module per command, each with a click command called `command`.

Nothing here imports more than click until a command runs, so that ``--help`` is immediate.
"""

from __future__ import annotations

import click

from schedopt._version import __version__
from schedopt.cli import (
    check,
    compare,
    doctor,
    export,
    import_csv,
    schema,
    show,
    simulate,
    solve,
)
from schedopt.cli.program import Program

__all__ = ["main"]

_EXIT_CODES = """\b
Exit codes: 0 answered; 1 the answer is no (infeasible, violations, deadlock);
2 bad usage or input; 3 a limit was reached with nothing to show; 70 a bug in
schedopt; 130 and 143 interrupted, the best schedule so far written first.

\b
Completion: eval "$(_SCHEDOPT_COMPLETE=bash_source schedopt)"   (or zsh_source)
"""

_COMMANDS = (solve, compare, check, simulate, show, export, import_csv, schema, doctor)


@click.group(
    cls=Program,
    example="schedopt solve profiles/zero-bubble-6.2b.json --ranks 8 --microbatches 32",
    epilog=_EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(__version__, "-V", "--version", message="schedopt %(version)s")
def main() -> None:
    """Provably good pipeline-parallel training schedules from measured profiles."""


for _module in _COMMANDS:
    main.add_command(_module.command)
