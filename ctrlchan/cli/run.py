"""Runs the command: standard streams that work, and every error as one line and an exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TextIO

import typer

from ctrlchan.errors import CtrlchanError
from ctrlchan.text import printable

__all__ = ["run"]

#: Typer has had classes of Click's and of its own: the base of all its errors of usage.
_UsageError: type[Exception] = typer.BadParameter.__mro__[2]


def run(arguments: Sequence[str] | None) -> int:
    """Run the command and return its exit status. Raises KeyboardInterrupt."""
    _open_standard_streams()
    try:
        from ctrlchan.cli.commands import app

        ended = app(args=None if arguments is None else list(arguments), standalone_mode=False)
        sys.stdout.flush()
        return ended if isinstance(ended, int) else 0
    except BrokenPipeError:
        # The reader of standard output has gone, as `head` does: nothing to report, and nobody to read it.
        _discard(sys.stdout)
        return 1
    except typer.Abort:
        return 130
    except MemoryError as error:
        return _error(f"not enough memory: {error}")
    except (CtrlchanError, OSError) as error:
        return _error(str(error))
    except _UsageError as error:
        return _usage_error(error)


def _usage_error(error: Exception) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(str(error), err=True)
    else:
        _error(error.format_message())  # type: ignore[attr-defined]
    return 2


def _error(message: str) -> int:
    _flush_or_discard(sys.stdout)
    print(f"error: {printable(message)}", file=sys.stderr)
    _flush_or_discard(sys.stderr)
    return 1


def _open_standard_streams() -> None:
    """Open those of the three standard descriptors that are closed, on /dev/null.

    Otherwise the next file or socket would get the descriptor, and what is printed would go there.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)
            assert opened == descriptor
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", closefd=False))


def _flush_or_discard(stream: TextIO) -> None:
    try:
        stream.flush()
    except OSError:
        _discard(stream)


def _discard(stream: TextIO) -> None:
    """Send what the stream has not written to /dev/null, or Python complains about it at the end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
