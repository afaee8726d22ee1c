"""``ctrlchan pipeline explain``: the history of one partition."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ctrlchan.cli.pipeline.common import RunOptions, spark_of
from ctrlchan.cli.pipeline.log_options import (
    Brokers,
    End,
    LogOptions,
    Logs,
    Names,
    Start,
    TimeZone,
    TimeZones,
    log_config,
)
from ctrlchan.cli.pipeline.options import with_options
from ctrlchan.pipeline.settings import Setting

__all__ = ["explain"]


@dataclass(frozen=True, kw_only=True)
class _RunOptions(RunOptions):
    as_json: Annotated[bool, Setting("Print the history as JSON, and no progress.", names=("--json",))] = (
        False
    )


@with_options
def explain(
    *,
    partition: Annotated[str, typer.Argument(metavar="TOPIC-PARTITION", help="As orders-0.")],
    logs: Logs,
    journal: Annotated[
        Path | None, typer.Option(file_okay=False, help="A journal folder, for the outcomes of its requests.")
    ] = None,
    snapshot: Annotated[
        Path | None, typer.Option(file_okay=False, help="A snapshot folder to compare the last epoch with.")
    ] = None,
    entries: Annotated[bool, typer.Option("--entries", help="Print every log entry too.")] = False,
    start: Start = None,
    end: End = None,
    time_zone: TimeZone = "UTC",
    zones: TimeZones = None,
    brokers: Brokers = None,
    names: Names = None,
    run: _RunOptions,
) -> None:
    """Print the history of one partition from the state-change logs of controllers and brokers.

    Shows the leader epochs, which controller decided them, when each broker was sent, received and applied
    them, and what went wrong: epochs that were never applied, older ones that were applied later, stale
    metadata, errors, changes of the controller. A broker logs what it received only at level TRACE.

    Examples:

    \b
      ctrlchan pipeline explain orders-0 broker-1/ broker-2/ broker-3/
      ctrlchan pipeline explain orders-0 logs/ --journal outcomes/ --snapshot live/
      ctrlchan pipeline explain orders-0 logs/ --json | jq '.findings[] | select(.severity == "fault")'
    """
    config = log_config(LogOptions(logs, names, start, end, time_zone, zones, brokers))
    with spark_of("explain", run) as spark:
        from ctrlchan.pipeline.jobs.explain.job import ExplainConfig, TopicPartition
        from ctrlchan.pipeline.jobs.explain.job import explain as explain_partition
        from ctrlchan.pipeline.jobs.explain.text import history_lines

        name = TopicPartition.of(partition)
        settings = ExplainConfig(partition=name, logs=config, journal=journal, snapshot=snapshot)
        history = explain_partition(spark, settings)
    if run.as_json:
        json.dump(history.as_json(), sys.stdout)
        print()
    else:
        for line in history_lines(history, entries=entries):
            print(line)
