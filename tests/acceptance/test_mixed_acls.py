"""ACLs of a broker of Kafka and of one of the package in one cluster: each changes them, both follow."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until
from tests.kafka.wire import exchange_on
from tests.unit.broker.local_broker import client_frame, read_client_response

pytestmark = pytest.mark.long

JVM, OURS = 1, 2
METADATA = 3
FRIEND, STRANGER = "127.0.0.1", "127.0.0.2"
UNKNOWN, DENIED = 3, 29
TIMEOUT = 60.0
PROPERTIES = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    # The brokers need no ACL.
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
}


@pytest.fixture(scope="module")
def rig(kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaRig]:
    folder = tmp_path_factory.mktemp("mixed-acls")
    with KafkaRig(folder, brokers=2, ours=(OURS,), properties=PROPERTIES) as rig:
        yield rig


def address(rig: KafkaRig, broker_id: int) -> tuple[str, int]:
    endpoint = rig.broker(broker_id).endpoint("PLAINTEXT")
    return endpoint.host, endpoint.port


def acl(topic: str, kind: Any = ResourcePatternType.LITERAL) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, topic, kind, "User:ANONYMOUS", FRIEND, AclOperation.ALL, AclPermissionType.ALLOW
    )


def create(rig: KafkaRig, broker_id: int, one: AclBinding) -> None:
    host, port = address(rig, broker_id)
    admin = AdminClient({"bootstrap.servers": f"{host}:{port}"})
    for made in admin.create_acls([one], request_timeout=TIMEOUT).values():
        made.result(TIMEOUT)


def delete(rig: KafkaRig, broker_id: int, one: AclBinding) -> None:
    exactly = AclBindingFilter(
        one.restype, one.name, one.resource_pattern_type, one.principal, one.host, one.operation,
        one.permission_type,
    )  # fmt: skip
    host, port = address(rig, broker_id)
    admin = AdminClient({"bootstrap.servers": f"{host}:{port}"})
    [deleted] = admin.delete_acls([exactly], request_timeout=TIMEOUT).values()
    assert list(deleted.result(TIMEOUT)) == [one]


def error_of(rig: KafkaRig, broker_id: int, host: str, topic: str) -> int:
    """What a client of this address is answered about a topic that does not exist."""
    with socket.create_connection(address(rig, broker_id), TIMEOUT, (host, 0)) as one:
        answer = exchange_on(one, client_frame(METADATA, 12, topics=[topic]))
    [found] = read_client_response(METADATA, 12, answer).topics
    return int(found.error_code.value)


def answers(rig: KafkaRig, broker_id: int, host: str, topic: str, error: int) -> bool:
    return error_of(rig, broker_id, host, topic) == error


def wait_for(rig: KafkaRig, broker_id: int, host: str, topic: str, error: int) -> None:
    wait_until(
        partial(answers, rig, broker_id, host, topic, error),
        timeout=TIMEOUT,
        what=f"broker {broker_id} answers {host} about {topic} with {error}",
    )


@pytest.mark.parametrize("kind", [ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED])
@pytest.mark.parametrize(("maker", "other"), [(JVM, OURS), (OURS, JVM)])
def test_acls_of_either_hold_on_both(rig: KafkaRig, maker: int, other: int, kind: Any) -> None:
    topic = f"of-{maker}-{kind.name.lower()}"
    one = acl(topic, kind)
    create(rig, maker, one)
    for broker_id in (maker, other):
        wait_for(rig, broker_id, STRANGER, topic, DENIED)
        assert error_of(rig, broker_id, FRIEND, topic) == UNKNOWN
    # What one has made, the other deletes.
    delete(rig, other, one)
    for broker_id in (maker, other):
        wait_for(rig, broker_id, STRANGER, topic, UNKNOWN)


def test_a_damaged_node_denies_on_our_broker(rig: KafkaRig) -> None:
    """Kafka takes it for one without ACLs."""
    topic = "damaged"
    path, change = f"/kafka-acl/Topic/{topic}", "/kafka-acl-changes/acl_changes_"
    create(rig, JVM, acl(topic))
    wait_for(rig, OURS, STRANGER, topic, DENIED)
    whole, _ = rig.zookeeper.get(path)
    for data in (b"no JSON", b'{"version":2,"acls":[]}', b'{"version":1,"acls":{}}', b"\xff" * 1000):
        rig.zookeeper.set(path, data)
        rig.zookeeper.create(change, f"TOPIC:{topic}".encode(), sequence=True)
        wait_for(rig, OURS, FRIEND, topic, DENIED)
        assert error_of(rig, OURS, STRANGER, topic) == DENIED
        # Mended by somebody else.
        rig.zookeeper.set(path, whole)
        rig.zookeeper.create(change, f"TOPIC:{topic}".encode(), sequence=True)
        wait_for(rig, OURS, FRIEND, topic, UNKNOWN)
        assert error_of(rig, OURS, STRANGER, topic) == DENIED
