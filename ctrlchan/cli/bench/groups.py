"""``ctrlchan bench groups``: members of consumer groups that join, commit and leave."""

from __future__ import annotations

from typing import Annotated

import typer

from ctrlchan.cli.bench.options import LoadOptions, OutputOptions, SparkOptions, TargetOptions
from ctrlchan.cli.limits import MAX_INT32
from ctrlchan.cli.pipeline.options import with_options

__all__ = ["groups"]


@with_options
def groups(
    *,
    target: TargetOptions,
    shape: LoadOptions,
    members: Annotated[
        int, typer.Option(min=1, max=1_000, metavar="NUMBER", help="Members in each client.")
    ] = 4,
    groups: Annotated[
        int, typer.Option(min=1, max=MAX_INT32, metavar="NUMBER", help="Groups that all members share.")
    ] = 1,
    commits: Annotated[
        int, typer.Option(min=1, max=MAX_INT32, metavar="NUMBER", help="Commits of a member until it leaves.")
    ] = 100,
    output: OutputOptions,
    spark: SparkOptions,
) -> None:
    """Let members join consumer groups, commit offsets, leave, and join again.

    --rate counts commits. A join lasts from the subscription until the member has partitions, which takes
    as long as the other members need to notice: they send a heartbeat every 300 ms, unless
    -c heartbeat.interval.ms says else. Commits fail while a group rebalances, and are listed by their errors.

    Examples:

    \b
      ctrlchan bench groups --embedded 1 --members 8 --groups 2
      ctrlchan bench groups -b kafka-1:9092 --clients 4 --members 50 --groups 100 --rate 2000
    """
    from ctrlchan.cli.bench.output import show_result
    from ctrlchan.cli.bench.session import open_session
    from ctrlchan.loads.kinds.groups import GroupsLoad

    with open_session(target) as session:
        load = GroupsLoad(**session.shape(shape), members=members, group_count=groups, commits=commits)
        show_result(session, load, session.work(load, spark), output.json)
