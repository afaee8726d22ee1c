"""A broker with several listeners: each client is given the addresses of its own."""

from __future__ import annotations

import json
import re
import signal
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from ctrlchan import TEMPORARY, EmbeddedBroker, EmbeddedCluster
from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.broker.config.broker_config import BrokerConfig
from ctrlchan.broker.metrics.collector import BrokerMetrics
from ctrlchan.broker.server import BrokerServer
from ctrlchan.cli.broker_properties import read_broker_properties
from ctrlchan.errors import ConfigError
from ctrlchan.launch.registration import registration_json
from ctrlchan.state.brokers import parse_host_port
from tests.kafka.waiting import wait_until
from tests.kafka.wire import answers_api_versions, exchange
from tests.unit.broker.local_broker import LiveBroker, client_frame, control_frame, read_client_response
from tests.unit.broker.test_command import ended, line, running

FILE = """broker.id=7
listeners=INTERNAL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,EXTERNAL://:0
advertised.listeners=PLAINTEXT://127.0.0.1:0,EXTERNAL://public.example:19092,INTERNAL://127.0.0.1:0
listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT
"""


def test_each_listener_shows_its_own_addresses(tmp_path: Path) -> None:
    config = BrokerConfig(
        id=1,
        listener="INTERNAL",
        more_listeners=[("EXTERNAL", "127.0.0.1", 0)],
        advertised={"EXTERNAL": ("public.example", 19092)},
        log_dirs=[str(tmp_path)],
        configs={"num.io.threads": "1"},
    )
    service = BrokerServer(config)
    broker = service.start()
    service.serve()
    try:
        internal, external = broker.endpoints
        assert str(external) == "EXTERNAL://public.example:19092"
        assert json.loads(registration_json(broker))["endpoints"] == [str(internal), str(external)]
        ports = service.server.ports
        assert internal.port == ports["INTERNAL"] != ports["EXTERNAL"]
        live = [
            LiveBroker(1, host="inside", port=1, listeners=(("INTERNAL", 0), ("EXTERNAL", 0))),
            LiveBroker(2, host="inside too", port=2, listeners=(("INTERNAL", 0),)),
        ]
        frame = control_frame(UPDATE_METADATA, 8, [], live=live, broker_epoch=-1)
        exchange("127.0.0.1", ports["INTERNAL"], frame)

        def shown(listener: str, api_key: int, version: int, **fields: Any) -> list[str]:
            answer = exchange("127.0.0.1", ports[listener], client_frame(api_key, version, **fields))
            return [node.host for node in read_client_response(api_key, version, answer).brokers]

        requests: list[tuple[int, int, dict[str, Any]]] = [
            (3, 12, {"topics": []}),
            (60, 0, {"include_cluster_authorized_operations": False}),
        ]
        for api_key, version, fields in requests:
            assert len(shown("INTERNAL", api_key, version, **fields)) == 2
            assert len(shown("EXTERNAL", api_key, version, **fields)) == 1
    finally:
        service.stop()


def test_a_properties_file_with_several_listeners(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"{FILE}inter.broker.listener.name=INTERNAL\nlog.dirs={tmp_path / 'logs'}\n")
    with running("--config", str(file)) as process:
        printed = re.fullmatch(
            r"broker 7 listens on INTERNAL://127\.0\.0\.1:(\d+), PLAINTEXT://127\.0\.0\.1:(\d+), "
            r"EXTERNAL://public\.example:19092",
            line(process),
        )
        assert printed is not None
        assert all(answers_api_versions("127.0.0.1", int(port)) for port in printed.groups())
        status, note = ended(process, signal.SIGTERM)
        assert status == 0
        assert note.startswith("note: there is no controller, so clients cannot create topics.")


@pytest.mark.parametrize(
    ("lines", "listener"),
    [
        ("", "PLAINTEXT"),
        ("inter.broker.listener.name=EXTERNAL", "EXTERNAL"),
        ("security.inter.broker.protocol=PLAINTEXT", "PLAINTEXT"),
    ],
)
def test_the_listener_of_brokers(tmp_path: Path, lines: str, listener: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"{FILE}{lines}\n")
    settings = read_broker_properties(file).settings
    assert settings["listener"] == listener
    assert len(settings["more_listeners"]) == 2


def test_the_listener_of_brokers_must_be_one_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"{FILE}inter.broker.listener.name=NONE\n")
    with pytest.raises(ConfigError, match="'NONE' is none of the listeners"):
        read_broker_properties(file)


def test_a_file_without_listeners_announces_the_name_of_the_machine(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\n")
    settings = read_broker_properties(file).settings
    assert (settings["host"], settings["port"]) == ("0.0.0.0", 9092)
    host, port = settings["advertised"]["PLAINTEXT"]
    assert host != "0.0.0.0"
    assert port == 9092


def test_only_a_broker_with_a_log_directory_has_several_listeners() -> None:
    with pytest.raises(ConfigError, match="several listeners"):
        BrokerConfig(id=1, more_listeners=[("OTHER", "127.0.0.1", 0)])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"more_listeners": {"PLAINTEXT": "127.0.0.1:0"}}, "a listener comes twice"),
        ({"more_listeners": {"OTHER": "127.0.0.1"}}, "listener OTHER: '127.0.0.1' is not HOST:PORT"),
        ({"advertised_listeners": {"OTHER": "public.example:1"}}, "none of the listeners: OTHER"),
    ],
)
def test_listeners_that_cannot_be(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EmbeddedBroker(1, log_dir=tmp_path, **settings)


def test_a_cluster_with_two_listeners_and_an_inter_broker_listener_of_another_name() -> None:
    """Clients of each listener are given its own addresses; a killed broker keeps all its ports."""
    with EmbeddedCluster(
        2,
        listener="INTERNAL",
        more_listeners={"PLAINTEXT": "127.0.0.1:0", "EXTERNAL": "127.0.0.1:0"},
        advertised_listeners={"EXTERNAL": "public.example:19092"},
        log_dir=TEMPORARY,
    ) as cluster:
        assert cluster.bootstrap_servers == cluster.bootstrap_servers_of("INTERNAL")
        external = "public.example:19092,public.example:19093"
        assert cluster.bootstrap_servers_of("EXTERNAL") == external
        with pytest.raises(KeyError):
            cluster.bootstrap_servers_of("NONE")
        shown = {}
        for listener in ("INTERNAL", "PLAINTEXT"):
            host, port = parse_host_port(cluster.bootstrap_servers_of(listener).split(",")[0])
            answer = exchange(host, port, client_frame(3, 12, topics=[]))
            brokers = read_client_response(3, 12, answer).brokers
            shown[listener] = ",".join(f"{one.host}:{one.port}" for one in brokers)
            assert shown[listener] == cluster.bootstrap_servers_of(listener)
        assert shown["INTERNAL"] != shown["PLAINTEXT"]
        before = cluster.brokers[0].endpoints
        cluster.kill_broker(1)
        assert cluster.start_broker(1).endpoints == before


CONTROL_PLANE = {"control.plane.listener.name": "CONTROL"}


def test_the_controller_has_a_listener_of_its_own(tmp_path: Path) -> None:
    """Its requests are handled by a thread of their own, which needs none of the others (KIP-291)."""
    config = BrokerConfig(
        id=1,
        more_listeners=[("CONTROL", "127.0.0.1", 0)],
        log_dirs=[str(tmp_path)],
        configs=CONTROL_PLANE | {"num.network.threads": "2"},
    )
    service = BrokerServer(config)
    service.start()
    service.serve()
    try:
        ports = service.server.ports
        names = {thread.name for thread in threading.enumerate()}
        assert "control-plane-kafka-request-handler-0" in names
        assert "control-plane-kafka-request-handler-1" not in names
        listeners = [one.listener for one in service.server.counters()[0]]
        assert listeners == ["PLAINTEXT", "PLAINTEXT", "CONTROL"]
        # Threads end when they are woken: from here on clients get no answers.
        service.pool.resize(0)
        wait_until(lambda: service.pool.size == 0, what="no thread of clients")
        frame = control_frame(UPDATE_METADATA, 8, [], live=[], broker_epoch=-1)
        assert exchange("127.0.0.1", ports["CONTROL"], frame)
        assert service.requests_of("UpdateMetadata") == 1
        metrics = {family.name: family for family in BrokerMetrics(service).collect()}
        for name in (
            "network_socketserver_controlplanenetworkprocessoravgidlepercent",
            "network_socketserver_controlplaneexpiredconnectionskilledcount",
            "network_requestchannel_controlplanerequestqueuesize",
            "server_kafkarequesthandlerpool_controlplanerequesthandleravgidlepercent",
        ):
            assert 0 <= metrics[f"kafka_{name}"].samples[0].value <= 1
    finally:
        service.stop()
    assert not [one for one in threading.enumerate() if one.name.startswith("control-plane")]


def test_a_cluster_whose_controller_has_a_listener_of_its_own() -> None:
    with EmbeddedCluster(
        1, more_listeners={"CONTROL": "127.0.0.1:0"}, configs=CONTROL_PLANE, processes=1
    ) as cluster:
        cluster.create_topic("topic")
        (port,) = (one.port for one in cluster.brokers[0].endpoints if one.listener == "CONTROL")
        connected = [
            connection.raddr.port
            for process in psutil.Process().children(recursive=True)
            for connection in process.net_connections("tcp")
            if connection.raddr
        ]
        # A sender process of the channel.
        assert connected.count(port) == 1


@pytest.mark.parametrize(
    ("name", "why"), [("OTHER", "must be one of the advertised"), ("PLAINTEXT", "must be another listener")]
)
def test_listeners_that_the_controller_cannot_have(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"control.plane.listener.name: '{name}' {why}"):
        BrokerConfig(
            id=1,
            more_listeners=[("CONTROL", "127.0.0.1", 0)],
            log_dirs=[str(tmp_path)],
            configs={"control.plane.listener.name": name},
        )
