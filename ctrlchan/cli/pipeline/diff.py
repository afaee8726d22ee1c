"""``ctrlchan pipeline diff``: what brokers that know one snapshot have to be told of another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ctrlchan.cli.pipeline.common import Conf, Json, Master, Overwrite, say, spark_of

__all__ = ["diff"]


def diff(
    old: Annotated[Path, typer.Argument(help="The snapshot that the brokers know.", show_default=False)],
    new: Annotated[Path, typer.Argument(help="The snapshot that they are to know.", show_default=False)],
    out: Annotated[Path, typer.Argument(help="The folder to write.", show_default=False)],
    master: Master = None,
    conf: Conf = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Find the least control requests between two snapshots of a cluster.

    Written are rows of LeaderAndIsr, UpdateMetadata and StopReplica, each
    broker told only what it does not know: nothing when the snapshots are
    equal, everything when a broker is new or has restarted. `ctrlchan
    pipeline frames` makes requests of them.

    "untold" counts partitions whose leader or replicas differ while the
    leader epoch did not rise: brokers refuse to be told.

    Examples:

    \b
      ctrlchan pipeline diff yesterday today changes
      ctrlchan pipeline diff old new changes --json | jq .leader_and_isr_rows
    """
    with spark_of("diff", master, conf, as_json=as_json) as spark:
        from ctrlchan import pipeline

        found = pipeline.diff(spark, pipeline.DiffConfig(old=str(old), new=str(new)))
        pipeline.write_diff(found, out, overwrite=overwrite)
        assert found.untold is not None
        summary = {
            "diff": str(out),
            **pipeline.read_diff(spark, out).counts(),
            "untold": found.untold.count(),
        }
    say(summary, as_json=as_json)
