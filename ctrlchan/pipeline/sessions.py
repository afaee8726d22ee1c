"""Spark sessions for the jobs, on one machine or on a cluster.

Settings of the user (``spark-defaults.conf``, ``spark-submit``, ``conf=``) win over ours.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.spark.failures import as_pipeline_errors
from ctrlchan.pipeline.spark.interrupts import cancel_when_interrupted, restore
from ctrlchan.pipeline.spark.java import java_home

__all__ = ["running", "session", "stop"]

#: Rows of one Arrow batch between the JVM and Python: a few MiB, and the cost of a batch does not show.
_BATCH_ROWS: Final = 65_536
_OURS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(_BATCH_ROWS),
    "spark.sql.parquet.compression.codec": "zstd",
}
#: On one machine: no web page, and fewer than two hundred tasks for each shuffle.
_OURS_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
}
#: For small inputs on one machine. What Spark plans and compiles for speed would cost more than the work; so
#: would the line of each call, which PySpark hands to the JVM for its error messages.
_OURS_SMALL: Final = {
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.default.parallelism": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}
#: A JVM for small inputs runs for seconds: its optimizing compiler would cost more than it gains.
_JAVA_SMALL: Final = "-XX:TieredStopAtLevel=1"
#: Spark sets it when Python starts it; its progress bar would disturb ours.
_CONSOLE_PROGRESS: Final = "spark.ui.showConsoleProgress"
#: Options of the JVM that stand before those of the user's settings.
_JAVA_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
#: Seconds that the JVM has to end after its last job.
_PATIENCE: Final = 30


def session(
    name: str = "ctrlchan",
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    small: bool = False,
    source: bool = True,
) -> SparkSession:
    """Return the Spark session of this process; start the JVM and the session if there is none.

    ``master``: as Spark's (``local[*]``, ``spark://host:7077``, ``yarn``, ...); None: Spark's own setting,
    else ``local[*]``. ``conf``: Spark's settings by name. ``small``: the inputs have a few MiB at most, so on
    one machine a single task does the work of a stage. ``source``: register ``format("ctrlchan")``, for which
    Spark starts a Python process. An existing session is returned unchanged.
    Executors run this Python, unless PYSPARK_PYTHON names another, so ctrlchan must be installed there.

    Raises PipelineError if there is no Java or Spark does not start.
    """
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        # No thread has a session.
        pass
    given = SparkConf(loadDefaults=False)
    for key, value in (conf or {}).items():
        given.set(key, value)
    given.setAppName(name)
    if master is not None:
        given.setMaster(master)
    interrupted = signal.getsignal(signal.SIGINT)
    with _environment(given, small=small):
        try:
            # The JVM first: it reads the user's files, and our settings only fill the gaps.
            SparkContext._ensure_initialized(conf=given)
            merged = SparkConf()
            for key, value in given.getAll():
                merged.set(key, value)
            where = merged.setIfMissing("spark.master", "local[*]").get("spark.master") or ""
            for key, value in _settings(where, small=small).items():
                merged.setIfMissing(key, value)
            if not given.contains(_CONSOLE_PROGRESS):
                merged.set(_CONSOLE_PROGRESS, "false")
            spark = SparkSession.builder.config(conf=merged).getOrCreate()
            if source:
                # Most sessions do without the source.
                from ctrlchan.pipeline.source import CtrlchanSource

                spark.dataSource.register(CtrlchanSource)
            cancel_when_interrupted(spark.sparkContext, interrupted)
        except KeyboardInterrupt:
            _end_jvm()
            raise
        except Exception as problem:
            _end_jvm()
            raise PipelineError(f"Spark does not start: {_first_line(problem)}") from problem
    return spark


def stop(spark: SparkSession) -> None:
    """End the session and its JVM; running jobs are cancelled."""
    try:
        with warnings.catch_warnings():
            # Of a JVM that has ended before; whoever used it has the error.
            warnings.simplefilter("ignore", RuntimeWarning)
            spark.stop()
    except (Py4JError, OSError):
        # PySpark gave up half way: the next session must not find this one.
        spark.sparkContext.stop()
        SparkSession._instantiatedSession = SparkSession._activeSession = None
    finally:
        restore()
        _end_jvm()


@contextmanager
def running(
    name: str = "ctrlchan",
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    small: bool = False,
) -> Iterator[SparkSession]:
    """Start a session as ``session`` does, and stop it at the end of the block, also after Ctrl-C.

    Errors of Spark become PipelineErrors with their reason in one line.
    """
    spark = session(name, master=master, conf=conf, small=small)
    try:
        with as_pipeline_errors():
            yield spark
    finally:
        stop(spark)


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _settings(master: str, *, small: bool) -> dict[str, str]:
    """Return our settings for this master."""
    if not _is_local(master):
        return _OURS
    return {**_OURS, **_OURS_LOCAL, **(_OURS_SMALL if small else {})}


@contextmanager
def _environment(given: SparkConf, *, small: bool) -> Iterator[None]:
    """Set the environment variables that the JVM and the context read while they start."""
    with as_file(files("ctrlchan.pipeline.spark") / "log4j2.properties") as logging:
        wanted, options = {}, []
        local = _is_local(given.get("spark.master") or "local[*]")
        if not _is_started():
            wanted["JAVA_HOME"] = str(java_home())
        if small and local:
            options.append(_JAVA_SMALL)
        if not _has_own_logging():
            options.append(shlex.quote(f"-Dlog4j2.configurationFile={logging.as_uri()}"))
        if options:
            wanted[_JAVA_OPTIONS] = " ".join([*options, os.environ.get(_JAVA_OPTIONS, "")]).rstrip()
        if "PYSPARK_PYTHON" not in os.environ:
            wanted["PYSPARK_PYTHON"] = given.get("spark.pyspark.python") or sys.executable
        if local and "SPARK_LOCAL_IP" not in os.environ:
            # Other machines must not reach it; and host names of laptops often have no address.
            wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _is_started() -> bool:
    """Return whether a JVM runs: of a stopped session, or because ``spark-submit`` has started Python."""
    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def _has_own_logging() -> bool:
    """Return whether the user's installation of Spark configures its logging."""
    places = [
        os.environ.get("SPARK_CONF_DIR"),
        os.environ.get("SPARK_HOME") and f"{os.environ['SPARK_HOME']}/conf",
    ]
    return any(next(Path(place).glob("log4j2.*"), None) is not None for place in places if place)


def _end_jvm() -> None:
    """End the JVM if this process started it; it ends when its standard input is closed."""
    gateway: Any = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _first_line(problem: Exception) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]
