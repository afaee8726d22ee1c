"""``ctrlchan pipeline diff``: the control requests that lead from one snapshot to another."""

from __future__ import annotations

from typing import Annotated

import typer

from ctrlchan.cli.pipeline.common import Overwrite, RunOptions, say, spark_of
from ctrlchan.cli.pipeline.options import with_options
from ctrlchan.pipeline.jobs.diff.config import DiffConfig

__all__ = ["diff"]


@with_options
def diff(
    *,
    config: DiffConfig,
    out: Annotated[str, typer.Argument(help="The folder to write.")],
    overwrite: Overwrite = False,
    run: RunOptions,
) -> None:
    """Find the least control requests between two snapshots of a cluster.

    Writes rows of LeaderAndIsr, UpdateMetadata and StopReplica. A broker gets
    only what has changed: nothing if the snapshots are equal, everything if
    it is new or has restarted. `ctrlchan pipeline frames` encodes the rows.

    "undeliverable" counts partitions whose leader or replicas differ while the
    leader epoch did not rise: brokers reject such a change, so it is not sent.

    Examples:

    \b
      ctrlchan pipeline diff yesterday today changes
      ctrlchan pipeline diff old new changes --json | jq .leader_and_isr_rows
    """
    with spark_of("diff", run, reads=[config.old, config.new], writes=[out]) as spark:
        from ctrlchan import pipeline

        found = pipeline.diff(spark, config)
        pipeline.write_diff(found, out, overwrite=overwrite)
        assert found.undeliverable is not None
        summary = {
            "diff": str(out),
            **pipeline.read_diff(spark, out).counts(),
            "undeliverable": found.undeliverable.count(),
        }
    say(summary, as_json=run.as_json)
