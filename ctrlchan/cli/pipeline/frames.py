"""``ctrlchan pipeline frames``: a snapshot, or a difference, -> ready wire frames of each broker."""

from __future__ import annotations

from typing import Annotated

import typer

from ctrlchan.cli.pipeline.common import Overwrite, RunOptions, say, spark_of
from ctrlchan.cli.pipeline.options import with_options
from ctrlchan.pipeline.jobs.frames.config import FramesConfig

__all__ = ["frames"]


@with_options
def frames(
    *,
    source: Annotated[str, typer.Argument(help="A snapshot folder, or one that `pipeline diff` made.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FOLDER", help="Folder to make for the frames.")
    ],
    config: FramesConfig,
    overwrite: Overwrite = False,
    run: RunOptions,
) -> None:
    """Encode the requests that bring every broker up to a snapshot, or from one snapshot to another.

    The frames are those that `ctrlchan push` would send, in the order in which a broker must get them.
    `ctrlchan pipeline dispatch` sends them.

    Examples:

    \b
      ctrlchan pipeline frames big/ -o frames/
      ctrlchan pipeline frames big/ -o frames/ --api UpdateMetadata --broker-protocol 7=2.8
      ctrlchan pipeline diff yesterday/ today/ changes/ && ctrlchan pipeline frames changes/ -o frames/
    """
    with spark_of("frames", run, reads=[source], writes=[output]) as spark:
        from pyspark.sql.functions import col, count, countDistinct, lit, sum

        from ctrlchan import pipeline
        from ctrlchan.pipeline.jobs.diff.tables import DIFF_FILE
        from ctrlchan.storage import path_of

        read = pipeline.read_diff if (path_of(source) / DIFF_FILE).is_file() else pipeline.read_snapshot
        made = pipeline.frames(spark, read(spark, source), config)
        pipeline.write_frames(made, output, overwrite=overwrite)
        written = pipeline.read_frames(spark, output)
        [counted] = written.frames.agg(
            countDistinct("broker").alias("brokers"),
            count(lit(1)).alias("frames"),
            sum("bytes").alias("bytes"),
            sum(col("rows")).alias("rows"),
        ).collect()
    say(
        {"output": str(output), "dataset": written.about["dataset"]}
        | {name: value or 0 for name, value in counted.asDict().items()},
        as_json=run.as_json,
    )
