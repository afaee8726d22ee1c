"""The cluster of the model: what brokers, clients and operators do to it, step by step."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ctrlchan._codec import LeaderAndIsrRequest, ListColumn, UpdateMetadataRequest
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.handlers import elections, reassignment
from ctrlchan.controller.handlers.controlled_shutdown import controlled_shutdown
from ctrlchan.controller.handlers.elections import ElectionType
from ctrlchan.controller.handlers.isr_changes import AlterPartitionRequest, alter_partitions
from ctrlchan.errors import KafkaError
from ctrlchan.protocol import ibp_at_least
from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.nodes import Listener, PartitionState
from ctrlchan.zookeeper.values import PartitionStateColumns, Written
from tests.unit.batch.recording import Recorded, topic_partitions
from tests.unit.controller.model.brokers import HostedReplica, ModelBroker
from tests.unit.controller.model.controllers import MARKER, Int32, ModelController, respond
from tests.unit.controller.model.history import History, Leadership

__all__ = ["ModelCluster"]

#: (topic, partition)
Key = tuple[str, int]

MALFORMED: Final = b"{malformed"
_ZERO_ID: Final = b"\0" * 16
#: Errors in the log that the history causes.
_EXPECTED: Final = re.compile(
    r" is left out: | is ignored: | is removed: |/admin/preferred_replica_election"
    r"|ended as (fenced|broker gone)|is not incremented: it has no valid state node"
    r"|/controller could not be deleted: .* the session has expired"
)
#: Changes of states that Kafka's controller tries as well, in vain: a reassignment that goes on has started
#: its new replicas already, or could not start them without a leader; replicas of a topic that waits for its
#: deletion die while their state is another; all replicas of a broker are started after a failed directory.
_TRIED_BY_KAFKA: Final = re.compile(
    r"to NewReplica failed"
    r"|from (Online|New)Replica to ReplicaDeletionIneligible failed"
    r"|from ReplicaDeletion(Successful|Ineligible) to ReplicaDeletionIneligible failed"
    r"|from ReplicaDeletion(Started|Successful) to OnlineReplica failed"
    r"|from NonExistentReplica to \w+ failed"
)


class ErrorLog(logging.Handler):
    """Keeps the errors that nothing in the history explains."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if record.name == "state.change.logger":
            unexpected = "should be in" in text and _TRIED_BY_KAFKA.search(text) is None
        else:
            unexpected = _EXPECTED.search(text) is None
        if unexpected:
            self.lines.append(f"{record.name}: {text}")


class ModelCluster:
    """A cluster in a chroot of its own. ``ibp``: inter-broker protocol of controllers and brokers."""

    def __init__(self, server: str, chroot: str, ibp: str, broker_ids: Sequence[int]) -> None:
        self.ibp = ibp
        self.znodes = KazooClient(hosts=server, timeout=30)
        self.znodes.start()
        self.znodes.create(chroot)
        self.znodes.chroot = chroot
        self.znodes.create(MARKER)
        self.zookeeper = f"{server}{chroot}"
        self.brokers = {broker_id: ModelBroker(broker_id) for broker_id in broker_ids}
        self.controllers: list[ModelController] = []
        self.history = History(lambda key: key[0] in self.unclean)
        #: Replicas (partition, broker) of deleted topics at their deletion, which waits for all of them.
        self.deleted: dict[str, set[tuple[int, int]]] = {}
        self._ids: dict[str, bytes] = {}
        self._numbers = 0
        self._malformed: set[str] = set()
        #: Ids of topics where a replica out of sync may lead.
        self.unclean: set[bytes] = set()
        #: Whether requests may have been lost with a connection or a controller since the last check.
        self.lossy = False
        self.errors = ErrorLog()
        logging.getLogger().addHandler(self.errors)

    def close(self) -> None:
        logging.getLogger().removeHandler(self.errors)
        for controller in self.controllers:
            controller.die()
        self.znodes.stop()
        self.znodes.close()

    # -- controllers

    def start_controller(self) -> None:
        self._numbers += 1
        controller = ModelController(
            1000 + self._numbers, self.zookeeper, self.ibp, self._written, self._deleting, self._was_sent
        )
        self.controllers.append(controller)

    def kill_controller(self, controller: ModelController) -> None:
        self.lossy = True
        self.controllers.remove(controller)
        controller.die()
        self._read_unknown_writes()

    def end_at_write(self, controller: ModelController, number: int, *, dies: bool) -> None:
        """Let a controller die, or its session expire, before this many-th write from now on."""
        end = controller.stop_here if dies else lambda: self.expire_controller(controller)
        controller.session.end_at_write(number, end)

    def expire_controller(self, controller: ModelController) -> None:
        """End the session of a controller, and with it ``/controller``."""
        self.lossy = True
        controller.expire()

    def resign(self, controller: ModelController) -> None:
        """Let a controller leave its place to whoever is elected."""

        def give_up(_: ControllerCore) -> None:
            self.lossy = True
            controller.elector.give_up("the model wants it")

        controller.call(ControllerState.CONTROLLER_CHANGE, "Resign", give_up)

    def remove_controller_node(self) -> None:
        """Delete ``/controller``, as operators do for an election: its owner does not know yet."""
        if self.znodes.exists(paths.CONTROLLER):
            self.lossy = True
            self.znodes.delete(paths.CONTROLLER)

    @property
    def active(self) -> ModelController | None:
        """The controller that ``/controller`` names."""
        if not self.znodes.exists(paths.CONTROLLER):
            return None
        named = nodes.parse_controller(self.znodes.get(paths.CONTROLLER)[0])
        return next((one for one in self.controllers if one.id == named), None)

    # -- time

    def process(self, controller: ModelController, count: int) -> int:
        """Let a controller hear of all changes, and process so many events."""
        controller.receive_changes(self.znodes)
        done = controller.process(count)
        if controller.is_dead:
            self.kill_controller(controller)
        return done

    def deliver(self, controller: ModelController, broker_id: int, count: int) -> int:
        """Deliver so many waiting requests of a controller to a broker; return how many there were."""
        channel = controller.channel
        connection = None if channel is None else channel.connections.get(broker_id)
        broker = self.brokers[broker_id]
        if connection is None or not broker.runs or broker.port != connection.broker.endpoints[0].port:
            return 0
        for done in range(count):
            if not connection.waiting:
                return done
            one = connection.waiting.popleft()
            respond(one, broker.handle(one.body, connection.broker.epoch))
        return count

    def settle(self) -> None:
        """Process and deliver everything until nothing happens any more."""
        for _ in range(500):
            happened = 0
            for controller in list(self.controllers):
                happened += self.process(controller, 1_000)
                happened += sum(self.deliver(controller, one, 1_000) for one in self.brokers)
            if happened:
                continue
            waited = [one.loop.wait_for_election() for one in self.controllers if self.active is None]
            if not any(waited):
                return
        raise AssertionError("the cluster does not settle")

    # -- brokers

    def start_broker(self, broker_id: int) -> None:
        """Start the process, and register it."""
        self.brokers[broker_id].start()
        self.register(broker_id)

    def register(self, broker_id: int) -> None:
        """Register a broker that runs: with a new epoch."""
        broker = self.brokers[broker_id]
        _, stat = self.znodes.create(
            paths.broker(broker_id), self._registration(broker), makepath=True, include_data=True
        )
        broker.epoch = stat.czxid
        broker.registered = True
        self._remove_strays(broker)

    def unregister(self, broker_id: int) -> None:
        """Remove the registration; the process goes on, as after an expired session."""
        self.lossy = True
        self.brokers[broker_id].registered = False
        self.znodes.delete(paths.broker(broker_id))

    def kill_broker(self, broker_id: int) -> None:
        self.brokers[broker_id].stop()
        self.unregister(broker_id)

    def is_registered(self, broker_id: int) -> bool:
        return self.brokers[broker_id].registered

    def move_endpoint(self, broker_id: int) -> None:
        """Give a broker another port; it goes on with its memory and its epoch."""
        broker = self.brokers[broker_id]
        broker.port += 1
        self.znodes.set(paths.broker(broker_id), self._registration(broker))

    def shut_down(self, controller: ModelController, broker_id: int) -> None:
        """Send ControlledShutdown."""
        epoch = self.brokers[broker_id].epoch

        def ask(core: ControllerCore) -> None:
            try:
                controlled_shutdown(core, broker_id, epoch)
            except KafkaError:
                # The controller has not heard of the broker or knows a newer registration.
                return

        controller.call(ControllerState.CONTROLLED_SHUTDOWN, "ControlledShutdown", ask)

    def fail_directory(self, broker_id: int) -> None:
        """Let the directory of half of a broker's replicas fail."""
        broker = self.brokers[broker_id]
        failed = sorted(broker.logs)[::2]
        for key in failed:
            broker.failed.add(key)
            broker.hosted.pop(key, None)
        if failed:
            self.znodes.create(
                paths.log_dir_event_notification(),
                nodes.encode_log_dir_event(broker_id),
                sequence=True,
                makepath=True,
            )

    def alter_isr(self, controller: ModelController, broker_id: int, key: Key, isr: Sequence[int]) -> None:
        """Let a leader change an ISR as it does at this inter-broker protocol."""
        hosted = self.brokers[broker_id].hosted[key]
        if ibp_at_least(self.ibp, "2.7-IV2"):
            self._alter_partition(controller, broker_id, key, hosted, isr)
        else:
            self._write_isr(broker_id, key, hosted, isr)

    def led(self, broker_id: int) -> list[Key]:
        """Return the partitions that a broker believes to lead."""
        broker = self.brokers[broker_id]
        if not broker.runs:
            return []
        return sorted(
            key for key, hosted in broker.hosted.items() if hosted.leader == broker_id and not hosted.stopped
        )

    # -- topics

    def topics(self) -> list[str]:
        """Return the names of the topics in ZooKeeper, without malformed ones."""
        if self.znodes.exists(paths.TOPICS) is None:
            return []
        names = sorted(self.znodes.get_children(paths.TOPICS))
        return [name for name in names if paths.topic(name) not in self._malformed]

    def assignments(self, topic: str) -> dict[int, nodes.Assignment]:
        """Return the partitions in the node of a topic; none without a node."""
        if self.znodes.exists(paths.topic(topic)) is None:
            return {}
        return {one.partition: one for one in nodes.parse_topic(self._data(paths.topic(topic))).assignments}

    def create_topic(self, topic: str, assignment: Mapping[int, Sequence[int]]) -> None:
        self._numbers += 1
        topic_id = self._numbers.to_bytes(16, "big")
        has_ids = ibp_at_least(self.ibp, "2.8-IV0")
        self._ids[topic] = topic_id
        self._put(paths.topic_config(topic), nodes.encode_config({}))
        data = nodes.encode_topic(topic_id if has_ids else None, assignment)
        self.znodes.create(paths.topic(topic), data, makepath=True)

    def delete_topic(self, topic: str) -> None:
        self._put(paths.deleted_topic(topic), b"")

    def add_partition(self, topic: str, replicas: Sequence[int]) -> None:
        """Append a partition, as clients did by ZooKeeper: it may race with a reassignment."""
        data, stat = self.znodes.get(paths.topic(topic))
        read = nodes.parse_topic(data)
        entries = {one.partition: one for one in read.assignments}
        assignment = {number: one.replicas for number, one in entries.items()}
        adding = {number: one.adding for number, one in entries.items() if one.adding}
        removing = {number: one.removing for number, one in entries.items() if one.removing}
        assignment[len(assignment)] = list(replicas)
        encoded = nodes.encode_topic(read.topic_id, assignment, adding, removing)
        self.znodes.set(paths.topic(topic), encoded, stat.version)

    def allow_unclean(self, topic: str) -> None:
        """Allow unclean elections by the configuration of a topic."""
        self.unclean.add(self._ids[topic])
        config = nodes.encode_config({"unclean.leader.election.enable": "true"})
        self._put(paths.topic_config(topic), config)
        change = nodes.encode_config_change("topics", topic)
        self.znodes.create(paths.config_change(), change, sequence=True, makepath=True)

    # -- operators

    def elect(self, controller: ModelController, keys: Sequence[Key], kind: ElectionType) -> None:
        if kind is ElectionType.UNCLEAN:
            self.unclean.update(self._ids[topic] for topic, _ in keys)
        controller.call(
            ControllerState.MANUAL_LEADER_BALANCE,
            "ReplicaLeaderElection",
            lambda core: elections.elect_leaders(core, keys, kind),
        )

    def elect_by_node(self, keys: Sequence[Key]) -> None:
        self._put(paths.PREFERRED_REPLICA_ELECTION, nodes.encode_partitions(keys), once=True)

    def rebalance(self, controller: ModelController) -> None:
        controller.call(ControllerState.AUTO_LEADER_BALANCE, "Rebalance", elections.rebalance)

    def reassign(self, controller: ModelController, wanted: Mapping[Key, Sequence[int] | None]) -> None:
        controller.call(
            ControllerState.ALTER_PARTITION_REASSIGNMENT,
            "ApiPartitionReassignment",
            lambda core: reassignment.alter(core, wanted),
        )

    def reassign_by_node(self, wanted: Mapping[Key, Sequence[int]]) -> None:
        self._put(paths.REASSIGN_PARTITIONS, nodes.encode_reassignments(wanted), once=True)

    def put_malformed(self, path: str) -> None:
        """Write a node that nobody can parse."""
        self._malformed.add(path)
        self._put(path, MALFORMED, once=True)

    def remove_malformed(self) -> None:
        """Remove the nodes that nobody can parse and that are still there."""
        for path in self._malformed:
            if self.znodes.exists(path) and self._data(path) == MALFORMED:
                self.znodes.delete(path)
        self._malformed.clear()

    # -- inside

    def leadership(self, key: Key) -> Leadership | None:
        """Return the state node of a partition."""
        return self.leaderships([key])[key]

    def leaderships(self, keys: Iterable[Key]) -> dict[Key, Leadership | None]:
        """Return the state nodes of partitions."""
        found: dict[Key, Leadership | None] = {}
        for key, answer in [(key, self.znodes.get_async(paths.partition_state(*key))) for key in keys]:
            try:
                data, stat = answer.get()
            except NoNodeError:
                found[key] = None
                continue
            state = nodes.parse_partition_state(data)
            found[key] = Leadership(
                state.leader, state.leader_epoch, state.controller_epoch, state.isr, stat.version
            )
        return found

    def _data(self, path: str) -> bytes:
        data: bytes = self.znodes.get(path)[0]
        return data

    def _put(self, path: str, data: bytes, *, once: bool = False) -> None:
        if self.znodes.exists(path) is None:
            self.znodes.create(path, data, makepath=True)
        elif not once:
            self.znodes.set(path, data)

    @staticmethod
    def _registration(broker: ModelBroker) -> bytes:
        return nodes.encode_registration([Listener("PLAINTEXT", "PLAINTEXT", "localhost", broker.port)])

    def _alter_partition(
        self,
        controller: ModelController,
        broker_id: int,
        key: Key,
        hosted: HostedReplica,
        isr: Sequence[int],
    ) -> None:
        broker, incarnation = self.brokers[broker_id], self.brokers[broker_id].hosted
        by_id = ibp_at_least(self.ibp, "2.8-IV0")
        request = AlterPartitionRequest(
            version=3 if by_id else 1,
            broker_id=broker_id,
            broker_epoch=broker.epoch,
            topics=[self._ids[key[0]] if by_id else key[0].encode()],
            topic=_one(0),
            partition=_one(key[1]),
            leader_epoch=_one(hosted.leader_epoch),
            partition_epoch=_one(hosted.partition_epoch),
            recovery_state=_one(0),
            isr=ListColumn.from_lists([list(isr)]),
        )

        def ask(core: ControllerCore) -> None:
            [result] = alter_partitions(core, [request])
            if isinstance(result, Exception):
                raise result
            now = broker.hosted.get(key)
            if (
                result.error_code == 0
                and result.error[0] == 0
                and broker.hosted is incarnation
                and now is not None
                and now.leader_epoch == result.leader_epoch[0]
                and now.partition_epoch <= result.partition_epoch[0]
            ):
                now.isr = result.isr[0].tolist()
                now.partition_epoch = int(result.partition_epoch[0])

        controller.call(ControllerState.ISR_CHANGE, "AlterPartition", ask)

    def _write_isr(self, broker_id: int, key: Key, hosted: HostedReplica, isr: Sequence[int]) -> None:
        """Write the state node as brokers below 2.7 do, and notify the controller."""
        current = self.leadership(key)
        if current is None or current.version != hosted.partition_epoch:
            return
        state = PartitionState(broker_id, hosted.leader_epoch, current.controller_epoch, list(isr))
        stat = self.znodes.set(
            paths.partition_state(*key), nodes.encode_partition_state(state), current.version
        )
        hosted.isr, hosted.partition_epoch = list(isr), stat.version
        self._check_written(key, state, stat.version)
        self.znodes.create(
            paths.isr_change_notification(), nodes.encode_partitions([key]), sequence=True, makepath=True
        )

    def _written(
        self,
        names: Sequence[bytes],
        topic_row: Int32,
        partition: Int32,
        columns: PartitionStateColumns,
        written: Written,
    ) -> None:
        for row in np.flatnonzero(written.error == 0).tolist():
            state = PartitionState(
                int(columns.leader[row]),
                int(columns.leader_epoch[row]),
                int(columns.controller_epoch[row]),
                columns.isr[row].tolist(),
            )
            key = names[int(topic_row[row])].decode(), int(partition[row])
            self._check_written(key, state, int(written.version[row]))

    def _deleting(self, topics: Sequence[str]) -> None:
        for topic in topics:
            if found := self.assignments(topic):
                replicas = ((number, one) for number, entry in found.items() for one in entry.replicas)
                self.deleted[topic] = set(replicas)

    def _remove_strays(self, broker: ModelBroker) -> None:
        """Remove what was reassigned while the broker was away: no request for it is repeated."""
        assigned = {topic: self.assignments(topic) for topic, _ in broker.logs}
        for key in list(broker.logs):
            topic, number = key
            entry = assigned[topic].get(number)
            waited_for = topic not in self.topics() and (number, broker.id) in self.deleted.get(topic, ())
            if not waited_for and (entry is None or broker.id not in entry.replicas):
                del broker.logs[key]
                broker.hosted.pop(key, None)

    def _read_unknown_writes(self) -> None:
        """Check the state nodes that a controller wrote before it ended, without knowing the result."""
        keys = [(topic, number) for topic in self.topics() for number in self.assignments(topic)]
        for key, found in self.leaderships(keys).items():
            if found is not None and not self.history.has((self._ids[key[0]], key[1]), found.version):
                state = PartitionState(found.leader, found.leader_epoch, found.controller_epoch, found.isr)
                self._check_written(key, state, found.version)

    def _check_written(self, key: Key, state: PartitionState, version: int) -> None:
        assigned = self.assignments(key[0])[key[1]].replicas
        leadership = Leadership(state.leader, state.leader_epoch, state.controller_epoch, state.isr, version)
        self.history.written((self._ids[key[0]], key[1]), leadership, assigned)

    def _was_sent(self, one: Recorded) -> None:
        """Check the leaders of a request. Without topic ids the topic may be an earlier one of this name."""
        body = one.body
        if not isinstance(body, LeaderAndIsrRequest | UpdateMetadataRequest):
            return
        columns = body.partitions
        for row, (_, partition) in enumerate(topic_partitions(body)):
            topic_id = body.topics.ids[columns.topic_row[row]].tobytes()
            leader = int(columns.leader[row])
            if topic_id != _ZERO_ID and leader >= -1:
                self.history.seen((topic_id, partition), leader, int(columns.leader_epoch[row]))


def _one(value: int) -> Int32:
    return np.array([value], np.int32)
