"""A dataset of frames, written without Spark, and what each broker is to receive of it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.pipeline.jobs.dispatch.sender import Sending
from ctrlchan.pipeline.jobs.frames.config import FramesConfig
from ctrlchan.pipeline.jobs.frames.encoder import FrameEncoder
from ctrlchan.pipeline.spark.packed_rows import pack, unpack
from ctrlchan.pipeline.spark.tables import FRAMES_FILE, FRAMES_FOLDER, new_folder, write_json
from ctrlchan.state.importing.generate import GeneratorConfig, generate
from ctrlchan.state.storage.schemas import FRAMES, FRAMES_VERSION
from ctrlchan.state.storage.snapshot import BROKERS_FILE
from ctrlchan.storage import AnyPath
from ctrlchan.storage.parquet import write_parquet
from tests.spark.watched import WatchedBroker, without_correlation

__all__ = ["EPOCH", "some_frames", "write_dataset"]

EPOCH = 6


def some_frames(
    brokers: Sequence[WatchedBroker], partitions_per_topic: int = 25
) -> tuple[Sending, pa.Table, dict[int, list[bytes]]]:
    """Return settings of a dispatching task, UpdateMetadata frames, and what each broker is to receive.

    Each broker has seven frames for 25 partitions in each topic.
    """
    shape = GeneratorConfig(
        topics=20, partitions_per_topic=partitions_per_topic, brokers=len(brokers), replication=2
    )
    state = generate(shape)
    state.set_brokers(one.broker for one in brokers)
    partitions, live = state.to_arrow()
    channel = FramesConfig(max_request_bytes=4_000).channel(0)
    packed = pack(live.combine_chunks())
    encoder = FrameEncoder(channel=channel, controller_epoch=EPOCH, brokers=packed)
    version = encoder.version(0, UPDATE_METADATA)
    shared = list(encoder.shared_bodies([pack(partitions)], [(version, True)]))
    rows: list[dict[str, object]] = []
    seen: dict[int, list[bytes]] = {}
    for broker in (one.broker.id for one in brokers):
        for sequence, part in enumerate(encoder.shared_parts(broker, shared)):
            frame = bytearray(part.size)
            part.write_into(memoryview(frame), 0)
            rows.append(
                {
                    "broker": broker,
                    "sequence": sequence,
                    "api": UPDATE_METADATA,
                    "version": version,
                    "controller_epoch": EPOCH,
                    "state_version": 1,
                    "rows": part.rows,
                    "bytes": part.size,
                    "from_version": part.from_version,
                    "frame": bytes(frame),
                }
            )
            seen.setdefault(broker, []).append(without_correlation(bytes(frame)[4:]))
    sending = Sending(
        run="",
        journal="",
        dataset="dataset",
        controller_epoch=EPOCH,
        brokers=packed,
        settings={name: getattr(channel, name) for name in ("controller_id", "client_id")},
    )
    return sending, pa.Table.from_pylist(rows, schema=FRAMES), seen


def write_dataset(folder: AnyPath, sending: Sending, frames: pa.Table) -> None:
    """Write a folder that ``read_frames`` takes."""
    about = {
        "format": "ctrlchan-frames",
        "format_version": FRAMES_VERSION,
        "dataset": sending.dataset,
        "controller_id": sending.settings["controller_id"],
        "controller_epoch": sending.controller_epoch,
        "client_id": sending.channel.client_id_bytes.decode(),
        "inter_broker_protocol": "3.9",
    }
    with new_folder(folder, FRAMES_FILE, overwrite=False) as made:
        write_parquet(frames, made / FRAMES_FOLDER / "part-0.parquet")
        write_parquet(unpack([sending.brokers]), made / BROKERS_FILE)
        write_json(made / FRAMES_FILE, about)
