"""Runs ``ctrlchan`` commands in forks of a process that has imported everything.

``python -m tests.kafka_tests.fork_server SOCKET`` prints ``ready`` when it listens on the Unix socket, and
ends when its standard input is closed. Each connection is one command: its first line is JSON with
``arguments``, ``log`` (a file that standard error is appended to) and ``environment`` (further variables);
the lines ``stop`` and ``kill`` send SIGTERM and SIGKILL. What comes back is the command's standard output;
the connection is closed when the command has ended. A connection that the other side closes kills its
command.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from ctrlchan.interpreter import ONE_BLAS_THREAD

#: The modules that ``ctrlchan broker`` and ``ctrlchan controller`` import when they run.
_MODULES: Final = (
    "ctrlchan.broker.server",
    "ctrlchan.cli.broker",
    "ctrlchan.cli.broker_properties",
    "ctrlchan.cli.commands",
    "ctrlchan.cli.controller",
    "ctrlchan.cli.progress",
    "ctrlchan.cli.run",
    "ctrlchan.controller.kafka_controller",
    "ctrlchan.controller.settings.properties",
    "ctrlchan.controller.status.metrics",
    "ctrlchan.controller.status.recent",
    "ctrlchan.journal",
    "ctrlchan.launch.controlling",
    "ctrlchan.launch.registration",
    "ctrlchan.launch.runner",
)
_SIGNALS: Final = {b"stop": signal.SIGTERM, b"kill": signal.SIGKILL}
_MAX_LINE: Final = 1 << 20
_LAST_STANDARD: Final = 2
_PR_SET_PDEATHSIG: Final = 1


@dataclass
class _Command:
    """A child process. ``exited``: a descriptor that is readable when it has ended."""

    pid: int
    exited: int
    connection: socket.socket
    received: bytes = b""

    def send(self, number: int) -> None:
        # Its process id is not used again before it was waited for.
        os.kill(self.pid, number)


class ForkServer:
    """Accepts connections and forks. It has one thread, so that a fork has no locks of others."""

    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen()
        self._selector = selectors.DefaultSelector()
        self._commands: dict[int, _Command] = {}
        self._ended = False
        self._watch(self._listener.fileno(), self._accept)
        self._watch(0, self._end)

    def serve(self) -> None:
        """Serve until standard input is closed; then kill all commands."""
        print("ready", flush=True)
        while not self._ended:
            for key, _ in self._selector.select():
                # An earlier one of these events may have removed it.
                if key.fd in self._selector.get_map():
                    key.data()
        for command in self._commands.values():
            command.send(signal.SIGKILL)

    def _watch(self, descriptor: int, callback: Callable[[], None]) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, callback)

    def _end(self) -> None:
        self._ended = not os.read(0, 1024)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        try:
            line = connection.makefile("rb", buffering=0).readline(_MAX_LINE)
            wanted = json.loads(line)
            pid = os.fork()
        except (OSError, ValueError) as error:
            print(f"fork server: {error!r}", file=sys.stderr, flush=True)
            connection.close()
            return
        if pid == 0:
            os.environ.update(wanted["environment"])
            self._run(connection, wanted["arguments"], wanted["log"])
        command = _Command(pid, os.pidfd_open(pid), connection)
        self._commands[pid] = command
        self._watch(connection.fileno(), lambda: self._receive(command))
        self._watch(command.exited, lambda: self._reap(command))

    def _receive(self, command: _Command) -> None:
        try:
            received = command.connection.recv(1024)
        except OSError:
            received = b""
        if not received:
            self._selector.unregister(command.connection.fileno())
            command.send(signal.SIGKILL)
            return
        *lines, command.received = (command.received + received).split(b"\n")
        for line in lines:
            command.send(_SIGNALS[line])

    def _reap(self, command: _Command) -> None:
        os.waitpid(command.pid, 0)
        del self._commands[command.pid]
        self._selector.unregister(command.exited)
        os.close(command.exited)
        if command.connection.fileno() in self._selector.get_map():
            self._selector.unregister(command.connection.fileno())
        command.connection.close()

    def _run(self, connection: socket.socket, arguments: list[str], log: str) -> None:
        """Become the command, in a child process. Never returns."""
        status = 1
        try:
            os.setpgid(0, 0)
            # A fork server that is killed takes its commands with it.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            null = os.open(os.devnull, os.O_RDONLY)
            errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            for source, target in ((null, 0), (connection.fileno(), 1), (errors, 2)):
                os.dup2(source, target)
            watched = [key.fd for key in self._selector.get_map().values()]
            self._selector.close()
            for descriptor in [*watched, connection.fileno(), null, errors]:
                if descriptor > _LAST_STANDARD:
                    os.close(descriptor)
            status = _status_of(arguments)
        except BaseException:  # noqa: BLE001 - this process must not return to the fork server's loop
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)


def _status_of(arguments: list[str]) -> int:
    from ctrlchan.cli import main

    try:
        main(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0


def main() -> None:
    """Import what the commands need, and serve."""
    # kio would import Hypothesis where it is installed.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    os.environ.setdefault(*ONE_BLAS_THREAD)
    for name in _MODULES:
        import_module(name)
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        sys.exit(f"fork server: {threads} threads after the imports")
    # The objects' pages stay shared with the forks.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ForkServer(sys.argv[1]).serve()


if __name__ == "__main__":
    main()
