"""ControllerChannelManager: the face of the channel.

Mirrors ``kafka.controller.ControllerChannelManager`` (Kafka 3.9). Different on purpose: a request to a broker
that is not there has an outcome, removing a broker does not wait for it, and nothing blocks but ``wait`` and
``shutdown``.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from time import monotonic, monotonic_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from ctrlchan._codec import Brokers, UnsupportedVersionError
from ctrlchan.channel.aio import outcomes_of
from ctrlchan.channel.config import ChannelConfig
from ctrlchan.channel.encoding import (
    NewFrame,
    RequestTooLargeError,
    frames_for,
    most_frame_bytes,
    write_frame,
)
from ctrlchan.channel.observability.description import apis_of
from ctrlchan.channel.observability.recorder import Recorder
from ctrlchan.channel.outcome import Countdown, Outcome, OutcomeCallback, Sent
from ctrlchan.channel.queues._entries import NEVER
from ctrlchan.channel.queues.acknowledged import AcknowledgedMetadata, MetadataStatus
from ctrlchan.channel.queues.channel_state import REMOVED_BROKER, ChannelState
from ctrlchan.channel.queues.dispatcher import Dispatcher
from ctrlchan.channel.queues.undisturbed import undisturbed
from ctrlchan.channel.request import ControlRequest
from ctrlchan.channel.target import BrokerLike, targets_of
from ctrlchan.channel.wire.security import SaslSettings, TlsSettings
from ctrlchan.errors import (
    ChannelClosedError,
    ChannelError,
    IllegalStateError,
    OutcomesTimeoutError,
    UnknownBrokerError,
)
from ctrlchan.journal.rows import OutcomeReceiver
from ctrlchan.protocol import request_versions

if TYPE_CHECKING:
    from ctrlchan.channel.observability.metrics import ChannelMetrics
    from ctrlchan.journal import Journal

__all__ = ["ControllerChannelManager"]

T = TypeVar("T")

_LOG: Final = logging.getLogger("ctrlchan.channel")

#: At the interpreter's end nobody waits long.
_AT_EXIT_TIMEOUT: Final = 2.0


class ControllerChannelManager:
    """One queue, one connection, one request in flight for each broker; brokers never wait for one another.

    Thread-safe. A broker gets its requests in the order of ``send_requests``, the next one only after the
    response to the one before has come and its callback has returned. Callbacks run on the channel's own
    thread: they may send, add and remove, but what they wait for, the channel waits for.

    ``journal`` and ``metrics`` are told of every outcome; close a journal after the channel.

    The first use starts a thread and the sender processes; ``shutdown``, or the end of the ``with`` block,
    ends them. A process that was forked from this one must make a channel of its own.
    """

    def __init__(
        self,
        config: ChannelConfig,
        controller_epoch: int = 0,
        *,
        journal: Journal | None = None,
        metrics: ChannelMetrics | None = None,
    ) -> None:
        config.check_credentials()
        self._config = config
        self._journal = journal
        self._metrics = metrics
        receivers: list[OutcomeReceiver] = [
            receiver for receiver in (journal, metrics) if receiver is not None
        ]
        self._recorder = (
            Recorder(receivers, config.controller_id, _channel_state_of(weakref.ref(self)))
            if receivers
            else None
        )
        self._controller_epoch = controller_epoch
        self._versions = request_versions(config.inter_broker_protocol)
        self._log_prefix = f"[Channel manager on controller {config.controller_id}]: "
        self._pid = os.getpid()
        #: What the brokers were told and have acknowledged, for batches that send differences.
        self.acknowledged: AcknowledgedMetadata[Any] = AcknowledgedMetadata(self._metadata_statuses)
        # Guards the three below; the channel state's lock guards the rest.
        self._starting = threading.Lock()
        self._channel_state: ChannelState | None = None
        self._dispatcher: Dispatcher | None = None
        self._closed = False
        if self._recorder is not None:
            if journal is not None:
                journal.attach(self._recorder)
            if metrics is not None:
                metrics.attach(self._recorder, weakref.WeakMethod(self.describe))

    @property
    def config(self) -> ChannelConfig:
        return self._config

    @property
    def has_journal(self) -> bool:
        """Whether it is worth saying what requests cover (``Coverage``)."""
        return self._journal is not None

    def __enter__(self) -> ControllerChannelManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    async def __aenter__(self) -> ControllerChannelManager:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # It waits for processes to end.
        await asyncio.to_thread(self.shutdown)

    # -- brokers

    def startup(self, brokers: Brokers | Iterable[BrokerLike]) -> None:
        """Add all of these, or none; their processes start side by side.

        Raises ChannelError for a broker without an endpoint for the configured listener, and when the system
        gives no more file descriptors or processes.
        """
        targets = targets_of(brokers, self._config)

        def add(channel_state: ChannelState) -> None:
            if not channel_state.resigned:
                channel_state.add(targets)

        self._change(add)

    def reload_credentials(self, *, tls: TlsSettings | None = None, sasl: SaslSettings | None = None) -> None:
        """Connections are made with these from here on, those that stand are left alone; None: as before.

        Changed TLS files need no call: each new connection looks at them. Raises ConfigError for what cannot
        work, and then nothing has changed.
        """
        undisturbed(lambda: self._reload_credentials(tls, sasl))

    def _reload_credentials(self, tls: TlsSettings | None, sasl: SaslSettings | None) -> None:
        self._check_process()
        with self._starting:
            config = replace(self._config, tls=tls or self._config.tls, sasl=sasl or self._config.sasl)
            config.check_credentials()
            self._config = config
            channel_state = self._channel_state
            if channel_state is None:
                return
            with channel_state.lock:
                channel_state.check_open()
                channel_state.config = config
                channel_state.pool.reload(config)
                channel_state.pool.flush()
                channel_state.wake()

    def add_broker(self, broker: BrokerLike) -> None:
        """Nothing changes for a known broker. One with another epoch or endpoint is a new generation: what
        the old one is still owed ends as BROKER_GONE."""
        self.startup([broker])

    def remove_broker(self, broker_id: int) -> None:
        """Returns at once; every unfinished request of the broker ends as BROKER_GONE.

        Raises UnknownBrokerError.
        """

        def remove(channel_state: ChannelState) -> None:
            if channel_state.resigned:
                return
            if broker_id not in channel_state.by_id:
                raise UnknownBrokerError(f"the channel has no broker {broker_id}")
            channel_state.remove(broker_id, REMOVED_BROKER)

        self._change(remove)

    def request_version(self, broker_id: int, api_key: int) -> int:
        """The version that this broker is sent, known or not: the IBP decides, and the broker's own versions
        where brokers are asked for them and this one has answered."""
        [version] = self.request_versions((broker_id,), api_key)
        return version

    def request_versions(self, broker_ids: Sequence[int], api_key: int) -> dict[int, list[int]]:
        """``request_version`` of many: version -> those of the brokers that are sent it, in their order."""
        usual = self._versions.for_api(api_key)
        self._check_process()
        channel_state = self._channel_state
        if not self._config.negotiate or channel_state is None:
            return {usual: list(broker_ids)} if broker_ids else {}
        with channel_state.lock:
            queues = [channel_state.by_id.get(broker_id) for broker_id in broker_ids]
            ranges_of = [None if queue is None else queue.versions for queue in queues]
        versions: dict[int, list[int]] = {}
        for broker_id, ranges in zip(broker_ids, ranges_of, strict=True):
            version = usual if ranges is None else self._common_version(api_key, ranges)
            versions.setdefault(version, []).append(broker_id)
        return versions

    def _common_version(self, api_key: int, ranges: Mapping[int, tuple[int, int]]) -> int:
        try:
            return self._versions.common(api_key, ranges)
        except UnsupportedVersionError:
            # Sending it will say so.
            return self._versions.for_api(api_key)

    # -- sending

    def send_request(
        self,
        broker_id: int,
        request: ControlRequest,
        callback: OutcomeCallback | None = None,
        timeout: float | None = None,
    ) -> Sent:
        """``send_requests`` to one broker."""
        return self.send_requests((broker_id,), request, callback, timeout)[0]

    def send_requests(
        self,
        broker_ids: Sequence[int],
        request: ControlRequest,
        callback: OutcomeCallback | None = None,
        timeout: float | None = None,
    ) -> list[Sent]:
        """Queue the request for these brokers, in this order; never blocks, whatever the brokers do.

        The request is encoded before this returns. ``callback`` is called once for each broker, with its
        Outcome, on the channel's thread; what it raises is logged. ``timeout``: where the request is still
        queued after so many seconds it ends as CANCELLED; what a sender process has in hand has no limit,
        and what has one is not merged with its neighbours.
        Raises EncodeError, and ChannelClosedError after ``shutdown``.
        """
        channel_state, _ = self._running()
        if not len(broker_ids):
            return []
        request.channel = self
        deadline = NEVER
        if timeout is not None:
            # Merged with others it could not be cancelled alone.
            request.goes_alone = request.has_limit = True
            deadline = min(NEVER, monotonic_ns() + int(timeout * 1e9))
        with request.encoding:
            sent = None
            while sent is None:
                # None: its frame had lost its last user before the request was queued again.
                sent = self._send(channel_state, broker_ids, request, callback, deadline)
        if channel_state.unattended:
            self._undisturbed(lambda: self._attend(channel_state))
        return sent

    def _send(
        self,
        channel_state: ChannelState,
        broker_ids: Sequence[int],
        request: ControlRequest,
        callback: OutcomeCallback | None,
        deadline: int,
    ) -> list[Sent] | None:
        """Encode the request where no frame has it, and queue it. Nothing has happened until ``enqueue``, and
        then everything has: interrupted before, a new frame is freed with its last reference."""
        frame = request.frame
        if frame is None or not frame.has_bytes:
            most_bytes = min(most_frame_bytes(self._config), channel_state.memory.largest)
            try:
                new = frames_for(request, self._config, most_bytes) if request.parts is None else ()
            except RequestTooLargeError:
                with channel_state.lock:
                    channel_state.check_open()
                    return channel_state.send(broker_ids, request, None, callback, deadline)
            if len(new) != 1:
                return self._undisturbed(
                    lambda: self._send_parts(channel_state, broker_ids, request, new, callback, deadline)
                )
            [one] = new
            self._write(channel_state, request, one)
            frame = one.frame
        with channel_state.lock:
            channel_state.check_open()
            return channel_state.send(broker_ids, request, frame, callback, deadline)

    def _send_parts(
        self,
        channel_state: ChannelState,
        broker_ids: Sequence[int],
        request: ControlRequest,
        new: Sequence[NewFrame],
        callback: OutcomeCallback | None,
        deadline: int,
    ) -> list[Sent] | None:
        """Queue a request that goes in parts, each of which has a frame of its own."""
        if request.parts is None:
            request.parts = tuple(one.request for one in new)
        frames = []
        for part in request.parts:
            frame = part.frame
            if frame is None or not frame.has_bytes:
                [one] = frames_for(part, self._config, most_frame_bytes(self._config))
                self._write(channel_state, part, one)
                frame = one.frame
            frames.append(frame)
        request.size = sum(part.size for part in request.parts)
        request.encoded_ns = request.parts[-1].encoded_ns
        request.encoding_ns = sum(part.encoding_ns for part in request.parts)
        with channel_state.lock:
            channel_state.check_open()
            if not all(frame.has_bytes for frame in frames):
                return None
            for part, frame in zip(request.parts, frames, strict=True):
                part.frame = frame
            return channel_state.send(broker_ids, request, None, callback, deadline)

    def _write(self, channel_state: ChannelState, request: ControlRequest, new: NewFrame) -> None:
        with channel_state.lock:
            channel_state.check_open()
            buffer, offset = channel_state.memory.make_room(new.frame)
        # Outside the lock: a large shared body takes a millisecond.
        begun = 0 if self._recorder is None else monotonic_ns()
        write_frame(new, buffer, offset)
        if self._recorder is not None:
            request.encoded_ns = monotonic_ns()
            request.encoding_ns = request.encoded_ns - begun

    @staticmethod
    def _attend(channel_state: ChannelState) -> None:
        with channel_state.lock:
            if not channel_state.closed:
                channel_state.attend()
                channel_state.pool.flush()
                channel_state.wake()

    def cancel(self, sent: Iterable[Sent]) -> int:
        """End as CANCELLED those of these that are still queued, so that nothing of them was or is sent.

        Returns how many they were. The others go on to their ends: those that a sender process has in hand
        (a few of each broker, ahead of time), and those merged with a request that is not to be cancelled.
        Costs a look at the whole queue of each broker.
        """
        self._check_process()
        channel_state = self._channel_state
        if channel_state is None:
            return 0
        sent = list(sent)

        def cancel() -> int:
            with channel_state.lock:
                count = channel_state.cancel(sent)
                if count:
                    channel_state.wake()
                return count

        return self._undisturbed(cancel)

    # -- outcomes

    def wait(self, sent: Iterable[Sent], timeout: float | None = None) -> list[Outcome]:
        """The outcomes, in the order of ``sent``. None: for as long as it takes.

        Raises OutcomesTimeoutError, a TimeoutError, naming the brokers without an outcome after ``timeout``
        seconds: it has the outcomes of the others. Raises
        IllegalStateError on the channel's own thread, which would wait for itself. Ctrl-C interrupts it.
        """
        self._check_process()
        sent = list(sent)
        over = threading.Lock()
        over.acquire()
        countdown = Countdown(sent, over.release)
        if countdown.missing:
            try:
                if self._dispatcher is not None and self._dispatcher.is_current_thread():
                    raise IllegalStateError("wait was called in a callback, and would wait for itself")
                longest = threading.TIMEOUT_MAX
                over.acquire(timeout=longest if timeout is None else min(max(0.0, timeout), longest))
            finally:
                if countdown.missing:
                    countdown.stop()
        outcomes = [one.outcome for one in sent if one.outcome is not None]
        if len(outcomes) < len(sent):
            pending = [one for one in sent if one.outcome is None]
            brokers = sorted({one.broker_id for one in pending})
            names = ", ".join(map(str, brokers))
            raise OutcomesTimeoutError(
                f"no outcome after {timeout} s from {len(brokers)} brokers: {names}", outcomes, pending
            )
        return outcomes

    @overload
    async def send(
        self,
        broker_ids: int,
        request: ControlRequest,
        callback: OutcomeCallback | None = None,
        timeout: float | None = None,
    ) -> Outcome: ...

    @overload
    async def send(
        self,
        broker_ids: Sequence[int],
        request: ControlRequest,
        callback: OutcomeCallback | None = None,
        timeout: float | None = None,
    ) -> list[Outcome]: ...

    async def send(
        self,
        broker_ids: int | Sequence[int],
        request: ControlRequest,
        callback: OutcomeCallback | None = None,
        timeout: float | None = None,
    ) -> Outcome | list[Outcome]:
        """``send_requests``, and its outcomes in the order of ``broker_ids``; one id: its one outcome.

        When the task that awaits it is cancelled, so is what of it is still queued. The request is encoded
        on the event loop's thread: a million partitions hold it up for some milliseconds.
        """
        if isinstance(broker_ids, int):
            return await self.send_request(broker_ids, request, callback, timeout)
        return await outcomes_of(self.send_requests(broker_ids, request, callback, timeout))

    # -- fencing

    def resign(self) -> None:
        """This controller has resigned: nothing is sent from here on, nor sent again, nor sent to its end.

        Every unfinished request ends as FENCED, also one that its broker may have applied, and so does what
        is sent later. Brokers are forgotten, and adding or removing some has no effect. Returns at once.
        """
        self._change(ChannelState.resign)

    def needs_resync(self, broker_id: int) -> bool:
        """Whether this generation of the broker answered with an error and has acknowledged no ``full``
        request since. Partition errors of a LeaderAndIsr that are all 11 (the broker has this leader epoch
        or a newer one) do not count. Raises UnknownBrokerError."""
        channel_state, _ = self._running()
        with channel_state.lock:
            queue = channel_state.by_id.get(broker_id)
            if queue is None:
                raise UnknownBrokerError(f"the channel has no broker {broker_id}")
            return queue.needs_resync

    def _metadata_statuses(self, broker_ids: Iterable[int]) -> dict[int, MetadataStatus]:
        channel_state, _ = self._running()
        with channel_state.lock:
            by_id = channel_state.by_id
            return {
                broker_id: MetadataStatus(queue.slot, queue.metadata_errors)
                for broker_id in broker_ids
                if (queue := by_id.get(broker_id)) is not None
            }

    # -- observability

    def describe(self) -> dict[str, Any]:
        """What is going on, for people and for machines: the channel, and under ``brokers`` each broker
        (``BrokerQueue.describe``), with what it is owed of each API (``apis_of``) and, where there are
        ``metrics``, what has ended (``ChannelMetrics.counters``)."""
        self._check_process()
        channel_state = self._channel_state
        unfinished: dict[int, list[Sent]] = {}
        described: dict[str, Any] = {
            "controller_id": self._config.controller_id,
            "state": "closed" if self._closed else "new",
            "total_queue_size": 0,
            "senders": 0,
            "shared_memory_bytes": 0,
            # UpdateMetadata made of several, and how many requests need not be sent because of them.
            "merged_requests": 0,
            "coalesced_requests": 0,
            # The whole state in place of a backlog, and how many requests were dropped for it.
            "full_states": 0,
            "collapsed_requests": 0,
            "journal": None if self._journal is None else self._journal.describe(),
            "brokers": {},
        }
        if channel_state is not None:
            now = monotonic_ns()
            with channel_state.lock:
                if channel_state.closed:
                    described["state"] = "closed"
                else:
                    described["state"] = (
                        "resigned"
                        if channel_state.resigned
                        else "fenced"
                        if channel_state.fenced
                        else "running"
                    )
                    described["total_queue_size"] = sum(len(queue) for queue in channel_state.by_id.values())
                    described["senders"] = len(channel_state.pool.senders)
                    described["shared_memory_bytes"] = channel_state.memory.used
                    if channel_state.merger is not None:
                        described["merged_requests"] = channel_state.merger.made
                        described["coalesced_requests"] = channel_state.merger.saved
                    if channel_state.collapser is not None:
                        described["full_states"] = channel_state.collapser.made
                        described["collapsed_requests"] = channel_state.collapser.saved
                    described["brokers"] = {
                        broker_id: queue.describe(now)
                        for broker_id, queue in sorted(channel_state.by_id.items())
                    }
                    unfinished = {
                        queue.target.broker_id: [*queue.handed, *queue.waiting]
                        for queue in channel_state.by_id.values()
                    }
            # Outside the lock: a backlog may be long.
            counters = {} if self._metrics is None else self._metrics.counters()
            for broker_id, broker in described["brokers"].items():
                broker["apis"] = apis_of(unfinished[broker_id], now, counters.get(broker_id, {}))
        return described

    # -- beginning and end

    def shutdown(self, timeout: float = 30.0) -> None:
        """Every unfinished request ends as BROKER_GONE; every process and thread is ended.

        Returns within ``timeout`` seconds, also when senders hang or a callback does not return. Calling it
        again does nothing.
        """
        deadline = monotonic() + timeout
        if os.getpid() != self._pid:
            return
        if not self._undisturbed(self._close):
            return
        dispatcher = self._dispatcher
        assert dispatcher is not None
        if not dispatcher.stop(deadline):
            _LOG.error(
                "%sShutdown took more than %s s; the sender processes are killed.", self._log_prefix, timeout
            )
            dispatcher.kill()

    def _close(self) -> bool:
        """End every request. False: there was nothing to close."""
        with self._starting:
            self._closed = True
            channel_state = self._channel_state
        if channel_state is None:
            return False
        atexit.unregister(self._at_exit)
        with channel_state.lock:
            if not channel_state.closed:
                channel_state.close()
        return True

    def _running(self) -> tuple[ChannelState, Dispatcher]:
        self._check_process()
        channel_state, dispatcher = self._channel_state, self._dispatcher
        if channel_state is None or dispatcher is None:
            return undisturbed(self._start)
        return channel_state, dispatcher

    def _start(self) -> tuple[ChannelState, Dispatcher]:
        with self._starting:
            if self._closed:
                raise ChannelClosedError("the channel was shut down")
            if self._channel_state is None or self._dispatcher is None:
                try:
                    channel_state = ChannelState(self._config, self._controller_epoch, self._recorder)
                    self._dispatcher = Dispatcher(channel_state)
                except OSError as problem:
                    raise ChannelError(f"the channel cannot start: {problem}") from problem
                self._channel_state = channel_state
                self._at_exit = _shutdown_of(weakref.ref(self))
                atexit.register(self._at_exit)
                self._dispatcher.start()
            return self._channel_state, self._dispatcher

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise IllegalStateError("this channel belongs to the process that this one was forked from")

    def _undisturbed(self, work: Callable[[], T]) -> T:
        """Run a change of the channel's state where no signal handler interrupts it."""
        dispatcher = self._dispatcher
        if dispatcher is not None and dispatcher.is_current_thread():
            return work()
        return undisturbed(work)

    def _change(self, change: Callable[[ChannelState], T]) -> T:
        """Run a change with the lock held, and write the commands that it queues."""
        channel_state, _ = self._running()

        def work() -> T:
            with channel_state.lock:
                channel_state.check_open()
                try:
                    return change(channel_state)
                finally:
                    channel_state.pool.flush()
                    channel_state.wake()

        return self._undisturbed(work)


def _shutdown_of(manager: weakref.ref[ControllerChannelManager]) -> Callable[[], None]:
    def at_exit() -> None:
        alive = manager()
        if alive is not None:
            alive.shutdown(_AT_EXIT_TIMEOUT)

    return at_exit


def _channel_state_of(manager: weakref.ref[ControllerChannelManager]) -> Callable[[], ChannelState | None]:
    def channel_state() -> ChannelState | None:
        alive = manager()
        return None if alive is None else alive._channel_state

    return channel_state
