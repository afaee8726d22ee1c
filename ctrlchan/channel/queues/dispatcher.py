"""The channel's one thread: takes reports, publishes outcomes, runs callbacks, hands over more requests.

With the lock it changes the channel's state (``channel_state.py``); without it, it runs callbacks and logs.
It owns the poller, so only the dispatcher registers senders, the fork server and full pipes.

No exception of a callback, a listener or a log handler ends the thread, not even SystemExit. If the
dispatcher itself fails, every request ends and every later call raises ChannelClosedError.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress
from time import monotonic, monotonic_ns
from typing import Final

from ctrlchan.channel.observability.log_contexts import client_log
from ctrlchan.channel.observability.log_lines import received_line, response_line
from ctrlchan.channel.outcome import Listener, Sent, publish
from ctrlchan.channel.processes.sender_pool import SenderHandle
from ctrlchan.channel.processes.watchdog import Watchdog
from ctrlchan.channel.queues._entries import CommandPipe
from ctrlchan.channel.queues.broker_queue import BrokerQueue
from ctrlchan.channel.queues.channel_state import FAILED_CHANNEL, Called, ChannelState, Note
from ctrlchan.channel.queues.full_state_builder import FullStates
from ctrlchan.channel.queues.time_limits import NEVER
from ctrlchan.channel.wire.poller import READ, WRITE, new_poller
from ctrlchan.state_change_log import StateChangeLogger

__all__ = ["Dispatcher"]

#: Seconds that the processes have to end after the thread has failed.
_END: Final = 2.0


class Dispatcher:
    """Runs the channel's thread. ``start`` and ``stop`` are called once, ``wake`` by any thread."""

    def __init__(self, channel_state: ChannelState) -> None:
        self._channel_state = channel_state
        self._poller = new_poller()
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)
        self._poller.register(self._woken, READ)
        self._fork_server = 0
        self._watchdog = Watchdog(channel_state.config.sender_timeout)
        self._check_at = 0.0
        self._readers: dict[int, SenderHandle] = {}
        self._writers: dict[int, CommandPipe] = {}
        # Guards ``waker`` of the channel state against being closed while somebody writes to it.
        self._wake_lock = threading.Lock()
        channel_state.waker = self._waker
        # Monotonic seconds: senders may end by themselves until the first; the second ends ``stop``.
        self._stop_at: float | None = None
        self._deadline = 0.0
        controller_id = channel_state.config.controller_id
        self._log = channel_state.log
        self._full_states = FullStates(channel_state)
        self._state_changes = StateChangeLogger(controller_id, channel_state.controller_epoch)
        self._thread = threading.Thread(
            target=self._run, name=f"Controller-{controller_id}-dispatcher", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Wake the thread; with or without the channel's lock."""
        with self._wake_lock:
            self._channel_state.wake()

    def stop(self, deadline: float) -> bool:
        """Publish all outcomes, end all senders and free everything. False: not done at ``deadline``.

        The channel state is closed already. Called on the channel's own thread, this returns at once; the
        work is done when the callback that called it has returned.
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
        """Kill all processes, because the thread is busy."""
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
        except BaseException as problem:  # noqa: BLE001 - every request must end if the thread fails
            self._log.exception("The channel's thread failed; every request ends.")
            with self._channel_state.lock:
                self._channel_state.failure = problem
                if not self._channel_state.closed:
                    self._channel_state.close(FAILED_CHANNEL)
        finally:
            self._end()

    def _is_over(self) -> bool:
        if self._stop_at is None:
            return False
        return not (self._readers or self._channel_state.has_ends) or monotonic() >= self._stop_at

    def _turn(self) -> None:
        """Wait for events, and do all work that they bring."""
        channel_state = self._channel_state
        reads: list[tuple[SenderHandle, bytes | None]] = []
        flushable: list[CommandPipe] = []
        exits: list[tuple[int, int, int]] = []
        has_exits = False
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
                has_exits = True
        with channel_state.lock:
            for sender, data in reads:
                if data is None:
                    self._forget(sender)
                    channel_state.sender_ended(sender)
                else:
                    channel_state.take_reports(sender, data)
            for pipe in flushable:
                pipe.flush()
            channel_state.attend()
            if channel_state.next_limit_ns != NEVER:
                channel_state.check_limits(monotonic_ns())
            if self._readers and monotonic() >= self._check_at:
                self._watch()
            if has_exits:
                exits = channel_state.pool.read_exits()
            channel_state.start_senders()
            if channel_state.out_of_memory:
                channel_state.use_free_memory()
            channel_state.pool.flush()
            self._register()
            ended, channel_state.ended = channel_state.ended, []
            called, channel_state.called = channel_state.called, []
            notes, channel_state.notes = channel_state.notes, []
        if ended or called:
            self._publish(ended, called)
        if notes or exits:
            self._log_notes(notes, exits)
        if channel_state.has_ready:
            self._full_states.build()
            # New requests must be written to the senders, and ended ones published.
            self.wake()

    def _timeout(self) -> float | None:
        """Return the seconds until there is work without an event, or None if there is none."""
        if self._stop_at is not None:
            return max(0.0, self._stop_at - monotonic())
        timeout = self._channel_state.pool.seconds_to_start()
        if self._readers:
            left = max(0.0, self._check_at - monotonic())
            timeout = left if timeout is None else min(left, timeout)
        limit = self._channel_state.next_limit_ns
        if limit == NEVER:
            return timeout
        left = max(0.0, (limit - monotonic_ns()) / 1e9)
        return left if timeout is None else min(left, timeout)

    def _register(self) -> None:
        """Register new senders and full pipes, and end the senders that shall end."""
        pool = self._channel_state.pool
        for sender in pool.fresh:
            if sender.reports >= 0:
                self._readers[sender.reports] = sender
                self._poller.register(sender.reports, READ)
        pool.fresh.clear()
        for pipe in pool.full:
            if pipe.blocked and pipe.commands >= 0:
                self._writers[pipe.commands] = pipe
                self._poller.register(pipe.commands, WRITE)
        pool.full.clear()
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
        """Kill senders that hang; they are replaced like any that ends."""
        channel_state = self._channel_state
        for sender in self._watchdog.check(self._readers.values()):
            channel_state.note(
                logging.ERROR,
                "Sender process %d (pid %d) does not answer; %s is killed.",
                sender.number,
                sender.pid,
                "it" if sender.pid else "the fork server",
            )
            if sender.pid:
                sender.kill()
            else:
                channel_state.pool.drop_fork_server()
        self._check_at = monotonic() + self._watchdog.interval

    def _forget(self, sender: SenderHandle) -> None:
        del self._readers[sender.reports]
        self._poller.unregister(sender.reports)
        if self._writers.pop(sender.commands, None) is not None:
            self._poller.unregister(sender.commands)

    # -- outside the lock

    def _publish(self, ended: list[Sent], called: list[Called]) -> None:
        try:
            traces, debugs = self._state_changes.traces, self._log.isEnabledFor(logging.DEBUG)
            if traces or debugs:
                self._trace([*ended, *(sent for sent, _, _ in called)], traces=traces, debugs=debugs)
        except BaseException:  # noqa: BLE001 - a log handler's error must not delay outcomes
            self._log.exception("Outcomes could not be traced")
        self._notify(publish(ended))
        recorder = self._channel_state.recorder
        if recorder is None:
            for end in called:
                self._call_back(*end)
            return
        # A callback may take long, so requests without one are recorded first.
        recorder.ended(ended)
        if called:
            returned = [self._call_back(*end) for end in called]
            recorder.ended([sent for sent, _, _ in called], returned)

    def _notify(self, listeners: list[tuple[Listener, Sent]]) -> None:
        for listener, sent in listeners:
            try:
                listener.finished(sent)
            except BaseException:  # noqa: BLE001 - a future's callbacks are the caller's code
                self._log.exception("A listener of %r failed", sent)

    def _call_back(self, sent: Sent, queue: BrokerQueue | None, go: bool) -> int:
        """Run the callback, publish the outcome, and return when the callback had returned (monotonic ns)."""
        assert sent.callback is not None
        assert sent.ending is not None
        try:
            sent.callback(sent.ending)
        except BaseException:  # noqa: BLE001 - it is the caller's code
            self._log.exception("The callback of %r failed", sent)
        returned = monotonic_ns()
        listeners = publish([sent])
        if queue is not None:
            with self._channel_state.lock:
                self._channel_state.callback_returned(queue, sent, go)
                self._channel_state.pool.flush()
                if self._channel_state.has_ends:
                    # The next request could not be sent, and has ended.
                    self.wake()
        self._notify(listeners)
        return returned

    def _trace(self, ended: list[Sent], *, traces: bool, debugs: bool) -> None:
        channel_state = self._channel_state
        config = channel_state.config
        with channel_state.lock:
            brokers = {broker_id: str(queue.target) for broker_id, queue in channel_state.by_id.items()}
        for sent in ended:
            outcome = sent.ending
            assert outcome is not None
            if outcome.response is None:
                continue
            if debugs:
                line = received_line(outcome, outcome.response, config.client_id_bytes.decode())
                client_log(config.controller_id, outcome.broker_id).debug("%s", line)
            if traces:
                log = StateChangeLogger(config.controller_id, outcome.request.controller_epoch)
                log.trace(response_line(outcome, outcome.response, brokers))

    def _log_notes(self, notes: list[Note], exits: list[tuple[int, int, int]]) -> None:
        for note in notes:
            self._write(note)
        for number, pid, exit_code in exits:
            if exit_code:
                how = f"exit code {exit_code}" if exit_code > 0 else f"signal {-exit_code}"
                line = "Sender process %d (pid %d) ended with %s"
                self._write(Note(self._log, logging.ERROR, line, (number, pid, how)))

    @staticmethod
    def _write(note: Note) -> None:
        # Filters and handlers of the program may raise anything.
        with suppress(BaseException):
            note.log.log(note.level, note.message, *note.arguments)

    # -- the end

    def _end(self) -> None:
        """Publish the last outcomes and free everything; then the channel's thread ends."""
        channel_state = self._channel_state
        with channel_state.lock:
            ended, channel_state.ended = channel_state.ended, []
            called, channel_state.called = channel_state.called, []
        try:
            self._publish(ended, called)
            if channel_state.recorder is not None:
                channel_state.recorder.close()
        finally:
            self._free()

    def _free(self) -> None:
        channel_state = self._channel_state
        with channel_state.lock, self._wake_lock:
            channel_state.waker = -1
            for sender in self._readers.values():
                # Its time to end by itself is over.
                sender.kill()
                sender.close()
            for sender in channel_state.pool.fresh:
                sender.close()
            channel_state.pool.close(self._deadline or monotonic() + _END)
            self._poller.close()
            channel_state.memory.close()
        os.close(self._woken)
        os.close(self._waker)
