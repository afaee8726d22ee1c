"""Runs sarama's functional tests at five brokers that are controllers, behind the ports that the tests name.

    unshare --net python -m tests.acceptance.sarama_tests FOLDER OPTION …

FOLDER has the programs ``sarama.test`` and ``toxiproxy``; the options are those of Go's tests. Toxiproxy
listens on ports 29091 to 29095 for the brokers 1 to 5; tests let it cut connections. Tests stop and start a
broker by a command ``docker-compose``: here a program of this name asks this process for it. The network
namespace makes the ports free. The brokers have the settings of sarama's own CI.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from ctrlchan.zookeeper.memory.server import MemoryZooKeeper
from tests.kafka.waiting import wait_until

BROKERS: Final = range(1, 6)
_FIRST_PROXY, _FIRST_PRIVATE, _FIRST_PUBLIC, _TOXIPROXY = 29090, 9090, 9190, 8474
_VERSION: Final = "3.6.0"
_SECONDS: Final = 60.0
_SETTINGS: Final = {
    "inter.broker.listener.name": "INTERNAL",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,LOCAL:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "default.replication.factor": "2",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "2",
    "zookeeper.session.timeout.ms": "6000",
}
#: The program ``docker-compose``: it sends its words to this process and waits for an answer.
_DOCKER: Final = """\
#!{python}
import socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({address!r})
    connection.sendall((" ".join(sys.argv[1:]) + "\\n").encode())
    sys.exit(connection.makefile().readline().strip() != "done")
"""


class _Brokers:
    """Five processes ``ctrlchan broker``, which can be stopped and started one by one."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self._folder = folder
        self._zookeeper = zookeeper
        self._processes: dict[int, subprocess.Popen[str]] = {}

    def start(self, number: int) -> None:
        """Start a broker, and wait until it answers."""
        private, public, proxy = _FIRST_PRIVATE + number, _FIRST_PUBLIC + number, _FIRST_PROXY + number
        settings = _SETTINGS | {
            "broker.id": str(number),
            "broker.rack": str(number),
            "listeners": f"INTERNAL://127.0.0.1:{private},LOCAL://127.0.0.1:{public}",
            "advertised.listeners": f"INTERNAL://127.0.0.1:{private},LOCAL://localhost:{proxy}",
            "log.dirs": str(self._folder / f"logs-{number}"),
            "zookeeper.connect": self._zookeeper,
        }
        file = self._folder / f"{number}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = [sys.executable, "-m", "ctrlchan", "broker", "--config", str(file), "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._processes[number] = process
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError(f"broker {number} has ended with status {process.wait()}")

    def stop(self, number: int) -> None:
        """Stop a broker, as SIGTERM does."""
        process = self._processes.pop(number)
        process.terminate()
        process.communicate(timeout=_SECONDS)

    def stop_all(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.communicate(timeout=_SECONDS)


def _make_proxy(number: int) -> None:
    """Let Toxiproxy listen for a broker."""
    proxy = {
        "name": f"kafka{number}",
        "listen": f"127.0.0.1:{_FIRST_PROXY + number}",
        "upstream": f"127.0.0.1:{_FIRST_PUBLIC + number}",
        "enabled": True,
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{_TOXIPROXY}/proxies",
        json.dumps(proxy).encode(),
        {"Content-Type": "application/json", "User-Agent": "toxiproxy-cli"},
    )
    with urllib.request.urlopen(request, timeout=_SECONDS):
        pass


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def _docker_server(address: Path, brokers: _Brokers) -> socketserver.ThreadingUnixStreamServer:
    """Return a server that does what the program ``docker-compose`` is asked for."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            word, service = self.rfile.readline().decode().split()
            actions: dict[str, Any] = {"start": brokers.start, "stop": brokers.stop}
            actions[word](int(service.removeprefix("kafka-")))
            self.wfile.write(b"done\n")

    return socketserver.ThreadingUnixStreamServer(str(address), Handler)


def main(folder: Path, options: list[str]) -> int:
    """Run the tests; return 0 if all of them pass."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with TemporaryDirectory() as temporary, MemoryZooKeeper() as zookeeper:
        brokers = _Brokers(Path(temporary), zookeeper.address)
        address, programs = Path(temporary, "docker"), Path(temporary, "programs")
        programs.mkdir()
        docker = programs / "docker-compose"
        docker.write_text(_DOCKER.format(python=sys.executable, address=str(address)))
        docker.chmod(0o700)
        toxiproxy = subprocess.Popen(
            [folder / "toxiproxy", "-host", "127.0.0.1", "-port", str(_TOXIPROXY)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            for number in BROKERS:
                brokers.start(number)
            wait_until(lambda: _listens(_TOXIPROXY), what="Toxiproxy listens")
            for number in BROKERS:
                _make_proxy(number)
            with _docker_server(address, brokers) as server:
                threading.Thread(target=server.serve_forever, daemon=True).start()
                environment = os.environ | {
                    "KAFKA_VERSION": _VERSION,
                    "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
                    "TOXIPROXY_ADDR": f"http://127.0.0.1:{_TOXIPROXY}",
                }
                command = [str(folder / "sarama.test"), "-test.v", "-test.timeout=1500s", *options]
                status = subprocess.run(command, cwd=folder, env=environment, check=False).returncode
                server.shutdown()
        finally:
            brokers.stop_all()
            toxiproxy.terminate()
            toxiproxy.wait()
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
