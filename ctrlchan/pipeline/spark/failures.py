"""Errors of Spark in one line: the reason without the stack traces of Python and Java."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

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
#: What died, and what to do about it, where Spark's own words name something else.
_DEATHS: Final = (
    (
        re.compile(r"Python worker exited unexpectedly"),
        "a Python worker of Spark died: it was killed, or the machine had no memory left "
        "(give more by spark.executor.memoryOverhead, or use fewer cores)",
    ),
    (
        re.compile(r"ExecutorLostFailure \(([^\n)]*)\)(?:[^\n]*Reason: ([^\n]*))?"),
        "an executor of Spark died: {0}: {1} (spark.executor.memory is what it may use)",
    ),
    (
        re.compile(r"(?:ModuleNotFoundError: No module named|\[PACKAGE_NOT_INSTALLED\]) '?([\w.]+)"),
        "the Python of Spark's executors has no {0}: install 'ctrlchan[spark]' there, or name another "
        "Python by PYSPARK_PYTHON",
    ),
    (
        re.compile(
            r"Class (?:org\.apache\.hadoop\.fs\.s3a\.S3AFileSystem) not found"
            r"|No FileSystem for scheme \"\w+\""
        ),
        "Spark has no classes for this kind of storage: add them, for s3a with "
        "--conf spark.jars.packages=org.apache.hadoop:hadoop-aws:3.5.0",
    ),
    (
        re.compile(r"Encountered error while reading file (?:file:)?(?://)?(\S+?)\.?(?:\s|$)"),
        "{0}: damaged, Spark cannot read it: restore it from a copy, or move it out of its folder",
    ),
    (
        re.compile(r"StatusCode\.UNAVAILABLE|INVALID_HANDLE\.SESSION_|Checkpoint block \S+ not found"),
        "the Spark Connect server, or the rows that it kept for this session, have gone: run the job again",
    ),
    (
        re.compile(r"Cannot call methods on a stopped SparkContext"),
        "Spark was stopped while the job ran: run the job again",
    ),
)
_NO_JVM: Final = (
    "Spark's JVM has ended: it was killed, or had no memory left (spark.driver.memory is what it may use); "
    "run the job again"
)


@contextmanager
def as_pipeline_errors() -> Iterator[None]:
    """Raise PipelineError with the reason in place of an error of Spark, whose whole text becomes a note.

    Errors of ctrlchan raised on the driver pass unchanged. After Ctrl-C, which cancels the job, any error
    becomes KeyboardInterrupt. The text of an error in Java is asked of the
    JVM; if that has ended, this is the error.
    """
    was_interrupted()
    try:
        yield
    except Exception as problem:
        if was_interrupted():
            raise KeyboardInterrupt from None
        if _of_py4j(problem, "Py4JNetworkError") or _of_connection(problem):
            raise PipelineError(_NO_JVM) from problem
        if not isinstance(problem, PySparkException) and not _of_py4j(problem):
            raise
        try:
            text = str(problem)
        except Exception as other:
            if not isinstance(other, OSError) and not _of_py4j(other):
                raise
            raise PipelineError(_NO_JVM) from None
        error = PipelineError(reason_of(text))
        error.add_note(text)
        # No chain: the JVM gives the text of the first error only while it runs.
        raise error from None
    finally:
        interrupted = was_interrupted()
    if interrupted:
        raise KeyboardInterrupt


def _of_py4j(problem: Exception, name: str = "Py4JError") -> bool:
    """Return whether this is an error of py4j, which a client of Spark Connect need not have."""
    return any((one.__module__, one.__name__) == ("py4j.protocol", name) for one in type(problem).__mro__)


def _of_connection(problem: Exception) -> bool:
    """Return whether the connection to the JVM has failed: with a socket's error, which names nobody."""
    if not isinstance(problem, (ConnectionError, EOFError)):
        return False
    called = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(problem.__traceback__))
    return any(name.startswith(("py4j.", "pyspark.")) for name in called)


def reason_of(text: str) -> str:
    """Return the innermost reason in the text of an exception of Spark.

    What died, and what to do, where a process or a file is the reason.

    For an error in a Python worker: the last line of its traceback, without the class name if the class is
    ours. For an error in Java: the message of the last cause.
    """
    for pattern, words in _DEATHS:
        if found := pattern.search(text):
            return words.format(*found.groups("unknown"))
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
