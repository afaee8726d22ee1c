"""Starts Spark in a JVM of this process, on one machine or on a cluster, and ends it.

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
from pyspark.sql import SparkSession

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.spark import class_archive
from ctrlchan.pipeline.spark.defaults import DEFAULTS, SMALL_QUERIES
from ctrlchan.pipeline.spark.environment import JAVA_OPTIONS, changed_environment
from ctrlchan.pipeline.spark.interrupts import cancel_when_interrupted, restore
from ctrlchan.pipeline.spark.java import java_home

__all__ = ["end", "is_started", "start"]

#: On one machine: no web page, and fewer than two hundred tasks for each shuffle. Nothing is nearer than this
#: machine; while Spark waits for a nearer one for the blocks of HDFS, it may be that nothing wakes it again.
_LOCAL: Final = {
    "spark.locality.wait": "0s",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
}
#: For small inputs on one machine. The line of each call, which PySpark hands to the JVM for its error
#: messages, would cost more than the work.
_LOCAL_SMALL: Final = {
    **SMALL_QUERIES,
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.default.parallelism": "1",
}
#: A JVM for small inputs runs for seconds: its optimizing compiler would cost more than it gains, so would
#: looking for garbage each time that the room for its classes grows.
_JAVA_SMALL: Final = ("-XX:TieredStopAtLevel=1", "-XX:MetaspaceSize=256m")
#: Spark sets it when Python starts it; its progress bar would disturb ours.
_CONSOLE_PROGRESS: Final = "spark.ui.showConsoleProgress"
#: PySpark starts no JVM while this variable is set.
_REMOTE: Final = "SPARK_REMOTE"
#: Seconds that the JVM has to end after its last job.
_PATIENCE: Final = 30


def start(name: str, master: str | None, conf: Mapping[str, str], *, small: bool) -> SparkSession:
    """Start the JVM and the session; raises as ``sessions.session`` does."""
    given = SparkConf(loadDefaults=False)
    for key, value in conf.items():
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
            # Not a Spark Connect server inside this process, as SPARK_API_MODE could ask for.
            merged.set("spark.api.mode", "classic")
            spark = SparkSession.builder.config(conf=merged).getOrCreate()
            cancel_when_interrupted(spark.sparkContext, interrupted)
        except KeyboardInterrupt:
            _end_jvm()
            raise
        except Exception as problem:
            _end_jvm()
            raise PipelineError(f"Spark does not start: {_first_line(problem)}") from problem
    return spark


def end(spark: SparkSession) -> None:
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


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _settings(master: str, *, small: bool) -> dict[str, str]:
    """Return our settings for this master."""
    if not _is_local(master):
        return DEFAULTS
    return {**DEFAULTS, **_LOCAL, **(_LOCAL_SMALL if small else {})}


@contextmanager
def _environment(given: SparkConf, *, small: bool) -> Iterator[None]:
    """Set the environment variables that the JVM and the context read while they start."""
    with as_file(files("ctrlchan.pipeline.spark") / "log4j2.properties") as logging:
        # The caller has chosen a master.
        wanted: dict[str, str | None] = {_REMOTE: None}
        options: list[str] = []
        local = _is_local(given.get("spark.master") or "local[*]")
        if not is_started():
            java = java_home()
            wanted["JAVA_HOME"] = str(java)
            if local:
                options += class_archive.options(java)
        if small and local:
            options += _JAVA_SMALL
        if not _has_own_logging():
            options.append(shlex.quote(f"-Dlog4j2.configurationFile={logging.as_uri()}"))
        if options:
            wanted[JAVA_OPTIONS] = " ".join([*options, os.environ.get(JAVA_OPTIONS, "")]).rstrip()
        if "PYSPARK_PYTHON" not in os.environ:
            wanted["PYSPARK_PYTHON"] = given.get("spark.pyspark.python") or sys.executable
        if local and "SPARK_LOCAL_IP" not in os.environ:
            # Other machines must not reach it; and host names of laptops often have no address.
            wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
        with changed_environment(wanted):
            yield


def is_started() -> bool:
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
