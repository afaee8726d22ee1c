"""Does to the cluster what the plan says. Each fault has a thread and heals what it has done."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import KafkaError as KafkaPythonError

from tests.chaos.cluster import Cluster
from tests.chaos.nodes import BrokerNode, ChaosError, Node, broker_id
from tests.chaos.plan import BROKERS, Fault, Kind
from tests.chaos.producing import TOPICS
from tests.chaos.records import Partition
from tests.chaos.torn import tear_logs
from tests.chaos.view import NotSeenError

__all__ = ["Faults"]

#: Seconds that a broker of a rolling restart is given to catch up, and in which a dead one has left the ISRs.
_CATCH_UP: Final = 20.0
_LEAVE: Final = 20.0
#: The file that fills a disk.
_FILLER: Final = "filler"
#: The kind of an election.
_PREFERRED: Final = 0

# Clients say what they get over.
logging.getLogger("kafka").setLevel(logging.CRITICAL)
logging.getLogger("kazoo").setLevel(logging.CRITICAL)


class Faults:
    """Runs the faults of a round. ``failures``: what nodes did that they must not do."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._threads: list[threading.Thread] = []
        self.failures: list[ChaosError] = []
        #: Faults by kind, and requests that were refused while the cluster could not do better.
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._do: Mapping[Kind, Callable[[Fault, random.Random], None]] = {
            Kind.KILL: self._kill,
            Kind.TEAR: self._tear,
            Kind.FREEZE: self._freeze,
            Kind.RESTART: self._restart,
            Kind.ROLLING_RESTART: self._rolling_restart,
            Kind.POWER_CUT: self._kill,
            Kind.FULL_DISK: self._full_disk,
            Kind.CUT_LINK: self._cut_link,
            Kind.KILL_ZOOKEEPER: self._kill,
            Kind.KILL_CONTROLLER: self._kill,
            Kind.FREEZE_CONTROLLER: self._freeze,
            Kind.RESTART_CONTROLLER: self._restart,
            Kind.MOVE_CONTROLLER: self._move_controller,
            Kind.REASSIGN: self._reassign,
            Kind.ELECT: self._elect,
        }

    def begin(self, fault: Fault) -> None:
        """Begin a fault."""
        thread = threading.Thread(target=self._run, args=[fault], name=fault.kind, daemon=True)
        self._threads.append(thread)
        thread.start()

    def under_way(self) -> int:
        """Return how many faults have not healed."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        return len(self._threads)

    def join(self) -> None:
        """Wait until all faults have healed, or have given up."""
        for thread in self._threads:
            thread.join()

    def _run(self, fault: Fault) -> None:
        history = self._cluster.history
        history.add("fault", kind=fault.kind, targets=fault.targets, duration=fault.duration)
        try:
            self._do[fault.kind](fault, random.Random(fault.seed))
        except NotSeenError:
            self.refused["ZooKeeper"] += 1
        except ChaosError as error:
            self.failures.append(error)
        except Exception as error:  # noqa: BLE001 - a fault that is not done is no proof of anything
            self.failures.append(ChaosError(f"{fault.kind}: {error!r}"))
        self.done[fault.kind] += 1
        history.add("healed", kind=fault.kind, targets=fault.targets)

    def _wait(self, seconds: float) -> None:
        self._cluster.given_up.wait(seconds)

    def _start(self, node: Node) -> None:
        node.start(self._cluster.given_up)

    # -- processes

    def _kill(self, fault: Fault, _chance: random.Random) -> None:
        nodes = [self._cluster.nodes[name] for name in fault.targets]
        with ExitStack() as stack:
            for node in nodes:
                stack.enter_context(node.lock)
            for node in nodes:
                node.kill()
            self._wait(fault.duration)
            for node in nodes:
                self._start(node)

    def _freeze(self, fault: Fault, _chance: random.Random) -> None:
        with ExitStack() as stack:
            for name in fault.targets:
                node = self._cluster.nodes[name]
                stack.enter_context(node.lock)
                stack.enter_context(node.frozen())
            self._wait(fault.duration)

    def _restart(self, fault: Fault, _chance: random.Random) -> None:
        for name in fault.targets:
            node = self._cluster.nodes[name]
            with node.lock:
                node.terminate()
                self._start(node)

    def _rolling_restart(self, fault: Fault, chance: random.Random) -> None:
        for name in fault.targets:
            self._restart(Fault(0, Kind.RESTART, (name,), 0, 0), chance)
            deadline = time.monotonic() + _CATCH_UP
            while time.monotonic() < deadline and not self._cluster.given_up.wait(0.5):
                with suppress(NotSeenError):
                    if not self._cluster.view.out_of_sync():
                        break

    def _tear(self, fault: Fault, chance: random.Random) -> None:
        broker = self._broker(fault)
        with broker.lock:
            broker.kill()
            self._wait(fault.duration)
            in_sync = self._in_sync(broker)
            for log_dir in broker.log_dirs:
                if log_dir.exists():
                    done = tear_logs(log_dir, in_sync, chance)
                    self._cluster.history.add("torn", broker=broker.name, logs=done)
            self._start(broker)

    def _in_sync(self, broker: BrokerNode) -> Callable[[Partition], bool]:
        """Wait until a dead broker has left the ISRs, and return whether it is in that of a partition."""
        view, number = self._cluster.view, broker_id(broker.name)
        deadline = time.monotonic() + _LEAVE
        left: set[Partition] = set()
        while time.monotonic() < deadline and not self._cluster.given_up.wait(0.2):
            with suppress(NotSeenError):
                if number in view.broker_ids():
                    continue
                left = {
                    (topic, one)
                    for topic in view.topics()
                    for one, partition in view.topic(topic).partitions.items()
                    if number not in partition.state.isr
                }
                if left:
                    break
        return lambda partition: partition not in left

    def _broker(self, fault: Fault) -> BrokerNode:
        broker = self._cluster.nodes[fault.targets[0]]
        assert isinstance(broker, BrokerNode)
        return broker

    # -- disks, links, ZooKeeper

    def _full_disk(self, fault: Fault, chance: random.Random) -> None:
        """Fill a disk, and start the broker again when there is room: as in Kafka, nothing else helps."""
        broker = self._broker(fault)
        disk = chance.choice(broker.disks)
        with broker.lock:
            # A broker without a log directory ends.
            broker.up_since = None
            _fill(disk / _FILLER)
            self._wait(fault.duration)
            (disk / _FILLER).unlink()
            if broker.has_ended():
                broker.kill()
            else:
                broker.terminate()
            self._start(broker)

    def _cut_link(self, fault: Fault, _chance: random.Random) -> None:
        self._cluster.hosts.cut(*fault.targets)
        try:
            self._wait(fault.duration)
        finally:
            self._cluster.hosts.heal(*fault.targets)

    def _move_controller(self, _fault: Fault, _chance: random.Random) -> None:
        self._cluster.view.move_controller()

    # -- requests of administrators, which may be refused

    def _reassign(self, _fault: Fault, chance: random.Random) -> None:
        moves = {}
        for topic in chance.choices(TOPICS, k=chance.randint(1, 4)):
            replicas = chance.sample([broker_id(name) for name in BROKERS], topic.replicas)
            moves[KafkaPythonPartition(topic.name, chance.randrange(topic.partitions))] = replicas
        answered = self._ask(lambda client: client.alter_partition_reassignments(moves, timeout_ms=10_000))
        if answered is not None:
            self._cluster.history.add("reassigned", moves={f"{one}": to for one, to in moves.items()})
            self.refused.update(error.__name__ for error in answered.values() if error is not None)

    def _elect(self, _fault: Fault, _chance: random.Random) -> None:
        partitions = {topic.name: list(range(topic.partitions)) for topic in TOPICS}
        # That no election was needed is an answer, too.
        self._ask(
            lambda client: client.elect_leaders(_PREFERRED, partitions, timeout_ms=10_000, raise_errors=False)
        )

    def _ask(self, do: Callable[[Any], Any]) -> Any:
        """Return the answer to an administrator, None where the cluster could do no better now."""
        client = None
        try:
            client = KafkaAdminClient(
                bootstrap_servers=self._cluster.bootstrap, request_timeout_ms=10_000, client_id="admin"
            )
            return do(client)
        except (KafkaPythonError, RuntimeError) as error:
            # kafka-python raises RuntimeError where there is no controller.
            self.refused[type(error).__name__] += 1
            return None
        finally:
            if client is not None:
                client.close()


def _fill(path: Path) -> None:
    """Write to a file until nothing more fits."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            block = bytes(size)
            with suppress(OSError):
                while True:
                    if os.write(file.fileno(), block) < size:
                        break
