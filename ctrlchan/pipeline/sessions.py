"""Spark sessions for the jobs: in a JVM of this process, or of a Spark Connect server.

The first are in ``spark.jvm``, the second in ``spark.connect``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from ctrlchan.pipeline.spark.failures import as_pipeline_errors
from ctrlchan.pipeline.spark.location import remote_url
from ctrlchan.pipeline.spark.remote import is_remote

__all__ = ["running", "session", "stop"]


def session(
    name: str = "ctrlchan",
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    small: bool = False,
    source: bool = True,
) -> SparkSession:
    """Return the Spark session of this process; start one if there is none.

    - ``master``: as Spark's (``local[*]``, ``spark://host:7077``, ``yarn``, ...); None: Spark's own setting,
      else ``local[*]``.
    - ``remote``: a Spark Connect server (``sc://host:15002``) in place of a JVM of this process; None:
      SPARK_REMOTE, unless there is a ``master``.
    - ``conf``: Spark's settings by name.
    - ``small``: the inputs have a few MiB at most, so on one machine a single task does the work of a stage.
    - ``source``: register ``format("ctrlchan")``, for which Spark starts a Python process.

    An existing session is returned unchanged. Executors run this Python, unless PYSPARK_PYTHON names another,
    so ctrlchan must be installed there; with a Spark Connect server, in the server's Python.

    Raises PipelineError if there is no Java, Spark does not start or no server answers; ConfigError for
    ``master`` with ``remote``, for another URL and for a setting that only the start of a server can set.
    """
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        # No thread has a session.
        pass
    url = remote_url(master, remote)
    if url is None:
        from ctrlchan.pipeline.spark import jvm

        spark = jvm.start(name, master, conf or {}, small=small)
    else:
        from ctrlchan.pipeline.spark import connect

        spark = connect.start(url, conf or {}, small=small)
    if source:
        # Most sessions do without the source.
        from ctrlchan.pipeline.source import CtrlchanSource

        try:
            spark.dataSource.register(CtrlchanSource)
        except BaseException:
            stop(spark)
            raise
    return spark


def stop(spark: SparkSession) -> None:
    """End the session and its running jobs, and the JVM if it is of this process."""
    if is_remote(spark):
        from ctrlchan.pipeline.spark import connect

        connect.end(spark)
    else:
        from ctrlchan.pipeline.spark import jvm

        jvm.end(spark)


@contextmanager
def running(
    name: str = "ctrlchan",
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    small: bool = False,
) -> Iterator[SparkSession]:
    """Start a session as ``session`` does, and stop it at the end of the block, also after Ctrl-C.

    Errors of Spark become PipelineErrors with their reason in one line.
    """
    spark = session(name, master=master, remote=remote, conf=conf, small=small)
    try:
        with as_pipeline_errors():
            yield spark
    finally:
        stop(spark)
