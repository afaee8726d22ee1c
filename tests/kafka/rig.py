"""A ZooKeeper and some Kafka brokers in ZooKeeper mode, for tests: on free ports of 127.0.0.1, in one folder.

    with KafkaRig(tmp_path, brokers=3) as rig:
        rig.bootstrap                   # "127.0.0.1:40001,127.0.0.1:40002,127.0.0.1:40003"
        rig.broker(2).epoch             # the czxid of /brokers/ids/2
        rig.kill_broker(2)              # SIGKILL; returns when ZooKeeper has let go of it
        rig.restart_broker(2)           # same ports, same data, a new broker epoch

Everything is ready when ``start`` returns: brokers are registered and answer ApiVersions. An error contains
the last lines of the log that shows its cause.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ctrlchan.zookeeper.server import serves_data
from tests.kafka import class_archive
from tests.kafka.configuration import (
    SESSION_TIMEOUT,
    broker_properties,
    write_broker_configuration,
    write_zookeeper_configuration,
)
from tests.kafka.jars import java_command
from tests.kafka.ports import free_port
from tests.kafka.processes import Child, Reaper, last_lines
from tests.kafka.waiting import wait_until
from tests.kafka.wire import answers_api_versions

START_TIMEOUT = 90.0  # s; three brokers need 2 to 8 on two idle cores

_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true")
_ZOOKEEPER_HEAP = ("-Xms32m", "-Xmx128m")
_BROKER_HEAP = ("-Xms96m", "-Xmx256m")


@dataclass(frozen=True)
class BrokerEndpoint:
    listener: str
    host: str
    port: int


@dataclass(frozen=True)
class RegisteredBroker:
    """A broker as ZooKeeper has it; ``epoch`` is its registration's czxid."""

    id: int
    epoch: int
    endpoints: tuple[BrokerEndpoint, ...]

    def endpoint(self, listener: str) -> BrokerEndpoint:
        return next(e for e in self.endpoints if e.listener == listener)


@dataclass
class _BrokerPlace:
    """A broker's folder and what is known of it before it runs. ``ours``: it is a ``ctrlchan broker``."""

    id: int
    folder: Path
    ports: dict[str, int]
    ours: bool
    child: Child | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"


class KafkaRig:
    """ZooKeeper and ``brokers`` Kafka brokers with the ids 1 to N; a context manager.

    ``inter_broker_listener``: None for one listener, PLAINTEXT, for all; otherwise the name of a second
    listener that brokers and controller use among themselves. ``listeners`` are further ones, name to
    security protocol. ``properties`` are server.properties for every broker, ``broker_properties`` for one
    id; they win over the rig's own. ``before_brokers`` is called when ZooKeeper is up and no broker yet.
    ``jvm_options``: of all processes. ``ours``: ids of brokers that are a ``ctrlchan broker`` with the same
    server.properties; ``ours_take_part``: in elections of the controller.
    """

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 3,
        inter_broker_listener: str | None = None,
        listeners: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        broker_properties: Mapping[int, Mapping[str, str]] | None = None,
        before_brokers: Callable[[KafkaRig], None] | None = None,
        jvm_options: Sequence[str] = class_archive.JVM_OPTIONS,
        ours: Collection[int] = (),
        ours_take_part: bool = False,
    ) -> None:
        self.folder = folder
        self.inter_broker_listener = inter_broker_listener or "PLAINTEXT"
        self._listeners = dict.fromkeys(["PLAINTEXT", self.inter_broker_listener], "PLAINTEXT")
        self._listeners |= listeners or {}
        self._before_brokers = before_brokers
        self._jvm_options = tuple(jvm_options)
        self._our_options = () if ours_take_part else ("--no-controller",)
        self._properties = dict(properties or {})
        self._broker_properties = {i: dict(p) for i, p in (broker_properties or {}).items()}
        # Port 0 at first: the broker takes a free one and registers it. A restart asks for the same again.
        self._places = {
            i: _BrokerPlace(i, folder / f"broker-{i}", dict.fromkeys(self._listeners, 0), i in ours)
            for i in range(1, brokers + 1)
        }
        self._zookeeper: Child | None = None
        self._zookeeper_port = 0
        self._client: KazooClient | None = None
        self._reaper: Reaper | None = None

    def __enter__(self) -> KafkaRig:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and wait until it is ready; what was started is ended when that fails."""
        self._reaper = Reaper()
        try:
            self._start_zookeeper()
            if self._before_brokers is not None:
                self._before_brokers(self)
            for place in self._places.values():
                self._spawn_broker(place)
            for place in self._places.values():
                self._await_broker(place)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all processes, at once: nothing of their data is kept, only the logs."""
        if self._client is not None:
            self._client.stop()
            self._client.close()
            self._client = None
        for child in [*(place.child for place in self._places.values()), self._zookeeper]:
            if child is not None:
                child.kill()
        self._zookeeper = None
        if self._reaper is not None:
            self._reaper.close()
            self._reaper = None
        for place in self._places.values():
            place.child = None
            shutil.rmtree(place.data, ignore_errors=True)
        shutil.rmtree(self.folder / "zookeeper" / "data", ignore_errors=True)

    @property
    def zookeeper_connect(self) -> str:
        """``host:port`` of the ZooKeeper."""
        return f"127.0.0.1:{self._zookeeper_port}"

    @property
    def zookeeper_port(self) -> int:
        """The port of 127.0.0.1 on which the ZooKeeper listens."""
        return self._zookeeper_port

    @property
    def zookeeper(self) -> KazooClient:
        """A client of the rig's own, connected; for looking, and for what an administrator would do."""
        assert self._client is not None, "the rig is not running"
        return self._client

    @property
    def broker_ids(self) -> list[int]:
        return list(self._places)

    @property
    def live_broker_ids(self) -> list[int]:
        """Ids of the brokers that were neither killed nor stopped."""
        return [place.id for place in self._places.values() if place.child is not None]

    @property
    def bootstrap(self) -> str:
        """The clients' bootstrap servers: every broker's PLAINTEXT listener."""
        return ",".join(f"127.0.0.1:{place.ports['PLAINTEXT']}" for place in self._places.values())

    def broker(self, broker_id: int) -> RegisteredBroker:
        """The broker as registered in ZooKeeper. Raises LookupError when it is not."""
        found = self._registered(broker_id)
        if found is None:
            raise LookupError(f"broker {broker_id} is not registered")
        return found

    def data_folders(self, broker_id: int) -> set[str]:
        """Names of the partition folders in the broker's data directory (``topic-0``, ``…-delete``)."""
        return {path.name for path in self._places[broker_id].data.iterdir() if path.is_dir()}

    def data(self, broker_id: int) -> Path:
        """Return the broker's log directory."""
        return self._places[broker_id].data

    def is_registered(self, broker_id: int) -> bool:
        """Return whether ZooKeeper has the broker."""
        return self._registered(broker_id) is not None

    def signal_broker(self, broker_id: int, number: int) -> None:
        """Send a signal to a broker that runs."""
        child = self._places[broker_id].child
        assert child is not None, f"broker {broker_id} does not run"
        os.kill(child.pid, number)

    def kill_broker(self, broker_id: int) -> None:
        """SIGKILL; returns when its ZooKeeper session has expired and its registration is gone."""
        place = self._places[broker_id]
        assert place.child is not None, f"broker {broker_id} does not run"
        place.child.kill()
        place.child = None
        wait_until(
            lambda: self._registered(broker_id) is None,
            timeout=SESSION_TIMEOUT + 20,
            what=f"ZooKeeper lets go of the killed broker {broker_id}",
        )

    def stop_broker(self, broker_id: int) -> None:
        """SIGTERM; returns when the broker has ended by itself. A controlled shutdown if it is enabled."""
        place = self._places[broker_id]
        assert place.child is not None, f"broker {broker_id} does not run"
        place.child.terminate(START_TIMEOUT)
        place.child = None

    def protocol_of(self, listener: str) -> str:
        """The security protocol of a listener."""
        return self._listeners[listener]

    def restart_broker(
        self, broker_id: int, *, ours: bool | None = None, properties: Mapping[str, str] | None = None
    ) -> RegisteredBroker:
        """Start a killed or stopped broker again on the same ports and data; returns its new registration.

        ``ours``: as a ``ctrlchan broker``, or as Kafka's, from now on. ``properties``: its own from now on.
        """
        place = self._places[broker_id]
        assert place.child is None, f"broker {broker_id} runs"
        if ours is not None:
            place.ours = ours
        if properties is not None:
            self._broker_properties[broker_id] = dict(properties)
        self._spawn_broker(place)
        return self._await_broker(place)

    def restart_zookeeper(self) -> None:
        """SIGKILL ZooKeeper, and start it again on the same port and data; returns when it answers."""
        assert self._zookeeper is not None, "the rig is not running"
        self._zookeeper.kill()
        self._await_zookeeper(self._spawn_zookeeper())

    def jvm_controller(self) -> int | None:
        """The broker id in ``/controller``, or None while there is none."""
        try:
            data, _ = self.zookeeper.get("/controller")
        except NoNodeError:
            return None
        return int(json.loads(data)["brokerid"])

    def log_lines(self, broker_id: int, name: str = "server.log") -> list[str]:
        """Lines of one of a broker's logs: server.log, state-change.log, controller.log, output.log."""
        return (self._places[broker_id].folder / name).read_text(errors="replace").splitlines()

    def last_log_lines(self, count: int = 12) -> str:
        """The ends of all logs, for the report of a failed test."""
        logs = [self.folder / "zookeeper" / "output.log"]
        for place in self._places.values():
            logs += [place.folder / "server.log", place.folder / "state-change.log"]
        return "".join(f"--- {log.relative_to(self.folder)}\n{last_lines(log, count)}" for log in logs)

    def _start_zookeeper(self) -> None:
        folder = self.folder / "zookeeper"
        folder.mkdir(parents=True)
        # ZooKeeper does not report the port that it takes for 0: a free one is chosen, which may be taken.
        for _ in range(5):
            self._zookeeper_port = free_port()
            write_zookeeper_configuration(folder, self._zookeeper_port)
            zookeeper = self._spawn_zookeeper()
            try:
                self._await_zookeeper(zookeeper)
            except RuntimeError as error:
                if "BindException" not in str(error):
                    raise
                zookeeper.kill()
            else:
                break
        else:
            raise RuntimeError("five free ports in a row were taken before ZooKeeper could listen on them")
        self._client = KazooClient(hosts=self.zookeeper_connect, timeout=SESSION_TIMEOUT)
        self._client.start(timeout=30)

    def _spawn_zookeeper(self) -> Child:
        folder = self.folder / "zookeeper"
        return self._spawn(
            "ZooKeeper",
            folder,
            _ZOOKEEPER_HEAP,
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            folder / "zoo.cfg",
        )

    def _await_zookeeper(self, zookeeper: Child) -> None:
        self._zookeeper = zookeeper

        def ready() -> bool:
            zookeeper.check_alive()
            data = self.folder / "zookeeper" / "data"
            return serves_data("127.0.0.1", self._zookeeper_port, data, timeout=5.0)

        wait_until(ready, timeout=START_TIMEOUT, what="ZooKeeper serves")

    def _spawn_broker(self, place: _BrokerPlace) -> None:
        properties = broker_properties(
            place.id,
            zookeeper=self.zookeeper_connect,
            data=place.data,
            ports=place.ports,
            protocols=self._listeners,
            inter_broker_listener=self.inter_broker_listener,
            brokers=len(self._places),
        )
        properties.update(self._properties)
        properties.update(self._broker_properties.get(place.id, {}))
        write_broker_configuration(place.folder, properties)
        if place.ours:
            command = [sys.executable, "-m", "ctrlchan", "broker", "--config"]
            command += [str(place.folder / "server.properties"), *self._our_options]
            assert self._reaper is not None, "the rig is not running"
            place.child = Child(f"broker {place.id}", command, place.folder / "server.log", self._reaper)
            return
        place.child = self._spawn(
            f"broker {place.id}",
            place.folder,
            _BROKER_HEAP,
            "kafka.Kafka",
            place.folder / "server.properties",
        )

    def _await_broker(self, place: _BrokerPlace) -> RegisteredBroker:
        child = place.child
        assert child is not None

        def ready() -> RegisteredBroker | None:
            child.check_alive()
            found = self._registered(place.id)
            plain = (
                [e for e in found.endpoints if self._listeners[e.listener] == "PLAINTEXT"] if found else []
            )
            if plain and all(answers_api_versions(e.host, e.port) for e in plain):
                return found
            return None

        try:
            registered = wait_until(ready, timeout=START_TIMEOUT, what=f"broker {place.id} is ready")
        except (TimeoutError, RuntimeError) as error:
            raise RuntimeError(f"{error}\n{last_lines(place.folder / 'server.log', 30)}") from None
        place.ports = {e.listener: e.port for e in registered.endpoints}
        return registered

    def _spawn(self, name: str, folder: Path, heap: tuple[str, ...], main_class: str, config: Path) -> Child:
        assert self._reaper is not None, "the rig is not running"
        options = [
            *_JVM,
            *heap,
            *self._jvm_options,
            f"-Dlog4j.configuration=file:{folder / 'log4j.properties'}",
        ]
        command = java_command(main_class, str(config), options=options)
        return Child(name, command, folder / "output.log", self._reaper)

    def _registered(self, broker_id: int) -> RegisteredBroker | None:
        try:
            data, stat = self.zookeeper.get(f"/brokers/ids/{broker_id}")
        except NoNodeError:
            return None
        endpoints = []
        for text in json.loads(data)["endpoints"]:
            # urlsplit wants a scheme in small letters; listener names keep theirs.
            listener, _, rest = text.partition("://")
            address = urlsplit(f"//{rest}")
            endpoints.append(BrokerEndpoint(listener, str(address.hostname), int(address.port or 0)))
        return RegisteredBroker(broker_id, int(stat.czxid), tuple(endpoints))
