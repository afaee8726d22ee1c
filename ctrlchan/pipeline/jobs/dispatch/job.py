"""``dispatch``: ready frames -> brokers, sent from executors; outcomes come back as a journal.

One task owns a broker: it claims it (``claims``), asks the journal how far it has come (``checkpoint``) and
sends the rest through a channel of its own (``sending``). The journal folder is the checkpoint and the
meeting place: it has to be on a file system that the driver and all executors share.

Delivery is at least once. A frame is sent again where its outcome was lost with its process, and then every
frame behind it is sent again too, in order; what is sent twice is made harmless by its epochs and by what
frames are: each partition stands in one frame of each kind, so that an old answer to it is the same answer.
"""

from __future__ import annotations

import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.functions import broadcast, col

from ctrlchan.pipeline.jobs.dispatch.checkpoint import Checkpoint, checkpoints
from ctrlchan.pipeline.jobs.dispatch.claims import Run
from ctrlchan.pipeline.jobs.dispatch.config import DispatchConfig
from ctrlchan.pipeline.jobs.dispatch.sender import BrokerResult, Sending, send_frames
from ctrlchan.pipeline.spark.packed_rows import pack
from ctrlchan.pipeline.spark.tables import Frames, read_journal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Dispatched", "by_broker", "dispatch"]

_KINDS: Final[dict[str, pa.DataType]] = {
    "broker": pa.int32(),
    "frames": pa.int64(),
    "done_before": pa.int64(),
    "applied": pa.int64(),
    "partition_errors": pa.int64(),
    "outcome": pa.string(),
    "error_code": pa.int32(),
    "error": pa.string(),
}
_RESULT: Final = pa.schema(_KINDS)
_RESULT_DDL: Final = (
    "broker int, frames long, done_before long, applied long, partition_errors long, "
    "outcome string, error_code int, error string"
)


class Dispatched(NamedTuple):
    """How it ended. ``brokers``: one ``BrokerResult`` for each broker that had frames, ascending;
    ``journal``: the outcomes of this dataset, of earlier calls too. ``stopped``: Ctrl-C; what is left is for
    the next call."""

    brokers: list[BrokerResult]
    journal: DataFrame
    stopped: bool

    @property
    def ok(self) -> bool:
        return all(result.outcome == "acknowledged" for result in self.brokers)


def dispatch(spark: SparkSession, frames: Frames, config: DispatchConfig) -> Dispatched:
    """Send what the brokers have not yet acknowledged of these frames; returns when every broker has its
    outcome. The same call again goes on where this one ended, however it ended.

    On the main thread, Ctrl-C stops in order: what is in flight is waited for, nothing else is sent, and
    the journal is complete; Ctrl-C again stops at once.
    Raises PipelineError, ConfigError; what brokers answer is in the result, not raised.
    """
    sending = sending_of(frames.about, frames.brokers.toArrow(), config)
    run = Run(config.journal, sending.run)
    run.begin()
    try:
        done = checkpoints(sending.journal, sending.dataset, sending.broker_of)
        work = _work(spark, frames.frames, config, sending, done)
        with _stopping_on_interrupt(run) as interrupted:
            rows = work.toArrow().to_pylist()
        # Brokers that had everything already were given to no task.
        results = {one: BrokerResult.complete(one, begun.done) for one, begun in done.items() if begun.done}
        results |= {row["broker"]: BrokerResult(**row) for row in rows}
    finally:
        run.end()
    journal = read_journal(spark, config.journal).where(col("dataset") == sending.dataset)
    return Dispatched([results[one] for one in sorted(results)], journal, interrupted.is_set())


def by_broker(frames: DataFrame, tasks: int | None = None) -> DataFrame:
    """All frames of a broker in one partition, in order: what ``df.write.format("ctrlchan")`` asks for.

    ``tasks``: partitions; None: as many as there are cores for.
    """
    count = frames.sparkSession.sparkContext.defaultParallelism if tasks is None else tasks
    # Sorted by sequence first: a task then serves its brokers side by side, not one after another.
    return frames.repartition(count, "broker").sortWithinPartitions("sequence", "broker")


def sending_of(about: Mapping[str, Any], brokers: pa.Table, config: DispatchConfig) -> Sending:
    """What the tasks need to know; ``about`` and ``brokers`` of the frames. Raises ConfigError."""
    sending = Sending(
        run=uuid.uuid4().hex,
        journal=str(Path(config.journal).absolute()),
        dataset=about["dataset"],
        controller_epoch=about["controller_epoch"],
        brokers=pack(brokers.combine_chunks()),
        state_id=about.get("state_id"),
        properties=None if config.properties is None else str(Path(config.properties).absolute()),
        listener=config.listener,
        settings={
            "controller_id": about["controller_id"],
            "client_id": about["client_id"],
            "inter_broker_protocol": about["inter_broker_protocol"],
            **({} if config.listener is None else {"listener_name": config.listener}),
            **config.settings,
        },
        timeout=config.timeout,
        claim_timeout=config.claim_timeout,
        flush_interval=config.flush_interval,
    )
    sending.channel.check_credentials()
    return sending


def _work(
    spark: SparkSession,
    frames: DataFrame,
    config: DispatchConfig,
    sending: Sending,
    done: Mapping[int, Checkpoint],
) -> DataFrame:
    """The tasks, each with the frames that its brokers have not acknowledged."""
    brokers = sorted(sending.broker_of)
    count = min(len(brokers), config.tasks or spark.sparkContext.defaultParallelism)
    rows = [(broker, place % count, done[broker].done) for place, broker in enumerate(brokers)]
    # What is known to be done need not be shuffled; the task asks again once the broker is its own.
    slots = spark.createDataFrame(rows, "broker int, slot int, done long")
    return (
        frames.join(broadcast(slots), "broker", "left")
        .where("done IS NULL OR sequence >= done")
        .repartitionById(count, "slot")
        .sortWithinPartitions("sequence", "broker")
        .mapInArrow(_sending_frames(sending), _RESULT_DDL)
    )


def _sending_frames(sending: Sending) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        results = [result._asdict() for result in send_frames(batches, sending)]
        yield pa.RecordBatch.from_pylist(results, schema=_RESULT)

    return send


# -- Ctrl-C


@contextmanager
def _stopping_on_interrupt(run: Run) -> Iterator[threading.Event]:
    """The first Ctrl-C asks the tasks to stop, the next does what it did before (Spark cancels its jobs).

    The handler runs although this thread waits in the JVM: what interrupts a read is handled, and the read
    goes on (PEP 475).
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = signal.getsignal(signal.SIGINT)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)
        run.stop("interrupted")

    signal.signal(signal.SIGINT, stop)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
