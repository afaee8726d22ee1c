"""The channel's one thread: takes reports, publishes outcomes, runs callbacks, hands over what comes next.

Under the lock it keeps the books (``channel_state.py``); outside of it, it calls back and logs. It owns the
poller,
so senders, the fork server and full pipes are registered here and nowhere else.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress
from time import monotonic, monotonic_ns
from typing import Final

from ctrlchan.channel.observability.log_lines import response_line
from ctrlchan.channel.outcome import Listener, Sent, publish
from ctrlchan.channel.processes.sender_pool import SenderHandle
from ctrlchan.channel.processes.watchdog import Watchdog
from ctrlchan.channel.queues.broker_queue import BrokerQueue
from ctrlchan.channel.queues.channel_state import Called, ChannelState, Note
from ctrlchan.channel.queues.full_state import FullStates
from ctrlchan.channel.queues.time_limits import NEVER
from ctrlchan.channel.wire.poller import READ, WRITE, new_poller
from ctrlchan.state_change_log import StateChangeLogger

__all__ = ["Dispatcher"]

_LOG: Final = logging.getLogger("ctrlchan.channel")

#: The fork server was asked for more processes than its socket takes: ask again after so many seconds.
_BEAR_AGAIN: Final = 0.005
#: How long the processes may take to end when the thread has failed.
_END: Final = 2.0


class Dispatcher:
    """``start`` once, ``stop`` once; ``wake`` from any thread, with or without the lock."""

    def __init__(self, channel_state: ChannelState) -> None:
        self._channel_state = channel_state
        self._poller = new_poller()
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)
        self._poller.register(self._woken, READ)
        self._fork_server = 0
        self._watchdog = Watchdog(channel_state.config.sender_timeout)
        self._look_at = 0.0
        self._readers: dict[int, SenderHandle] = {}
        self._writers: dict[int, SenderHandle] = {}
        self._wake_lock = threading.Lock()
        # Monotonic seconds: until when senders may end by themselves, and when all must be over.
        self._stop_at: float | None = None
        self._deadline = 0.0
        controller_id = channel_state.config.controller_id
        self._prefix = f"[RequestSendThread controllerId={controller_id}] "
        self._full_states = FullStates(channel_state, self._prefix)
        self._state_changes = StateChangeLogger(controller_id, channel_state.controller_epoch)
        self._thread = threading.Thread(
            target=self._run, name=f"Controller-{controller_id}-dispatcher", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        with self._wake_lock:
            if self._waker >= 0:
                with suppress(BlockingIOError):
                    os.write(self._waker, b"\0")

    def stop(self, deadline: float) -> bool:
        """Publish what has ended, see all senders off, free everything. False: not done at ``deadline``.

        The channel state is closed already. On its own thread it returns at once, and the work is done after
        the
        callback that called it.
        """
        now = monotonic()
        self._deadline = deadline
        self._stop_at = now + (deadline - now) / 2
        self.wake()
        if self.is_current_thread():
            return True
        self._thread.join(max(0.0, deadline - monotonic()))
        return not self._thread.is_alive()

    def kill(self) -> None:
        """End all processes now: the thread does not come to it."""
        for sender in list(self._readers.values()):
            sender.kill()
        self._channel_state.pool.kill()

    def is_current_thread(self) -> bool:
        return threading.current_thread() is self._thread

    # -- the thread

    def _run(self) -> None:
        try:
            while not self._is_over():
                self._turn()
        except Exception:  # noqa: BLE001 - nobody may be left waiting for a thread that is no more
            _LOG.exception("%sThe channel's thread failed; every request ends.", self._prefix)
            with self._channel_state.lock:
                if not self._channel_state.closed:
                    self._channel_state.close()
        finally:
            self._end()

    def _is_over(self) -> bool:
        if self._stop_at is None:
            return False
        return not (self._readers or self._channel_state.has_ends) or monotonic() >= self._stop_at

    def _turn(self) -> None:
        channel_state = self._channel_state
        reads: list[tuple[SenderHandle, bytes | None]] = []
        flushable: list[SenderHandle] = []
        deaths: list[tuple[int, int, int]] = []
        fork_server_speaks = False
        for fd, _ in self._poller.wait(self._timeout()):
            reader = self._readers.get(fd)
            if reader is not None:
                reads.append((reader, reader.read()))
            elif fd in self._writers:
                flushable.append(self._writers.pop(fd))
                self._poller.unregister(fd)
            elif fd == self._woken:
                os.read(fd, 4096)
            else:
                fork_server_speaks = True
        with channel_state.lock:
            for sender, data in reads:
                if data is None:
                    self._forget(sender)
                    channel_state.sender_ended(sender)
                else:
                    channel_state.take_reports(sender, data)
            for sender in flushable:
                sender.flush()
            if channel_state.limits.next_ns != NEVER and channel_state.limits.next_ns <= (
                now := monotonic_ns()
            ):
                channel_state.expire(now)
            if self._readers and monotonic() >= self._look_at:
                self._watch()
            if fork_server_speaks:
                deaths = channel_state.pool.read_deaths()
            channel_state.pool.bear()
            channel_state.pool.flush()
            self._register()
            ended, channel_state.ended = channel_state.ended, []
            called, channel_state.called = channel_state.called, []
            notes, channel_state.notes = channel_state.notes, []
        if ended or called:
            self._publish(ended, called)
        if notes or deaths:
            self._log(notes, deaths)
        if channel_state.has_ready:
            self._full_states.build()
            # What was made is to be written to the senders, what was not has ended.
            self.wake()

    def _timeout(self) -> float | None:
        if self._stop_at is not None:
            return max(0.0, self._stop_at - monotonic())
        timeout = _BEAR_AGAIN if self._channel_state.pool.has_unborn else None
        if timeout is None and self._readers:
            timeout = max(0.0, self._look_at - monotonic())
        limit = self._channel_state.limits.next_ns
        if limit == NEVER:
            return timeout
        left = max(0.0, (limit - monotonic_ns()) / 1e9)
        return left if timeout is None else min(left, timeout)

    def _register(self) -> None:
        pool = self._channel_state.pool
        for sender in pool.fresh:
            if sender.reports >= 0:
                self._readers[sender.reports] = sender
                self._poller.register(sender.reports, READ)
        pool.fresh.clear()
        for sender in pool.blocked:
            if sender.blocked and sender.commands >= 0:
                self._writers[sender.commands] = sender
                self._poller.register(sender.commands, WRITE)
        pool.blocked.clear()
        for sender in pool.ending:
            if self._writers.pop(sender.commands, None) is not None:
                self._poller.unregister(sender.commands)
            sender.close_commands()
        pool.ending.clear()
        if pool.fork_servers != self._fork_server:
            # A closed descriptor has left the poller.
            self._fork_server = pool.fork_servers
            if pool.control >= 0:
                self._poller.register(pool.control, READ)

    def _watch(self) -> None:
        """See whether senders hang; one that does ends here, and is replaced like any that ends."""
        channel_state = self._channel_state
        for sender in self._watchdog.look(self._readers.values()):
            channel_state.note(
                logging.ERROR,
                "Sender process %d (pid %d) does not answer; %s is killed.",
                sender.number,
                sender.pid,
                "it" if sender.pid else "the process that should start it",
            )
            if sender.pid:
                sender.kill()
            else:
                channel_state.pool.replace_fork_server()
        self._look_at = monotonic() + self._watchdog.interval

    def _forget(self, sender: SenderHandle) -> None:
        del self._readers[sender.reports]
        self._poller.unregister(sender.reports)
        if self._writers.pop(sender.commands, None) is not None:
            self._poller.unregister(sender.commands)

    # -- outside the lock

    def _publish(self, ended: list[Sent], called: list[Called]) -> None:
        if self._state_changes.traces:
            self._trace([*ended, *(sent for sent, _, _ in called)])
        self._tell(publish(ended))
        recorder = self._channel_state.recorder
        if recorder is None:
            for end in called:
                self._call_back(*end)
            return
        # A callback may take long: what has none is recorded before.
        recorder.ended(ended)
        if called:
            returned = [self._call_back(*end) for end in called]
            recorder.ended([sent for sent, _, _ in called], returned)

    def _tell(self, tell: list[tuple[Listener, Sent]]) -> None:
        for listener, sent in tell:
            try:
                listener.finished(sent)
            except Exception:  # noqa: BLE001 - a future's callbacks are the caller's code
                _LOG.exception("%sA listener of %r failed", self._prefix, sent)

    def _call_back(self, sent: Sent, queue: BrokerQueue | None, go: bool) -> int:
        """Monotonic nanoseconds when the callback had returned."""
        assert sent.callback is not None
        assert sent.ending is not None
        try:
            sent.callback(sent.ending)
        except Exception:  # noqa: BLE001 - it is the caller's code, and stops nothing here
            _LOG.exception("%sThe callback of %r failed", self._prefix, sent)
        returned = monotonic_ns()
        tell = publish([sent])
        if queue is not None:
            with self._channel_state.lock:
                self._channel_state.callback_returned(queue, sent, go)
                self._channel_state.pool.flush()
                if self._channel_state.has_ends:
                    # What came next could not be sent at all.
                    self.wake()
        self._tell(tell)
        return returned

    def _trace(self, ended: list[Sent]) -> None:
        channel_state = self._channel_state
        with channel_state.lock:
            brokers = {broker_id: str(queue.target) for broker_id, queue in channel_state.by_id.items()}
        for sent in ended:
            outcome = sent.ending
            assert outcome is not None
            if outcome.response is not None:
                log = StateChangeLogger(channel_state.config.controller_id, outcome.request.controller_epoch)
                log.trace(response_line(outcome, outcome.response, brokers))

    def _log(self, notes: list[Note], deaths: list[tuple[int, int, int]]) -> None:
        for note in notes:
            _LOG.log(note.level, self._prefix + note.message, *note.arguments)
        for number, pid, exit_code in deaths:
            if exit_code:
                how = f"exit code {exit_code}" if exit_code > 0 else f"signal {-exit_code}"
                _LOG.error("%sSender process %d (pid %d) ended with %s", self._prefix, number, pid, how)

    # -- the end

    def _end(self) -> None:
        """Runs on the channel's thread, last of all."""
        channel_state = self._channel_state
        with channel_state.lock:
            ended, channel_state.ended = channel_state.ended, []
            called, channel_state.called = channel_state.called, []
        self._publish(ended, called)
        if channel_state.recorder is not None:
            channel_state.recorder.close()
        with channel_state.lock:
            for sender in self._readers.values():
                # It has had its time.
                sender.kill()
                sender.close()
            for sender in channel_state.pool.fresh:
                sender.close()
            channel_state.pool.close(self._deadline or monotonic() + _END)
            self._poller.close()
            channel_state.memory.close()
        with self._wake_lock:
            os.close(self._woken)
            os.close(self._waker)
            self._waker = -1
