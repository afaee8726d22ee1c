"""``ctrlchan pipeline check``: checks that Spark works here, and what is missing on its executors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ctrlchan.cli.limits import not_nan
from ctrlchan.cli.pipeline.common import RunOptions, say, spark_of
from ctrlchan.cli.pipeline.options import with_options
from ctrlchan.storage import path_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check"]

_ROWS: Final = 1_000


@with_options
def check(
    *,
    storage: Annotated[
        list[str],
        typer.Option(
            metavar="FOLDER",
            help="A folder or URL that every executor must read and write (may be repeated).",
        ),
    ] = [],  # noqa: B006
    broker: Annotated[
        list[str],
        typer.Option(metavar="HOST:PORT", help="A broker that every executor must reach (may be repeated)."),
    ] = [],  # noqa: B006
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=1, callback=not_nan, help="How long executors may take to start."
        ),
    ] = 60.0,
    run: RunOptions,
) -> None:
    """Start Spark, run a task on each executor, and say what is missing there.

    The exit status is 1 if something is missing.

    Examples:

    \b
      ctrlchan pipeline check
      ctrlchan pipeline check --master spark://host:7077 --package ctrlchan.tar.gz
      ctrlchan pipeline check --remote sc://spark.example.org:15002
      ctrlchan pipeline check --master yarn --storage /mnt/shared --broker kafka-1:9092
      ctrlchan pipeline check --master yarn --storage hdfs://namenode:8020/lake
    """
    listeners = [_address(one) for one in broker]
    folders = [path_of(one) for one in storage]
    # A folder of an object store exists when something is in it.
    mounted = [one for one in folders if isinstance(one, Path)]
    with spark_of("check", run, reads=mounted) as spark:
        from ctrlchan.pipeline.spark.executors import examine_executors
        from ctrlchan.pipeline.spark.remote import parallelism

        executors = examine_executors(spark, storage=folders, listeners=listeners, timeout=timeout)
        incomplete = [one for one in executors if one["problems"]]
        if not incomplete:
            _count_in_python(spark)
        summary: dict[str, Any] = {
            "spark": spark.version,
            "java": _java(spark),
            "python": ", ".join(sorted({one["python"] for one in executors})),
            "master": spark.conf.get("spark.master"),
            "cores": parallelism(spark),
        }
    if run.as_json:
        say(summary | {"executors": executors}, as_json=True)
    else:
        say(summary | {"executors": len(executors)}, as_json=False)
        for one in incomplete:
            for problem in one["problems"]:
                print(f"executor on {one['host']} ({one['folder']}): {problem}")
    if incomplete:
        raise typer.Exit(1)


def _java(spark: SparkSession) -> str:
    """Return version and home of the Java that runs a task: on one machine it is also the driver's."""
    from pyspark.sql.functions import java_method, lit

    names = ("java.version", "java.home")
    properties = [java_method(lit("java.lang.System"), lit("getProperty"), lit(name)) for name in names]
    row = spark.range(1).select(*properties).first()
    assert row is not None
    return f"{row[0]} ({row[1]})"


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise typer.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--broker")
    return host.strip("[]"), int(port)


def _count_in_python(spark: SparkSession) -> None:
    """Send rows through Python as Arrow batches, as the jobs do. Raises PipelineError if some are lost."""
    from ctrlchan.errors import PipelineError

    counted = spark.range(_ROWS).mapInArrow(lambda batches: batches, "id long").count()
    if counted != _ROWS:
        raise PipelineError(f"{_ROWS} rows went through Python, {counted} came back")
