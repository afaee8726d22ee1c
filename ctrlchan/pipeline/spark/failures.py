"""Errors of Spark in one line: the reason without the stack traces of Python and Java."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.spark.interrupts import was_interrupted

__all__ = ["as_pipeline_errors", "reason_of"]

_TRACEBACK: Final = "Traceback (most recent call last):"
_OURS: Final = re.compile(r"^ctrlchan\.errors\.\w+: ")
_CAUSE: Final = "Caused by: "
_CALLING: Final = re.compile(r"^An error occurred while calling [^\n]*\n: ")
#: Where a message ends and a stack begins, or what Spark adds to a message.
_STACK: Final = re.compile(r"\n\s*\n|\n\s*(?:at |\.\.\. \d+ more)|\n\nJVM stacktrace|\n\nDriver stacktrace")


@contextmanager
def as_pipeline_errors() -> Iterator[None]:
    """Raise PipelineError with the reason in place of an error of Spark, whose whole text becomes a note.

    Errors of ctrlchan raised on the driver pass unchanged. After Ctrl-C, which cancels the job, any error
    becomes KeyboardInterrupt. The JVM must still run: it is asked for the text of an error.
    """
    was_interrupted()
    try:
        yield
    except Exception as problem:
        if was_interrupted():
            raise KeyboardInterrupt from None
        if isinstance(problem, Py4JNetworkError):
            raise PipelineError(
                "Spark's JVM has ended, or does not answer (spark.driver.memory is what it may use)"
            ) from problem
        if not isinstance(problem, (PySparkException, Py4JError)):
            raise
        text = str(problem)
        error = PipelineError(reason_of(text))
        error.add_note(text)
        # No chain: the JVM gives the text of the first error only while it runs.
        raise error from None
    finally:
        interrupted = was_interrupted()
    if interrupted:
        raise KeyboardInterrupt


def reason_of(text: str) -> str:
    """Return the innermost reason in the text of an exception of Spark.

    For an error in a Python worker: the last line of its traceback, without the class name if the class is
    ours. For an error in Java: the message of the last cause.
    """
    if _TRACEBACK in text:
        lines = text.rpartition(_TRACEBACK)[2].strip("\n").split("\n")
        # The frames of a traceback are indented, its last line is not.
        at = next((number for number, line in enumerate(lines) if line and not line[0].isspace()), None)
        if at is not None:
            return _OURS.sub("", _before_stack("\n".join(lines[at:])))
    message = text.rpartition(_CAUSE)[2] if _CAUSE in text else _CALLING.sub("", text)
    return _before_stack(message) or "Spark does not say why"


def _before_stack(text: str) -> str:
    return _STACK.split(text, maxsplit=1)[0].strip()
