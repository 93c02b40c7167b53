"""What every command shares: help that starts with an example, and errors that end in a code."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import click

from schedopt.cli.voice import Voice
from schedopt.errors import InputError, SchedoptError

__all__ = ["Command", "Program"]

_BUG = 70
_INTERRUPTED = 130
_BROKEN_PIPE = 141  # 128 + SIGPIPE, what a shell reports of other programs


class _ExampleFirst(click.Command):
    """A command whose help starts with an example."""

    def __init__(self, *args: Any, example: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self.example = example

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"Example: {self.example}\n\n")
        super().format_help(ctx, formatter)


class Command(_ExampleFirst):
    """A command; its callback returns the exit code, or None for 0."""


class Program(_ExampleFirst, click.Group):
    """The group of all commands: the one place where errors become messages and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order of their use."""
        return [*self.commands]

    def main(  # type: ignore[override]  # one signature for click's two
        self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        """Run the program; errors of usage look like all others, where click writes "Error:"."""
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **extra)
        if sys.stderr is None:  # closed by the caller
            sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - for the rest of the process
        if sys.stdout is None:
            click.echo("error: standard output is closed", err=True)
            sys.exit(InputError.exit_code)
        try:
            code = super().main(args, standalone_mode=False, **extra)
        except click.ClickException as error:
            said = io.StringIO()
            error.show(said)
            click.echo(re.sub("(?m)^Error:", "error:", said.getvalue()), err=True, nl=False)
            code = error.exit_code
        except click.Abort:
            click.echo("error: interrupted before there was anything to show", err=True)
            code = _INTERRUPTED
        sys.exit(code)

    def invoke(self, ctx: click.Context) -> None:
        """Run a command and leave with its exit code."""
        ctx.obj = voice = Voice()
        with _terminable(voice):
            code = self._run(ctx, voice)
        if code:
            ctx.exit(code)

    def _run(self, ctx: click.Context, voice: Voice) -> int:
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except SchedoptError as error:
            _tell(voice, error)
            return voice.stop_code if error.exit_code == _INTERRUPTED else error.exit_code
        except KeyboardInterrupt:
            return _stopped(voice)
        except BrokenPipeError:
            _drop_output()
            return _BROKEN_PIPE
        except ImportError as error:
            # What a signal leaves of a library that is just being loaded.
            return _stopped(voice) if voice.stopped else _own_bug(voice, error)
        except OSError as error:  # such as a full disk behind the standard output
            voice.error(f"{error.filename or 'standard output'}: {error.strerror}")
            _drop_output()
            return InputError.exit_code
        except Exception as error:
            return _own_bug(voice, error)
        return int(code or 0)


def _stopped(voice: Voice) -> int:
    voice.error("interrupted before there was anything to show")
    return voice.stop_code


def _tell(voice: Voice, error: SchedoptError) -> None:
    if isinstance(error, InputError):
        voice.faults(error)
    else:
        voice.error(str(error))


def _own_bug(voice: Voice, error: Exception) -> int:
    voice.error(f"internal: {type(error).__name__}: {error}")
    if voice.verbose:
        import traceback

        voice.stderr(traceback.format_exc().rstrip())
    voice.stderr(
        "This is a bug in schedopt. Please report it with the command, its input and the output "
        "of schedopt doctor" + ("." if voice.verbose else "; -v shows where it happened.")
    )
    return _BUG


def _drop_output() -> None:
    """Send what is still buffered nowhere: Python would fail on it once more when it ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _terminable(voice: Voice) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM interrupt, and remember which it was; what comes after it
    must not disturb the writing of what was found.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        if not voice.stopped:
            voice.stopped = True
            voice.stop_code = 128 + number
            raise KeyboardInterrupt

    try:
        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # signals belong to the main thread
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
