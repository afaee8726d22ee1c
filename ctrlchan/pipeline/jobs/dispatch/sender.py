"""Sends each broker's frames in order, on an executor.

The channel is ``ControllerChannelManager`` with one sender process: its connections, protocol state and
journal. This file only decides which frame the channel gets when: one frame of each broker at a time, the
next after an acknowledgement, none after an error.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from functools import cached_property
from time import monotonic
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ctrlchan._codec import STOP_REPLICA
from ctrlchan.channel import ChannelConfig, ControllerChannelManager, ControlRequest, Outcome, OutcomeKind
from ctrlchan.channel.properties import settings_of
from ctrlchan.channel.queues.frames import prefix_of
from ctrlchan.channel.request import Coverage
from ctrlchan.errors import ErrorCode, PipelineError
from ctrlchan.journal import Journal
from ctrlchan.pipeline.jobs.dispatch.checkpoint import APPLIED, Checkpoint, checkpoints
from ctrlchan.pipeline.jobs.dispatch.claims import Claims
from ctrlchan.pipeline.jobs.dispatch.run import Run
from ctrlchan.pipeline.spark.packed_rows import unpack
from ctrlchan.protocol import DELETE_PER_PARTITION_SINCE
from ctrlchan.state.brokers import Broker, brokers_list
from ctrlchan.state.storage.arrow_brokers import brokers_from_arrow
from ctrlchan.state.storage.problems import Source

__all__ = ["BrokerResult", "Sending", "send_frames"]

_EPOCH_BYTES: Final = 8
#: Seconds between two checks of time limits and of the request to stop.
_LOOK: Final = 0.1
#: Bytes of frames that a task holds before it waits for brokers to take them.
_WINDOW_BYTES: Final = 256 * 2**20


@dataclass(frozen=True, kw_only=True)
class Sending:
    """Settings that are sent to the executors with each task.

    Holds no secrets: ``properties`` (a server.properties) and its key stores are read where the task runs.

    - ``dataset``: name of the frames, for the checkpoint. ``brokers``: their table as packed rows.
    - ``settings``: values for ``ChannelConfig``; they win over those of ``properties``.
    - ``timeout``: seconds that a broker may take for one frame, all attempts together.
    - ``lease``: seconds without a sign of a broker's owner after which another task takes over.
    """

    run: str
    journal: str
    dataset: str
    controller_epoch: int
    brokers: bytes
    state_id: str | None = None
    properties: str | None = None
    listener: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = 60.0
    lease: float = 30.0
    flush_interval: float = 0.5

    def __getstate__(self) -> dict[str, Any]:
        # Without the cached channel settings: they have passwords from the file.
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def channel(self) -> ChannelConfig:
        """Raises ConfigError."""
        read = {} if self.properties is None else settings_of(self.properties, self.listener)
        own = {"senders": 1, "merge_update_metadata": False}
        return ChannelConfig(**(read | dict(self.settings) | own))

    @cached_property
    def broker_of(self) -> dict[int, Broker]:
        table = unpack([self.brokers])
        return {broker.id: broker for broker in brokers_list(brokers_from_arrow(table, Source("brokers")))}


class BrokerResult(NamedTuple):
    """Result of one broker at the end of its task."""

    broker: int
    #: Frames that the task was given for it, and those that earlier runs or attempts had done.
    frames: int
    done_before: int
    #: Applied in this task, and how many of these with errors of single partitions.
    applied: int
    partition_errors: int
    #: "acknowledged" when it has all its frames; an OutcomeKind's value, or "stopped".
    outcome: str
    error_code: int
    error: str

    @classmethod
    def complete(cls, broker: int, frames: int) -> BrokerResult:
        """Return the result of a broker that had all its frames before."""
        return cls(broker, 0, frames, 0, 0, OutcomeKind.ACKNOWLEDGED.value, 0, "")


class _FrameBody:
    """Shared body of a frame that is encoded already, for ``ControlRequest``."""

    __slots__ = ("_data", "api_key", "size", "version")

    def __init__(self, api_key: int, version: int, data: memoryview) -> None:
        self.api_key, self.version, self.size = api_key, version, len(data)
        self._data = data

    def write_into(self, out: bytearray | memoryview, offset: int = 0) -> int:
        out[offset : offset + self.size] = self._data
        return self.size


class _Frame(NamedTuple):
    sequence: int
    size: int
    request: ControlRequest


def send_frames(batches: Iterable[pa.RecordBatch], sending: Sending) -> Iterator[BrokerResult]:
    """Send all frames, wait for the responses, and yield one result for each broker.

    Rows of a broker must come in ascending sequence, without a gap after what it has acknowledged before.
    Raises PipelineError if they do not, if the claims on brokers could not be renewed, and if outcomes cannot
    be written to the journal.
    """
    run = Run(sending.journal, sending.run)
    run.require_begun()
    with ExitStack() as stack:
        # Released last: the next owner of the brokers reads the outcomes of this task in the journal.
        claims = stack.enter_context(Claims(run, sending.lease))
        journal = Journal(sending.journal, flush_interval=sending.flush_interval)
        stack.callback(_close, journal)
        channel = ControllerChannelManager(sending.channel, sending.controller_epoch, journal=journal)
        stack.callback(channel.shutdown)
        transfers = _Transfers(channel, claims, run, sending)
        for batch in batches:
            transfers.accept(batch)
        transfers.finish()
        results = transfers.results()
    yield from results


def _close(journal: Journal) -> None:
    written = journal.flush()
    journal.close()
    described = journal.describe()
    if not written or described["lost_rows"]:
        raise PipelineError(
            f"{journal.path}: {described['lost_rows'] or 'some'} outcomes could not be written "
            f"({described['last_error'] or 'not in time'}); dispatch again: their frames are sent once more"
        )


class _Transfer:
    """Sending of one broker's frames. Guarded by the lock of its ``_Transfers``."""

    def __init__(self, broker: int, checkpoint: Checkpoint) -> None:
        self.broker = broker
        self.done_before = checkpoint.done
        #: Sequence of the next frame to come.
        self.expected = checkpoint.done
        self.frames = 0
        self.applied = 0
        self.partition_errors = 0
        self.waiting: deque[_Frame] = deque()
        #: When the frame in flight was given to the channel. None while no frame is in flight.
        self.since: float | None = None
        #: Why nothing more is sent: outcome, error code, text. None while sending goes on.
        self.end: tuple[str, int, str] | None = None

    @property
    def idle(self) -> bool:
        return self.since is None

    def result(self) -> BrokerResult:
        outcome, code, error = self.end or (OutcomeKind.ACKNOWLEDGED.value, 0, "")
        return BrokerResult(
            self.broker,
            self.frames,
            self.done_before,
            self.applied,
            self.partition_errors,
            outcome,
            code,
            error,
        )


class _Transfers:
    """Sending to all brokers of one task.

    ``accept`` and ``finish`` are called by the task's thread; responses arrive on the channel's thread.
    """

    def __init__(self, channel: ControllerChannelManager, claims: Claims, run: Run, sending: Sending) -> None:
        self._channel = channel
        self._claims = claims
        self._run = run
        self._sending = sending
        self._changed = threading.Condition()
        # Guards everything below.
        self._transfers: dict[int, _Transfer] = {}
        self._held_bytes = 0
        # Error on the channel's thread; the task's thread raises it.
        self._failed: Exception | None = None
        self._stopped: str | None = None
        self._next_look = 0.0

    # -- the task's thread

    def accept(self, batch: pa.RecordBatch) -> None:
        """Queue these frames. Returns when at most ``_WINDOW_BYTES`` of frames wait."""
        self._own(np.unique(batch.column("broker").to_numpy()).tolist())
        for broker, frame in _frames(batch, self._sending):
            with self._changed:
                self._offer(self._transfers[broker], frame)
        self._wait(lambda: self._held_bytes <= _WINDOW_BYTES)

    def finish(self) -> None:
        """Wait until every frame has its outcome, or sending to its broker has ended."""
        self._wait(lambda: all(transfer.idle for transfer in self._transfers.values()))

    def results(self) -> list[BrokerResult]:
        with self._changed:
            return [self._transfers[broker].result() for broker in sorted(self._transfers)]

    def _own(self, brokers: list[int]) -> None:
        """Claim brokers that this task does not own yet, read their checkpoints, and connect."""
        new = [broker for broker in brokers if broker not in self._transfers]
        if not new:
            return
        unknown = [broker for broker in new if broker not in self._sending.broker_of]
        if unknown:
            raise PipelineError(f"frames of broker {unknown[0]}, which is not among the dataset's brokers")
        self._claims.claim(new)
        # After the claim: the former owner wrote its outcomes before it released the broker.
        found = checkpoints(self._sending.journal, self._sending.dataset, new)
        with self._changed:
            for broker in new:
                transfer = self._transfers[broker] = _Transfer(broker, found[broker])
                if found[broker].controller_epoch > self._sending.controller_epoch:
                    transfer.end = (
                        OutcomeKind.FENCED.value,
                        ErrorCode.STALE_CONTROLLER_EPOCH,
                        f"the journal has controller epoch {found[broker].controller_epoch}",
                    )
        self._channel.startup([self._sending.broker_of[broker] for broker in new])

    def _offer(self, transfer: _Transfer, frame: _Frame) -> None:
        transfer.frames += 1
        if frame.sequence < transfer.expected:
            if frame.sequence < transfer.done_before:
                return
            raise PipelineError(f"frame {frame.sequence} of broker {transfer.broker} follows a later frame")
        if frame.sequence > transfer.expected:
            raise PipelineError(
                f"frame {frame.sequence} of broker {transfer.broker} comes where {transfer.expected} is due: "
                "all frames of a broker must be in one partition, in order (ctrlchan.pipeline.by_broker)"
            )
        transfer.expected += 1
        if transfer.end is not None or self._stopped is not None:
            self._stop(transfer)
            return
        transfer.waiting.append(frame)
        self._held_bytes += frame.size
        if transfer.idle:
            self._send(transfer)

    def _wait(self, ready: Any) -> None:
        while True:
            with self._changed:
                came = self._changed.wait_for(lambda: self._failed is not None or ready(), _LOOK)
                if came and self._failed is None and monotonic() < self._next_look:
                    return
                self._next_look = monotonic() + _LOOK
                late = self._late()
                done = ready()
                if self._failed is not None:
                    raise self._failed
                self._look_for_stop()
            self._claims.require()
            for broker, words in late:
                self._give_up(broker, words)
            if done:
                return

    def _late(self) -> list[tuple[int, str]]:
        before = monotonic() - self._sending.timeout
        late = [
            transfer.broker
            for transfer in self._transfers.values()
            if transfer.since is not None and transfer.since < before
        ]
        if not late:
            return []
        brokers = self._channel.describe()["brokers"]
        return [(broker, brokers.get(broker, {}).get("last_error") or "no answer") for broker in late]

    def _give_up(self, broker: int, words: str) -> None:
        with self._changed:
            transfer = self._transfers[broker]
            if transfer.end is None:
                limit = f"{self._sending.timeout:g} s"
                transfer.end = (OutcomeKind.BROKER_GONE.value, 0, f"not taken within {limit}: {words}")
        # The frame's callback runs on the channel's thread.
        self._channel.remove_broker(broker)

    def _stop(self, transfer: _Transfer) -> None:
        """Send nothing more to this broker. A frame in flight still gets its outcome."""
        if transfer.end is None:
            transfer.end = ("stopped", 0, self._stopped or "")
        self._held_bytes -= sum(frame.size for frame in transfer.waiting)
        transfer.waiting.clear()

    # -- on either thread, under the lock

    def _look_for_stop(self) -> None:
        if self._stopped is None:
            self._stopped = self._run.stopped()
            if self._stopped is not None:
                for transfer in self._transfers.values():
                    if transfer.waiting:
                        self._stop(transfer)
                self._changed.notify_all()

    def _send(self, transfer: _Transfer) -> None:
        # Another task may own the broker now: the task's thread ends this one.
        self._claims.require()
        frame = transfer.waiting.popleft()
        transfer.since = monotonic()
        self._channel.send_request(
            transfer.broker, frame.request, lambda outcome: self._answered(transfer, frame, outcome)
        )

    def _answered(self, transfer: _Transfer, frame: _Frame, outcome: Outcome) -> None:
        with self._changed:
            transfer.since = None
            self._held_bytes -= frame.size
            try:
                self._go_on(transfer, outcome)
            except Exception as problem:  # noqa: BLE001 - the channel would only log it
                self._failed = problem
            self._changed.notify_all()

    def _go_on(self, transfer: _Transfer, outcome: Outcome) -> None:
        if outcome.kind in APPLIED:
            transfer.applied += 1
            transfer.partition_errors += outcome.kind is OutcomeKind.PARTITION_ERRORS
            if transfer.waiting:
                self._look_for_stop()
            if transfer.waiting:
                self._send(transfer)
            return
        code = outcome.error_code
        if transfer.end is None:
            transfer.end = (outcome.kind.value, code, ErrorCode.name_of(code) if code else outcome.detail)
        self._stop(transfer)
        if code == ErrorCode.STALE_CONTROLLER_EPOCH:
            # This controller has resigned: all tasks stop.
            self._run.stop(f"broker {transfer.broker} has a newer controller")


def _frames(batch: pa.RecordBatch, sending: Sending) -> Iterator[tuple[int, _Frame]]:
    """Yield (broker, frame) of each row; frames are views of the batch.

    Raises PipelineError for a frame of another controller.
    """
    rows = batch.drop_columns(["frame"]).to_pylist()
    for row, data in zip(rows, batch.column("frame"), strict=True):
        broker, sequence = row["broker"], row["sequence"]
        if row["controller_epoch"] != sending.controller_epoch:
            raise PipelineError(
                f"frame {sequence} of broker {broker} is of controller epoch {row['controller_epoch']}, "
                f"not {sending.controller_epoch}"
            )
        frame = memoryview(data.as_buffer()).cast("B")
        found = _shared_body_of(frame, row["api"], row["version"], sending)
        if found is None:
            raise PipelineError(
                f"frame {sequence} of broker {broker} does not begin as a request of controller "
                f"{sending.channel.controller_id} (client id {sending.channel.client_id_bytes.decode()!r}), "
                f"epoch {sending.controller_epoch}, api {row['api']}, version {row['version']} does"
            )
        shared_body, delete = found
        coverage = None
        if sending.state_id is not None:
            coverage = Coverage(sending.state_id, row.get("from_version"), None)
        request = ControlRequest(
            shared_body,
            sending.controller_epoch,
            delete_partitions=delete,
            rows=row["rows"],
            state_version=row["state_version"],
            coverage=coverage,
            origin=(sending.dataset, sequence),
        )
        yield broker, _Frame(sequence, len(frame), request)


def _shared_body_of(
    frame: memoryview, api: int, version: int, sending: Sending
) -> tuple[_FrameBody, bool] | None:
    """Return the frame's shared body and its head's ``delete_partitions``.

    Returns None if the bytes before it differ from those of our channel, apart from correlation id and broker
    epoch.
    """
    config = sending.channel
    old_stop = api == STOP_REPLICA and version < DELETE_PER_PARTITION_SINCE
    for delete in (False, True) if old_stop else (False,):
        prefix = prefix_of(
            api, version, config.controller_id, sending.controller_epoch, 0, delete, config.client_id_bytes
        )
        size = len(prefix.data)
        wanted = bytearray(prefix.frame_bytes(len(frame) - size))
        if prefix.epoch_at:
            epoch = slice(prefix.epoch_at, prefix.epoch_at + _EPOCH_BYTES)
            wanted[epoch] = frame[epoch]
        if frame[:size] == wanted:
            return _FrameBody(api, version, frame[size:]), delete
    return None
