"""A real ZooKeeper server for trying out and for tests: one process on loopback, with data that is not kept.

with ZooKeeperServer() as server:
    client = KazooClient(server.address)      # "127.0.0.1:PORT"
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from ctrlchan.closing import Closing
from ctrlchan.errors import ConfigError, ZooKeeperError
from ctrlchan.interpreter import child_command
from ctrlchan.java import find_java
from ctrlchan.zookeeper.server_jars import server_jars

__all__ = ["ZooKeeperServer", "serves_data"]

_HOST: Final = "127.0.0.1"
_MAIN_CLASS: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
#: A JVM that starts quickly and stays small. The data is thrown away, so no write waits for the disk.
_OPTIONS: Final = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xms32m", "-Xmx512m"),
    *("-Djava.net.preferIPv4Stack=true", "-Dzookeeper.forceSync=no"),
)
_LOG4J: Final = """\
log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
#: Free ports that are tried: another process may take one before the server listens on it.
_ATTEMPTS: Final = 5
_PAUSE_SECONDS: Final = 0.02
_CONNECT_SECONDS: Final = 2.0
_STOP_SECONDS: Final = 15.0
#: Lines of the server's log in an error.
_SHOWN_LINES: Final = 8


class ZooKeeperServer(Closing):
    """A ZooKeeper server that serves from construction to ``close``, for clients of this machine alone.

    ``port``: 0: a free one. ``tick_time``: seconds; sessions expire after 2 to 120 of them.
    ``start_timeout``: seconds. The server runs the jars of ``server_jars`` with the Java of ``find_java``; it
    has a temporary folder for its data. The server ends with this process, also when this process is killed,
    and its folder is removed then. Raises JavaNotFoundError, ConfigError for a port that is taken, and
    ZooKeeperError when there are no jars or the server does not start, with the end of its log.
    """

    def __init__(self, port: int = 0, *, tick_time: float = 0.5, start_timeout: float = 60.0) -> None:
        java = find_java()
        self._jars = server_jars()
        self._java = java
        self._tick_time = tick_time
        self._folder = Path(tempfile.mkdtemp(prefix="ctrlchan-zookeeper-"))
        self._process: subprocess.Popen[str] | None = None
        #: Process id of the server's Java.
        self.pid = -1
        deadline = time.monotonic() + start_timeout
        try:
            for attempt in range(_ATTEMPTS):
                self.port = port or _free_port()
                self._start()
                if self._is_serving_by(deadline, start_timeout):
                    return
                if port or attempt == _ATTEMPTS - 1:
                    raise ConfigError(f"zookeeper: {self.address} is in use")
                self._end_process()
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """``127.0.0.1:PORT``."""
        return f"{_HOST}:{self.port}"

    def log(self) -> str:
        """Return what the server has logged: warnings and errors."""
        try:
            return self._log_file.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def close(self) -> None:
        """End the server, and remove its data."""
        self._end_process()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def _log_file(self) -> Path:
        return self._folder / "server.log"

    def _start(self) -> None:
        """Start the server's process, on ``port``."""
        self._log_file.unlink(missing_ok=True)
        log4j, configuration = self._folder / "log4j.properties", self._folder / "zoo.cfg"
        log4j.write_text(_LOG4J)
        configuration.write_text(
            f"dataDir={self._data}\n"
            f"clientPort={self.port}\n"
            f"clientPortAddress={_HOST}\n"
            f"tickTime={round(self._tick_time * 1000)}\n"
            f"maxSessionTimeout={round(self._tick_time * 120_000)}\n"
            "maxClientCnxns=0\n"
            "admin.enableServer=false\n"
            "4lw.commands.whitelist=*\n"
        )
        jars = os.pathsep.join(map(str, self._jars))
        command = [str(self._java.program), *_OPTIONS]
        if any(jar.name.startswith("reload4j-") for jar in self._jars):
            # log4j 2 logs errors without being configured.
            command.append(f"-Dlog4j.configuration={log4j.as_uri()}")
        command += ["-cp", jars, _MAIN_CLASS, str(configuration)]
        settings = {"command": command, "folder": str(self._folder), "log": str(self._log_file)}
        self._process = subprocess.Popen(
            child_command("ctrlchan.zookeeper.server_child"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended
            self._process.stdin.write(json.dumps(settings) + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise ZooKeeperError(f"the process of the ZooKeeper server ended with {self._process.wait()}")
        self.pid = int(answer)

    def _is_serving_by(self, deadline: float, seconds: float) -> bool:
        """Wait until the server serves. Return False when its port is taken. Raises ZooKeeperError."""
        assert self._process is not None
        while not serves_data(_HOST, self.port, self._data):
            ended = self._process.poll() is not None
            # Another program may listen on the port and answer nothing.
            if ended and "BindException" in self.log():
                return False
            if ended or time.monotonic() > deadline:
                reason = "ended" if ended else f"does not serve after {seconds:g} s"
                lines = "\n".join(self.log().splitlines()[-_SHOWN_LINES:])
                raise ZooKeeperError(f"the ZooKeeper server {reason}: {lines or 'its log is empty'}")
            time.sleep(_PAUSE_SECONDS)
        return True

    def _end_process(self) -> None:
        process = self._process
        if process is None:
            return
        self._process = None
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended
            process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def serves_data(host: str, port: int, data: Path, timeout: float = _CONNECT_SECONDS) -> bool:
    """Return whether the server with this data directory serves there; another may have taken the port.

    ``timeout``: seconds for the connection and for each part of the answer.
    """
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            connection.sendall(b"conf")
            answer = b""
            while part := connection.recv(4096):
                answer += part
    except OSError:
        return False
    return f"dataDir={data}{os.sep}".encode() in answer


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
