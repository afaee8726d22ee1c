"""A controller for tests: reads and writes of ZooKeeper, and the package's state, batch and channel.

It decides nothing by itself, and sends requests only through the package's public names.
The order of the requests is a JVM controller's: see each method.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType

import ctrlchan
from ctrlchan import (
    Broker,
    ChannelConfig,
    ClusterState,
    ControllerBrokerRequestBatch,
    ControllerChannelManager,
    Endpoint,
    Outcome,
    SecurityProtocol,
)
from tests.acceptance.znodes import ControllerZnodes
from tests.kafka.rig import KafkaRig, RegisteredBroker

TIMEOUT = 60.0  # s, for all brokers to answer one batch


class ZkController:
    """Leads the rig's brokers after ``znodes`` has taken over; a context manager.

    ``inter_broker_protocol`` fixes the versions of its requests. Methods return the outcomes of all
    requests they sent, in the order they were sent.
    """

    def __init__(
        self, kafka: KafkaRig, znodes: ControllerZnodes, *, inter_broker_protocol: str = "3.9"
    ) -> None:
        self.kafka = kafka
        self.znodes = znodes
        config = ChannelConfig(
            controller_id=znodes.controller_id,
            inter_broker_protocol=inter_broker_protocol,
            inter_broker_listener=kafka.inter_broker_listener,
        )
        self.state = ClusterState.from_zookeeper(kafka.zookeeper)
        self.channel = ControllerChannelManager(config, controller_epoch=znodes.controller_epoch)
        self.deleted: dict[tuple[str, int], set[int]] = {}
        self.batch = ControllerBrokerRequestBatch(
            self.channel, self.state, on_stop_replica_response=self._deleted
        )

    def __enter__(self) -> ZkController:
        self.channel.__enter__()
        self.channel.startup(self.state.brokers)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.channel.__exit__(kind, error, trace)

    def fail_over(self) -> list[Outcome]:
        """Send what a new controller sends: the live brokers, then every leader, then all metadata."""
        self.batch.new_batch()
        self.batch.add_update_metadata(self.broker_ids, rows=())
        outcomes = self.send()
        if len(self.state.partitions):
            self.batch.new_batch()
            for row, replicas in enumerate(self.state.partitions.replicas.to_lists()):
                self.batch.add_leader_and_isr(replicas, row)
            self.batch.add_update_metadata(self.broker_ids, rows="all")
            outcomes += self.send()
        return outcomes

    def create_topic(self, name: str, assignment: Mapping[int, Sequence[int]]) -> list[Outcome]:
        """Write the topic's nodes; send LeaderAndIsr (new) to its replicas, UpdateMetadata to all brokers."""
        topic_id = uuid.uuid4().bytes
        states = self.znodes.create_topic(name, assignment, topic_id)
        in_order = [states[partition] for partition in sorted(states)]
        self.state.add_topic(
            name,
            assignment,
            topic_id=topic_id,
            leader=[state.leader for state in in_order],
            leader_epoch=0,
            controller_epoch=self.znodes.controller_epoch,
            isr=[list(state.isr) for state in in_order],
        )
        self.batch.new_batch()
        for partition, replicas in assignment.items():
            self.batch.add_leader_and_isr(replicas, (name, partition), is_new=True)
        return self.send()

    def move_leader(self, name: str, partition: int, leader: int) -> list[Outcome]:
        """Write the next leader epoch; send LeaderAndIsr to the replicas, UpdateMetadata to all brokers."""
        before = self.znodes.partition_state(name, partition)
        now = self.znodes.set_partition_state(
            name, partition, replace(before, leader=leader, leader_epoch=before.leader_epoch + 1)
        )
        row = self.state.row(name, partition)
        self.state.update(
            row,
            leader=now.leader,
            leader_epoch=now.leader_epoch,
            partition_epoch=now.version,
            controller_epoch=now.controller_epoch,
        )
        self.batch.new_batch()
        self.batch.add_leader_and_isr(self.state.partitions.replicas[row].tolist(), row)
        return self.send()

    def delete_topic(self, name: str) -> list[Outcome]:
        """Send UpdateMetadata "during delete", StopReplica without and with deletion; delete the nodes."""
        self.state.mark_topics_deleting([name])
        self.state.set_deletion_in_progress([name])
        rows = self.state.rows_of_topic(name)
        self.batch.new_batch()
        self.batch.add_update_metadata(self.broker_ids, rows)
        outcomes = self.send()
        for delete in (False, True):
            self.batch.new_batch()
            for row in range(rows.start, rows.stop):
                replicas = self.state.partitions.replicas[row].tolist()
                self.batch.add_stop_replica(replicas, row, delete=delete)
            outcomes += self.send()
        self.znodes.delete_topic(name)
        self.state.remove_topics([name])
        return outcomes

    def broker_is_back(self, broker_id: int) -> list[Outcome]:
        """Connect again; send the live brokers to all, and to this broker its replicas and all metadata."""
        self.channel.remove_broker(broker_id)
        broker = broker_of(self.kafka.broker(broker_id))
        self.state.add_brokers([broker])
        self.channel.add_broker(broker)
        self.batch.new_batch()
        self.batch.add_update_metadata(self.broker_ids, rows=())
        outcomes = self.send()
        self.batch.new_batch()
        for row, replicas in enumerate(self.state.partitions.replicas.to_lists()):
            if broker_id in replicas:
                self.batch.add_leader_and_isr([broker_id], row)
        self.batch.add_update_metadata([broker_id], rows="all")
        return outcomes + self.send()

    def send(self) -> list[Outcome]:
        """Send the batch and wait for every outcome."""
        sent = self.batch.send_requests_to_brokers(self.znodes.controller_epoch)
        return self.channel.wait(sent, timeout=TIMEOUT)

    @property
    def broker_ids(self) -> list[int]:
        return list(self.state.broker_ids.tolist())

    def _deleted(self, broker_id: int, error: int, partitions: Mapping[tuple[str, int], int]) -> None:
        for partition, partition_error in partitions.items():
            assert (error, partition_error) == (0, 0), (broker_id, partition, error, partition_error)
            self.deleted.setdefault(partition, set()).add(broker_id)


def broker_of(registered: RegisteredBroker) -> Broker:
    """Return the Broker of a registration."""
    return Broker(
        registered.id,
        registered.epoch,
        tuple(Endpoint(e.listener, SecurityProtocol.PLAINTEXT, e.host, e.port) for e in registered.endpoints),
    )


def refused(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the outcomes that are not acknowledgements; tests expect none."""
    return [o for o in outcomes if o.kind is not ctrlchan.OutcomeKind.ACKNOWLEDGED]
