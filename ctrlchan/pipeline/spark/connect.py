"""Sessions of Spark Connect: the JVM is a server's, and this process needs no Java.

The server and its executors run the Python that the server was started with, so ctrlchan must be installed
there. What a server does not allow to be set by a client is an error, not a warning.
"""

from __future__ import annotations

import os
import queue
from collections.abc import Mapping
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ctrlchan.errors import ConfigError, PipelineError
from ctrlchan.pipeline.spark.defaults import DEFAULTS, SMALL_QUERIES

__all__ = ["end", "start"]

#: Seconds in which a server must answer.
_PATIENCE: Final = 30.0
#: PySpark tries 15 times when the connection is lost, for more than ten minutes. Six times take one.
_RETRIES: Final = 6
#: PySpark sets it with the first session, and then starts no JVM in this process any more.
_MODE: Final = "SPARK_CONNECT_MODE_ENABLED"


def start(url: str, conf: Mapping[str, str], *, small: bool) -> SparkSession:
    """Connect to a server and return a session; raises as ``sessions.session`` does."""
    try:
        from pyspark.sql.connect.client.retries import DefaultPolicy
    except ImportError as problem:
        raise PipelineError(f"{problem}: a remote session needs pip install 'ctrlchan[connect]'") from problem
    _require_server(url)
    try:
        spark = SparkSession.builder.remote(url).getOrCreate()
    except PySparkException as problem:
        os.environ.pop(_MODE, None)
        raise PipelineError(f"{url}: no session: {_first_line(problem)}") from problem
    try:
        spark.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])
        _configure(spark, conf, small=small)
    except BaseException:
        end(spark)
        raise
    return spark


def end(spark: SparkSession) -> None:
    """End the session: the server cancels its jobs and forgets it."""
    # A server that has ended is not waited for.
    spark.client.set_retry_policies([])
    spark.stop()
    os.environ.pop(_MODE, None)


def _require_server(url: str) -> None:
    """Raise PipelineError if no server is there; PySpark itself would try for minutes."""
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder

    try:
        channel = DefaultChannelBuilder(url).toChannel()
    except PySparkException as problem:
        raise ConfigError(f"{url}: {_first_line(problem)}") from problem
    states: queue.SimpleQueue[grpc.ChannelConnectivity] = queue.SimpleQueue()
    channel.subscribe(states.put, try_to_connect=True)
    try:
        state = grpc.ChannelConnectivity.IDLE
        while state is not grpc.ChannelConnectivity.READY:
            state = states.get(timeout=_PATIENCE)
            if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                raise PipelineError(f"{url}: no Spark Connect server answers there")
    except queue.Empty:
        raise PipelineError(f"{url}: no Spark Connect server answers within {_PATIENCE:g} s") from None
    finally:
        channel.close()


def _configure(spark: SparkSession, conf: Mapping[str, str], *, small: bool) -> None:
    """Set the settings of the user, and ours that neither the user nor the server has set."""
    for name, value in conf.items():
        try:
            spark.conf.set(name, value)
        except PySparkException as problem:
            raise ConfigError(
                f"{name}: a session of Spark Connect cannot set it, only the start of the server: "
                f"{_first_line(problem)}"
            ) from problem
    there = spark.conf.getAll
    for name, value in {**DEFAULTS, **(SMALL_QUERIES if small else {})}.items():
        if name not in there:
            spark.conf.set(name, value)


def _first_line(problem: Exception) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]
