"""Synthetic clusters. The same settings give the same cluster on every machine.

Replicas are placed as Kafka places them (``kafka.admin.AdminUtils.assignReplicasToBrokers``): the first
replicas of a topic go round the brokers from a random one, the others follow at a distance that grows by one
with each round; with racks, a replica goes to a rack without a replica of the partition, if there is one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import Brokers, ListColumn, Partitions, StringColumn, Topics
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import NO_LEADER
from ctrlchan.state.brokers import MAX_PORT, Broker, Endpoint, SecurityProtocol, brokers_from
from ctrlchan.state.cluster_state import ClusterState
from ctrlchan.state.lists import select
from ctrlchan.topic_names import why_invalid

__all__ = ["GeneratorConfig", "generate"]

Bool = npt.NDArray[np.bool_]
Int32 = npt.NDArray[np.int32]
UInt8 = npt.NDArray[np.uint8]

#: A topic's number has at least this many digits: topic-000123.
_DIGITS = 6
_MAX_INT32 = 2**31 - 1
_MAX_ROWS = _MAX_INT32


@dataclass(frozen=True, kw_only=True)
class GeneratorConfig:
    """The shape of the cluster. Raises ConfigError that names the setting.

    Broker ids run from 0. Without ``address`` broker b listens with its listener l on ``host``, port
    ``first_port + b * len(listeners) + l``; with it every broker is at that host, listener l at its port + l.
    """

    topics: int = 1_000
    partitions_per_topic: int = 100
    brokers: int = 30
    replication: int = 3
    racks: int = 0
    #: Of all replicas, those that are offline (in a failed directory of a live broker): 0.0 .. 1.0.
    offline_share: float = 0.0
    seed: int = 0
    cluster_id: str = "ctrlchan-synthetic-cluster"
    controller_id: int = 0
    controller_epoch: int = 1
    host: str = "127.0.0.1"
    first_port: int = 19_092
    address: tuple[str, int] | None = None
    listeners: tuple[tuple[str, SecurityProtocol], ...] = (("PLAINTEXT", SecurityProtocol.PLAINTEXT),)
    topic_prefix: str = "topic-"

    def __post_init__(self) -> None:
        for name in ("topics", "partitions_per_topic", "brokers", "racks", "seed", "controller_epoch"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name}: {getattr(self, name)} is below 0")
        for name in ("controller_id", "controller_epoch"):
            if getattr(self, name) >= _MAX_INT32:
                raise ConfigError(f"{name}: {getattr(self, name)} is not below {_MAX_INT32}")
        if self.topics * self.partitions_per_topic * max(self.replication, 1) > _MAX_ROWS:
            raise ConfigError(f"topics: more than {_MAX_ROWS:,} replicas in all")
        if not 1 <= self.replication <= self.brokers:
            raise ConfigError(f"replication: {self.replication} is not in 1 .. {self.brokers} (brokers)")
        if self.racks > self.brokers:
            raise ConfigError(f"racks: {self.racks} for {self.brokers} brokers leave one empty")
        if not 0.0 <= self.offline_share <= 1.0:
            raise ConfigError(f"offline_share: {self.offline_share} is not in 0 .. 1")
        if not self.listeners or len({name for name, _ in self.listeners}) < len(self.listeners):
            raise ConfigError("listeners: none, or one name twice")
        first = self.first_port if self.address is None else self.address[1]
        last = first + len(self.listeners) * (self.brokers if self.address is None else 1) - 1
        if first < 1 or last > MAX_PORT:
            raise ConfigError(f"first_port: ports {first} .. {last} are not in 1 .. {MAX_PORT}")
        wrong = why_invalid(self.topic_prefix + "0" * self.digits)
        if wrong is not None:
            raise ConfigError(f"topic_prefix: {wrong}")

    @property
    def digits(self) -> int:
        """Digits of a topic's number in its name."""
        return max(_DIGITS, len(str(self.topics - 1)))


def generate(config: GeneratorConfig) -> ClusterState:
    """Return a cluster of this shape without violated invariants."""
    rng = _Random(config.seed)
    topics = Topics(_names(config), _topic_ids(rng, config.topics))
    count = config.topics * config.partitions_per_topic
    partition = np.tile(np.arange(config.partitions_per_topic, dtype=np.int32), config.topics)
    placed = _place(rng, config, partition)
    replicas = _lists_of(placed)
    offline_flags = rng.choose(placed.size, round(placed.size * config.offline_share))
    isr, leader = _isr_and_leader(replicas, placed, offline_flags)
    leader_epoch = rng.below(50, count)
    return ClusterState(
        topics,
        Partitions(
            topic_row=np.repeat(np.arange(config.topics, dtype=np.int32), config.partitions_per_topic),
            partition=partition,
            controller_epoch=rng.below(config.controller_epoch + 1, count),
            leader=leader,
            leader_epoch=leader_epoch,
            partition_epoch=leader_epoch + rng.below(100, count),
            recovery_state=np.zeros(count, np.int32),
            isr=isr,
            replicas=replicas,
            offline=select(replicas, offline_flags),
        ),
        _brokers(rng, config),
        cluster_id=config.cluster_id,
        controller_id=config.controller_id,
        controller_epoch=config.controller_epoch,
    )


class _Random:
    """Random numbers from the bits of PCG64, which NumPy never changes; its distributions it does."""

    def __init__(self, seed: int) -> None:
        self._source = np.random.PCG64(seed)

    def bits(self, count: int) -> npt.NDArray[np.uint64]:
        """Return ``count`` numbers of 64 random bits."""
        return np.asarray(self._source.random_raw(count), dtype=np.uint64)

    def below(self, limit: int, count: int) -> Int32:
        """Return ``count`` numbers in 0 .. limit - 1."""
        return ((self.bits(count) >> np.uint64(33)) % np.uint64(limit)).astype(np.int32)

    def choose(self, total: int, count: int) -> Bool:
        """Return ``total`` flags of which ``count`` are set."""
        drawn = self.bits(total)
        return drawn <= np.partition(drawn, count - 1)[count - 1] if count else np.zeros(total, dtype=bool)


def _names(config: GeneratorConfig) -> StringColumn:
    """Return ``topic-000123`` and so on: all of one length, so a matrix of characters."""
    prefix = np.frombuffer(config.topic_prefix.encode(), np.uint8)
    names = np.empty((config.topics, len(prefix) + config.digits), np.uint8)
    names[:, : len(prefix)] = prefix
    numbers = np.arange(config.topics)
    for digit in range(config.digits):
        names[:, -1 - digit] = ord("0") + numbers // 10**digit % 10
    width = names.shape[1]
    starts = np.arange(config.topics, dtype=np.int32) * np.int32(width)
    return StringColumn(starts, np.full(config.topics, width, np.int32), names.reshape(-1))


def _topic_ids(rng: _Random, count: int) -> UInt8:
    """Return random UUIDs of version 4, as ``Uuid.randomUuid`` makes them."""
    ids = rng.bits(2 * count).astype("<u8").view(np.uint8).reshape(count, 16)
    ids[:, 6] = ids[:, 6] & 0x0F | 0x40
    ids[:, 8] = ids[:, 8] & 0x3F | 0x80
    # Kafka uses no id whose text begins with a dash, which stands for 62 in the first 6 bits.
    ids[ids[:, 0] >> 2 == 62, 0] = 0
    return ids


def _place(rng: _Random, config: GeneratorConfig, partition: Int32) -> Int32:
    """Return int32[partitions, replication]: broker ids, the preferred leader first."""
    brokers = config.brokers
    # Broker b is in rack b % racks, so neighbours by id are in different racks.
    racks = config.racks or 1
    per_topic = config.partitions_per_topic
    start = np.repeat(rng.below(brokers, config.topics), per_topic)
    shift = np.repeat(rng.below(brokers, config.topics), per_topic)
    shift += partition // np.int32(brokers)
    placed = np.empty((len(partition), config.replication), np.int32)
    placed[:, 0] = (start + partition) % brokers
    for replica in range(1, config.replication):
        pending = np.arange(len(partition))
        step = 0
        while len(pending):
            first = placed[pending, 0]
            distance = 1 + (shift[pending] + replica - 1 + step) % (brokers - 1)
            candidate = ((first + distance) % brokers).astype(np.int32)
            chosen = placed[pending, :replica]
            taken = (chosen == candidate[:, None]).any(axis=1)
            if replica < racks:
                taken |= (chosen % racks == (candidate % racks)[:, None]).any(axis=1)
            placed[pending[~taken], replica] = candidate[~taken]
            pending = pending[taken]
            step += 1
    return placed


def _isr_and_leader(replicas: ListColumn, placed: Int32, offline: Bool) -> tuple[ListColumn, Int32]:
    """Return (ISR, leader): the online replicas, led by the first.

    Without an online replica the partition has no leader, and the preferred leader is the only one in the
    ISR, as after the last replica has failed.
    """
    online = ~offline.reshape(placed.shape)
    alive = online.any(axis=1)
    leader = np.where(alive, placed[np.arange(len(placed)), online.argmax(axis=1)], NO_LEADER).astype(
        np.int32
    )
    online[~alive, 0] = True
    return select(replicas, online.reshape(-1)), leader


def _lists_of(matrix: Int32) -> ListColumn:
    rows, width = matrix.shape
    starts = np.arange(rows, dtype=np.int32) * np.int32(width)
    return ListColumn(starts, np.full(rows, width, np.int32), matrix.reshape(-1))


def _brokers(rng: _Random, config: GeneratorConfig) -> Brokers:
    """Return the brokers; their epochs ascend, as czxids of successive registrations do."""
    epochs = 1_000 + np.cumsum(1 + rng.below(49, config.brokers), dtype=np.int64)
    made = []
    for broker, epoch in enumerate(epochs.tolist()):
        endpoints = []
        for place, (listener, protocol) in enumerate(config.listeners):
            if config.address is None:
                host, port = config.host, config.first_port + broker * len(config.listeners) + place
            else:
                host, port = config.address[0], config.address[1] + place
            endpoints.append(Endpoint(listener, protocol, host, port))
        rack = f"rack-{broker % config.racks}" if config.racks else None
        made.append(Broker(broker, epoch, tuple(endpoints), rack))
    return brokers_from(made)
