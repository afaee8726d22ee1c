"""A cluster with Kafka's authorizer: ACLs by a client, and what they allow and deny on all brokers."""

from __future__ import annotations

import socket
import uuid
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
from tests.unit.controller.server.requests import Connection, part, timeout

METADATA, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, ELECT_LEADERS = 3, 19, 20, 37, 43
TOPIC_DENIED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
ANYBODY = "User:ANONYMOUS"
CONFIGS: dict[str, str | int | float] = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": True,
}


def acl(
    name: str,
    kind: Any = ResourcePatternType.LITERAL,
    host: str = "127.0.0.1",
    *,
    resource: Any = ResourceType.TOPIC,
    operation: Any = AclOperation.ALL,
) -> AclBinding:
    return AclBinding(resource, name, kind, ANYBODY, host, operation, AclPermissionType.ALLOW)


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


def ask(port: int, host: str, api_key: int, version: int, **fields: Any) -> Any:
    """Ask from an address."""
    with socket.create_connection(("127.0.0.1", port), 20, (host, 0)) as one:
        return Connection(one).ask(
            api_key, version, {"timeout": timeout(20), "validate_only": False} | fields
        )


def errors(parts: Any) -> list[tuple[str | None, int]]:
    return [(one.name, one.error_code.value) for one in parts]


def check_stranger(port: int, secret_id: uuid.UUID) -> None:
    """Who may create one topic, and nothing else, asks for everything."""
    asked = partial(ask, port, "127.0.0.2")
    names = [f"pre-{port}-mine", "pre-other", "secret"]
    new = partial(part, CREATE_TOPICS, 7, "CreatableTopic", num_partitions=1, replication_factor=1)
    created = asked(
        CREATE_TOPICS, 7, topics=tuple(new(name=name, assignments=(), configs=()) for name in names)
    ).topics
    assert errors(created) == [(names[0], 0), ("pre-other", TOPIC_DENIED), ("secret", TOPIC_DENIED)]
    hidden = created[0].topic_config_error_code, created[0].num_partitions, created[0].topic_id
    assert hidden == (TOPIC_DENIED, -1, None)
    by_id = (part(DELETE_TOPICS, 6, "DeleteTopicState", name=None, topic_id=secret_id),)
    assert errors(asked(DELETE_TOPICS, 6, topics=by_id).responses) == [(None, TOPIC_DENIED)]
    by_name = (part(DELETE_TOPICS, 6, "DeleteTopicState", name="secret", topic_id=None),)
    assert errors(asked(DELETE_TOPICS, 6, topics=by_name).responses) == [("secret", TOPIC_DENIED)]
    grown = (part(CREATE_PARTITIONS, 3, "CreatePartitionsTopic", name="secret", count=2, assignments=None),)
    assert errors(asked(CREATE_PARTITIONS, 3, topics=grown).results) == [("secret", TOPIC_DENIED)]
    elected = asked(ELECT_LEADERS, 2, election_type=0, topic_partitions=None)
    assert elected.error_code.value == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert topics_seen(port, "127.0.0.2") == {"open"}


def test_the_controller_authorizes_whoever_asks_it() -> None:
    """It has a listener of its own, and gets what brokers forward for their clients."""
    with EmbeddedCluster(2, log_dir=TEMPORARY, configs=CONFIGS) as cluster:
        cluster.create_topic("open", partitions=1, replication_factor=1)
        cluster.create_topic("secret", partitions=1, replication_factor=1)
        controller = cluster.controller.endpoints[0].port
        with socket.create_connection(("127.0.0.1", controller), 20) as one:
            [described] = Connection(one).ask(METADATA, 12, {"topics": ["secret"]}).topics
        ports = [cluster.brokers[0].endpoints[0].port, controller]
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        allowed = [acl(f"pre-{port}-mine", host="127.0.0.2", operation=AclOperation.CREATE) for port in ports]
        denied = [
            acl("kafka-cluster", resource=ResourceType.BROKER),
            acl("secret"),
            acl("pre-", ResourcePatternType.PREFIXED),
        ]
        # Changes are read in their order: where the second ones hold, the first ones do.
        for made in (allowed, denied):
            for done in admin.create_acls(made, request_timeout=20).values():
                done.result(30)
        for port in ports:
            wait_until(partial(sees, port, {"open"}), what="they hold")
        for port in ports:
            check_stranger(port, described.topic_id)
        # Brokers, and clients with their address, go on. The controller creates what a broker asks for.
        cluster.produce("secret", "1")
        cluster.create_topic("pre-more", partitions=1, replication_factor=1)
        assert {"pre-more", "secret"} <= topics_seen(controller, "127.0.0.1")
