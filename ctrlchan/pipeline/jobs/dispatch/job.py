"""``dispatch``: ready frames -> brokers, sent from executors; outcomes come back as a journal.

One task owns a broker: it claims the broker (``claims``), reads its checkpoint in the journal
(``checkpoint``) and sends the rest through its own channel (``sender``). The journal folder must be on a file
system that the driver and all executors share, or a URL.

Delivery is at least once. If an outcome was lost with its process, its frame and every frame after it are
sent again, in order. Epochs make repeated frames harmless, and each partition is in one frame of each kind,
so a repeated frame gets the same response.
"""

from __future__ import annotations

import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.functions import broadcast, col
from pyspark.sql.pandas.types import from_arrow_schema

from ctrlchan.journal.check import check_journal
from ctrlchan.pipeline.jobs.dispatch.checkpoint import Checkpoint, checkpoints
from ctrlchan.pipeline.jobs.dispatch.config import DispatchConfig
from ctrlchan.pipeline.jobs.dispatch.run import Run
from ctrlchan.pipeline.jobs.dispatch.sender import BrokerResult, Sending, send_frames
from ctrlchan.pipeline.spark.packed_rows import pack
from ctrlchan.pipeline.spark.remote import parallelism
from ctrlchan.pipeline.spark.tables import Frames, read_journal
from ctrlchan.storage import local_path, path_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Dispatched", "by_broker", "dispatch"]

_RESULT: Final = pa.schema(
    zip(
        BrokerResult._fields,
        (pa.int32(), *(pa.int64(),) * 4, pa.string(), pa.int32(), pa.string()),
        strict=True,
    )
)


class Dispatched(NamedTuple):
    """Result of ``dispatch``.

    - ``brokers``: one ``BrokerResult`` for each broker with frames, ascending.
    - ``journal``: the outcomes of this dataset, also of earlier calls.
    - ``stopped``: by Ctrl-C; the next call sends the rest.
    """

    brokers: list[BrokerResult]
    journal: DataFrame
    stopped: bool

    @property
    def ok(self) -> bool:
        return all(result.outcome == "acknowledged" for result in self.brokers)


def dispatch(spark: SparkSession, frames: Frames, config: DispatchConfig) -> Dispatched:
    """Send the frames that the brokers have not acknowledged, and wait for every broker's outcome.

    The same call continues where an earlier one ended, however that ended. On the main thread, Ctrl-C stops
    after the frames in flight, with a complete journal; a second Ctrl-C stops at once.

    Raises PipelineError, ConfigError, JournalError. Errors of brokers are in the result, not raised.
    """
    sending = sending_of(frames.about, frames.brokers.toArrow(), config)
    run = Run(config.journal, sending.run)
    run.begin()
    try:
        # It is the checkpoint; and an error after sending would hide the results.
        check_journal(config.journal)
        done = checkpoints(sending.journal, sending.dataset, sending.broker_of)
        work = _work(spark, frames.frames, config, sending, done)
        with _stopping_on_interrupt(run) as interrupted:
            rows = work.toArrow().to_pylist()
        # Brokers that have all their frames are in no task.
        results = {one: BrokerResult.complete(one, begun.done) for one, begun in done.items() if begun.done}
        results |= {row["broker"]: BrokerResult(**row) for row in rows}
    finally:
        run.end()
    journal = read_journal(spark, config.journal).where(col("dataset") == sending.dataset)
    return Dispatched([results[one] for one in sorted(results)], journal, interrupted.is_set())


def by_broker(frames: DataFrame, tasks: int | None = None) -> DataFrame:
    """Put all frames of a broker into one partition, in order, as ``df.write.format("ctrlchan")`` needs them.

    ``tasks``: partitions; None: as many as there are cores for.
    """
    count = parallelism(frames.sparkSession) if tasks is None else tasks
    # Sorted by sequence first, so that a task serves its brokers at the same time.
    return frames.repartition(count, "broker").sortWithinPartitions("sequence", "broker")


def sending_of(about: Mapping[str, Any], brokers: pa.Table, config: DispatchConfig) -> Sending:
    """Return the settings of the tasks, from ``about`` and ``brokers`` of the frames. Raises ConfigError."""
    sending = Sending(
        run=uuid.uuid4().hex,
        journal=str(path_of(config.journal).absolute()),
        dataset=about["dataset"],
        controller_epoch=about["controller_epoch"],
        brokers=pack(brokers.combine_chunks()),
        state_id=about.get("state_id"),
        properties=None if config.properties is None else str(local_path(config.properties).absolute()),
        listener=config.listener,
        settings={
            "controller_id": about["controller_id"],
            "client_id": about["client_id"],
            "inter_broker_protocol": about["inter_broker_protocol"],
            **({} if config.listener is None else {"listener_name": config.listener}),
            **config.settings,
        },
        timeout=config.timeout,
        lease=config.lease,
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
    """Return the results of the tasks, each with the frames that its brokers have not acknowledged."""
    brokers = sorted(sending.broker_of)
    count = min(len(brokers), config.tasks or parallelism(spark))
    rows = [(broker, place % count, done[broker].done) for place, broker in enumerate(brokers)]
    # Acknowledged frames are not shuffled; the task reads the checkpoint again when it owns the broker.
    slots = spark.createDataFrame(rows, "broker int, slot int, done long")
    return (
        frames.join(broadcast(slots), "broker", "left")
        .where("done IS NULL OR sequence >= done")
        .repartitionById(count, "slot")
        .sortWithinPartitions("sequence", "broker")
        .mapInArrow(_sending_frames(sending), from_arrow_schema(_RESULT))
    )


def _sending_frames(sending: Sending) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        results = [result._asdict() for result in send_frames(batches, sending)]
        yield pa.RecordBatch.from_pylist(results, schema=_RESULT)

    return send


# -- Ctrl-C


@contextmanager
def _stopping_on_interrupt(run: Run) -> Iterator[threading.Event]:
    """Ask the tasks to stop at the first Ctrl-C; restore the handler before, which cancels Spark's jobs.

    The handler runs although this thread waits for the JVM: a signal interrupts a read, and then the read
    continues (PEP 475).
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
