"""A cluster with Kafka's authorizer: ACLs by a client, and what they allow and deny on all brokers."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from ctrlchan import TEMPORARY, EmbeddedCluster
from ctrlchan.errors import ErrorCode
from tests.kafka.waiting import wait_until
from tests.kafka.wire import exchange_on
from tests.unit.broker.acl_filters import every_topic_acl
from tests.unit.broker.local_broker import client_frame, read_client_response

LIST_OFFSETS, METADATA = 2, 3
ANYBODY = "User:ANONYMOUS"
CONFIGS: dict[str, str | int | float] = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": True,
}


def acl(name: str, kind: Any = ResourcePatternType.LITERAL, host: str = "127.0.0.1") -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, name, kind, ANYBODY, host, AclOperation.ALL, AclPermissionType.ALLOW
    )


def topics_seen(port: int, host: str) -> set[str]:
    """The names that a client with this address sees."""
    with socket.create_connection(("127.0.0.1", port), 20, (host, 0)) as connection:
        answer = exchange_on(connection, client_frame(METADATA, 12, topics=None))
    return {topic.name for topic in read_client_response(METADATA, 12, answer).topics}


def sees(port: int, names: set[str]) -> bool:
    """Whether the other client sees these topics, and no more."""
    return topics_seen(port, "127.0.0.2") == names


def error_for(port: int, host: str, name: str) -> int:
    with socket.create_connection(("127.0.0.1", port), 20, (host, 0)) as connection:
        answer = exchange_on(connection, client_frame(METADATA, 12, topics=[name]))
    [topic] = read_client_response(METADATA, 12, answer).topics
    return int(topic.error_code.value)


def test_acls_of_a_client_hold_on_all_brokers() -> None:
    with EmbeddedCluster(2, log_dir=TEMPORARY, configs=CONFIGS) as cluster:
        for name in ("open", "secret", "pre-1"):
            cluster.create_topic(name, partitions=1, replication_factor=2)
        ports = [broker.endpoints[0].port for broker in cluster.brokers]
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        made = [acl("secret"), acl("pre-", ResourcePatternType.PREFIXED)]
        for done in admin.create_acls(made, request_timeout=20).values():
            done.result(30)
        every = every_topic_acl()
        wait_until(
            lambda: set(admin.describe_acls(every, request_timeout=20).result(30)) == set(made),
            what="the broker that answers has both",
        )
        for port in ports:
            wait_until(partial(sees, port, {"open"}), what="they hold")
            assert topics_seen(port, "127.0.0.1") == {"open", "secret", "pre-1"}
            # Existence is no answer to who may not see it.
            for name in ("secret", "pre-1", "pre-none"):
                assert error_for(port, "127.0.0.2", name) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        # Replication, and clients that are allowed, go on.
        cluster.produce("secret", "1", "2")
        assert [one.value for one in cluster.records("secret", at_least=2)] == [b"1", b"2"]
        [found] = admin.delete_acls([every], request_timeout=20).values()
        assert set(found.result(30)) == set(made)
        for port in ports:
            wait_until(partial(sees, port, {"open", "secret", "pre-1"}), what="nothing is denied")
