"""A real broker and an embedded one get the same random control requests and must give the same answers.

Responses are compared byte for byte, the metadata for clients afterwards as sets, because its order is that
of hash maps with a history. Requests have few topics, partitions and epochs, so that most of them meet what
former ones left; ``odd`` ones also hold what no controller sends: topics and partitions twice, leader epochs
below zero, a KRaft controller, a listener twice. A failure names its seed and request.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from ctrlchan._codec import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from ctrlchan.launch.embedded import EmbeddedBroker
from tests.acceptance.recordings import ask
from tests.kafka.rig import KafkaRig
from tests.unit.broker.local_broker import (
    NO_ID,
    LiveBroker,
    Part,
    client_frame,
    control_frame,
    read_client_response,
    topic_id,
)

STEPS: Final = 60
OURS: Final = 1
# Names whose hash codes differ by 31 collide with one another's partitions in Kafka's maps.
TOPICS: Final = ("a1x", "a2x", "b-10", "b-20", "b-30", "zz")
PARTITIONS: Final = range(12)
HIGHEST: Final = {LEADER_AND_ISR: 7, STOP_REPLICA: 4, UPDATE_METADATA: 8}
DELETED: Final = -2


@pytest.fixture(scope="module")
def rig(kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaRig]:
    """A broker for these tests alone: it gets controller epochs far above the true one."""
    with KafkaRig(tmp_path_factory.mktemp("random"), brokers=1) as rig:
        yield rig


@pytest.fixture(scope="module")
def epochs() -> Iterator[int]:
    """A controller epoch for each test, above all that the tests before have come to."""
    return itertools.count(1_000, 1_000)


@dataclass
class Both:
    """The two brokers, and where each listens."""

    real: tuple[str, int]
    embedded: tuple[str, int]

    def send(self, frame: bytes) -> tuple[bytes | None, bytes | None]:
        return ask(*self.real, frame), ask(*self.embedded, frame)


class Requests:
    """Random control requests of a controller (mostly) in this epoch."""

    def __init__(self, seed: int, epoch: int, broker_epoch: int, odd: bool) -> None:
        self.choose = random.Random(seed)
        self.epoch = epoch
        self.broker_epoch = broker_epoch
        self.odd = odd

    def next(self) -> tuple[int, int, dict[str, Any]]:
        """(api key, version, arguments of ``control_frame``)."""
        choose = self.choose
        api_key = choose.choices([LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA], [5, 3, 4])[0]
        version = choose.choice([HIGHEST[api_key]] * 9 + list(range(HIGHEST[api_key] + 1)))
        rows = {
            LEADER_AND_ISR: self._leader_and_isr,
            STOP_REPLICA: self._stop_replica,
            UPDATE_METADATA: self._update_metadata,
        }[api_key]
        topics = choose.sample(TOPICS, choose.choice([1, 1, 2, 3, 6]))
        if self._sometimes(0.05):
            topics.append(choose.choice(TOPICS))
        parts = [rows(topic, partition) for topic in topics for partition in self._partitions()]
        if self.odd and version == 0:
            choose.shuffle(parts)
        if version < 6:
            parts = [replace(part, recovery_state=0) for part in parts]
        has_type = version >= {LEADER_AND_ISR: 5, STOP_REPLICA: 5, UPDATE_METADATA: 8}[api_key]
        return (
            api_key,
            version,
            {
                "parts": parts,
                "controller_id": choose.choice([1, 1000, -1] if self.odd else [1, 1000]),
                "controller_epoch": self.epoch + choose.choices([-1, 0, 1], [1, 20, 2 * self.odd])[0],
                "broker_epoch": choose.choices(
                    [-1, self.broker_epoch, self.broker_epoch - 1, self.broker_epoch + 1], [4, 10, 1, 1]
                )[0],
                "kraft": version == HIGHEST[api_key] and self._sometimes(0.08),
                "ids": {topic: self._topic_id(topic) for topic in topics},
                "topics": choose.sample(TOPICS, 1) if api_key == UPDATE_METADATA and version >= 5 else (),
                "live": self._live_brokers(version),
                "request_type": choose.choice([0, 1, 2]) if has_type else 0,
            },
        )

    def _sometimes(self, share: float) -> bool:
        return self.odd and self.choose.random() < share

    def _partitions(self) -> list[int]:
        partitions = self.choose.sample(PARTITIONS, self.choose.choice([1, 1, 2, 4, 12]))
        if self._sometimes(0.1):
            partitions.append(self.choose.choice(partitions))
        return partitions

    def _topic_id(self, topic: str) -> bytes:
        return self.choose.choices([topic_id(topic), topic_id(topic + "'"), NO_ID], [14, 1, 3])[0]

    def _brokers(self) -> tuple[int, ...]:
        return tuple(self.choose.sample([1, 2, 3, 9], self.choose.choice([1, 2, 3])))

    def _leader_and_isr(self, topic: str, partition: int) -> Part:
        choose, replicas = self.choose, self._brokers()
        if OURS not in replicas and choose.random() < 0.8:
            replicas = (*replicas, OURS)
        return Part(
            topic,
            partition,
            leader=choose.choice([1, 1, 1, 2, 2, 3, 9, -1]),
            leader_epoch=choose.choice([*range(6), *([-1, -2, -3] if self._sometimes(0.2) else [])]),
            partition_epoch=choose.choice([0, 0, 0, 1, 2]),
            isr=self._brokers(),
            replicas=replicas,
            recovery_state=choose.choice([0, 0, 1]),
        )

    def _stop_replica(self, topic: str, partition: int) -> Part:
        choose = self.choose
        return Part(topic, partition, leader_epoch=choose.choice(range(-3, 6)), delete=choose.random() < 0.3)

    def _update_metadata(self, topic: str, partition: int) -> Part:
        choose = self.choose
        return Part(
            topic,
            partition,
            leader=choose.choice([1, 1, 2, 3, 9, -1, *[DELETED] * choose.choice([0, 0, 12])]),
            leader_epoch=choose.choice(range(6)),
            isr=self._brokers(),
            replicas=self._brokers(),
            offline=tuple(choose.sample([1, 2, 3, 9], choose.choice([0, 1]))),
        )

    def _live_brokers(self, version: int) -> Sequence[LiveBroker]:
        choose = self.choose
        names: tuple[str, ...] = ("PLAINTEXT",)
        if version >= 3 and self._sometimes(0.1):
            names = choose.choice([("OTHER",), ("PLAINTEXT", "PLAINTEXT"), ("OTHER", "PLAINTEXT")])
        listeners = tuple((name if version >= 3 else "", 0) for name in names)
        ids = choose.choice([[1, 2, 3]] * 6 + [[1], [2, 3], [3, 1], []])
        return [
            LiveBroker(broker, listeners, choose.choice([None, "r"]) if version >= 2 else None)
            for broker in ids
        ]


@pytest.mark.parametrize("odd", [False, True], ids=["plain", "odd"])
@pytest.mark.parametrize("seed", range(6))
def test_both_brokers_give_the_same_answers(
    rig: KafkaRig, epochs: Iterator[int], seed: int, odd: bool
) -> None:
    registered = rig.broker(OURS)
    endpoint = registered.endpoint("PLAINTEXT")
    cluster_id = json.loads(rig.zookeeper.get("/cluster/id")[0])["id"]
    epoch = next(epochs)
    requests = Requests(seed, epoch, registered.epoch, odd)
    with EmbeddedBroker(OURS, epoch=registered.epoch, cluster_id=cluster_id) as embedded:
        both = Both((endpoint.host, endpoint.port), ("127.0.0.1", embedded.port))
        _clear(both, epoch)
        for step in range(STEPS):
            api_key, version, arguments = requests.next()
            where = f"seed {seed}, step {step}: api {api_key} v{version} {arguments}"
            real, ours = both.send(control_frame(api_key, version, **arguments))
            assert _hex(ours) == _hex(real), where
            requests.epoch = max(requests.epoch, embedded.describe()["controller_epoch"])
            if api_key == UPDATE_METADATA:
                _compare_clients(both, requests.choose, where)


def _clear(both: Both, epoch: int) -> None:
    """Remove every hosted replica and all metadata of both brokers."""
    everything = [Part(topic, partition) for topic in TOPICS for partition in PARTITIONS]
    head: dict[str, Any] = {"controller_epoch": epoch, "broker_epoch": -1, "live": []}
    deleted = [Part(part.topic, part.partition, leader=DELETED) for part in everything]
    stopped = [Part(part.topic, part.partition, leader_epoch=-2, delete=True) for part in everything]
    for frame in (
        control_frame(UPDATE_METADATA, 8, everything, **head),
        control_frame(UPDATE_METADATA, 8, deleted, **head),
        control_frame(STOP_REPLICA, 4, stopped, **head),
    ):
        both.send(frame)


def _compare_clients(both: Both, choose: random.Random, where: str) -> None:
    version = choose.choice([12] * 3 + list(range(4, 13)))
    asked: list[Any] | None = choose.choice([None, [*TOPICS[:2], "absent", "not a name"]])
    frame = client_frame(3, version, topics=asked)
    real, ours = (_as_sets(read_client_response(3, version, answer or b"")) for answer in both.send(frame))
    # The controller id is left out: a random broker stands for a KRaft controller.
    assert ours == real, f"Metadata v{version} of {asked} after {where}"


def _as_sets(body: Any) -> dict[str, Any]:
    """A Metadata response without the order of its brokers, topics and partitions."""

    def fields(entity: Any, *without: str) -> tuple[Any, ...]:
        names = entity.__dataclass_fields__
        return tuple(
            getattr(entity, name) for name in names if name not in without and not name.startswith("__")
        )

    return {
        "brokers": {fields(broker) for broker in body.brokers},
        "cluster": body.cluster_id,
        "topics": {
            (fields(topic, "partitions"), frozenset(fields(partition) for partition in topic.partitions))
            for topic in body.topics
        },
    }


def _hex(response: bytes | None) -> str:
    return "closed the connection" if response is None else response.hex()
