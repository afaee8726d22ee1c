"""EmbeddedCluster: brokers in child processes and, without ZooKeeper, their controller in this one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ctrlchan.broker.config.broker_config import DEFAULT_CLUSTER_ID, BrokerConfig
from ctrlchan.broker.faults import Fault, FaultTarget
from ctrlchan.config.settings import boolean, check_arguments, integer
from ctrlchan.errors import CtrlchanError, ErrorCode, KafkaError
from ctrlchan.launch.listeners import addresses
from ctrlchan.launch.log_dirs import LogDir, LogFolder
from ctrlchan.launch.processes import BrokerProcesses, settings_of_cluster

if TYPE_CHECKING:
    from ctrlchan.embedded.controller import LocalController
    from ctrlchan.embedded.records import TopicRecord
    from ctrlchan.state import Broker

__all__ = ["ClusterBroker", "EmbeddedCluster"]

#: Of a cluster without ZooKeeper: the end of a connection to its nodes ends no session, the cluster does.
_SESSION_TIMEOUT: Final = 60.0
#: Seconds until all brokers know one another, or what has changed.
_KNOWN_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.02
_FIRST_CONTROLLER_ID: Final = 1000
_JOURNAL: Final = "zookeeper.jsonl"
#: A topic whose leader is moving.
_RETRIABLE: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
)


class EmbeddedCluster(BrokerProcesses):
    """`count` brokers with ids from `first_id`, each with a port and a state of its own.

    They listen on free ports from construction to ``close``. ``host``, ``listener``, ``cluster_id``,
    ``more_listeners``, ``advertised_listeners``: as for ``EmbeddedBroker``; a port there is of the first
    broker, and others follow. ``epoch``: broker epoch of every broker, or by id (missing: -1). ``racks``:
    assigned in turn. ``processes``: None is one for each core, or one for each broker of up to twelve that
    store records. ``zookeeper``: ``HOST:PORT[,HOST:PORT...][/chroot]`` where the brokers are registered;
    their epochs and their cluster id come from there. ``session_timeout``: seconds after which killed brokers
    are not registered any more. ``log_dir``: a folder in which broker N stores records, in ``broker-N``;
    ``TEMPORARY``: one that is removed by ``close``; None: no records are stored. ``configs``: other settings
    of brokers that store records, under Kafka's names. ``controller``: HOST:PORT of a controller that is no
    broker. Raises ConfigError when a value is not valid, and CtrlchanError when a child process does not
    start or has ended.

    Brokers that store records without ``zookeeper`` have a controller in this process, which is a
    ``KafkaController``: topics are created by clients and by brokers, and leaders move when a broker dies.
    Its nodes are in the file ``zookeeper.jsonl`` of ``log_dir``: a cluster with the same ``log_dir`` goes on.

        with EmbeddedCluster(count=30) as cluster:
            channel.startup(cluster.brokers)
        with EmbeddedCluster(1, log_dir=TEMPORARY) as cluster:
            producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    """

    def __init__(
        self,
        count: int,
        *,
        first_id: int = 1,
        host: str = "127.0.0.1",
        listener: str = "PLAINTEXT",
        epoch: int | Mapping[int, int] = -1,
        racks: Sequence[str] = (),
        cluster_id: str = DEFAULT_CLUSTER_ID,
        more_listeners: Mapping[str, str] | None = None,
        advertised_listeners: Mapping[str, str] | None = None,
        processes: int | None = None,
        zookeeper: str | None = None,
        session_timeout: float = 10.0,
        log_dir: LogDir = None,
        configs: Mapping[str, str] | None = None,
        controller: str | None = None,
    ) -> None:
        self._controller: LocalController | None = None
        configs = dict(configs or {})
        check_arguments(configs)
        ids = range(first_id, first_id + count)
        with ExitStack() as cleanup:
            self._folder = folder = LogFolder(log_dir)
            cleanup.callback(folder.close)
            if folder.path is not None:
                configs = settings_of_cluster(count, configs)
            if folder.path is not None and zookeeper is None:
                # The brokers end together, after their controller: nobody could take their leaders over.
                configs.setdefault("controlled.shutdown.enable", "false")
                self._controller = _controller(_FIRST_CONTROLLER_ID + ids.stop, configs, folder, listener)
                cleanup.callback(self._controller.close)
                zookeeper, controller = self._controller.zookeeper, self._controller.address
                session_timeout = _SESSION_TIMEOUT
            brokers = [
                BrokerConfig(
                    id=broker_id,
                    host=host,
                    listener=listener,
                    epoch=epoch if isinstance(epoch, int) else epoch.get(broker_id, -1),
                    rack=racks[place % len(racks)] if racks else None,
                    cluster_id=cluster_id,
                    log_dirs=()
                    if folder.path is None
                    else (os.path.join(folder.path, f"broker-{broker_id}"),),
                    configs=configs,
                    controller=controller,
                    more_listeners=[
                        (name, *address) for name, address in addresses(more_listeners, place).items()
                    ],
                    advertised=addresses(advertised_listeners, place),
                )
                for place, broker_id in enumerate(ids)
            ]
            super().__init__(
                brokers,
                processes=processes,
                zookeeper=zookeeper,
                session_timeout=session_timeout,
                temporary=folder.path if folder.is_temporary else None,
            )
            cleanup.callback(super().close)
            if self._controller is not None:
                self._controller.wait_until_active()
                self._wait_until_known()
            cleanup.pop_all()

    def broker(self, broker_id: int) -> ClusterBroker:
        """Return one broker, to which faults can be given. Raises KeyError for no such broker."""
        self._child_of(broker_id)
        return ClusterBroker(self, broker_id)

    def clear_faults(self) -> None:
        """End the faults of all brokers that live."""
        for described in self.describe():
            self.broker(described["id"]).clear_faults()

    def kill_broker(self, broker_id: int) -> None:
        """Kill the process of this broker with SIGKILL, as a machine that fails.

        A cluster without ZooKeeper notices at once, one with ZooKeeper after its session timeout. Raises
        ConfigError when the process has other brokers, too, and KeyError for no such broker.
        """
        super().kill_broker(broker_id)
        if self._controller is not None:
            self._controller.broker_died(broker_id)

    def start_broker(self, broker_id: int) -> Broker:
        """Start a killed broker again, on the same ports, with a new epoch if it is registered.

        A running broker is stopped in order before. Raises CtrlchanError when it does not start: it can be
        started again then. Raises ConfigError when the process has other brokers, too, and KeyError for no
        such broker.
        """
        broker = super().start_broker(broker_id)
        if self._controller is not None:
            self._wait_until_known()
        return broker

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Let another in-sync replica lead a partition.

        Raises KafkaError when it cannot, and CtrlchanError in a cluster with ZooKeeper, whose controller is
        asked by clients.
        """
        if self._controller is None:
            raise CtrlchanError("only a cluster with a controller of its own can move a leader")
        self._controller.move_leader(topic, partition, broker_id)

    def records(self, topic: str, *, at_least: int = 0, timeout: float = 10.0) -> list[TopicRecord]:
        """Return all records of a topic that consumers see, by partition and offset.

        ``at_least``: wait until there are so many, for ``timeout`` seconds; then return those that there are.
        Raises KafkaError for a topic that does not exist, and CtrlchanError when no broker lives.
        """
        # Imported here: the messages of clients take time to import.
        from ctrlchan.embedded.records import read_topic

        deadline = time.monotonic() + timeout
        while True:
            living = self._living_brokers()
            if not living:
                raise CtrlchanError("no broker of the cluster lives")
            (endpoint, *_) = living[0].endpoints
            try:
                found = read_topic((endpoint.host, endpoint.port), topic)
            except KafkaError as error:
                # A leader that does not answer may have been killed a moment ago.
                is_retriable = (
                    error.code in _RETRIABLE if at_least else error.code == ErrorCode.REQUEST_TIMED_OUT
                )
                if not is_retriable or time.monotonic() > deadline:
                    raise
            else:
                if len(found) >= at_least or time.monotonic() > deadline:
                    return found
            time.sleep(_PAUSE_SECONDS)

    def close(self) -> None:
        """End the controller, then the brokers, and wait until they have ended."""
        if self._controller is not None:
            self._controller.stop()
        super().close()
        if self._controller is not None:
            self._controller.close()
        self._folder.close()

    def _change_faults(self, broker_id: int, fault: Fault | None) -> None:
        self._child_of(broker_id).call(
            {"broker": broker_id, "fault": None if fault is None else asdict(fault)}
        )

    def _wait_until_known(self) -> None:
        """Wait until every live broker has the metadata of all of them. Raises CtrlchanError."""

        def is_known() -> bool:
            described = self.describe()
            ids = {one["id"] for one in described}
            return all(ids <= set(one["metadata"]["live_brokers"]) for one in described)

        _wait(is_known, "the brokers do not know one another")


class ClusterBroker(FaultTarget):
    """One broker of an EmbeddedCluster that stores records."""

    def __init__(self, cluster: EmbeddedCluster, broker_id: int) -> None:
        self.id = broker_id
        self._cluster = cluster

    def _change_faults(self, fault: Fault | None) -> None:
        self._cluster._change_faults(self.id, fault)


def _controller(
    controller_id: int, configs: Mapping[str, str], folder: LogFolder, listener: str
) -> LocalController:
    # Imported here: brokers that a user's own channel drives need no controller.
    from ctrlchan.config.definitions import topic_defaults
    from ctrlchan.embedded.controller import LocalController

    unclean = "unclean.leader.election.enable"
    journal = None if folder.is_temporary or folder.path is None else Path(folder.path, _JOURNAL)
    return LocalController(
        controller_id,
        listener,
        num_partitions=integer(configs, "num.partitions"),
        default_replication_factor=integer(configs, "default.replication.factor"),
        unclean_leader_election=boolean({unclean: "false"} | dict(configs), unclean),
        topic_defaults=topic_defaults(configs.get),
        journal=journal,
    )


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _KNOWN_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise CtrlchanError(f"{what} after {_KNOWN_SECONDS:g} s")
        time.sleep(_PAUSE_SECONDS)
