"""The parent's side of the sender processes: their pipes, and the fork server that starts them.

A sender that ends is replaced. If several end in a row without a response, the next one starts after a delay,
which doubles each time. So no broker is given up, and a machine in trouble is not kept busy.

Every method is called with the channel's lock held, except where its docstring says otherwise. The dispatcher
waits on the file descriptors.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import subprocess
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from time import monotonic
from typing import Final, Protocol

from ctrlchan.channel.config import AUTO, PER_BROKER, ChannelConfig
from ctrlchan.channel.queues._entries import CommandPipe, flush_all
from ctrlchan.channel.wire.records import COMMAND_HEAD, COMMAND_REST, CREDENTIALS, EXIT, START
from ctrlchan.channel.wire.settings import ConnectionSettings
from ctrlchan.errors import ChannelError
from ctrlchan.interpreter import above_standard, child_command

__all__ = ["SenderHandle", "SenderPool"]

_READ_BYTES: Final = 64 * 1024
#: More sender processes than this were not faster.
_AUTO_MOST: Final = 4
#: Seconds before the next sender after two ended without a response; doubled with each further one ...
_FIRST_DELAY: Final = 0.1
#: ... up to this. A sender that ran for so many seconds did not fail.
_MOST_DELAY: Final = 10.0
_MOST_DOUBLINGS: Final = 16
#: Seconds until the next attempt if the fork server's socket was full.
_START_AGAIN: Final = 0.005
#: Without SIGPIPE if the fork server is gone; macOS has no such flag.
_NO_SIGNAL: Final = getattr(socket, "MSG_NOSIGNAL", 0)
_NANOSECONDS: Final = 1_000_000_000

#: The module that the fork server runs; a name, as the parent does not import it.
_FORK_SERVER: Final = "ctrlchan.channel.senders.fork_server"


class ServedQueue(Protocol):
    """The part of a queue that a sender handle reads: its number of unfinished requests."""

    def __len__(self) -> int: ...


class SenderHandle(CommandPipe):
    """One sender process and the parent's ends of its two pipes.

    ``open`` makes the pipes. The process may start later; its commands wait in the pipe.
    """

    def __init__(self, pool: SenderPool, number: int, broker_id: int) -> None:
        super().__init__(pool.dirty, pool.full)
        self.number = number
        #: Its broker if it has a single one, else -1.
        self.broker_id = broker_id
        self.pid = 0
        #: Its brokers' queues by slot.
        self.queues: dict[int, ServedQueue] = {}
        #: Slots of removed brokers for which it has not yet reported REMOVED.
        self.leaving: set[int] = set()
        #: Senders before it that ended in a row without a response.
        self.failures = 0
        self.has_responded = False
        #: Whether requests may be handed over. After a failure only when the process has started.
        self.takes_requests = False
        #: Monotonic seconds: when it may start, and when it started.
        self.start_at = 0.0
        self.started_at = 0.0
        self.unread = b""
        #: Checks of the watchdog since its last report; 0 if it has no work.
        self.silent = 0
        self.reports = -1
        #: The sender's ends of the pipes, until the fork server has them.
        self.theirs: tuple[int, int] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the pipes are made."""
        return self.reports >= 0

    def open(self) -> None:
        """Make the pipes. Raises OSError if the system has none."""
        theirs_commands, commands = _pipe()
        try:
            reports, theirs_reports = _pipe()
        except OSError:
            os.close(theirs_commands)
            os.close(commands)
            raise
        os.set_blocking(commands, False)
        os.set_blocking(reports, False)
        self.commands, self.reports = commands, reports
        self.theirs = (theirs_commands, theirs_reports)

    def read(self) -> bytes | None:
        """Return report records, or None if the process is gone. No lock is needed."""
        try:
            data = os.read(self.reports, _READ_BYTES)
        except BlockingIOError:
            return self.unread
        if not data:
            return None
        self.silent = 0
        return self.unread + data if self.unread else data

    def has_work(self) -> bool:
        """Whether the sender has something to do and to report, which may be its end."""
        return self.commands < 0 or bool(self.leaving) or any(map(len, self.queues.values()))

    def ask(self, record: bytes) -> None:
        """Write a command, unless the command pipe is closed."""
        if self.commands >= 0:
            self.write(record)

    def kill(self) -> None:
        """Kill the process. While its end of the report pipe is open, its pid is not used again."""
        if self.pid > 0 and self.reports >= 0:
            poll = select.poll()
            poll.register(self.reports, 0)
            if not poll.poll(0):
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)

    def close_commands(self) -> None:
        """Close the command pipe, so that the sender ends. For the dispatcher only."""
        if self.commands >= 0:
            os.close(self.commands)
            self.commands = -1
        self.drop_commands()

    def close(self) -> None:
        """Close all pipes."""
        self.close_commands()
        if self.reports >= 0:
            os.close(self.reports)
            self.reports = -1
        self.close_theirs()

    def close_theirs(self) -> None:
        """Close the sender's ends of the pipes in this process."""
        if self.theirs is not None:
            for fd in self.theirs:
                os.close(fd)
            self.theirs = None


class SenderPool:
    """The sender processes of a channel and their fork server.

    ``shared``: file descriptor of the shared memory.
    """

    def __init__(self, config: ChannelConfig, shared: int) -> None:
        self._config = config
        self._shared = shared
        self._shared_by = _shared_by(config)
        self._last_number = 0
        # The first command of a sender, sent again after ``reload``; empty: there are no credentials.
        self._credentials = _credentials_record(config)
        self.senders: dict[int, SenderHandle] = {}
        #: Senders with commands to flush. The other lists are for the dispatcher, because only it may change
        #: its poller: senders with a full pipe, new senders, and senders that shall end.
        self.dirty: list[CommandPipe] = []
        self.full: list[CommandPipe] = []
        self.fresh: list[SenderHandle] = []
        self.ending: list[SenderHandle] = []
        # Senders that are not yet handed to the fork server.
        self._to_start: list[SenderHandle] = []
        self._fork_server: subprocess.Popen[bytes] | None = None
        #: How many fork servers were started.
        self.fork_servers = 0
        self._control: socket.socket | None = None
        self._exits = b""
        #: Senders that could not start, with the reason, for the log.
        self.problems: list[tuple[SenderHandle, Exception]] = []

    def senders_for(self, broker_ids: Sequence[int]) -> list[SenderHandle]:
        """Return a sender for each of these brokers: its own, or the shared one with the fewest brokers.

        Raises ChannelError if the system has no more pipes or processes; then nothing has changed.
        """
        load = {sender: len(sender.queues) for sender in self.senders.values()}
        chosen: list[SenderHandle] = []
        made: list[SenderHandle] = []
        try:
            for broker_id in broker_ids:
                if self._shared_by and len(load) >= self._shared_by:
                    sender = min(load, key=load.__getitem__)
                else:
                    sender = self._new(-1 if self._shared_by else broker_id)
                    made.append(sender)
                    self._open(sender)
                    sender.takes_requests = True
                load[sender] = load.get(sender, 0) + 1
                chosen.append(sender)
            if made and self._control is None:
                self._start_fork_server()
        except (OSError, ChannelError) as problem:
            for sender in made:
                self.forget(sender)
                sender.close()
            if isinstance(problem, ChannelError):
                raise
            raise ChannelError(
                f"no pipes for {len(broker_ids)} more brokers: {problem} (fewer processes serve all brokers "
                f"with senders={AUTO!r})"
            ) from problem
        return chosen

    def replace(self, sender: SenderHandle) -> SenderHandle:
        """Return a successor for an ended sender; ``start`` starts it when its start time has come."""
        successor = self._new(sender.broker_id)
        now = monotonic()
        has_lasted = sender.started_at > 0 and now - sender.started_at >= _MOST_DELAY
        successor.failures = 0 if sender.has_responded or has_lasted else sender.failures + 1
        self._delay(successor)
        return successor

    def _new(self, broker_id: int) -> SenderHandle:
        self._last_number += 1
        sender = SenderHandle(self, self._last_number, broker_id)
        self.senders[sender.number] = sender
        self._to_start.append(sender)
        return sender

    def _open(self, sender: SenderHandle) -> None:
        sender.open()
        if self._credentials:
            sender.write(self._credentials)
        self.fresh.append(sender)

    @staticmethod
    def _delay(sender: SenderHandle) -> None:
        delay = 0.0
        if sender.failures > 1:
            delay = min(_MOST_DELAY, _FIRST_DELAY * 2.0 ** min(sender.failures - 2, _MOST_DOUBLINGS))
        sender.start_at = monotonic() + delay

    def reload(self, config: ChannelConfig) -> None:
        """Use these credentials for new connections."""
        self._config = config
        self._credentials = _credentials_record(config)
        for sender in self.senders.values():
            if sender.is_open:
                sender.write(self._credentials)

    def forget(self, sender: SenderHandle) -> None:
        """Remove a sender that has ended or never started."""
        self.senders.pop(sender.number, None)
        if sender in self._to_start:
            self._to_start.remove(sender)
        if sender in self.fresh:
            self.fresh.remove(sender)

    def end(self, sender: SenderHandle) -> None:
        """Have a sender end when it has read its commands."""
        self.senders.pop(sender.number, None)
        if sender.is_open:
            self.ending.append(sender)
        else:
            self.forget(sender)

    def flush(self) -> None:
        """Write the queued commands of all senders; never blocks."""
        flush_all(self.dirty)

    # -- the fork server

    @property
    def control(self) -> int:
        """Descriptor of the socket to the fork server, or -1."""
        return -1 if self._control is None else self._control.fileno()

    def seconds_to_start(self) -> float | None:
        """Return the seconds until ``start`` can start another sender, or None if there is none to start."""
        if not self._to_start:
            return None
        return max(_START_AGAIN, min(sender.start_at for sender in self._to_start) - monotonic())

    def start(self) -> list[SenderHandle]:
        """Hand the senders whose start time has come to the fork server, as many as it takes now.

        Returns those that take requests at once: the senders without failed predecessors. A sender that
        cannot start is delayed, and added to ``problems``.
        """
        opened: list[SenderHandle] = []
        if not self._to_start:
            return opened
        now = monotonic()
        for sender in [sender for sender in self._to_start if sender.start_at <= now]:
            try:
                if not sender.is_open:
                    self._open(sender)
                    if sender.failures == 0:
                        opened.append(sender)
                if not self._hand_over(sender):
                    break
            except (OSError, ChannelError) as problem:
                sender.failures += 1
                self._delay(sender)
                self.problems.append((sender, problem))
                continue
            sender.started_at = now
            self._to_start.remove(sender)
        return opened

    def _hand_over(self, sender: SenderHandle) -> bool:
        """Send the sender's pipes to the fork server. False: its socket is full."""
        if sender.theirs is not None:
            if self._control is None:
                self._start_fork_server()
            assert self._control is not None
            message = START.pack(sender.number, sender.broker_id)
            try:
                # socket.send_fds ignores its flags.
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", sender.theirs))
                self._control.sendmsg([message], [rights], _NO_SIGNAL)
            except BlockingIOError:
                return False
            except OSError as problem:
                if problem.errno == errno.ETOOMANYREFS:
                    return False
                # The fork server is gone. Senders that it has not started end too, and are replaced.
                self.drop_fork_server()
            sender.close_theirs()
        return True

    def _start_fork_server(self) -> None:
        config = self._config
        ours, theirs = (socket.socket(fileno=above_standard(end.detach())) for end in socket.socketpair())
        shared = above_standard(os.dup(self._shared))
        given = {
            "control": theirs.fileno(),
            "shared": shared,
            "parent": os.getpid(),
            "controller_id": config.controller_id,
            "modules": config.credentials.modules(),
            "settings": asdict(_connection_settings(config)),
        }
        try:
            self._fork_server = subprocess.Popen(
                child_command(_FORK_SERVER, json.dumps(given)),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), shared),
                # Ctrl-C in the terminal must reach the parent only.
                process_group=0,
            )
        except OSError as problem:
            ours.close()
            raise ChannelError(f"no process for the senders: {problem}") from problem
        finally:
            theirs.close()
            os.close(shared)
        ours.setblocking(False)
        self._control = ours
        self.fork_servers += 1

    def read_exits(self) -> list[tuple[int, int, int]]:
        """Return (number, pid, exit code) of each ended sender."""
        if self._control is None:
            return []
        try:
            data = self._control.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.drop_fork_server()
            return []
        data = self._exits + data
        complete = len(data) - len(data) % EXIT.size
        self._exits = data[complete:]
        return [(number, pid, code) for number, pid, code in EXIT.iter_unpack(data[:complete])]

    def drop_fork_server(self) -> None:
        """Kill the fork server; ``start`` makes another one.

        Senders that it has not started end with it. Running senders stay.
        """
        if self._control is not None:
            self._control.close()
            self._control = None
        self._exits = b""
        fork_server, self._fork_server = self._fork_server, None
        if fork_server is not None:
            fork_server.kill()
            fork_server.wait()

    # -- shutdown

    def end_all(self) -> None:
        """Have all senders end when they have read their commands."""
        for sender in list(self.senders.values()):
            self.end(sender)

    def close(self, deadline: float) -> None:
        """End all processes; those left at ``deadline`` (monotonic seconds) are killed."""
        for sender in self.senders.values():
            sender.close()
        self.senders.clear()
        self._to_start.clear()
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._fork_server is not None:
            # The fork server kills senders that do not end by themselves.
            with suppress(subprocess.TimeoutExpired):
                self._fork_server.wait(max(0.0, deadline - monotonic()))
        self.drop_fork_server()

    def kill(self) -> None:
        """Kill the fork server. May be called without the lock."""
        fork_server = self._fork_server
        if fork_server is not None:
            fork_server.kill()
            fork_server.wait()


def _pipe() -> tuple[int, int]:
    """Return the read and the write end of a new pipe; neither is a standard descriptor."""
    read, write = os.pipe()
    return above_standard(read), above_standard(write)


def _shared_by(config: ChannelConfig) -> int:
    """Return how many senders share the brokers; 0: each broker has its own."""
    if config.senders == PER_BROKER:
        return 0
    if config.senders == AUTO:
        return min(os.cpu_count() or 1, _AUTO_MOST)
    assert isinstance(config.senders, int)
    return config.senders


def _credentials_record(config: ChannelConfig) -> bytes:
    if not config.credentials.are_needed:
        return b""
    following = config.credentials.to_json()
    rest = COMMAND_REST.pack(0, 0, 0, 0, b"", len(following))
    return COMMAND_HEAD.pack(CREDENTIALS, 0, 0, 0, 0) + rest + following


def _connection_settings(config: ChannelConfig) -> ConnectionSettings:
    return ConnectionSettings(
        connection_setup_timeout=int(config.connection_setup_timeout * _NANOSECONDS),
        connection_setup_timeout_max=int(config.connection_setup_timeout_max * _NANOSECONDS),
        socket_timeout=int(config.socket_timeout * _NANOSECONDS),
        request_timeout=int(config.request_timeout * _NANOSECONDS),
        retry_backoff=int(config.retry_backoff * _NANOSECONDS),
        max_response_bytes=config.max_response_bytes,
    )
