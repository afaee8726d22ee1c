"""Which ACLs allow and deny what: the decisions of Kafka's AuthorizerTest, with the same ACLs."""

from __future__ import annotations

import logging
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan.authorizer.acl_authorizer import AclAuthorizer
from ctrlchan.authorizer.acl_cache import AclCache, VersionedAcls
from ctrlchan.authorizer.acls import (
    AccessControlEntry,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    supported_operations,
)
from ctrlchan.authorizer.interface import Action
from ctrlchan.errors import ConfigError
from tests.unit.authorizer.conftest import Start
from tests.unit.authorizer.words import (
    HOST,
    add,
    allow,
    deny,
    group,
    may,
    prefix,
    remove,
    requester,
    topic,
)

READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
FOO = topic("foo")


def test_entries_hold_for_their_principal_host_and_operation(one: AclAuthorizer) -> None:
    first, second = "192.168.1.1", "192.168.1.2"
    add(
        one,
        FOO,
        allow(READ, "User:alice", first),
        allow(READ, "User:alice", second),
        deny(READ, "User:alice", first),
        allow(WRITE, "User:alice", first),
        allow(DESCRIBE, "User:alice"),
        allow(READ, "User:rob"),
        allow(WRITE, "User:batman"),
    )
    assert may(one, READ, FOO, host=second)
    assert not may(one, READ, FOO, host=first)
    assert may(one, WRITE, FOO, host=first)
    assert not may(one, WRITE, FOO, host=second)
    assert may(one, DESCRIBE, FOO, host=first)
    assert may(one, DESCRIBE, FOO, host=second)
    assert not may(one, Operation.ALTER, FOO, host=first)
    assert may(one, DESCRIBE, FOO, "rob", first)
    assert may(one, DESCRIBE, FOO, "batman", first)
    assert may(one, READ, FOO, "rob", first)
    assert may(one, WRITE, FOO, "batman", first)


def test_a_denial_counts_before_what_is_allowed(one: AclAuthorizer) -> None:
    add(one, FOO, allow(ALL), deny(ALL, "User:alice", HOST))
    assert not may(one, READ, FOO)
    assert may(one, READ, FOO, "random", "192.0.4.4")


def test_super_users_may_do_all(one: AclAuthorizer) -> None:
    add(one, FOO, deny(ALL))
    assert may(one, READ, FOO, "superuser1")
    assert may(one, READ, FOO, "superuser2")
    assert not may(one, READ, FOO)


def test_a_principal_of_another_type_is_another_one(one: AclAuthorizer) -> None:
    add(one, FOO, allow(READ, "Group:alice"))
    assert not may(one, READ, FOO)
    [allowed] = one.authorize(requester()._replace(principal="Group:alice"), [Action(READ, FOO)])
    assert allowed


def test_entries_of_all_names(one: AclAuthorizer) -> None:
    assert not may(one, READ, FOO)
    add(one, topic("*"), allow(READ, "User:alice", HOST))
    assert may(one, READ, FOO)
    add(one, FOO, allow(WRITE, "User:alice", HOST))
    assert may(one, WRITE, FOO)
    add(one, topic("*"), deny(WRITE, "User:alice", HOST))
    assert not may(one, WRITE, FOO)


def test_without_any_entry_the_setting_counts(start: Start) -> None:
    open_one = start(allow_everyone_if_no_acl_found="true")
    assert may(open_one, READ, FOO)
    add(open_one, FOO, allow(READ, "User:rob"))
    assert not may(open_one, READ, FOO)
    assert may(open_one, READ, topic("fo"))
    assert may(open_one, READ, group("foo"))


@pytest.mark.parametrize("host", ["*", HOST])
@pytest.mark.parametrize("principal", ["User:*", "User:alice"])
@pytest.mark.parametrize("name", ["f", "foo", "foo-", "foo-1"])
def test_prefixes(one: AclAuthorizer, name: str, principal: str, host: str) -> None:
    add(one, prefix(name), allow(READ, principal, host))
    assert may(one, READ, topic("foo-1"))
    assert not may(one, READ, topic("bar"))
    assert not may(one, READ, topic(name[:-1]))
    assert not may(one, READ, group("foo-1"))
    remove(one, prefix(name))
    assert not may(one, READ, topic("foo-1"))


def test_a_denied_prefix_denies_a_longer_one(one: AclAuthorizer) -> None:
    add(one, prefix("a"), deny(READ))
    add(one, prefix("abc"), allow(READ))
    add(one, topic("abcd"), allow(READ))
    assert not may(one, READ, topic("abcd"))
    assert not may(one, READ, topic("abc"))
    remove(one, prefix("a"))
    assert may(one, READ, topic("abcd"))


def test_empty_names(one: AclAuthorizer) -> None:
    assert not may(one, READ, group(""))
    add(one, group("*"), allow(READ))
    assert may(one, READ, group(""))


@pytest.mark.parametrize(
    ("allowed", "implied"),
    [
        (Operation.READ, {Operation.DESCRIBE}),
        (Operation.WRITE, {Operation.DESCRIBE}),
        (Operation.DELETE, {Operation.DESCRIBE}),
        (Operation.ALTER, {Operation.DESCRIBE}),
        (Operation.ALTER_CONFIGS, {Operation.DESCRIBE_CONFIGS}),
        (Operation.CREATE, set()),
        (Operation.DESCRIBE, set()),
        (Operation.DESCRIBE_CONFIGS, set()),
        (Operation.ALL, set(supported_operations(ResourceType.TOPIC))),
    ],
)
def test_what_an_operation_implies(one: AclAuthorizer, allowed: Operation, implied: set[Operation]) -> None:
    """``testAclInheritance``: what is denied implies nothing but itself."""
    operations = set(supported_operations(ResourceType.TOPIC))
    add(one, FOO, allow(allowed))
    assert {each for each in operations if may(one, each, FOO)} == (implied | {allowed}) & operations
    remove(one, FOO)
    add(one, FOO, allow(ALL), deny(allowed))
    denied = operations if allowed == ALL else {allowed}
    assert {each for each in operations if not may(one, each, FOO)} == denied


@pytest.mark.parametrize("text", ["alice", "User:a;bob"])
def test_super_users_have_a_type(start: Start, text: str) -> None:
    with pytest.raises(ConfigError, match=r"super\.users"):
        start(super_users=text)


class TestAnyResource:
    """``AuthorizerTest.testAuthorizeByResourceType…``: a producer without transactions needs one topic."""

    def may(self, one: AclAuthorizer, user: str = "alice", host: str = HOST) -> bool:
        return one.authorize_any(requester(user, host), WRITE, ResourceType.TOPIC)

    def test_one_entry_is_enough(self, one: AclAuthorizer) -> None:
        assert not self.may(one)
        add(one, topic("t"), allow(READ))
        assert not self.may(one)
        add(one, topic("t"), allow(WRITE, "User:alice", HOST))
        assert self.may(one)
        assert not self.may(one, "bob")
        assert not self.may(one, host="192.168.9.9")
        remove(one, topic("t"), allow(WRITE, "User:alice", HOST))
        assert not self.may(one)

    def test_all_operations_count(self, one: AclAuthorizer) -> None:
        add(one, prefix("p"), allow(ALL))
        assert self.may(one)
        add(one, topic("*"), deny(ALL, host=HOST))
        assert not self.may(one)
        assert self.may(one, host="192.168.9.9")

    def test_a_denied_name_is_no_allowed_one(self, one: AclAuthorizer) -> None:
        add(one, topic("abc"), allow(WRITE), deny(WRITE, "User:alice"))
        assert not self.may(one)
        assert self.may(one, "bob")
        add(one, topic("abcd"), allow(WRITE))
        assert self.may(one)

    def test_a_denied_prefix_dominates(self, one: AclAuthorizer) -> None:
        add(one, topic("abcd"), allow(WRITE))
        add(one, prefix("abc"), allow(WRITE))
        add(one, prefix("ab"), deny(WRITE))
        assert not self.may(one)
        add(one, prefix("aa"), allow(WRITE))
        assert self.may(one)

    def test_all_names_are_allowed_whatever_is_denied(self, one: AclAuthorizer) -> None:
        add(one, topic("*"), allow(WRITE))
        add(one, prefix("a"), deny(WRITE))
        assert self.may(one)

    def test_super_users(self, one: AclAuthorizer) -> None:
        add(one, topic("*"), deny(ALL))
        assert self.may(one, "superuser1")

    def test_everybody_without_entries(self, start: Start) -> None:
        open_one = start(allow_everyone_if_no_acl_found="true")
        assert self.may(open_one)
        add(open_one, topic("*"), deny(ALL))
        assert not self.may(open_one)


def test_the_log_has_a_line_for_each_denial(one: AclAuthorizer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    one.authorize(requester(), [Action(READ, FOO, 3), Action(READ, FOO, logs_denied=False)])
    assert [record.getMessage() for record in caplog.records if record.name == "kafka.authorizer.logger"] == [
        "Principal = User:alice is Denied Operation = Read from host = 192.168.0.1 on resource ="
        " Topic:LITERAL:foo for request = Fetch with resourceRefCount = 3"
    ]
    caplog.clear()
    caplog.set_level(5, "kafka.authorizer.logger")
    add(one, FOO, allow(READ))
    one.authorize(
        requester(),
        [Action(READ, FOO), Action(READ, FOO, logs_allowed=False), Action(WRITE, FOO, logs_denied=False)],
    )
    assert [
        (record.levelno, "Allowed" in record.getMessage())
        for record in caplog.records
        if record.name == "kafka.authorizer.logger"
    ] == [(logging.DEBUG, True), (5, True), (5, False)]


def test_a_decision_sees_the_changes_in_their_order() -> None:
    """What is allowed for all names after a name was denied is never allowed for that name."""
    cache = AclCache()
    denied, allowed = VersionedAcls(frozenset((deny(READ),)), 0), VersionedAcls(frozenset((allow(READ),)), 0)
    ended = threading.Event()

    def change() -> None:
        for _ in range(3_000):
            cache.put(FOO, denied)
            cache.put(topic("*"), allowed)
            cache.put(topic("*"), VersionedAcls())
            cache.put(FOO, VersionedAcls())
        ended.set()

    thread = threading.Thread(target=change)
    thread.start()
    found = set()
    while not ended.is_set():
        found.add(cache.is_allowed("User:alice", HOST, READ, ResourceType.TOPIC, "foo"))
    thread.join()
    assert found == {False}


NAMES = ["a", "ab", "abc", "b", "*"]


@given(
    patterns=st.dictionaries(
        st.tuples(st.sampled_from(NAMES), st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED])),
        st.frozensets(
            st.builds(
                AccessControlEntry,
                st.sampled_from(["User:alice", "User:bob", "User:*"]),
                st.sampled_from([HOST, "10.0.0.1", "*"]),
                st.sampled_from([READ, DESCRIBE, ALL]),
                st.sampled_from([Permission.ALLOW, Permission.DENY]),
            ),
            max_size=3,
        ),
        max_size=5,
    ),
    allows_without_acls=st.booleans(),
)
def test_many_names_are_decided_as_one(
    patterns: dict[tuple[str, PatternType], frozenset[AccessControlEntry]], allows_without_acls: bool
) -> None:
    cache = AclCache(allows_without_acls=allows_without_acls)
    for (name, pattern_type), entries in patterns.items():
        cache.put(topic(name, pattern_type), VersionedAcls(entries, 0))
    names = [*NAMES, "abcd", ""]
    who, kind = ("User:alice", HOST), ResourceType.TOPIC
    expected = {name for name in names if cache.is_allowed(*who, DESCRIBE, kind, name)}
    assert cache.allowed_names(*who, DESCRIBE, kind, names) == expected


def test_many_prefixes_of_a_principal() -> None:
    cache = AclCache()
    for number in range(2_000):
        cache.put(prefix(f"team-{number:04}-"), VersionedAcls(frozenset((allow(READ),)), 0))
    asked = ["team-0007-x", "team-7-", "team-1999-", "other"]
    found = cache.allowed_names("User:x", HOST, READ, ResourceType.TOPIC, asked)
    assert found == {"team-0007-x", "team-1999-"}


def test_a_name_stays_in_its_log_line(one: AclAuthorizer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    one.authorize(requester(), [Action(READ, topic("x\nPrincipal = User:eve is Allowed"))])
    (line,) = [one.getMessage() for one in caplog.records if one.name == "kafka.authorizer.logger"]
    assert r"Topic:LITERAL:x\nPrincipal = User:eve" in line
    assert "\n" not in line


def test_many_names_are_logged_as_one(one: AclAuthorizer, caplog: pytest.LogCaptureFixture) -> None:
    def lines(names: dict[str, int], logs_denied: bool) -> list[str]:
        caplog.clear()
        found = one.allowed_names(requester(), READ, ResourceType.TOPIC, names, logs_denied=logs_denied)
        assert found == {"foo"}
        return [record.getMessage() for record in caplog.records if record.name == "kafka.authorizer.logger"]

    add(one, FOO, allow(READ))
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    assert lines({"foo": 1, "bar": 2}, logs_denied=False) == []
    assert lines({"foo": 1, "bar": 2}, logs_denied=True) == [
        "Principal = User:alice is Denied Operation = Read from host = 192.168.0.1 on resource ="
        " Topic:LITERAL:bar for request = Fetch with resourceRefCount = 2"
    ]
    # Where what is allowed is logged, too, each is asked for.
    caplog.set_level(logging.DEBUG, "kafka.authorizer.logger")
    assert one.allowed_names(requester(), READ, ResourceType.TOPIC, {"foo": 1}, logs_denied=True) is None


def test_lengths_of_prefixes_come_and_go() -> None:
    cache = AclCache()
    acls = VersionedAcls(frozenset((allow(READ),)), 0)
    for name in ("a", "b", "abc"):
        cache.put(topic(name, PatternType.PREFIXED), acls)
    cache.put(prefix("a"), VersionedAcls())
    assert not cache.is_allowed("User:x", HOST, READ, ResourceType.TOPIC, "ab")
    assert cache.is_allowed("User:x", HOST, READ, ResourceType.TOPIC, "bb")
    assert cache.is_allowed("User:x", HOST, READ, ResourceType.TOPIC, "abcd")
    cache.put(prefix("b"), VersionedAcls())
    assert not cache.is_allowed("User:x", HOST, READ, ResourceType.TOPIC, "bb")
