"""Tokens are made, renewed, ended and removed, and all brokers of a cluster hear of it.

Twins of Kafka's DelegationTokenManagerTest, on nodes in memory.
"""

from __future__ import annotations

import json
import logging
import threading
from base64 import b64encode
from contextlib import suppress
from typing import Any

import pytest

from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.security.scram import MIN_ITERATIONS
from ctrlchan.server.delegation_tokens.delegation_tokens import DelegationTokens
from ctrlchan.server.delegation_tokens.settings import DelegationTokenSettings
from ctrlchan.server.delegation_tokens.token import hmac_of
from ctrlchan.server.delegation_tokens.token_nodes import MOST_BYTES
from ctrlchan.server.request_context import Principal
from ctrlchan.server.security.scram_credentials import credential_of_password
from ctrlchan.zookeeper.memory.server import MemoryZooKeeper
from ctrlchan.zookeeper.operations import Create, SetData
from ctrlchan.zookeeper.session import ZooKeeperSession
from tests.kafka.waiting import wait_until
from tests.unit.controller.expiry import expire
from tests.unit.server.delegation_tokens.conftest import Start
from tests.unit.server.delegation_tokens.words import DAY, HOUR, OTHER, OWNER, RENEWER, SECRET, refused
from tests.unit.server.security.sasl_clients import NOW, Clock
from tests.unit.zookeeper.sessions import session

NOT_FOUND = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
MISMATCH = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
EXPIRED = ErrorCode.DELEGATION_TOKEN_EXPIRED
PARENT, CHANGES = "/delegation_token/tokens", "/delegation_token/token_changes"


def node_of(nodes: ZooKeeperSession, token_id: str) -> Any:
    node = nodes.get(f"{PARENT}/{token_id}")
    return None if node is None else json.loads(node.data)


def tell(nodes: ZooKeeperSession, name: str) -> None:
    """Tell all brokers that a token has changed."""
    nodes.multi([Create(f"{CHANGES}/token_change_", name.encode(), sequential=True)])


def wait_for(one: DelegationTokens, *ids: str) -> None:
    wait_until(lambda: {token.token_id for token in one.all()} == set(ids), what=f"there are {ids}")


# -- a token is made


def test_a_token_and_its_node(tokens: DelegationTokens, nodes: ZooKeeperSession) -> None:
    made = tokens.create(OWNER, OTHER, [RENEWER, Principal.user("a b*~é")], -1)
    assert (made.issued_ms, made.expires_ms, made.max_ms) == (NOW, NOW + DAY, NOW + 7 * DAY)
    assert len(made.token_id) == 22
    node = nodes.get(f"{PARENT}/{made.token_id}")
    assert node is not None
    # As Kafka 3.9 writes it, in the order of a hash map.
    assert node.data.decode() == (
        f'{{"issueTimestamp":{NOW},"renewers":["User%3Arenewer","User%3Aa%20b%2A%7E%C3%A9"],'
        f'"tokenRequester":"User%3Aother","tokenId":"{made.token_id}","owner":"User%3Aowner",'
        f'"expiryTimestamp":{NOW + DAY},"maxTimestamp":{NOW + 7 * DAY},"version":3}}'
    )
    [change] = nodes.children(CHANGES) or []
    assert change.startswith("token_change_")
    notified = nodes.get(f"{CHANGES}/{change}")
    assert notified is not None
    assert notified.data.decode() == made.token_id
    assert tokens.all() == [made]
    assert tokens.count == 1


def test_the_hmac_is_kafkas(tokens: DelegationTokens) -> None:
    """``DelegationTokenManager.createHmac`` of Kafka 3.9 for this id and key."""
    made = tokens.create(OWNER, OWNER, [], -1)
    assert tokens.hmac(made) == hmac_of(SECRET, made.token_id)
    assert b64encode(hmac_of("testKey", "test")).decode() == (
        "K5AyiPLqUMYx0MTfNQMHkrQOGBzMIpafr/u/kdz4KlnnDz4TcpaDp5HT06jxfcF0Vr+qijLvA3wuIcoAYDvCyg=="
    )


@pytest.mark.parametrize(
    ("lifetime", "expires", "limit"),
    [
        (-1, DAY, 7 * DAY),
        (0, DAY, 7 * DAY),
        (HOUR, HOUR, HOUR),
        (2 * DAY, DAY, 2 * DAY),
        (2**63 - 1, DAY, 7 * DAY),
    ],
)
def test_lifetimes(tokens: DelegationTokens, lifetime: int, expires: int, limit: int) -> None:
    made = tokens.create(OWNER, OWNER, [], lifetime)
    assert (made.expires_ms, made.max_ms) == (NOW + expires, NOW + limit)


def test_the_longest_lifetimes(start: Start) -> None:
    """Kafka's sums overflow, so that such a token has expired when it is made."""
    tokens = start(max_lifetime_ms=2**63 - 1, expiry_time_ms=2**63 - 1)
    made = tokens.create(OWNER, OWNER, [], -1)
    assert (made.expires_ms, made.max_ms) == (2**63 - 1, 2**63 - 1)
    assert tokens.renew(OWNER, tokens.hmac(made), 2**63 - 1) == 2**63 - 1


def test_a_token_that_zookeeper_cannot_take(tokens: DelegationTokens, nodes: ZooKeeperSession) -> None:
    many = [Principal.user("x" * 30_000)] * (MOST_BYTES // 30_000 + 1)
    assert refused(tokens.create, OWNER, OWNER, many, -1) == ErrorCode.INVALID_REQUEST
    assert not nodes.children(PARENT)


# -- a token is renewed and ended


def test_renewals(tokens: DelegationTokens, nodes: ZooKeeperSession, clock: Clock) -> None:
    made = tokens.create(OWNER, OTHER, [RENEWER], -1)
    hmac = tokens.hmac(made)
    assert refused(tokens.renew, OWNER, b"another", -1) == NOT_FOUND
    assert refused(tokens.renew, OWNER, b"", -1) == NOT_FOUND
    assert refused(tokens.renew, Principal.user("nobody"), hmac, -1) == MISMATCH
    # Who has only asked for the token may not renew it.
    assert refused(tokens.renew, OTHER, hmac, -1) == MISMATCH
    assert refused(tokens.renew, Principal("Group", "owner"), hmac, -1) == MISMATCH
    clock.ms += HOUR
    assert tokens.renew(OWNER, hmac, -1) == clock.ms + DAY
    assert tokens.renew(RENEWER, hmac, HOUR) == clock.ms + HOUR
    assert node_of(nodes, made.token_id)["expiryTimestamp"] == clock.ms + HOUR
    # Not above the limit.
    assert tokens.renew(OWNER, hmac, 30 * DAY) == made.max_ms
    clock.ms = made.max_ms
    assert tokens.renew(OWNER, hmac, 1) == made.max_ms
    clock.ms += 1
    assert refused(tokens.renew, OWNER, hmac, -1) == EXPIRED


def test_a_token_that_has_expired_before_its_limit(tokens: DelegationTokens, clock: Clock) -> None:
    made = tokens.create(OWNER, OWNER, [], -1)
    clock.ms += DAY + 1
    assert refused(tokens.renew, OWNER, tokens.hmac(made), HOUR) == EXPIRED
    assert refused(tokens.expire, OWNER, tokens.hmac(made), HOUR) == EXPIRED


def test_ends(tokens: DelegationTokens, nodes: ZooKeeperSession, clock: Clock) -> None:
    made = tokens.create(OWNER, OTHER, [RENEWER], -1)
    hmac = tokens.hmac(made)
    assert refused(tokens.expire, OWNER, b"another", -1) == NOT_FOUND
    assert refused(tokens.expire, OTHER, hmac, -1) == MISMATCH
    assert tokens.expire(OWNER, hmac, 2 * HOUR) == NOW + 2 * HOUR
    assert node_of(nodes, made.token_id)["expiryTimestamp"] == NOW + 2 * HOUR
    assert tokens.expire(OWNER, hmac, 30 * DAY) == made.max_ms
    # It may be removed though it has expired.
    clock.ms = made.max_ms + 1
    assert tokens.expire(RENEWER, hmac, -1) == clock.ms
    assert nodes.children(PARENT) == []
    assert tokens.all() == []
    assert tokens.login(made.token_id) is None
    assert refused(tokens.expire, OWNER, hmac, -1) == NOT_FOUND


def test_a_token_that_somebody_else_has_just_removed(
    tokens: DelegationTokens, nodes: ZooKeeperSession
) -> None:
    """Kafka makes it again."""
    made = tokens.create(OWNER, OWNER, [], -1)
    nodes.delete(f"{PARENT}/{made.token_id}")
    assert refused(tokens.renew, OWNER, tokens.hmac(made), -1) == NOT_FOUND
    assert node_of(nodes, made.token_id) is None
    again = tokens.create(OWNER, OWNER, [], -1)
    nodes.delete(f"{PARENT}/{again.token_id}")
    # Unless the notification of its creation came late, and the token is gone here, too.
    with suppress(KafkaError):
        assert tokens.expire(OWNER, tokens.hmac(again), -1) == NOW
    assert tokens.all() == []


# -- other brokers


def test_other_brokers_follow(start: Start, clock: Clock) -> None:
    one, other = start(), start()
    made = one.create(OWNER, OWNER, [RENEWER], -1)
    wait_for(other, made.token_id)
    assert other.all() == [made]
    assert other.hmac(made) == one.hmac(made)
    expires = other.renew(RENEWER, one.hmac(made), HOUR)
    wait_until(lambda: one.all()[0].expires_ms == expires, what="the renewal is known")
    one.expire(OWNER, one.hmac(made), -1)
    wait_for(other)
    assert refused(other.renew, OWNER, one.hmac(made), -1) == NOT_FOUND


def test_a_later_broker_knows_all(start: Start) -> None:
    one = start()
    made = [one.create(Principal.user(f"u{number}"), OWNER, [], -1) for number in range(5)]
    assert sorted(start().all()) == sorted(made)


def test_nodes_of_jvm_brokers(start: Start, nodes: ZooKeeperSession) -> None:
    """All versions: before 3 who has asked for a token is its owner."""
    tokens = start()
    times = '"issueTimestamp":1,"expiryTimestamp":2,"maxTimestamp":3'
    owner = '"owner":"User%3Aa%20b%3Ac","renewers":["User%3Ar"]'
    nodes.create(f"{PARENT}/old", f'{{"version":1,{owner},{times},"tokenId":"old"}}'.encode())
    new = f'{{"tokenRequester":"User%3Aq","version":3,{owner},{times},"tokenId":"new","more":[1]}}'
    nodes.create(f"{PARENT}/new", new.encode())
    for name in ("old", "new"):
        tell(nodes, name)
    wait_for(tokens, "old", "new")
    by_id = {one.token_id: one for one in tokens.all()}
    assert by_id["old"].owner == by_id["old"].requester == Principal.user("a b:c")
    assert by_id["new"].requester == Principal.user("q")
    assert by_id["new"].renewers == (Principal.user("r"),)
    assert (by_id["new"].issued_ms, by_id["new"].expires_ms, by_id["new"].max_ms) == (1, 2, 3)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a JSON object"),
        (b"no JSON", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        (b"\xff" * 100, "not a JSON object"),
        (b"{}", "no field version"),
        (b'"version":4', "version 4, not 1 to 3"),
        (b'"version":0', "version 0, not 1 to 3"),
        (b'"owner":"nobody"', "owner 'nobody' is not TYPE:NAME"),
        (b'"owner":"User%3A%FF"', "is not TYPE:NAME"),
        (b'"owner":7', "owner is '7', not a text"),
        (b'"owner":null', "no field owner"),
        (b'"tokenRequester":null', "no field tokenRequester"),
        (b'"renewers":{}', "renewers is no list of texts"),
        (b'"renewers":[null]', "renewers is no list of texts"),
        (b'"renewers":["nobody"]', "a renewer 'nobody' is not TYPE:NAME"),
        (b'"expiryTimestamp":"2"', "expiryTimestamp is"),
        (b'"maxTimestamp":9223372036854775808', "maxTimestamp is"),
        (b'"tokenId":"another"', "tokenId is 'another'"),
        (b'"tokenId":null', "no field tokenId"),
    ],
)
def test_nobody_can_use_a_token_whose_node_is_damaged(
    start: Start, nodes: ZooKeeperSession, caplog: pytest.LogCaptureFixture, data: bytes, reason: str
) -> None:
    tokens = start()
    made = tokens.create(OWNER, OWNER, [], -1)
    path, hmac = f"{PARENT}/{made.token_id}", tokens.hmac(made)
    if data.startswith(b'"'):
        name = json.loads(b"{" + data + b"}")
        data = json.dumps(node_of(nodes, made.token_id) | name).encode()
    nodes.multi([SetData(path, data)])
    tell(nodes, made.token_id)
    wait_for(tokens)
    assert tokens.login(made.token_id) is None
    assert refused(tokens.renew, OWNER, hmac, -1) == NOT_FOUND
    line = next(one for one in caplog.messages if "nobody can use the token" in one)
    assert line.startswith(f"{path}: ")
    assert reason in line
    # One that starts later does not know it either.
    assert start().all() == []


@pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 40_000, "\0"])
def test_notifications_that_name_no_token(
    tokens: DelegationTokens, nodes: ZooKeeperSession, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    tell(nodes, name)
    wait_until(lambda: "it names no token that has changed" in caplog.text, what="the line")
    made = tokens.create(OWNER, OWNER, [], -1)
    assert tokens.all() == [made]


def test_a_new_session(start: Start, zookeeper: str, nodes: ZooKeeperSession) -> None:
    """Watches go with the session: all tokens are read again."""
    expired = threading.Event()
    with session(zookeeper, on_expired=expired.set) as own:
        tokens = start(own)
        gone = tokens.create(OWNER, OWNER, [], -1)
        expire(own)
        nodes.delete(f"{PARENT}/{gone.token_id}")
        made = start().create(OWNER, OWNER, [], -1)
        assert expired.wait(20)
        own.renew()
        tokens.read_again()
        wait_for(tokens, made.token_id)


def test_zookeeper_that_is_away(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    with MemoryZooKeeper() as other, session(other.address, request_timeout=0.2) as own:
        tokens = start(own)
        made = tokens.create(OWNER, OWNER, [], -1)
        other.close()
        assert refused(tokens.create, OWNER, OWNER, [], -1) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert refused(tokens.renew, OWNER, tokens.hmac(made), -1) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert "broker-1: a delegation token is not changed" in caplog.text
        # Who has a token logs in all the same.
        assert tokens.all() == [made]


# -- expired tokens


def test_the_active_controller_removes_expired_tokens(
    start: Start, nodes: ZooKeeperSession, clock: Clock
) -> None:
    is_active = False
    waiting = start(removes_expired=lambda: is_active)
    made = [waiting.create(OWNER, OWNER, [], lifetime) for lifetime in (HOUR, 2 * HOUR, -1)]
    clock.ms += HOUR + 1
    waiting.check_now()
    kept = start()
    made.append(kept.create(OWNER, OWNER, [], -1))
    # It has looked after the notification of the last one, and removes nothing.
    wait_for(waiting, *(one.token_id for one in made))
    assert len(nodes.children(PARENT) or []) == 4
    is_active = True
    waiting.check_now()
    wait_for(waiting, *(one.token_id for one in made[1:]))
    wait_for(kept, *(one.token_id for one in made[1:]))
    clock.ms += DAY + 1
    waiting.check_now()
    wait_for(waiting)
    assert nodes.children(PARENT) == []


def test_expired_tokens_are_looked_for_again_and_again(start: Start, clock: Clock) -> None:
    tokens = start(removes_expired=lambda: True, expiry_check_interval_ms=1)
    tokens.create(OWNER, OWNER, [], HOUR)
    clock.ms += HOUR + 1
    wait_for(tokens)


# -- logging in


def test_who_logs_in(tokens: DelegationTokens) -> None:
    made = tokens.create(OWNER, OTHER, [], -1)
    assert tokens.login(made.token_id) == (OWNER.name, made.expires_ms)
    assert tokens.login("another") is None
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        found = tokens.credential(mechanism, made.token_id)
        password = b64encode(tokens.hmac(made)).decode()
        assert found == credential_of_password(mechanism, password, found.salt)
        assert found.iterations == MIN_ITERATIONS
        # It is derived once.
        assert tokens.credential(mechanism, made.token_id) is found


# -- secrets


def test_no_secret_is_shown(start: Start, nodes: ZooKeeperSession, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = start()
    made = tokens.create(OWNER, OWNER, [RENEWER], -1)
    hmac = tokens.hmac(made)
    tokens.renew(OWNER, hmac, -1)
    tokens.expire(OWNER, hmac, HOUR)
    shown = f"{tokens!r} {made!r} {tokens.login(made.token_id)!r} {tokens._settings!r}"
    shown += repr(tokens.credential("SCRAM-SHA-512", made.token_id))
    node = nodes.get(f"{PARENT}/{made.token_id}")
    assert node is not None
    tokens.expire(OWNER, hmac, -1)
    everything = f"{shown} {caplog.text} {node.data!r}"
    assert "has made token" in everything
    assert "User:owner" in everything
    for secret in (SECRET, b64encode(hmac).decode(), hmac.hex(), repr(hmac)[2:-1]):
        assert secret not in everything


def test_settings() -> None:
    assert not DelegationTokenSettings.of({}).are_enabled
    new, old = "delegation.token.secret.key", "delegation.token.master.key"
    assert DelegationTokenSettings.of({old: "o"}).secret_key == "o"
    assert DelegationTokenSettings.of({old: "o", new: " n "}).secret_key == "n"
    # As Kafka: the new name counts, though it has nothing.
    assert not DelegationTokenSettings.of({old: "o", new: ""}).are_enabled
    found = DelegationTokenSettings.of(
        {
            "delegation.token.max.lifetime.ms": "1",
            "delegation.token.expiry.time.ms": "2",
            "delegation.token.expiry.check.interval.ms": "3",
        }
    )
    assert (found.max_lifetime_ms, found.expiry_time_ms, found.expiry_check_interval_ms) == (1, 2, 3)
