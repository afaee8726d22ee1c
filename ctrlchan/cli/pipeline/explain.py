"""``ctrlchan pipeline explain``: the history of one partition."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from ctrlchan.cli.pipeline.common import RunOptions, spark_of
from ctrlchan.cli.pipeline.options import with_options
from ctrlchan.pipeline.jobs.explain.config import ExplainConfig
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
    config: ExplainConfig,
    entries: Annotated[bool, typer.Option("--entries", help="Print every log entry too.")] = False,
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
    inputs = [config.journal, config.snapshot]
    with spark_of("explain", run, reads=inputs, texts=config.logs.paths) as spark:
        from ctrlchan import pipeline

        history = pipeline.explain(spark, config)
    if run.as_json:
        json.dump(history.as_json(), sys.stdout)
        print()
    else:
        from ctrlchan.pipeline.jobs.explain.text import history_lines

        for line in history_lines(history, entries=entries):
            print(line)
