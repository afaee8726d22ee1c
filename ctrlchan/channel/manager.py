"""ControllerChannelManager: the public interface of the channel.

Mirrors ``kafka.controller.ControllerChannelManager`` (Kafka 3.9). Different on purpose: a request to an
unknown broker has an outcome, removing a broker does not wait for its thread, and only ``wait`` and
``shutdown`` block.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
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
from ctrlchan.channel.observability.log_contexts import manager_log
from ctrlchan.channel.observability.recorder import Recorder
from ctrlchan.channel.outcome import Countdown, Outcome, OutcomeCallback, Sent
from ctrlchan.channel.queues._entries import NEVER
from ctrlchan.channel.queues.acknowledged import AcknowledgedMetadata, MetadataStatus
from ctrlchan.channel.queues.channel_state import REMOVED_BROKER, ChannelState, check_new_term
from ctrlchan.channel.queues.dispatcher import Dispatcher
from ctrlchan.channel.queues.undisturbed import undisturbed
from ctrlchan.channel.request import ControlRequest
from ctrlchan.channel.target import BrokerLike, targets_of
from ctrlchan.errors import (
    ChannelClosedError,
    ChannelError,
    IllegalStateError,
    OutcomesTimeoutError,
    UnknownBrokerError,
)
from ctrlchan.journal.rows import OutcomeReceiver
from ctrlchan.protocol import request_versions
from ctrlchan.security.settings import SaslSettings, TlsSettings

if TYPE_CHECKING:
    from ctrlchan.channel.observability.metrics import ChannelMetrics
    from ctrlchan.channel.token_renewal import TokenRenewal
    from ctrlchan.journal import Journal

__all__ = ["ControllerChannelManager"]

T = TypeVar("T")

#: Seconds that ``shutdown`` may take when the interpreter ends.
_AT_EXIT_TIMEOUT: Final = 2.0


class ControllerChannelManager:
    """Sends control requests to brokers, and returns an outcome for each request and broker.

    Each broker has one queue, one connection and one request in flight; brokers do not wait for each other.
    A broker gets its requests in the order of the ``send_requests`` calls. The next one is sent when the
    response to the one before has arrived and its callback has returned. All methods are thread-safe.

    Callbacks run on the channel's own thread. They may send requests and add or remove brokers, but the whole
    channel waits until they return.

    The first use starts a thread and the sender processes; ``shutdown``, or the end of the ``with`` block,
    ends them. A forked child process must make a channel of its own: every call in it raises
    IllegalStateError, only ``shutdown`` returns.

    - ``config``: settings of the channel.
    - ``controller_epoch``: that of the present term, see ``new_term``; each request has its own.
    - ``journal``, ``metrics``: record every outcome; close a journal after the channel.

    Raises ConfigError for credentials that cannot work. Source: ``kafka.controller.ControllerChannelManager``
    and ``RequestSendThread`` (Kafka 3.9).
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
        self._tokens: TokenRenewal | None = None
        self._channel_state: ChannelState | None = None
        self._config = self._with_token(config)
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
        self._log = manager_log(config.controller_id)
        self._pid = os.getpid()
        #: The metadata that each broker has acknowledged, for batches that send differences.
        self.acknowledged: AcknowledgedMetadata[Any] = AcknowledgedMetadata(self._metadata_statuses)
        # Guards the next two and the channel state; that one's lock guards the rest.
        self._starting = threading.Lock()
        self._dispatcher: Dispatcher | None = None
        self._closed = False
        if self._recorder is not None:
            if journal is not None:
                journal.attach(self._recorder)
            if metrics is not None:
                metrics.attach(self._recorder, weakref.WeakMethod(self.describe))

    @property
    def config(self) -> ChannelConfig:
        """The settings of the channel, with the credentials of the last ``reload_credentials``."""
        return self._config

    @property
    def has_journal(self) -> bool:
        """Whether outcomes go to a journal, so that requests need their ``Coverage``."""
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
        # ``shutdown`` blocks until the processes have ended.
        await asyncio.to_thread(self.shutdown)

    # -- brokers

    def startup(self, brokers: Brokers | Iterable[BrokerLike]) -> None:
        """Add these brokers, or none if an error is raised; their processes start in parallel.

        A broker to which no connection can be made, because it has no endpoint for the configured listener
        or a bad host, is logged and ``left_out``: its requests end as BROKER_GONE, until it is added again
        with an endpoint. Raises ChannelError if the system has no more file descriptors or processes. Source:
        ``ControllerChannelManager.startup``.
        """
        targets, left_out = targets_of(brokers, self._config)

        def add(channel_state: ChannelState) -> None:
            if not channel_state.resigned:
                channel_state.add(targets)
                channel_state.leave_out(left_out)

        self._change(add)

    def reload_credentials(self, *, tls: TlsSettings | None = None, sasl: SaslSettings | None = None) -> None:
        """Use these credentials for new connections; existing connections stay as they are.

        What is None stays as it is. Changed TLS files need no call: each new connection reads them. Raises
        ConfigError for credentials that cannot work; then nothing has changed.
        """
        undisturbed(lambda: self._reload_credentials(tls, sasl))

    def _reload_credentials(self, tls: TlsSettings | None, sasl: SaslSettings | None) -> None:
        self._check_process()
        with self._starting:
            config = replace(self._config, tls=tls or self._config.tls, sasl=sasl or self._config.sasl)
            config.check_credentials()
            if sasl is not None and sasl.tokens is not None and sasl.token is None:
                config = self._with_token(config)
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

    def _with_token(self, config: ChannelConfig) -> ChannelConfig:
        """Return the settings with a token, if they need one, which is renewed from now on."""
        if self._tokens is not None:
            self._tokens.stop()
            self._tokens = None
        if config.sasl is None or config.sasl.tokens is None:
            return config
        # Imported here: few channels use OAUTHBEARER.
        from ctrlchan.channel.token_renewal import TokenRenewal

        self._tokens = TokenRenewal(config.sasl, weakref.WeakMethod(self._use_token))
        if self._channel_state is not None:
            self._tokens.start()
        return replace(config, sasl=self._tokens.first)

    def _use_token(self, sasl: SaslSettings) -> None:
        """Use these settings with a new token. Called by the thread that renews tokens."""
        with suppress(ChannelClosedError):
            self.reload_credentials(sasl=sasl)

    def add_broker(self, broker: BrokerLike) -> None:
        """Add one broker. A known broker with the same epoch and endpoint stays as it is.

        With another epoch or endpoint it becomes a new generation; unfinished requests of the old one end as
        BROKER_GONE. Like ``startup``, it may leave the broker out or raise ChannelError. Source:
        ``ControllerChannelManager.addBroker``.
        """
        self.startup([broker])

    def remove_broker(self, broker_id: int) -> None:
        """Remove a broker and return at once; its unfinished requests end as BROKER_GONE.

        Raises UnknownBrokerError. Source: ``ControllerChannelManager.removeBroker``.
        """

        def remove(channel_state: ChannelState) -> None:
            if channel_state.resigned:
                return
            if channel_state.left_out.pop(broker_id, None) is not None:
                return
            if broker_id not in channel_state.by_id:
                raise UnknownBrokerError(f"the channel has no broker {broker_id}")
            channel_state.remove(broker_id, REMOVED_BROKER)

        self._change(remove)

    @property
    def left_out(self) -> dict[int, str]:
        """Brokers that were added and cannot be connected to, with the reasons, by broker id."""
        self._check_process()
        channel_state = self._channel_state
        if channel_state is None:
            return {}
        with channel_state.lock:
            return dict(channel_state.left_out)

    def request_version(self, broker_id: int, api_key: int) -> int:
        """Return the version of requests of this API for this broker, which may be unknown.

        ``inter_broker_protocol`` decides, together with the broker's own versions if ``negotiate`` is set and
        the broker has sent them.
        """
        [version] = self.request_versions((broker_id,), api_key)
        return version

    def request_versions(self, broker_ids: Sequence[int], api_key: int) -> dict[int, list[int]]:
        """Group brokers by ``request_version``: version -> broker ids, in the given order."""
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
            # The request will end as REFUSED when it is sent.
            return self._versions.for_api(api_key)

    # -- sending

    def send_request(
        self,
        broker_id: int,
        request: ControlRequest,
        callback: OutcomeCallback | None = None,
        timeout: float | None = None,
    ) -> Sent:
        """Queue the request for one broker; see ``send_requests``."""
        return self.send_requests((broker_id,), request, callback, timeout)[0]

    def send_requests(
        self,
        broker_ids: Sequence[int],
        request: ControlRequest,
        callback: OutcomeCallback | None = None,
        timeout: float | None = None,
    ) -> list[Sent]:
        """Queue the request for these brokers, and return a ``Sent`` for each, in the same order.

        Never blocks, whatever the brokers do. The request is encoded before this returns. ``callback`` is
        called once for each broker, with its Outcome, on the channel's thread; its exceptions are logged.
        ``timeout``: seconds after which the request ends as CANCELLED if it is still queued. A request that a
        sender process has is not cancelled, and a request with a timeout is not merged with others.

        An unknown broker's request ends as BROKER_GONE. Raises EncodeError, and ChannelClosedError after
        ``shutdown``. Source: ``ControllerChannelManager.sendRequest``.
        """
        channel_state, _ = self._running()
        if not len(broker_ids):
            return []
        request.channel = self
        deadline = NEVER
        if timeout is not None:
            # A merged request could not be cancelled alone.
            request.goes_alone = request.has_limit = True
            deadline = min(NEVER, monotonic_ns() + int(timeout * 1e9))
        with request.encoding:
            sent = None
            while sent is None:
                # None if the frame lost its last user, and its bytes, before the request was queued again.
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
        """Encode the request if it has no frame, and queue it.

        ``enqueue`` makes all changes at once. If this is interrupted before, nothing has changed: a new frame
        is freed with its last reference.
        """
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
        """Queue a request that is sent in parts, each with a frame of its own."""
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
        """Cancel these requests, except those that are no longer queued, and return how many ended.

        A cancelled request ends as CANCELLED, and nothing of it is sent. Requests that a sender process has
        (up to 64 for each broker) are not cancelled, nor are those merged with a request that is not in
        ``sent``. Reads the whole queue of each broker.
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
        """Wait for the outcomes, and return them in the order of ``sent``.

        ``timeout``: seconds, or None for no limit. Raises OutcomesTimeoutError, a TimeoutError, if requests
        have no outcome after that time: it names their brokers and has the outcomes of the others. Raises
        IllegalStateError in a callback, because the channel's thread would wait for itself. Ctrl-C interrupts
        it.
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
        """Send the request and await the outcomes, in the order of ``broker_ids``; for one id, its outcome.

        Parameters and errors are those of ``send_requests``. If the awaiting task is cancelled, requests that
        are still queued are cancelled too. The request is encoded on the event loop's thread, which takes
        some milliseconds for a million partitions.
        """
        if isinstance(broker_ids, int):
            return await self.send_request(broker_ids, request, callback, timeout)
        return await outcomes_of(self.send_requests(broker_ids, request, callback, timeout))

    # -- fencing

    @property
    def controller_epoch(self) -> int:
        """The controller epoch of the present term."""
        return self._controller_epoch

    def new_term(self, controller_epoch: int) -> None:
        """Go on with a higher controller epoch, because this controller has been elected again.

        Requests of older epochs end as FENCED, and so do those that are sent later. A channel that was
        fenced by error 11 sends again. The brokers stay; what they have is uncertain. Raises
        IllegalStateError for an epoch that is not above the last one and every fenced one, and after
        ``resign``; ChannelClosedError after ``shutdown``.
        """
        self._undisturbed(lambda: self._new_term(controller_epoch))

    def _new_term(self, controller_epoch: int) -> None:
        self._check_process()
        with self._starting:
            if self._closed:
                raise ChannelClosedError("the channel was shut down")
            channel_state = self._channel_state
            if channel_state is None:
                check_new_term(controller_epoch, self._controller_epoch)
            else:
                with channel_state.lock:
                    channel_state.check_open()
                    channel_state.new_term(controller_epoch)
                    channel_state.pool.flush()
                    channel_state.wake()
            self._controller_epoch = controller_epoch

    def resign(self) -> None:
        """Stop sending, because this controller has resigned; a request that is partly sent is cut off.

        Every unfinished request ends as FENCED, also one that its broker may have applied, and so does every
        later request. All brokers are removed; adding or removing brokers has no effect any more. Returns at
        once.
        """
        self._change(ChannelState.resign)

    def needs_resync(self, broker_id: int) -> bool:
        """Whether this generation of the broker had an error and has acknowledged no ``full`` request since.

        Partition errors of a LeaderAndIsr that are all 11 (the broker has this leader epoch or a newer one)
        do not count. Raises UnknownBrokerError.
        """
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
        """Return the state of the channel and, under ``brokers``, of each broker, as values for JSON.

        - ``state``: new, running, fenced (the present term), resigned or closed.
        - ``total_queue_size``: unfinished requests.
        - ``senders``: sender processes.
        - ``shared_memory_bytes``: bytes in use.
        - ``merged_requests``: requests made of several.
        - ``coalesced_requests``: requests that were not sent because of them.
        - ``full_states``: full states sent in place of a backlog.
        - ``collapsed_requests``: requests dropped for them.
        - ``left_out``: brokers without an endpoint to connect to, and the reasons.
        - Each broker: see ``BrokerQueue.describe``; ``apis``: its unfinished requests of each API
          (``apis_of``) and, if there are ``metrics``, its ended ones (``ChannelMetrics.counters``).
        """
        self._check_process()
        channel_state = self._channel_state
        unfinished: dict[int, list[Sent]] = {}
        described: dict[str, Any] = {
            "controller_id": self._config.controller_id,
            "controller_epoch": self._controller_epoch,
            "state": "closed" if self._closed else "new",
            "total_queue_size": 0,
            "senders": 0,
            "shared_memory_bytes": 0,
            "merged_requests": 0,
            "coalesced_requests": 0,
            "full_states": 0,
            "collapsed_requests": 0,
            "journal": None if self._journal is None else self._journal.describe(),
            "left_out": {},
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
                    described["left_out"] = dict(sorted(channel_state.left_out.items()))
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
            # Without the lock, because a backlog may be long.
            counters = {} if self._metrics is None else self._metrics.counters()
            for broker_id, broker in described["brokers"].items():
                broker["apis"] = apis_of(unfinished[broker_id], now, counters.get(broker_id, {}))
        return described

    # -- start and shutdown

    def shutdown(self, timeout: float = 30.0) -> None:
        """End every unfinished request as BROKER_GONE, and all processes and the thread of the channel.

        Returns within ``timeout`` seconds, also if senders hang or a callback does not return. A second call
        does nothing. Source: ``ControllerChannelManager.shutdown``.
        """
        deadline = monotonic() + timeout
        if os.getpid() != self._pid:
            return
        if not self._undisturbed(self._close):
            return
        dispatcher = self._dispatcher
        assert dispatcher is not None
        if not dispatcher.stop(deadline):
            self._log.error("Shutdown took more than %s s; the sender processes are killed.", timeout)
            dispatcher.kill()

    def _close(self) -> bool:
        """End every request. False: the channel was never used."""
        with self._starting:
            self._closed = True
            channel_state = self._channel_state
            if self._tokens is not None:
                self._tokens.stop()
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
                if self._tokens is not None:
                    self._tokens.start()
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
