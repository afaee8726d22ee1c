"""ACLs in ZooKeeper: Kafka's nodes, changes of others, writes at a node's version, damaged nodes."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from ctrlchan.authorizer.acl_authorizer import AclAuthorizer
from ctrlchan.authorizer.acls import (
    AccessControlEntry,
    AclBinding,
    Operation,
    PatternType,
    ResourceFilter,
    ResourcePattern,
    ResourceType,
)
from ctrlchan.authorizer.interface import Authorizer, Requester
from ctrlchan.authorizer.loading import make_authorizer
from ctrlchan.errors import ConfigError, ErrorCode, KafkaError
from ctrlchan.zookeeper.operations import Create, SetData
from ctrlchan.zookeeper.session import ZooKeeperSession
from ctrlchan.zookeeper.settings import ZooKeeperSettings
from tests.fault.proxy import Proxy
from tests.kafka.waiting import wait_until
from tests.unit.authorizer.conftest import Start
from tests.unit.authorizer.words import (
    EVERYTHING,
    add,
    all_of,
    allow,
    deny,
    entries_of,
    exactly,
    group,
    may,
    prefix,
    remove,
    requester,
    topic,
)
from tests.unit.controller.expiry import expire

READ, WRITE, ALL = Operation.READ, Operation.WRITE, Operation.ALL
FOO = topic("foo")
#: As a JVM broker writes it, in the order of a hash map.
JVM_NODE = (
    b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"},'
    b'{"principal":"User:bob","permissionType":"Deny","operation":"DescribeConfigs","host":"10.0.0.1"}]}'
)


def test_nodes_are_kafkas(one: AclAuthorizer, nodes: ZooKeeperSession) -> None:
    add(one, FOO, allow(READ, "User:alice"))
    node = nodes.get("/kafka-acl/Topic/foo")
    assert node is not None
    assert json.loads(node.data) == {
        "version": 1,
        "acls": [{"principal": "User:alice", "permissionType": "Allow", "operation": "Read", "host": "*"}],
    }
    add(one, prefix("pre"), deny(Operation.DESCRIBE_CONFIGS))
    node = nodes.get("/kafka-acl-extended/prefixed/Topic/pre")
    assert node is not None
    assert json.loads(node.data)["acls"][0]["operation"] == "DescribeConfigs"
    [change] = nodes.children("/kafka-acl-changes") or []
    assert change.startswith("acl_changes_")
    node = nodes.get(f"/kafka-acl-changes/{change}")
    assert node is not None
    assert node.data == b"TOPIC:foo"
    [change] = nodes.children("/kafka-acl-extended-changes") or []
    node = nodes.get(f"/kafka-acl-extended-changes/{change}")
    assert node is not None
    assert json.loads(node.data) == {
        "version": 1,
        "resourceType": "TOPIC",
        "name": "pre",
        "patternType": "PREFIXED",
    }
    assert set(nodes.children("/kafka-acl") or []) == {
        "Topic",
        "Group",
        "Cluster",
        "TransactionalId",
        "DelegationToken",
        "User",
    }


def test_nodes_of_others_are_read_at_the_start(nodes: ZooKeeperSession, start: Start) -> None:
    for path in ("/kafka-acl/Topic", "/kafka-acl/Future", "/kafka-acl-extended/prefixed/Group"):
        nodes.create_path(path)
    nodes.create("/kafka-acl/Topic/foo", JVM_NODE)
    nodes.create("/kafka-acl/Future/foo", JVM_NODE)
    nodes.create("/kafka-acl-extended/prefixed/Group/g-", JVM_NODE)
    one = start()
    assert may(one, READ, FOO)
    assert not may(one, READ, FOO, "bob")
    assert may(one, READ, group("g-1"))
    assert len(one.acls(EVERYTHING)) == 4


@pytest.mark.parametrize(
    ("path", "change", "data", "pattern"),
    [
        ("/kafka-acl/Topic/foo", "/kafka-acl-changes", b"TOPIC:foo", FOO),
        ("/kafka-acl/Topic/a:b", "/kafka-acl-changes", b"Topic:a:b", topic("a:b")),
        (
            "/kafka-acl-extended/prefixed/Topic/fo",
            "/kafka-acl-extended-changes",
            b'{"version":1,"resourceType":"TOPIC","name":"fo","patternType":"PREFIXED"}',
            FOO,
        ),
    ],
)
def test_changes_of_others_are_seen(
    one: AclAuthorizer, nodes: ZooKeeperSession, path: str, change: str, data: bytes, pattern: ResourcePattern
) -> None:
    nodes.multi([Create(path, JVM_NODE), Create(f"{change}/acl_changes_", data, sequential=True)])
    wait_until(lambda: may(one, READ, pattern), what="the ACLs are seen")
    nodes.delete(path)
    nodes.multi([Create(f"{change}/acl_changes_", data, sequential=True)])
    wait_until(lambda: not may(one, READ, pattern), what="their deletion is seen")


def test_two_brokers_see_each_others_changes(start: Start) -> None:
    first, second = start(), start()
    add(first, FOO, allow(READ))
    wait_until(lambda: may(second, READ, FOO), what="the second sees the ACL of the first")
    add(second, FOO, allow(WRITE))
    wait_until(lambda: may(first, WRITE, FOO), what="the first sees the ACL of the second")
    remove(second, FOO)
    wait_until(lambda: not may(first, READ, FOO), what="the first sees the deletion")


def test_a_stale_version_is_read_again(start: Start) -> None:
    """``testDistributedConcurrentModificationOfResourceAcls`` and the like."""
    brokers = [start(), start()]
    entries = [allow(READ, f"User:{number}") for number in range(16)]

    def change(number: int) -> None:
        add(brokers[number % 2], FOO, entries[number])
        if number % 4 == 0:
            remove(brokers[(number + 1) % 2], FOO, entries[number])

    threads = [threading.Thread(target=change, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    left = {entry for number, entry in enumerate(entries[:8]) if number % 4}
    wait_until(
        lambda: all(entries_of(broker, FOO) == left for broker in brokers), what="both have what is left"
    )


def test_after_many_changes_of_others_a_write_fails(
    one: AclAuthorizer, nodes: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctrlchan.authorizer.acl_authorizer._BACKOFF", 0.0)
    add(one, FOO, allow(READ))
    tries = 0
    write = one._nodes.write

    def overtaken(*arguments: object) -> object:
        nonlocal tries
        tries += 1
        nodes.multi([SetData("/kafka-acl/Topic/foo", JVM_NODE)])
        return write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(one._nodes, "write", overtaken)
    [error] = one.create_acls(requester(), [AclBinding(FOO, allow(WRITE))])
    assert error is not None
    assert error.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert tries == 11


def test_management(one: AclAuthorizer, nodes: ZooKeeperSession) -> None:
    """``testAclManagementAPIs``."""
    mine = [allow(READ, "User:alice", "host1"), allow(WRITE, "User:alice", "host1")]
    others = [allow(READ, "User:bob", "host2"), allow(WRITE, "User:bob", "host2")]
    add(one, FOO, *mine, *others)
    add(one, FOO, allow(READ, "User:bob"))
    assert entries_of(one, FOO) == {*mine, *others, allow(READ, "User:bob")}
    add(one, group("g"), *mine)
    assert {binding.pattern for binding in one.acls(EVERYTHING)} == {FOO, group("g")}
    remove(one, FOO, mine[0], allow(READ, "User:bob"))
    assert entries_of(one, FOO) == {mine[1], *others}
    remove(one, FOO)
    assert nodes.get("/kafka-acl/Topic/foo") is None
    # Nothing to delete is no error, and makes no node.
    assert one.delete_acls(requester(), [exactly(topic("nothing"))]) == [[]]
    assert nodes.get("/kafka-acl/Topic/nothing") is None


def test_the_first_filter_has_a_binding(one: AclAuthorizer) -> None:
    add(one, FOO, allow(READ), allow(WRITE))
    add(one, prefix("f"), allow(READ))
    by_name = all_of(ResourceFilter(ResourceType.TOPIC, "foo", PatternType.MATCH))
    found = one.delete_acls(requester(), [exactly(FOO, allow(READ)), by_name])
    assert [{deleted.binding for deleted in each} for each in found] == [
        {AclBinding(FOO, allow(READ))},
        {AclBinding(FOO, allow(WRITE)), AclBinding(prefix("f"), allow(READ))},
    ]
    assert one.acls(EVERYTHING) == []


@pytest.mark.parametrize(
    ("pattern_type", "name", "found"),
    [
        (PatternType.LITERAL, "foo", {"foo"}),
        (PatternType.PREFIXED, "foo", set()),
        (PatternType.PREFIXED, "fo", {"fo*"}),
        (PatternType.ANY, "fo", {"fo*"}),
        (PatternType.MATCH, "foo", {"foo", "fo*", "*"}),
        (PatternType.MATCH, "bar", {"*"}),
        (PatternType.ANY, None, {"foo", "fo*", "*"}),
        (PatternType.LITERAL, None, {"foo", "*"}),
    ],
)
def test_filters(one: AclAuthorizer, pattern_type: PatternType, name: str | None, found: set[str]) -> None:
    for pattern in (FOO, prefix("fo"), topic("*")):
        add(one, pattern, allow(READ))
    add(one, group("foo"), allow(READ))
    bindings = one.acls(all_of(ResourceFilter(ResourceType.TOPIC, name, pattern_type)))
    names = {
        each.pattern.name + ("*" if each.pattern.pattern_type == PatternType.PREFIXED else "")
        for each in bindings
    }
    assert names == found


@pytest.mark.parametrize(
    ("name", "principal", "code"),
    [
        ("a/b", "User:alice", ErrorCode.INVALID_REQUEST),
        ("", "User:alice", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("a", "alice", ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_acls_that_cannot_be(one: AclAuthorizer, name: str, principal: str, code: ErrorCode) -> None:
    bad, good = AclBinding(group(name), allow(READ, principal)), AclBinding(FOO, allow(READ))
    first, second = one.create_acls(requester(), [bad, good])
    assert first is not None
    assert first.code == code
    assert second is None
    assert [each.pattern for each in one.acls(EVERYTHING)] == [FOO]


DAMAGED = [
    b"",
    b"no JSON",
    b"[]",
    b"{}",
    b'{"version":2,"acls":[]}',
    b'{"version":1,"acls":{}}',
    b'{"version":1,"acls":[7]}',
    b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read"}]}',
    b'{"version":1,"acls":[{"principal":"a","permissionType":"Allow","operation":"Read","host":"*"}]}',
    b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Perhaps","operation":"Read","host":"*"}]}',
    b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Any","host":"*"}]}',
    b'{"version":1,"acls":[{"principal":null,"permissionType":"Allow","operation":"Read","host":"*"}]}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("data", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_node_lets_super_users_alone_in(
    nodes: ZooKeeperSession, start: Start, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    nodes.create_path("/kafka-acl/Topic")
    nodes.create("/kafka-acl/Topic/foo", data)
    with caplog.at_level(logging.ERROR, "ctrlchan.authorizer"):
        one = start(allow_everyone_if_no_acl_found="true")
    assert "/kafka-acl/Topic/foo: " in caplog.text
    assert "Topic:LITERAL:foo" in caplog.text
    assert not may(one, READ, FOO)
    assert may(one, READ, FOO, "superuser1")
    assert may(one, READ, topic("bar"))
    assert one.acls(EVERYTHING) == []
    # It is not written over.
    [error] = one.create_acls(requester(), [AclBinding(FOO, allow(READ))])
    assert error is not None
    assert error.code == ErrorCode.UNKNOWN_SERVER_ERROR
    node = nodes.get("/kafka-acl/Topic/foo")
    assert node is not None
    assert node.data == data


def test_a_node_that_is_damaged_and_repaired_later(one: AclAuthorizer, nodes: ZooKeeperSession) -> None:
    add(one, prefix("fo"), allow(READ))
    change = Create(
        "/kafka-acl-extended-changes/acl_changes_",
        b'{"version":1,"resourceType":"TOPIC","name":"fo","patternType":"PREFIXED"}',
        sequential=True,
    )
    path = "/kafka-acl-extended/prefixed/Topic/fo"
    nodes.multi([SetData(path, b"?"), change])
    wait_until(lambda: not may(one, READ, FOO), what="the damage is seen")
    nodes.multi([SetData(path, JVM_NODE), change])
    wait_until(lambda: may(one, READ, FOO), what="the repair is seen")


@pytest.mark.parametrize("data", [b"", b"TOPIC", b"ANY:foo", b"NOTHING:foo", b"{", b'{"version":9}', b"{}"])
def test_a_damaged_notification_harms_no_other(
    one: AclAuthorizer, nodes: ZooKeeperSession, data: bytes
) -> None:
    nodes.multi(
        [
            Create("/kafka-acl-changes/acl_changes_", data, sequential=True),
            Create("/kafka-acl/Topic/foo", JVM_NODE),
            Create("/kafka-acl-changes/acl_changes_", b"TOPIC:foo", sequential=True),
        ]
    )
    wait_until(lambda: may(one, READ, FOO), what="the ACLs are seen")


def test_changes_while_the_connection_is_lost(zookeeper: str, nodes: ZooKeeperSession, start: Start) -> None:
    with Proxy(int(zookeeper.rpartition(":")[2])) as proxy:
        one = start(f"127.0.0.1:{proxy.port}")
        add(one, FOO, allow(WRITE))
        proxy.stop_listening()
        proxy.drop_connections()
        nodes.multi(
            [
                SetData("/kafka-acl/Topic/foo", JVM_NODE),
                Create("/kafka-acl-changes/acl_changes_", b"TOPIC:foo", sequential=True),
            ]
        )
        # What it has read goes on to hold.
        assert may(one, WRITE, FOO)
        proxy.listen()
        wait_until(lambda: may(one, READ, FOO) and not may(one, WRITE, FOO), what="the change is seen")
        one.close()


def test_after_an_expired_session_everything_is_read_again(nodes: ZooKeeperSession, start: Start) -> None:
    one = start()
    add(one, FOO, allow(WRITE))
    add(one, group("g"), allow(READ))
    assert one._session is not None
    expire(one._session)
    # Without a notification: the new session finds them.
    nodes.multi([SetData("/kafka-acl/Topic/foo", JVM_NODE)])
    nodes.delete("/kafka-acl/Group/g")
    wait_until(lambda: may(one, READ, FOO) and not may(one, READ, group("g")), what="all is read again")
    add(one, topic("bar"), allow(READ))
    nodes.multi(
        [
            Create("/kafka-acl/Topic/new", JVM_NODE),
            Create("/kafka-acl-changes/acl_changes_", b"TOPIC:new", sequential=True),
        ]
    )
    wait_until(lambda: may(one, READ, topic("new")), what="the watches of the new session")


def test_changed_is_called_for_other_entries_alone(one: AclAuthorizer) -> None:
    calls: list[int] = []
    one.changed = lambda: calls.append(1)
    add(one, FOO, allow(READ))
    assert len(calls) == 1
    add(one, FOO, allow(READ))
    assert len(calls) == 1
    remove(one, FOO)
    assert len(calls) == 2


def test_many_changes_of_two_brokers_at_once(start: Start) -> None:
    """``testHighConcurrencyModificationOfResourceAcls`` and ``testHighConcurrencyDeletionOfResourceAcls``."""
    brokers = [start(), start()]
    entries = [allow(READ, f"User:{number}") for number in range(12)]

    def run(change: Callable[[AclAuthorizer, ResourcePattern, AccessControlEntry], None]) -> None:
        with ThreadPoolExecutor(4) as threads:
            done = [
                threads.submit(change, brokers[number % 2], FOO, entry)
                for number, entry in enumerate(entries)
            ]
            for changed in done:
                changed.result(60)

    run(add)
    for broker in brokers:
        wait_until(lambda: entries_of(broker, FOO) == set(entries), what="all are seen")  # noqa: B023
    run(remove)
    for broker in brokers:
        wait_until(lambda: not entries_of(broker, FOO), what="none is left")  # noqa: B023


def test_spaces_around_settings(start: Start) -> None:
    """``testAclConfigWithWhitespace``."""
    assert may(start(allow_everyone_if_no_acl_found=" true "), READ, FOO)
    assert not may(start(allow_everyone_if_no_acl_found=" false\t"), READ, FOO)


def test_other_servers_by_setting(zookeeper: str, start: Start) -> None:
    one = start("127.0.0.1:1", authorizer_zookeeper_url=zookeeper)
    add(one, FOO, allow(READ))
    assert may(start(), READ, FOO)


class Own(Authorizer):
    """An authorizer of a user's own."""

    def __init__(self) -> None:
        self.configs: dict[str, str] = {}

    def configure(self, configs: object) -> None:
        assert isinstance(configs, dict)
        self.configs = configs

    def authorize(self, requester: Requester, actions: object) -> list[bool]:
        return []

    def authorize_any(self, requester: Requester, operation: Operation, kind: ResourceType) -> bool:
        return False


def test_an_authorizer_of_the_users_own() -> None:
    configs = {"authorizer.class.name": f"{__name__}.Own", "own.setting": "1"}
    own = make_authorizer(configs, None, "broker 1")
    assert isinstance(own, Own)
    assert own.configs == configs
    with pytest.raises(KafkaError) as refused:
        own.acls(EVERYTHING)
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_the_setting_names_an_authorizer(zookeeper: str) -> None:
    assert make_authorizer({}, None, "broker 1") is None
    assert make_authorizer({"authorizer.class.name": ""}, None, "broker 1") is None
    made = make_authorizer(
        {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"},
        ZooKeeperSettings(connect=zookeeper),
        "broker 1",
    )
    assert isinstance(made, AclAuthorizer)
    made.close()


@pytest.mark.parametrize(
    "name",
    [
        "kafka.security.authorizer.AclAuthorizer",
        "nowhere.Class",
        "NoModule",
        ".",
        "json.nothing",
        "json.JSONDecoder",
        "json.dumps",
    ],
)
def test_what_is_no_authorizer(name: str) -> None:
    with pytest.raises(ConfigError, match=r"authorizer\.class\.name"):
        make_authorizer({"authorizer.class.name": name}, None, "broker 1")
