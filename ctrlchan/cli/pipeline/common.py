"""What all jobs share: where Spark runs, its settings, progress, and the summary at the end."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Conf", "Json", "Master", "Overwrite", "say", "spark_of"]

Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where Spark runs: local[*], spark://host:7077, yarn, ...",
        show_default="Spark's own setting, else local[*]",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A setting of Spark (may be repeated).", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON, and no progress.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an output that is there.")]


@contextmanager
def spark_of(
    title: str, master: str | None, conf: Sequence[str] | None, *, as_json: bool = False
) -> Iterator[SparkSession]:
    """A session for one command, with its progress on standard error, ended on the way out.

    Raises PipelineError when PySpark or a Java for it is missing, or Spark does not start; and, with the
    reason alone, for what Spark raises.
    """
    settings = _settings(conf or ())
    try:
        import pyspark  # noqa: F401
    except ImportError:
        from ctrlchan.errors import PipelineError

        raise PipelineError("the pipeline needs PySpark: pip install 'ctrlchan[spark]'") from None
    logging.getLogger().addFilter(_is_not_of_py4j)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    from ctrlchan.cli.progress import step
    from ctrlchan.pipeline.spark.failures import told
    from ctrlchan.pipeline.spark.progress import progress
    from ctrlchan.pipeline.spark.session import session, stop

    if as_json:
        spark = session(f"ctrlchan {title}", master=master, conf=settings)
    else:
        with step("starting Spark"):
            spark = session(f"ctrlchan {title}", master=master, conf=settings)
    try:
        with told(), progress(spark, title, shown=not as_json):
            yield spark
    finally:
        stop(spark)


def say(summary: Mapping[str, Any], *, as_json: bool) -> None:
    """One JSON object, or one line for each entry, on standard output."""
    if as_json:
        json.dump(summary, sys.stdout)
        print()
        return
    width = max(map(len, summary), default=0)
    for name, value in summary.items():
        shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
        print(f"{name.replace('_', ' '):<{width}}  {shown}")


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """It logs the traceback of a call that Ctrl-C ends, some of it through no logger of its own."""
    return record.module != "java_gateway"


def _settings(conf: Sequence[str]) -> dict[str, str]:
    settings = {}
    for entry in conf:
        name, equals, value = entry.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{entry!r} is not NAME=VALUE", param_hint="--conf")
        settings[name.strip()] = value
    return settings
