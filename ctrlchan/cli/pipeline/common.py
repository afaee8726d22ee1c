"""What all jobs share: the options of Spark, the session, progress, and the summary at the end."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ctrlchan.pipeline.settings import Setting, name_and_value
from ctrlchan.pipeline.spark.input_size import are_small
from ctrlchan.pipeline.spark.location import remote_url
from ctrlchan.storage import AnyPath, PathLike, is_url, path_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Overwrite", "RunOptions", "require_spark", "say", "spark_of"]

#: Characters of Hadoop's patterns.
_PATTERN: Final = frozenset("*?[{\\")
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an output that exists.")]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of every job: where Spark runs, its settings, the form of the output."""

    master: Annotated[
        str | None,
        Setting(
            "Where Spark runs: local[*], spark://host:7077, yarn, ...",
            value="URL",
            default="Spark's own setting, else local[*]",
        ),
    ] = None
    remote: Annotated[
        str | None,
        Setting(
            "A Spark Connect server, sc://host:15002, where Spark runs; this machine then needs no Java.",
            value="URL",
            default="SPARK_REMOTE, unless --master is given",
        ),
    ] = None
    conf: Annotated[
        Mapping[str, str],
        Setting("A setting of Spark (may be repeated).", value="NAME=VALUE", parse=name_and_value),
    ] = field(default_factory=dict)
    package: Annotated[
        Path | None,
        Setting("An archive by `ctrlchan pipeline package`, for executors without ctrlchan.", value="FILE"),
    ] = None
    as_json: Annotated[bool, Setting("Print the summary as JSON, and no progress.", names=("--json",))] = (
        False
    )


@contextmanager
def spark_of(
    title: str,
    run: RunOptions,
    *,
    reads: Iterable[PathLike | None] = (),
    texts: Iterable[PathLike] = (),
    writes: Iterable[PathLike | None] = (),
    small: bool | None = None,
    shows_progress: bool = True,
) -> Iterator[SparkSession]:
    """Start a Spark session for one command, and stop it at the end.

    ``reads``, ``texts``, ``writes``: paths of the command, which are checked before Spark starts; None is no
    path. ``texts`` may be patterns, and URLs of any file system of Hadoop's. ``small``: see ``session``; None
    means: whether ``reads`` and ``texts`` are. Progress is shown on standard error, except with ``--json``.

    Raises ConfigError for a URL of an unknown kind and for options that exclude each other, PipelineError for
    an input that does not exist, if PySpark or Java is missing, or if Spark does not start. An error of Spark
    becomes a PipelineError with its reason in one line.
    """
    remote = _remote(run)
    # A server sees files that this machine may not see.
    ours = [] if remote else [*texts]
    _check_paths(reads, [*ours, *([] if run.package is None else [run.package])], writes)
    shown = shows_progress and not run.as_json
    inputs = [*reads, *texts]
    if small is None:
        small = bool(inputs) and are_small(*inputs)
    require_spark()
    from ctrlchan.cli.progress import step
    from ctrlchan.pipeline.sessions import session, stop
    from ctrlchan.pipeline.spark.failures import as_pipeline_errors
    from ctrlchan.pipeline.spark.progress import progress

    conf = dict(run.conf)
    if run.package is not None:
        from ctrlchan.pipeline.package import package_settings

        conf |= package_settings(run.package.absolute(), conf)
    with step("starting Spark") if shown else nullcontext():
        spark = session(
            f"ctrlchan {title}",
            master=run.master,
            remote=remote,
            conf=conf,
            small=small,
            source=False,
        )
    try:
        with as_pipeline_errors(), progress(spark, title, shown=shown):
            yield spark
    finally:
        stop(spark)


def require_spark() -> None:
    """Make this process ready for PySpark. Raises PipelineError if it is missing."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        from ctrlchan.errors import PipelineError

        raise PipelineError("the pipeline needs PySpark: pip install 'ctrlchan[spark]'") from None
    logging.getLogger().addFilter(_is_not_of_py4j)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # Spark starts its Python workers with -m, which would import from the working directory.
    os.environ["PYTHONSAFEPATH"] = "1"


def _remote(run: RunOptions) -> str | None:
    """Return the URL of the Spark Connect server, if Spark runs at one. Raises ConfigError."""
    from ctrlchan.errors import ConfigError

    url = remote_url(run.master, run.remote)
    if url is not None and run.package is not None:
        raise ConfigError(
            f"{run.package}: a package is for the start of a Spark Connect server, with the settings that "
            "`ctrlchan pipeline package` prints"
        )
    return url


def _check_paths(
    reads: Iterable[PathLike | None], texts: Iterable[PathLike], writes: Iterable[PathLike | None]
) -> None:
    from ctrlchan.errors import PipelineError

    for path in writes:
        if path is not None:
            path_of(path)
    folders: list[AnyPath] = [path_of(path) for path in reads if path is not None]
    plain = [Path(str(path)) for path in texts if not is_url(path) and not _PATTERN.intersection(str(path))]
    for place in [*folders, *plain]:
        try:
            if not place.exists():
                raise PipelineError(f"{place}: no such file or folder")
            if place in folders and not place.is_dir():
                raise PipelineError(f"{place}: not a folder")
        except OSError as problem:
            raise PipelineError(f"{place}: cannot be read: {problem}") from problem


def say(summary: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the summary on standard output: one JSON object, or one line for each entry."""
    if as_json:
        json.dump(summary, sys.stdout)
        print()
        return
    width = max(map(len, summary), default=0)
    for name, value in summary.items():
        shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
        print(f"{name.replace('_', ' '):<{width}}  {shown}")


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Filter py4j's records: it logs a traceback when Ctrl-C ends a call, also through the root logger."""
    return record.module != "java_gateway"
