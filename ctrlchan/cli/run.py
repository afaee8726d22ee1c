"""Runs the command: standard streams that work, and every error as one line and an exit status."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

from ctrlchan.interpreter import ONE_BLAS_THREAD

__all__ = ["run"]


def run(arguments: Sequence[str] | None) -> int:
    """Run the command and return its exit status. Raises KeyboardInterrupt."""
    _open_standard_streams()
    # Or the interpreter's end looks for cycles among all objects, which takes half a second.
    atexit.register(gc.freeze)
    if arguments is None:
        # The process is the command's own. kio would import Hypothesis where it is installed, which takes
        # longer than all other imports of a broker.
        sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
        os.environ.setdefault(*ONE_BLAS_THREAD)
    with _noted_interrupts() as interrupted:
        try:
            return _status(arguments)
        except Exception:
            # A library may turn a Ctrl-C in the middle of an import into another error.
            if interrupted.is_set():
                raise KeyboardInterrupt from None
            raise


@contextmanager
def _noted_interrupts() -> Iterator[threading.Event]:
    """Yield an event that a Ctrl-C sets, besides raising KeyboardInterrupt."""
    interrupted = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _status(arguments: Sequence[str] | None) -> int:
    try:
        status = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader of standard output has gone, as `head` does: nothing to report, and nobody to read it.
        _discard(sys.stdout)
        return 1
    except MemoryError as error:
        return _error(f"not enough memory: {error}")
    except Exception as error:
        # Imported here: the codec, which defines this class, imports NumPy.
        from ctrlchan.errors import CtrlchanError

        if not isinstance(error, (CtrlchanError, OSError)):
            raise
        return _error(str(error))


def _run(words: list[str]) -> int:
    match words:
        # Scripts start these for single messages; Typer takes longer to read the words than the work takes.
        case ["decode"] | ["decode", "--frames"] | ["encode"]:
            from ctrlchan.messages.json_lines import convert_file

            well = convert_file(sys.stdin.buffer, sys.stdout, words[0], frames="--frames" in words)
            return 0 if well else 1
    return _run_with_typer(words)


def _run_with_typer(words: list[str]) -> int:
    import typer

    from ctrlchan.cli.commands import app

    # Typer has had classes of Click's and of its own: the base of all its errors of usage.
    usage_error: type[Exception] = typer.BadParameter.__mro__[2]
    try:
        ended = app(args=words, standalone_mode=False)
    except typer.Abort:
        return 130
    except usage_error as error:
        return _usage_error(error)
    return ended if isinstance(ended, int) else 0


def _usage_error(error: Exception) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error, file=sys.stderr)
    else:
        _error(error.format_message())  # type: ignore[attr-defined]
    return 2


def _error(message: str) -> int:
    from ctrlchan.text import printable

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
