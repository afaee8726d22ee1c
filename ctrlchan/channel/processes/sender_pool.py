"""The sender processes as the parent sees them: pipes, and the fork server that bears and buries them.

Every method is called with the channel's lock held, except where it says otherwise. The dispatcher waits on
the file descriptors.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import subprocess
from collections import deque
from contextlib import suppress
from dataclasses import asdict
from time import monotonic
from typing import TYPE_CHECKING, Final

from ctrlchan.channel.config import AUTO, PER_BROKER, ChannelConfig
from ctrlchan.channel.wire.records import BIRTH, COMMAND_HEAD, COMMAND_REST, CREDENTIALS, DEATH
from ctrlchan.channel.wire.settings import ConnectionSettings
from ctrlchan.errors import ChannelError
from ctrlchan.interpreter import above_standard, child_command

if TYPE_CHECKING:
    from ctrlchan.channel.queues.broker_queue import BrokerQueue

__all__ = ["SenderHandle", "SenderPool"]

_READ_BYTES: Final = 64 * 1024
#: More processes than this only get in each other's way.
_AUTO_MOST: Final = 4
_NANOSECONDS: Final = 1_000_000_000

#: The module that the fork server runs; a name, as the parent does not import it.
_FORK_SERVER: Final = "ctrlchan.channel.senders.fork_server"


class SenderHandle:
    """One sender process and the parent's ends of its two pipes.

    It exists from the moment its pipes do; the process may come later and finds its commands there.
    """

    def __init__(self, pool: SenderPool, number: int, broker_id: int) -> None:
        self._pool = pool
        self.number = number
        #: The one broker it serves, or -1.
        self.broker_id = broker_id
        self.pid = 0
        self.queues: dict[int, BrokerQueue] = {}
        #: Slots that it was told to forget and has not yet forgotten.
        self.leaving: set[int] = set()
        #: Predecessors that ended without having brought a single response.
        self.failures = 0
        self.has_responded = False
        self.unread = b""
        #: Looks of the watchdog since it last said anything; 0 when there is nothing to say.
        self.silent = 0
        #: The command pipe is full; the dispatcher flushes when it no longer is.
        self.blocked = False
        self._outgoing: list[bytes] = []
        theirs_commands, self.commands = _pipe()
        try:
            self.reports, theirs_reports = _pipe()
        except OSError:
            os.close(theirs_commands)
            os.close(self.commands)
            raise
        os.set_blocking(self.commands, False)
        os.set_blocking(self.reports, False)
        self.theirs: tuple[int, int] | None = (theirs_commands, theirs_reports)

    def write(self, record: bytes) -> None:
        """Queue a command; ``SenderPool.flush`` sends it."""
        if not self._outgoing and not self.blocked:
            self._pool.dirty.append(self)
        self._outgoing.append(record)

    def flush(self) -> None:
        outgoing = self._outgoing
        if not outgoing or self.commands < 0:
            return
        data = outgoing[0] if len(outgoing) == 1 else b"".join(outgoing)
        try:
            count = os.write(self.commands, data)
        except BlockingIOError:
            count = 0
        except BrokenPipeError:
            # It is gone; the end of its reports says so to the dispatcher.
            count = len(data)
        outgoing.clear()
        self.blocked = count < len(data)
        if self.blocked:
            outgoing.append(data[count:])
            self._pool.blocked.append(self)

    def read(self) -> bytes | None:
        """Whole and partial report records; None when the process is gone. Needs no lock."""
        try:
            data = os.read(self.reports, _READ_BYTES)
        except BlockingIOError:
            return self.unread
        if not data:
            return None
        self.silent = 0
        return self.unread + data if self.unread else data

    def owes(self) -> bool:
        """Whether something is to be heard from it, be it that it ends."""
        return self.commands < 0 or bool(self.leaving) or any(map(len, self.queues.values()))

    def ask(self, record: bytes) -> None:
        """``write``, where it can still be told anything."""
        if self.commands >= 0:
            self.write(record)

    def kill(self) -> None:
        """End it now. While it holds its end of the pipe, its pid is nobody else's."""
        if self.pid > 0 and self.reports >= 0:
            poll = select.poll()
            poll.register(self.reports, 0)
            if not poll.poll(0):
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)

    def close_commands(self) -> None:
        """Without its command pipe it ends. For the dispatcher only."""
        if self.commands >= 0:
            os.close(self.commands)
            self.commands = -1
        self._outgoing.clear()

    def close(self) -> None:
        self.close_commands()
        if self.reports >= 0:
            os.close(self.reports)
            self.reports = -1
        self.close_theirs()

    def close_theirs(self) -> None:
        if self.theirs is not None:
            for fd in self.theirs:
                os.close(fd)
            self.theirs = None


class SenderPool:
    """``shared``: file descriptor of the shared memory."""

    def __init__(self, config: ChannelConfig, shared: int) -> None:
        self._config = config
        self._shared = shared
        self._shared_by = _shared_by(config)
        self._last_number = 0
        # The first that a sender is told, and told again when it has changed; empty: nothing.
        self._credentials = _credentials_record(config)
        self.senders: dict[int, SenderHandle] = {}
        #: Senders with commands to flush. The others are for the dispatcher, which alone closes what its
        #: poller may know: senders with a full pipe, new ones, and those that shall end.
        self.dirty: list[SenderHandle] = []
        self.blocked: list[SenderHandle] = []
        self.fresh: list[SenderHandle] = []
        self.ending: list[SenderHandle] = []
        # Not yet handed to the fork server.
        self._unborn: deque[SenderHandle] = deque()
        self._fork_server: subprocess.Popen[bytes] | None = None
        #: How many fork servers there were.
        self.fork_servers = 0
        self._control: socket.socket | None = None
        self._deaths = b""

    def sender_for(self, broker_id: int) -> SenderHandle:
        """The process that shall serve this broker: its own, or the one with the fewest brokers.

        Raises ChannelError when the platform gives no more pipes.
        """
        if self._shared_by and len(self.senders) >= self._shared_by:
            return min(self.senders.values(), key=lambda sender: len(sender.queues))
        return self._new(-1 if self._shared_by else broker_id)

    def replace(self, sender: SenderHandle) -> SenderHandle:
        """A successor for one that ended."""
        successor = self._new(sender.broker_id)
        successor.failures = 0 if sender.has_responded else sender.failures + 1
        return successor

    def _new(self, broker_id: int) -> SenderHandle:
        self._last_number += 1
        try:
            sender = SenderHandle(self, self._last_number, broker_id)
        except OSError as problem:
            raise ChannelError(
                f"no pipes for another sender process: {problem} (fewer processes serve all brokers with "
                f"senders={AUTO!r})"
            ) from problem
        if self._credentials:
            sender.write(self._credentials)
        self.senders[sender.number] = sender
        self.fresh.append(sender)
        self._unborn.append(sender)
        return sender

    def reload(self, config: ChannelConfig) -> None:
        """Connections from now on are made with these credentials."""
        self._config = config
        self._credentials = _credentials_record(config)
        for sender in self.senders.values():
            sender.write(self._credentials)

    def forget(self, sender: SenderHandle) -> None:
        """It has ended."""
        self.senders.pop(sender.number, None)

    def end(self, sender: SenderHandle) -> None:
        """Have it end when it has read its commands."""
        self.forget(sender)
        self.ending.append(sender)

    def flush(self) -> None:
        """Write what was queued for any sender; never blocks."""
        for sender in self.dirty:
            sender.flush()
        self.dirty.clear()

    # -- the fork server

    @property
    def control(self) -> int:
        """The socket that tells of ends, or -1."""
        return -1 if self._control is None else self._control.fileno()

    @property
    def has_unborn(self) -> bool:
        return bool(self._unborn)

    def bear(self) -> None:
        """Hand to the fork server what it takes now of the senders to be started; again while
        ``has_unborn``."""
        while self._unborn:
            sender = self._unborn[0]
            if sender.theirs is not None:
                if self._control is None:
                    self._start_fork_server()
                assert self._control is not None
                message = BIRTH.pack(sender.number, sender.broker_id)
                try:
                    socket.send_fds(self._control, [message], list(sender.theirs))
                except BlockingIOError:
                    return
                except OSError as problem:
                    if problem.errno == errno.ETOOMANYREFS:
                        return
                    # The fork server is gone: the senders in its hands end as well, and are replaced.
                    self._drop_fork_server()
                sender.close_theirs()
            self._unborn.popleft()

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
                # The terminal's Ctrl-C is the parent's business.
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

    def read_deaths(self) -> list[tuple[int, int, int]]:
        """(number, pid, exit code) of senders that have ended."""
        if self._control is None:
            return []
        try:
            data = self._control.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self._drop_fork_server()
            return []
        data = self._deaths + data
        whole = len(data) - len(data) % DEATH.size
        self._deaths = data[whole:]
        return [(number, pid, code) for number, pid, code in DEATH.iter_unpack(data[:whole])]

    def replace_fork_server(self) -> None:
        """It hangs. What it has not yet borne ends with it; the senders that are up stay."""
        self._drop_fork_server()

    def _drop_fork_server(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        self._deaths = b""
        fork_server, self._fork_server = self._fork_server, None
        if fork_server is not None:
            fork_server.kill()
            fork_server.wait()

    # -- the end

    def end_all(self) -> None:
        for sender in list(self.senders.values()):
            self.end(sender)

    def close(self, deadline: float) -> None:
        """No process is left when it returns, at ``deadline`` (monotonic seconds) at the latest."""
        for sender in self.senders.values():
            sender.close()
        self.senders.clear()
        self._unborn.clear()
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._fork_server is not None:
            # It kills what does not end by itself.
            with suppress(subprocess.TimeoutExpired):
                self._fork_server.wait(max(0.0, deadline - monotonic()))
        self._drop_fork_server()

    def kill(self) -> None:
        """The fork server ends now. For use without the lock."""
        fork_server = self._fork_server
        if fork_server is not None:
            fork_server.kill()
            fork_server.wait()


def _pipe() -> tuple[int, int]:
    """A pipe's read and write end, neither with the number of a standard descriptor."""
    read, write = os.pipe()
    return above_standard(read), above_standard(write)


def _shared_by(config: ChannelConfig) -> int:
    """How many processes share the brokers; 0: each broker has its own."""
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
