"""``ctrlchan pipeline dispatch``: ready frames -> brokers, from executors."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ctrlchan.cli.pipeline.common import RunOptions, say, spark_of
from ctrlchan.cli.pipeline.options import with_options
from ctrlchan.pipeline.jobs.dispatch.config import DispatchConfig

if TYPE_CHECKING:
    from ctrlchan.pipeline.jobs.dispatch.sender import BrokerResult

__all__ = ["dispatch"]

_INTERRUPTED = 130


@with_options
def dispatch(
    *,
    frames: Annotated[str, typer.Argument(help="A folder that `pipeline frames` made.")],
    config: DispatchConfig,
    run: RunOptions,
) -> None:
    """Send ready frames to their brokers; run again, the command continues where it ended.

    Each broker gets its frames in order, one at a time, from one task. Sending to a broker ends at its first
    error, sending to all brokers when one has seen a newer controller. Delivery is at least once: frames
    acknowledged less than --flush-interval before a crash are sent again. Ctrl-C waits for frames in flight;
    a second Ctrl-C does not. Exit status 1 if a broker has not acknowledged everything.

    Examples:

    \b
      ctrlchan pipeline dispatch frames/ --journal outcomes/
      ctrlchan pipeline dispatch frames/ -j outcomes/ --config server.properties --master spark://host:7077
    """
    with spark_of("dispatch", run, reads=[frames], writes=[config.journal]) as spark:
        from ctrlchan import pipeline

        sent = pipeline.dispatch(spark, pipeline.read_frames(spark, frames), config)
    refused = [one for one in sent.brokers if one.outcome != "acknowledged"]
    summary: dict[str, object] = {
        "brokers": len(sent.brokers),
        "acknowledged": len(sent.brokers) - len(refused),
        "frames_sent": sum(one.applied for one in sent.brokers),
        "frames_done_before": sum(one.done_before for one in sent.brokers),
        "partition_errors": sum(one.partition_errors for one in sent.brokers),
        "journal": str(config.journal),
    }
    if run.as_json:
        summary["outcomes"] = [one._asdict() for one in sent.brokers]
    say(summary, as_json=run.as_json)
    for one in refused:
        print(_line(one), file=sys.stderr)
    if sent.stopped:
        raise typer.Exit(_INTERRUPTED)
    if refused:
        raise typer.Exit(1)


def _line(result: BrokerResult) -> str:
    words = f": {result.error}" if result.error else ""
    done = result.done_before + result.applied
    return f"broker {result.broker}: {result.outcome}{words} (after {done:,} frames)"
