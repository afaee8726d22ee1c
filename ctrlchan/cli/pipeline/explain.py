"""``ctrlchan pipeline explain``: the story of one partition."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ctrlchan.cli.pipeline.common import Conf, Master, spark_of
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

__all__ = ["explain"]


def explain(
    partition: Annotated[str, typer.Argument(metavar="TOPIC-PARTITION", help="As orders-0.")],
    logs: Logs,
    journal: Annotated[
        Path | None, typer.Option(file_okay=False, help="How its requests fared, from this journal folder.")
    ] = None,
    snapshot: Annotated[
        Path | None, typer.Option(file_okay=False, help="Compare the end with this snapshot folder.")
    ] = None,
    entries: Annotated[bool, typer.Option("--entries", help="With every entry.")] = False,
    start: Start = None,
    end: End = None,
    time_zone: TimeZone = "UTC",
    zones: TimeZones = None,
    brokers: Brokers = None,
    names: Names = None,
    master: Master = None,
    conf: Conf = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the story as JSON, and no progress.")
    ] = False,
) -> None:
    """Tell the story of one partition from the state-change logs of controllers and brokers.

    Its leader epochs, who decided them, which broker was told, received and applied them when, and what is
    missing or went wrong: epochs that were never applied, older ones that were, stale metadata, errors,
    changes of the controller. A broker says what it received only when its logger is set to TRACE.

    Examples:

    \b
      ctrlchan pipeline explain orders-0 broker-1/ broker-2/ broker-3/
      ctrlchan pipeline explain orders-0 logs/ --journal outcomes/ --snapshot live/
      ctrlchan pipeline explain orders-0 logs/ --json | jq '.findings[] | select(.severity == "fault")'
    """
    config = log_config(LogOptions(logs, names, start, end, time_zone, zones, brokers))
    with spark_of("explain", master, conf, as_json=as_json) as spark:
        from ctrlchan.pipeline.jobs.explain.job import ExplainConfig, TopicPartition
        from ctrlchan.pipeline.jobs.explain.job import explain as tell
        from ctrlchan.pipeline.jobs.explain.text import story_lines

        whose = TopicPartition.of(partition)
        story = tell(spark, ExplainConfig(partition=whose, logs=config, journal=journal, snapshot=snapshot))
    if as_json:
        json.dump(story.as_json(), sys.stdout)
        print()
    else:
        for line in story_lines(story, entries=entries):
            print(line)
