"""What went wrong in Spark, in a line: the reason, without the stacks of Python and Java around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.spark.interrupts import taken

__all__ = ["reason_of", "told"]

_TRACEBACK: Final = "Traceback (most recent call last):"
_OURS: Final = re.compile(r"^ctrlchan\.errors\.\w+: ")
_CAUSE: Final = "Caused by: "
_CALLING: Final = re.compile(r"^An error occurred while calling [^\n]*\n: ")
#: Where a message ends and a stack begins, or what Spark adds to a message.
_STACK: Final = re.compile(r"\n\s*\n|\n\s*(?:at |\.\.\. \d+ more)|\n\nJVM stacktrace|\n\nDriver stacktrace")


@contextmanager
def told() -> Iterator[None]:
    """Raise PipelineError with the reason where Spark raises, while there is a JVM to ask for it.

    All that Spark said is a note of the error. What is raised by ctrlchan itself, on the driver, passes.
    After Ctrl-C, which has cancelled the job, it is a KeyboardInterrupt whatever has become of that.
    """
    taken()
    try:
        yield
    except Exception as problem:
        if taken():
            raise KeyboardInterrupt from None
        if isinstance(problem, Py4JNetworkError):
            raise PipelineError(
                "Spark's JVM has ended, or does not answer (spark.driver.memory is what it may use)"
            ) from problem
        if not isinstance(problem, (PySparkException, Py4JError)):
            raise
        said = str(problem)
        error = PipelineError(reason_of(said))
        error.add_note(said)
        # Its text can be asked for as long as the JVM lives: a chain would be printed without it.
        raise error from None
    finally:
        interrupted = taken()
    if interrupted:
        raise KeyboardInterrupt


def reason_of(said: str) -> str:
    """The innermost reason in what an exception of Spark says.

    Of an error in a Python worker the last line of its traceback (without the class where it is ours), of one
    in Java the message of the last cause.
    """
    if _TRACEBACK in said:
        lines = said.rpartition(_TRACEBACK)[2].strip("\n").split("\n")
        # The frames are indented, what was raised is not.
        at = next((number for number, line in enumerate(lines) if line and not line[0].isspace()), None)
        if at is not None:
            return _OURS.sub("", _before_stack("\n".join(lines[at:])))
    message = said.rpartition(_CAUSE)[2] if _CAUSE in said else _CALLING.sub("", said)
    return _before_stack(message) or "Spark does not say why"


def _before_stack(text: str) -> str:
    return _STACK.split(text, maxsplit=1)[0].strip()
