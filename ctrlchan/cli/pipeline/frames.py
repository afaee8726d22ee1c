"""``ctrlchan pipeline frames``: a snapshot, or a difference, -> ready wire frames of each broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ctrlchan.cli.pipeline.common import Conf, Json, Master, Overwrite, say, spark_of

__all__ = ["frames"]

_DEFAULT_BYTES = 4 * 2**20


def frames(
    source: Annotated[Path, typer.Argument(help="A snapshot folder, or one that `pipeline diff` made.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to make for the frames.")],
    api: Annotated[
        list[str] | None,
        typer.Option(
            help="What of a snapshot is told (may be repeated): LeaderAndIsr, to the replicas; "
            "UpdateMetadata, to all.",
            show_default="both",
        ),
    ] = None,
    controller_id: Annotated[
        int | None, typer.Option(help="Speak as this controller.", show_default="the snapshot's")
    ] = None,
    controller_epoch: Annotated[
        int | None, typer.Option(help="Speak in this epoch.", show_default="the snapshot's")
    ] = None,
    client_id: Annotated[
        str | None, typer.Option(help="Client id of the requests.", show_default="the controller's id")
    ] = None,
    inter_broker_protocol: Annotated[
        str, typer.Option("--inter-broker-protocol", "--ibp", help="Fixes the request versions.")
    ] = "3.9",
    broker_protocol: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BROKER=IBP",
            help="The inter-broker protocol of one broker (may be repeated).",
            show_default=False,
        ),
    ] = None,
    listener: Annotated[
        str | None,
        typer.Option(help="The brokers' inter-broker listener.", show_default="that named PLAINTEXT"),
    ] = None,
    max_request_bytes: Annotated[
        int, typer.Option(min=1, help="No frame is larger; a larger request goes in parts.")
    ] = _DEFAULT_BYTES,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Tasks that make frames.", show_default="4 a core")
    ] = None,
    overwrite: Overwrite = False,
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Encode the requests that tell every broker a snapshot, or the difference of two.

    The frames are what `ctrlchan push` would send, in the order in which a broker has to get them;
    `ctrlchan pipeline dispatch` sends them.

    Examples:

    \b
      ctrlchan pipeline frames big/ -o frames/
      ctrlchan pipeline frames big/ -o frames/ --api UpdateMetadata --broker-protocol 7=2.8
      ctrlchan pipeline diff yesterday/ today/ changes/ && ctrlchan pipeline frames changes/ -o frames/
    """
    protocols = _protocols(broker_protocol or ())
    with spark_of("frames", master, conf, as_json=as_json) as spark:
        from pyspark.sql.functions import col, count, countDistinct, lit, sum

        from ctrlchan.pipeline.jobs.diff.tables import DIFF_FILE, read_diff
        from ctrlchan.pipeline.jobs.frames.job import FramesConfig
        from ctrlchan.pipeline.jobs.frames.job import frames as make
        from ctrlchan.pipeline.spark.tables import read_frames, read_snapshot, write_frames

        config = FramesConfig(
            apis=tuple(api or ("LeaderAndIsr", "UpdateMetadata")),
            controller_id=controller_id,
            controller_epoch=controller_epoch,
            client_id=client_id,
            inter_broker_protocol=inter_broker_protocol,
            broker_protocols=protocols,
            listener=listener,
            max_request_bytes=max_request_bytes,
            tasks=tasks,
        )
        read = read_diff if (source / DIFF_FILE).is_file() else read_snapshot
        write_frames(make(spark, read(spark, source), config), output, overwrite=overwrite)
        written = read_frames(spark, output)
        [counted] = written.frames.agg(
            countDistinct("broker").alias("brokers"),
            count(lit(1)).alias("frames"),
            sum("bytes").alias("bytes"),
            sum(col("rows")).alias("rows"),
        ).collect()
    say(
        {"output": str(output), "dataset": written.about["dataset"]}
        | {name: value or 0 for name, value in counted.asDict().items()},
        as_json=as_json,
    )


def _protocols(given: list[str] | tuple[str, ...]) -> dict[int, str]:
    protocols = {}
    for one in given:
        broker, _, ibp = one.partition("=")
        if not (broker.isdecimal() and ibp):
            raise typer.BadParameter(f"{one!r} is not BROKER=IBP", param_hint="--broker-protocol")
        protocols[int(broker)] = ibp
    return protocols
