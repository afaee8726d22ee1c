"""A broker with a log directory: what control requests do to its logs, its start and its end."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import pytest
from prometheus_client import CollectorRegistry

import ctrlchan
from ctrlchan._codec import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from ctrlchan.broker.config.broker_config import BrokerConfig
from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.log.checkpoints import read_meta_properties
from ctrlchan.broker.server import BrokerServer, BrokerState
from ctrlchan.embedded import EmbeddedCluster
from ctrlchan.errors import ConfigError, ErrorCode, IllegalStateError, LogDirectoryError
from ctrlchan.launch.embedded import EmbeddedBroker
from ctrlchan.server.request_times import BOUNDS_MS, TIME_PARTS
from tests.kafka.waiting import wait_until
from tests.kafka.wire import exchange
from tests.unit.broker.local_broker import (
    LiveBroker,
    Part,
    client_frame,
    control_frame,
    read_client_response,
    read_control_response,
    topic_id,
)
from tests.unit.broker.log.old_formats.entries import OldEntry
from tests.unit.broker.replica.fetching import Asked, Fetcher
from tests.unit.broker.replica.serving import produce_frame

T = TypeVar("T")

ALONE: Any = {"replicas": (1,), "isr": (1,)}


def send(broker: EmbeddedBroker, api_key: int, *parts: Part, **head: Any) -> list[tuple[str, int, int]]:
    """Send a control request; return the error of each partition."""
    version = {LEADER_AND_ISR: 7, STOP_REPLICA: 4, UPDATE_METADATA: 8}[api_key]
    head = {"live": [LiveBroker(1, host="127.0.0.1", port=broker.port)], "broker_epoch": -1, **head}
    frame = control_frame(api_key, version, parts, **head)
    names = {topic_id(part.topic): part.topic for part in parts}
    names |= {raw: name for name, raw in (head.get("ids") or {}).items()}
    error, errors = read_control_response(api_key, version, exchange("127.0.0.1", broker.port, frame), names)
    assert error == 0
    return errors


def inspect(broker: EmbeddedBroker, function: Callable[[Any], T]) -> T:
    """Call a function with the core of the broker, which is a StoringCore."""
    return broker.inspect(function)


def ask(broker: EmbeddedBroker, api_key: int, version: int, **fields: Any) -> Any:
    frame = client_frame(api_key, version, **fields)
    return read_client_response(api_key, version, exchange("127.0.0.1", broker.port, frame))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(1, log_dir=tmp_path / "logs", configs={"num.io.threads": "2"}) as started:
        yield started


def test_leaders_and_followers_have_logs_until_they_are_deleted(broker: EmbeddedBroker) -> None:
    assert broker.log_dir is not None
    folder = Path(broker.log_dir)
    followed = Part("alpha", 1, leader=2, replicas=(2, 1), isr=(2, 1))

    def roles() -> dict[int, tuple[bool, int]]:
        return inspect(
            broker,
            lambda core: {p.partition: (p.is_leader, p.leader_epoch) for p in core.partitions.partitions()},
        )

    errors = send(
        broker, LEADER_AND_ISR, Part("alpha", 0, **ALONE), followed, Part("alpha", 2, replicas=(2, 3))
    )
    assert sorted(errors) == [("alpha", 0, 0), ("alpha", 1, 0), ("alpha", 2, 3)]
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {"alpha-0", "alpha-1"}
    # The leader of partition 1 is not live: the partition has a log, and waits.
    assert roles() == {0: (True, 0), 1: (False, -1)}
    send(broker, UPDATE_METADATA, live=[LiveBroker(1), LiveBroker(2)])
    send(broker, LEADER_AND_ISR, followed)
    assert roles() == {0: (True, 0), 1: (False, 0)}
    # Without the delete flag nothing changes.
    assert send(broker, STOP_REPLICA, Part("alpha", 0, leader_epoch=1)) == [("alpha", 0, 0)]
    assert inspect(broker, lambda core: core.partitions.get("alpha", 0) is not None)
    assert send(broker, STOP_REPLICA, Part("alpha", 0, leader_epoch=1, delete=True)) == [("alpha", 0, 0)]
    assert inspect(broker, lambda core: core.partitions.get("alpha", 0)) is None
    assert not (folder / "alpha-0").exists()


def test_logs_outlive_the_broker_and_keep_their_topic_ids(tmp_path: Path) -> None:
    with EmbeddedBroker(1, log_dir=tmp_path, cluster_id="a-cluster") as broker:
        send(broker, LEADER_AND_ISR, Part("alpha", 0, **ALONE))
    properties = read_meta_properties(tmp_path)
    assert properties is not None
    assert (properties.cluster_id, properties.broker_id) == ("a-cluster", 1)
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with EmbeddedBroker(1, log_dir=tmp_path) as broker:
        # The id of the cluster is that of the folder.
        assert broker.describe()["cluster_id"] == "a-cluster"
        # A topic of the same name is another topic.
        other = send(broker, LEADER_AND_ISR, Part("alpha", 0, **ALONE), ids={"alpha": bytes(15) + b"\x01"})
        assert other == [("alpha", 0, ErrorCode.INCONSISTENT_TOPIC_ID)]
        assert send(broker, LEADER_AND_ISR, Part("alpha", 0, **ALONE)) == [("alpha", 0, 0)]
    with pytest.raises(LogDirectoryError):
        EmbeddedBroker(2, log_dir=tmp_path)


def test_a_failed_log_directory_is_an_error_of_each_partition(broker: EmbeddedBroker) -> None:
    send(broker, LEADER_AND_ISR, Part("alpha", 0, **ALONE))
    inspect(broker, lambda core: core.replica_manager.log_dir_failed([("alpha", 0), ("not-hosted", 3)]))
    assert inspect(broker, lambda core: core.partitions.get("alpha", 0).is_offline)
    assert broker.describe()["replicas"]["offline"] == 1
    later = send(broker, LEADER_AND_ISR, Part("alpha", 0, leader_epoch=1, **ALONE))
    assert later == [("alpha", 0, ErrorCode.KAFKA_STORAGE_ERROR)]


def test_a_temporary_folder_goes_with_the_broker() -> None:
    before = set(threading.enumerate())
    with EmbeddedBroker(1, log_dir=ctrlchan.TEMPORARY) as broker:
        assert broker.log_dir is not None
        assert Path(broker.log_dir, "meta.properties").exists()
    assert not Path(broker.log_dir).exists()
    broker.close()
    wait_until(lambda: set(threading.enumerate()) <= before, what="all threads have ended")


@pytest.mark.parametrize("stores", [True, False])
def test_a_stopped_broker_starts_again(stores: bool) -> None:
    with EmbeddedBroker(1, log_dir=ctrlchan.TEMPORARY if stores else None) as broker:
        send(broker, LEADER_AND_ISR, Part("alpha", 0, **ALONE))
        port = broker.port
        with pytest.raises(IllegalStateError, match="broker 1 runs"):
            broker.start()
        assert not broker.wait_stopped(0)
        with ThreadPoolExecutor(1) as pool:
            stopped = pool.submit(broker.wait_stopped, 60)
            broker.stop()
            assert stopped.result()
        broker.stop()
        with pytest.raises(ConnectionRefusedError):
            ask(broker, 18, 0)
        # It can still be inspected.
        assert broker.describe()["replicas"]["partitions"] == 1
        broker.start()
        assert broker.port == port
        assert not broker.wait_stopped(0)
        # The controller has not spoken yet; what is stored stays.
        assert broker.describe()["replicas"]["partitions"] == 0
        if broker.log_dir is not None:
            assert Path(broker.log_dir, "alpha-0").is_dir()
        assert send(broker, LEADER_AND_ISR, Part("alpha", 0, **ALONE)) == [("alpha", 0, 0)]
    with pytest.raises(IllegalStateError, match="broker 1 was closed"):
        broker.start()


def test_a_server_is_started_once_and_stops_behind_its_start(tmp_path: Path) -> None:
    with EmbeddedBroker(1, log_dir=tmp_path) as broker:
        send(broker, LEADER_AND_ISR, Part("alpha", 0, **ALONE))
    with ThreadPoolExecutor(1) as pool:
        stops: list[Future[None]] = []
        server = BrokerServer(
            BrokerConfig(id=1, log_dirs=(str(tmp_path),)), lambda *_: stops.append(pool.submit(server.stop))
        )
        with pytest.raises(IllegalStateError, match="NOT_RUNNING, not started"):
            server.serve()
        server.start()
        (stop,) = stops
        stop.result(60)
    assert server.state == BrokerState.NOT_RUNNING
    assert server.wait_stopped(0)
    with pytest.raises(IllegalStateError, match="NOT_RUNNING, not started"):
        server.serve()
    with pytest.raises(IllegalStateError, match="it can be started once"):
        server.start()


def test_what_is_announced_is_served(broker: EmbeddedBroker) -> None:
    announced = ask(broker, 18, 0).api_keys
    keys = {api.api_key for api in announced}
    # Produce, Fetch, groups, ids for producers, markers; no KRaft.
    assert {0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 21, 22, 23, 27, 28} <= keys
    assert {35, 60} <= keys
    assert keys.isdisjoint({52, 55})
    # A version that nobody knows is answered; other requests close the connection.
    unknown = client_frame(18, 0)
    unknown = unknown[:2] + (99).to_bytes(2, "big") + unknown[4:] + b"\0"
    assert int.from_bytes(exchange("127.0.0.1", broker.port, unknown)[4:6], "big") == 35
    not_served, no_version = b"\0\x34\0\0" + bytes(20), b"\0\x03\0\x63" + bytes(20)
    for frame in (not_served, no_version, b"\0"):
        with pytest.raises(ConnectionError):
            exchange("127.0.0.1", broker.port, frame)


@pytest.mark.parametrize(
    "configs",
    [
        {"num.io.threads": "0"},
        {"log.index.interval.bytes": "few"},
        {"max.connections.per.ip.overrides": "here"},
        {"auto.create.topics.enable": "maybe"},
        {"num.partitions": "0"},
        {"default.replication.factor": "32768"},
    ],
)
def test_settings_that_cannot_be_are_refused_and_leave_nothing(
    tmp_path: Path, configs: dict[str, str]
) -> None:
    before = set(threading.enumerate())
    with pytest.raises(ConfigError, match=next(iter(configs)).removeprefix("log.")):
        EmbeddedBroker(1, log_dir=tmp_path, configs=configs)
    assert set(threading.enumerate()) <= before
    with EmbeddedBroker(1, log_dir=tmp_path):
        pass


def test_an_empty_path_is_not_the_working_directory() -> None:
    with pytest.raises(ConfigError, match="log_dir is empty"):
        EmbeddedBroker(1, log_dir="")
    with pytest.raises(ConfigError, match="log_dir is empty"):
        EmbeddedCluster(1, log_dir="")


@pytest.mark.parametrize(
    "name", ["num.partitions", "default.replication.factor", "unclean.leader.election.enable"]
)
def test_settings_of_a_clusters_controller(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        EmbeddedCluster(1, log_dir=ctrlchan.TEMPORARY, configs={name: "x"})


@pytest.mark.parametrize(
    "settings",
    [{"host": ""}, {"more_listeners": {"OTHER": ":0"}}, {"advertised_listeners": {"PLAINTEXT": ":9"}}],
)
def test_a_listener_without_a_host_for_others(settings: dict[str, Any]) -> None:
    """ZooKeeper and clients would be given no address."""
    with pytest.raises(ConfigError, match=r"(?i)host"):
        EmbeddedBroker(1, log_dir=ctrlchan.TEMPORARY, **settings)


def test_settings_need_a_log_directory() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        EmbeddedBroker(1, configs={"num.partitions": "3"})
    with pytest.raises(ConfigError, match="response_delay"):
        EmbeddedBroker(1, log_dir=ctrlchan.TEMPORARY, response_delay=1)


def test_configs_of_topics_and_brokers_reach_open_logs(broker: EmbeddedBroker) -> None:
    send(broker, LEADER_AND_ISR, Part("alpha", 0, **ALONE))

    def config(core: Any) -> tuple[int, int]:
        found = core.partitions.get("alpha", 0).log.config
        return found.segment_bytes, found.retention_ms

    assert inspect(broker, config) == (1 << 30, 604_800_000)
    inspect(broker, lambda core: core.log_configs.set_topic_configs("alpha", {"segment.bytes": "4096"}))
    inspect(broker, lambda core: core.log_configs.set_defaults(LogConfig(retention_ms=77)))
    assert inspect(broker, config) == (4096, 77)
    with pytest.raises(ConfigError):
        inspect(broker, lambda core: core.log_configs.set_topic_configs("alpha", {"segment.bytes": "x"}))
    assert inspect(broker, lambda core: core.log_configs.own) == {"alpha": {"segment.bytes": "4096"}}


class _Controller:
    """A controller that moves the leaders of a broker with its second answer."""

    def __init__(self) -> None:
        self.asked = 0

    def controlled_shutdown(self) -> Future[list[tuple[str, int]]]:
        self.asked += 1
        answer: Future[list[tuple[str, int]]] = Future()
        answer.set_result([("alpha", 0)] if self.asked == 1 else [])
        return answer


@pytest.mark.parametrize(("enabled", "asked"), [("true", 2), ("false", 0)])
def test_the_controller_moves_leaders_before_a_broker_ends(enabled: str, asked: int) -> None:
    configs = {"controlled.shutdown.enable": enabled, "controlled.shutdown.retry.backoff.ms": "0"}
    controller = _Controller()
    with EmbeddedBroker(1, log_dir=ctrlchan.TEMPORARY, configs=configs) as broker:
        server: Any = broker._runner._service  # type: ignore[attr-defined]
        server.core = replace(server.core, controller=controller)
    assert controller.asked == asked


def documented_metrics() -> set[str]:
    """Return the metrics of the guide; of a list, the later ones begin with the words of the first."""
    text = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    found: set[str] = set()
    for row in text.splitlines():
        *_, ours, _ = row.split("|") if row.startswith("|") else ("", "", "")
        for name in re.findall(r"`(…?\w+)`", ours):
            if not name.startswith("…"):
                first = name
            # Some end of the first name stands for the dots.
            found |= (
                {f"kafka_{first[:at]}{name[1:]}" for at in range(len(first)) if first[at] == "_"}
                if name.startswith("…")
                else {f"kafka_{name}"}
            )
    return found


def test_metrics_have_kafkas_names(broker: EmbeddedBroker) -> None:
    send(broker, LEADER_AND_ISR, Part("alpha", 0, **ALONE), Part("alpha", 1, replicas=(1, 2), isr=(1,)))
    registry = CollectorRegistry()
    registry.register(broker.metrics)
    names = [family.name for family in broker.metrics.collect()]
    assert len(names) == len(set(names))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("kafka_server_kafkaserver_brokerstate") == 3
    assert value("kafka_server_replicamanager_leadercount") == 2
    assert value("kafka_server_replicamanager_underreplicatedpartitions") == 1
    assert value("kafka_server_replicamanager_partitionswithlatetransactionscount") == 0
    assert value("kafka_log_log_logendoffset", topic="alpha", partition="1") == 0
    assert value("kafka_network_requestmetrics_requests_total", request="LeaderAndIsr") == 1
    assert value("kafka_network_requestmetrics_requests_total", request="Fetch") == 0
    assert value("kafka_network_requestmetrics_totaltimems_count", request="Produce") == 0
    for part in map(str.lower, TIME_PARTS):
        times = f"kafka_network_requestmetrics_{part}"
        # It counts when the answer is sent, which may be here before.
        wait_until(partial(value, f"{times}_count", request="LeaderAndIsr"), what=part)
        # For percentiles: how many took at most so long.
        below = [
            value(f"{times}_bucket", request="LeaderAndIsr", le=str(bound))
            for bound in (*(BOUNDS_MS if part == "totaltimems" else BOUNDS_MS[1::2]), "+Inf")
        ]
        assert below == [0] * below.count(0) + [1] * below.count(1)
        assert below[-1] == 1
    assert value("kafka_network_requestmetrics_throttletimems_sum", request="LeaderAndIsr") == 0
    assert value("kafka_network_requestmetrics_throttletimems_count", request="LeaderAndIsr") == 1
    assert value("kafka_server_brokertopicmetrics_messagesin_total", topic="alpha") == 0
    idle = value("kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent")
    assert idle is not None
    assert 0 < idle <= 1
    idle = value("kafka_network_socketserver_networkprocessoravgidlepercent")
    assert idle is not None
    assert 0 < idle <= 1
    for operation in ("Produce", "Fetch", "Heartbeat", "Rebalance"):
        labels = {"delayedoperation": operation}
        assert value("kafka_server_delayedoperationpurgatory_purgatorysize", **labels) == 0
    assert value("kafka_cluster_partition_insyncreplicascount", topic="alpha", partition="1") == 1
    assert value("kafka_cluster_partition_underreplicated", topic="alpha", partition="1") == 1
    assert value("kafka_log_logmanager_logdirectoryoffline", logdirectory=str(broker.log_dir)) == 0
    assert value("kafka_network_socketserver_expiredconnectionskilledcount_total") == 0
    assert value("kafka_server_app_info", id="1", version=ctrlchan.__version__) == 1
    assert value("kafka_server_replicafetchermanager_maxlag") == 0
    described = documented_metrics()
    assert [name for name in names if name not in described] == []
    # There is no ZooKeeper.
    assert not any("sessionexpirelistener" in name for name in names)
    broker.close()
    assert value("kafka_server_kafkaserver_brokerstate") == 0


def test_conversions_are_counted(broker: EmbeddedBroker) -> None:
    send(broker, UPDATE_METADATA, Part("alpha", 0))
    send(broker, LEADER_AND_ISR, Part("alpha", 0, **ALONE))
    frame = produce_frame(2, [("alpha", [(0, OldEntry().encoded() * 3)])])
    exchange("127.0.0.1", broker.port, frame)
    fetcher = Fetcher.__new__(Fetcher)
    fetcher.version, fetcher.names = 1, {}
    answer = fetcher.read(exchange("127.0.0.1", broker.port, fetcher.frame(Asked("alpha", offset=1))))
    assert answer.partitions["alpha", 0].error == 0
    registry = CollectorRegistry()
    registry.register(broker.metrics)
    for request, records in (("Produce", 3), ("Fetch", 2)):
        name = f"kafka_server_brokertopicmetrics_{request.lower()}messageconversions_total"
        assert registry.get_sample_value(name, {"topic": "alpha"}) == records
        for metric in ("messageconversionstimems", "temporarymemorybytes"):
            name = f"kafka_network_requestmetrics_{metric}"
            assert registry.get_sample_value(f"{name}_count", {"request": request}) == 1
            assert (registry.get_sample_value(f"{name}_sum", {"request": request}) or 0) > 0


def test_only_brokers_with_records_have_metrics() -> None:
    with EmbeddedBroker(1) as without, pytest.raises(ConfigError):
        _ = without.metrics


def test_describe_producers_refuses_topics_by_name(broker: EmbeddedBroker) -> None:
    send(broker, UPDATE_METADATA, Part("alpha", 0), Part("alpha", 1, leader=2))
    send(broker, LEADER_AND_ISR, Part("alpha", 0, **ALONE))
    schema: Any = import_module("kio.schema.describe_producers.v0.request")
    names = {"alpha": (0, 1, 7), "unknown": (0,), "not a topic": (0,)}
    topics = tuple(schema.TopicRequest(name=name, partition_indexes=own) for name, own in names.items())
    answers = ask(broker, 61, 0, topics=topics).topics
    found = [
        (one.error_code.value, one.error_message is None) for topic in answers for one in topic.partitions
    ]
    assert found == [
        (ErrorCode.NONE, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, False),
    ]


@pytest.mark.parametrize("version", [4, 6, 7, 12, 13, 17])
def test_an_unknown_isolation_level_fails_the_whole_fetch(broker: EmbeddedBroker, version: int) -> None:
    fetcher = Fetcher.__new__(Fetcher)
    fetcher.version, fetcher.names = version, {}
    frame = fetcher.frame(Asked("alpha"), isolation=2, session=7, epoch=1)
    answer = fetcher.read(exchange("127.0.0.1", broker.port, frame))
    assert (answer.error, answer.session) == ((-1, 7) if version >= 7 else (0, 0))
    assert [one.error for one in answer.partitions.values()] == ([-1] if version < 13 else [])
