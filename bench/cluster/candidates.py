"""The two controllers as processes that take part in ZooKeeper's election: Kafka's broker and ours."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from bench.cluster.zookeeper import SESSION_TIMEOUT
from bench.peers.kafka_command import kafka_command
from bench.peers.place import LOCAL, Place
from tests.kafka.ports import free_port
from tests.kafka.processes import Child, Reaper

__all__ = ["KAFKA_ID", "OUR_ID", "Candidate", "Kafka", "Ours"]

KAFKA_ID: Final = 1000
OUR_ID: Final = 1001
#: The heap that Kafka's documentation recommends.
_KAFKA_HEAP: Final = "-Xmx6g"


class Candidate(Protocol):
    """A controller that is elected whenever there is no other and it runs."""

    controller_id: int
    #: Where brokers send AlterPartition.
    address: tuple[str, int]

    @property
    def pid(self) -> int: ...

    def check_alive(self) -> None:
        """Raise RuntimeError when the process has ended."""

    def resume(self) -> None:
        """Let the controller run; it is elected as soon as there is no other."""

    def pause(self) -> None:
        """Keep the controller from running. What it has in ZooKeeper may stay there."""


class Kafka:
    """A Kafka 3.9.1 broker, which stays the same warm process: it is paused by SIGSTOP.

    Its session is longer than any pause. Its registration is to be deleted: then it is a controller and
    nothing else, and has no UpdateMetadata to read itself. ``address`` is to be taken from it. ``configs``:
    more settings.
    """

    controller_id = KAFKA_ID
    address = ("", 0)

    def __init__(
        self,
        folder: Path,
        zookeeper: str,
        reaper: Reaper,
        place: Place = LOCAL,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True)
        properties = {
            "broker.id": str(KAFKA_ID),
            "broker.rack": "rack-0",
            "zookeeper.connect": zookeeper,
            "zookeeper.session.timeout.ms": str(int(SESSION_TIMEOUT * 1000)),
            "log.dirs": str(folder / "data"),
            "listeners": f"PLAINTEXT://{place.address}:0",
            "auto.leader.rebalance.enable": "false",
            "controlled.shutdown.enable": "false",
            **(configs or {}),
        }
        configuration = folder / "server.properties"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command = kafka_command(configuration, _KAFKA_HEAP)
        self._child = Child("Kafka's controller", [*place.prefix, *command], folder / "output.log", reaper)

    @property
    def pid(self) -> int:
        return self._child.pid

    def check_alive(self) -> None:
        self._child.check_alive()

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def close(self) -> None:
        self._child.kill()


class Ours:
    """``ctrlchan controller``, a new process after each pause."""

    controller_id = OUR_ID

    def __init__(self, folder: Path, zookeeper: str, reaper: Reaper, place: Place = LOCAL) -> None:
        folder.mkdir(parents=True)
        self._place = place
        self._folder = folder
        self._zookeeper = zookeeper
        self._reaper = reaper
        self._child: Child | None = None
        self.address = (place.address, free_port())

    @property
    def pid(self) -> int:
        assert self._child is not None, "the controller does not run"
        return self._child.pid

    def check_alive(self) -> None:
        assert self._child is not None, "the controller does not run"
        self._child.check_alive()

    def resume(self) -> None:
        configuration = self._folder / "server.properties"
        configuration.write_text(
            f"zookeeper.session.timeout.ms={int(SESSION_TIMEOUT * 1000)}\n"
            "auto.leader.rebalance.enable=false\n"
        )
        command = [
            *self._place.prefix,
            sys.executable,
            "-m",
            "ctrlchan",
            "controller",
            f"--zookeeper={self._zookeeper}",
            f"--id={OUR_ID}",
            f"--listen={':'.join(map(str, self.address))}",
            f"--config={configuration}",
            "--rack=rack-0",
        ]
        self._child = Child("our controller", command, self._folder / "output.log", self._reaper)

    def pause(self) -> None:
        """End the process, as an administrator does; it deletes its nodes."""
        assert self._child is not None, "the controller does not run"
        self._child.terminate()
        self._child = None

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
