"""``ctrlchan pipeline check``: checks that Spark works here."""

from __future__ import annotations

from collections.abc import Iterator

from ctrlchan.cli.pipeline.common import RunOptions, say, spark_of
from ctrlchan.cli.pipeline.options import with_options

__all__ = ["check"]

_ROWS = 1_000


@with_options
def check(run: RunOptions) -> None:
    """Start Spark, run a small Python job on its executors, and print the versions.

    Examples:

    \b
      ctrlchan pipeline check
      ctrlchan pipeline check --master spark://host:7077
    """
    with spark_of("check", run) as spark:
        import pyarrow as pa

        from ctrlchan.errors import PipelineError

        def versions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import platform

            import ctrlchan._codec

            for batch in batches:
                version = f"{platform.python_version()} {ctrlchan._codec.__name__}"
                yield pa.RecordBatch.from_pydict({"version": [version] * batch.num_rows})

        counted = (
            spark.range(_ROWS).mapInArrow(versions, "version string").groupBy("version").count().collect()
        )
        rows = sum(int(row["count"]) for row in counted)
        if rows != _ROWS:
            raise PipelineError(f"{_ROWS} rows went through Python, {rows} came back")
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        system = jvm.java.lang.System
        summary = {
            "spark": spark.version,
            "java": f"{system.getProperty('java.version')} ({system.getProperty('java.home')})",
            "python": ", ".join(sorted({row["version"].split()[0] for row in counted})),
            "master": spark.sparkContext.master,
            "cores": spark.sparkContext.defaultParallelism,
        }
    say(summary, as_json=run.as_json)
