"""``leaders``: leaders that move: other preferred replicas by reassignment, then preferred elections."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from ctrlchan.errors import ConfigError, CtrlchanError, ErrorCode
from ctrlchan.loads.guard import admin_client
from ctrlchan.loads.load import Load
from ctrlchan.loads.worker import Worker

__all__ = ["LeadersLoad", "settings_of_kafka_python"]

#: kafka-python's names of librdkafka's settings.
_NAMES: Final = {
    "bootstrap.servers": "bootstrap_servers",
    "client.id": "client_id",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}
_IDENTIFICATION: Final = "ssl.endpoint.identification.algorithm"
_SECURED: Final = ("security.", "sasl.", "ssl.")
_MILLISECONDS: Final = 60_000
#: Codes of partitions that their preferred replica leads after an election.
_LED: Final = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
#: The type of an election.
_PREFERRED: Final = 0
#: Seconds for the replicas of the topic.
_SECONDS: Final = 30.0


@dataclass(frozen=True, kw_only=True)
class LeadersLoad(Load):
    """``batch`` partitions in each request; the rate counts partitions.

    A partition's replicas get another order, rotated by one, then the first of them is elected.
    ``move`` lasts from when it was due until the elected leaders are answered, and has ``reassign`` and
    ``elect``, one after the other.
    """

    kind: ClassVar[str] = "leaders"

    batch: int

    def check(self) -> None:
        self._require(self.partitions >= self.clients, "each client moves partitions of its own")

    def work(self, worker: Worker) -> None:
        from kafka.admin import KafkaAdminClient
        from kafka.errors import KafkaError as ClientError

        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        own = self.own_partitions(worker.number)
        # It does both requests; librdkafka has no reassignment.
        admin = KafkaAdminClient(**settings_of_kafka_python(worker.settings))
        try:
            replicas = self._replicas(worker, own)
            some = [own[first : first + self.batch] for first in range(0, len(own), self.batch)]
            for name in ("move", "reassign", "elect"):
                worker.operation(name)
            worker.start()
            for number, due in enumerate(worker.due(time.sleep, each=self.batch)):
                self._move(worker, admin, due, some[number % len(some)], replicas)
        except ClientError as problem:
            raise CtrlchanError(f"client {worker.number} of the load: {problem}") from None
        finally:
            admin.close()

    def _move(
        self, worker: Worker, admin: Any, due: float, partitions: list[int], replicas: dict[int, list[int]]
    ) -> None:
        """Move the leaders of these partitions to their next replicas."""
        from kafka import TopicPartition

        wanted = {number: [*replicas[number][1:], replicas[number][0]] for number in partitions}
        answer = admin.alter_partition_reassignments(
            {TopicPartition(self.topic, number): order for number, order in wanted.items()},
            timeout_ms=_MILLISECONDS,
        )
        errors = {key.partition: problem.errno for key, problem in answer.items() if problem is not None}
        reassigned = self._count(worker, "reassign", due, partitions, errors)
        replicas.update((number, wanted[number]) for number in reassigned)
        if not reassigned:
            return
        begun = time.monotonic()
        elected = admin.elect_leaders(
            _PREFERRED,
            {self.topic: reassigned},
            timeout_ms=_MILLISECONDS,
            raise_errors=False,
        )
        results = [one for topic in elected.replica_election_results for one in topic.partition_result]
        # The controller's automatic rebalance may have been sooner: the leader has moved then, too.
        errors = {one.partition_id: one.error_code for one in results if one.error_code not in _LED}
        moved = self._count(worker, "elect", begun, reassigned, errors)
        if moved:
            worker.ended(worker.operation("move"), due, items=len(moved))

    def _count(
        self, worker: Worker, name: str, due: float, partitions: list[int], errors: Mapping[int, int]
    ) -> list[int]:
        """Count one request; return the partitions without an error."""
        operation = worker.operation(name)
        for code in errors.values():
            worker.failed(operation, ErrorCode.name_of(code))
        done = [number for number in partitions if number not in errors]
        if done:
            worker.ended(operation, due, items=len(done))
        return done

    def _replicas(self, worker: Worker, own: list[int]) -> dict[int, list[int]]:
        """Return the replicas of each partition, in their order. Raises ConfigError if there is one."""
        found = admin_client(worker.settings).list_topics(self.topic, timeout=_SECONDS).topics[self.topic]
        replicas = {number: list(found.partitions[number].replicas) for number in own}
        if any(len(one) < 2 for one in replicas.values()):
            raise ConfigError("leaders move between replicas: --replication 2 or more, with as many brokers")
        return replicas


def settings_of_kafka_python(client: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of librdkafka as arguments of kafka-python.

    Raises ConfigError for one of security that has no counterpart; all others do not matter here.
    """
    found: dict[str, Any] = {}
    for name, value in client.items():
        if name in _NAMES:
            found[_NAMES[name]] = value
        elif name == _IDENTIFICATION:
            found["ssl_check_hostname"] = value == "https"
        elif name.startswith(_SECURED):
            raise ConfigError(f"leaders: {name} is no setting of kafka-python, which moves the leaders")
    if "security_protocol" in found:
        found["security_protocol"] = found["security_protocol"].upper()
    return found
