"""Spark sessions as the jobs need them, on a laptop as on a cluster.

Settings that somebody else has made (``spark-defaults.conf``, ``spark-submit``, ``conf=``) win over ours.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file, files
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.java import find_java
from ctrlchan.pipeline.source import CtrlchanSource

__all__ = ["running", "session", "stop"]

#: Rows of one Arrow batch between the JVM and Python: enough to forget the cost of a batch, and few MiB.
_BATCH_ROWS: Final = 65_536
_OURS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(_BATCH_ROWS),
    "spark.sql.parquet.compression.codec": "zstd",
}
#: On this machine alone nobody looks at the page, and two hundred tasks for each shuffle are too many.
_OURS_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
}
#: Set by Spark itself when Python starts it; its bar would run through ours.
_CONSOLE_PROGRESS: Final = "spark.ui.showConsoleProgress"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
#: Seconds that the JVM has to end after its last job.
_PATIENCE: Final = 30


def session(
    name: str = "ctrlchan", *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """The Spark session of this process; made, and its JVM started, when there is none yet.

    ``master``: as Spark's (``local[*]``, ``spark://host:7077``, ``yarn``, ...); None: Spark's own setting,
    else ``local[*]``. ``conf``: Spark's settings by their names. A session that is there is given back as it
    is. Executors run this Python (PYSPARK_PYTHON says otherwise), so ctrlchan has to be installed there.

    Raises PipelineError when there is no Java for it, or Spark does not start.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    given = SparkConf(loadDefaults=False)
    for key, value in (conf or {}).items():
        given.set(key, value)
    given.setAppName(name)
    if master is not None:
        given.setMaster(master)
    with _environment(given.get("spark.master") or "local[*]"), _quiet(given):
        try:
            # The JVM first: it knows what the user's files say, and ours only fills what they leave open.
            SparkContext._ensure_initialized(conf=given)
            known = SparkConf()
            for key, value in given.getAll():
                known.set(key, value)
            where = known.setIfMissing("spark.master", "local[*]").get("spark.master") or ""
            for key, value in {**_OURS, **(_OURS_LOCAL if _is_local(where) else {})}.items():
                known.setIfMissing(key, value)
            if not given.contains(_CONSOLE_PROGRESS):
                known.set(_CONSOLE_PROGRESS, "false")
            spark = SparkSession.builder.config(conf=known).getOrCreate()
            spark.dataSource.register(CtrlchanSource)
        except PipelineError:
            raise
        except Exception as problem:
            _end_jvm()
            raise PipelineError(f"Spark does not start: {_first_line(problem)}") from problem
    return spark


def stop(spark: SparkSession) -> None:
    """End the session and its JVM; what runs is cancelled."""
    spark.stop()
    _end_jvm()


@contextmanager
def running(
    name: str = "ctrlchan", *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """``session``, ended on the way out, also by Ctrl-C."""
    spark = session(name, master=master, conf=conf)
    try:
        yield spark
    finally:
        stop(spark)


def _is_local(master: str) -> bool:
    return master.startswith("local")


@contextmanager
def _environment(master: str) -> Iterator[None]:
    """What the JVM and the context read from the environment while they start."""
    wanted = {"JAVA_HOME": str(find_java().home)}
    if "PYSPARK_PYTHON" not in os.environ:
        wanted["PYSPARK_PYTHON"] = sys.executable
    if _is_local(master) and "SPARK_LOCAL_IP" not in os.environ:
        # Nobody else is to reach it; and host names of laptops often lead nowhere.
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


@contextmanager
def _quiet(given: SparkConf) -> Iterator[None]:
    """Errors alone on standard error, unless the user has options for the JVM or a folder of settings."""
    if given.contains(_JAVA_OPTIONS) or "SPARK_CONF_DIR" in os.environ:
        yield
        return
    with as_file(files("ctrlchan.pipeline") / "log4j2.properties") as settings:
        given.set(_JAVA_OPTIONS, f"-Dlog4j2.configurationFile=file:{settings}")
        yield


def _end_jvm() -> None:
    """The JVM is ours alone when this process started it; it ends when its standard input does."""
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
