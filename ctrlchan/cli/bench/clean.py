"""``ctrlchan bench clean``: deletes what runs have left that could not end."""

from __future__ import annotations

from typing import Annotated

import typer

from ctrlchan.cli.bench.options import ClusterOptions
from ctrlchan.cli.pipeline.options import with_options

__all__ = ["clean"]


@with_options
def clean(
    *,
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN...", help="Names of runs; none: name those that have left something."),
    ] = None,
    cluster: ClusterOptions,
) -> None:
    """Delete the topics and groups that runs have left: those that were killed, or had --keep.

    Do not name a run that still goes on.

    Examples:

    \b
      ctrlchan bench clean -b kafka-1:9092
      ctrlchan bench clean -b kafka-1:9092 ctrlchan-bench-1a2b3c4d
    """
    from ctrlchan.cli.bench.target import client_settings, require_clients, require_consent
    from ctrlchan.cli.progress import step
    from ctrlchan.errors import ConfigError
    from ctrlchan.loads.guard import OwnNames, find_cluster, find_runs

    require_clients()
    client = client_settings(cluster)
    if cluster.bootstrap_server is None:
        raise ConfigError("which cluster? --bootstrap-server HOST:PORT")
    own = [OwnNames(client, run) for run in runs or ()]
    target = find_cluster(client)
    left = find_runs(client)
    if not own:
        for run, (topics, groups) in left.items():
            typer.echo(f"{run}: {topics} topics, {groups} groups")
        if not left:
            typer.echo("no run has left anything", err=True)
        return
    for one in own:
        if one.run not in left:
            typer.echo(f"{one.run} has left nothing", err=True)
    found = [one for one in own if one.run in left]
    if not found:
        return
    require_consent(target, cluster, f"Delete what {', '.join(one.run for one in found)} left in")
    for one in found:
        with step(f"deleting what {one.run} has left"):
            one.delete(one.groups())
