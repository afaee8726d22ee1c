"""``ctrlchan pipeline dispatch``: ready frames -> brokers, from executors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ctrlchan.cli.pipeline.common import Conf, Json, Master, say, spark_of

if TYPE_CHECKING:
    from ctrlchan.pipeline.jobs.dispatch.sender import BrokerResult

__all__ = ["dispatch"]

_INTERRUPTED = 130


def dispatch(
    frames: Annotated[Path, typer.Argument(help="A folder that `pipeline frames` made.")],
    journal: Annotated[
        Path,
        typer.Option(
            "--journal",
            "-j",
            help="Journal folder: the outcomes, and how far each broker has come. Shared by all executors.",
        ),
    ],
    config: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="A broker's server.properties: listeners, TLS, SASL, time limits. Every executor reads it, "
            "and the stores it names, at this path.",
        ),
    ] = None,
    listener: Annotated[
        str | None, typer.Option(help="Connect to the brokers' listener of this name.")
    ] = None,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Tasks that share the brokers.", show_default="one a core")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds that a broker may take for one frame.")
    ] = 60.0,
    claim_timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds to wait for another sender that neither works nor ends.")
    ] = 120.0,
    flush_interval: Annotated[
        float, typer.Option(min=0.001, help="Seconds between two files of the journal.")
    ] = 0.5,
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Send ready frames to their brokers; the same command again goes on where it ended.

    Each broker gets its frames in order, one at a time, from one task. A broker stops at the first answer
    that says no, all of them when one knows a newer controller. Delivery is at least once: what was
    acknowledged less than --flush-interval before a crash is sent again. Ctrl-C waits for what is in flight;
    Ctrl-C again does not. Exit status 1 when a broker has not acknowledged everything.

    Examples:

    \b
      ctrlchan pipeline dispatch frames/ --journal outcomes/
      ctrlchan pipeline dispatch frames/ -j outcomes/ --config server.properties --master spark://host:7077
    """
    with spark_of("dispatch", master, conf, as_json=as_json) as spark:
        from ctrlchan.pipeline.jobs.dispatch.job import DispatchConfig
        from ctrlchan.pipeline.jobs.dispatch.job import dispatch as send
        from ctrlchan.pipeline.spark.tables import read_frames

        sent = send(
            spark,
            read_frames(spark, frames),
            DispatchConfig(
                journal=journal,
                properties=config,
                listener=listener,
                tasks=tasks,
                timeout=timeout,
                claim_timeout=claim_timeout,
                flush_interval=flush_interval,
            ),
        )
    refused = [one for one in sent.brokers if one.outcome != "acknowledged"]
    summary: dict[str, object] = {
        "brokers": len(sent.brokers),
        "acknowledged": len(sent.brokers) - len(refused),
        "frames_sent": sum(one.applied for one in sent.brokers),
        "frames_done_before": sum(one.done_before for one in sent.brokers),
        "partition_errors": sum(one.partition_errors for one in sent.brokers),
        "journal": str(journal),
    }
    if as_json:
        summary["outcomes"] = [one._asdict() for one in sent.brokers]
    say(summary, as_json=as_json)
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
