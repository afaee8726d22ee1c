"""Delegation tokens with Kafka's own tool and clients: at our brokers, and beside a JVM broker."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from ctrlchan import EmbeddedCluster
from ctrlchan.embedded.acls import Acl
from tests.acceptance.controller.tools import KafkaTools, ToolRun
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

TOOL = "org.apache.kafka.tools.DelegationTokenCommand"
MODULES = "org.apache.kafka.common.security"
KEY = {"delegation.token.secret.key": "the key of this cluster"}
JVM, OURS = 1, 2
SECONDS = 60


class Made(NamedTuple):
    """A token as the tool prints it."""

    token_id: str
    hmac: str
    owner: str
    requester: str


class Users:
    """Runs tools as users of a cluster, by PLAIN, and as who has a token, by SCRAM."""

    def __init__(self, tools: KafkaTools, folder: Path, passwords: Mapping[str, str]) -> None:
        self._tools = tools
        self._folder = folder
        self._passwords = passwords

    def tokens(self, user: str, *arguments: str, address: str | None = None) -> ToolRun:
        login = f'username="{user}" password="{self._passwords[user]}"'
        return self._run(TOOL, "PLAIN", f"plain.PlainLoginModule required {login};", arguments, address)

    def with_token(
        self, main_class: str, token: Made, mechanism: str, *arguments: str, address: str | None = None
    ) -> ToolRun:
        login = f'username="{token.token_id}" password="{token.hmac}" tokenauth="true"'
        return self._run(
            main_class, mechanism, f"scram.ScramLoginModule required {login};", arguments, address
        )

    def create(self, user: str, *arguments: str, address: str | None = None) -> Made:
        ran = self.tokens(user, "--create", "--max-life-time-period", "-1", *arguments, address=address)
        assert ran.status == 0, ran
        [made] = printed(ran)
        return made

    def _run(
        self, main_class: str, mechanism: str, login: str, arguments: tuple[str, ...], address: str | None
    ) -> ToolRun:
        file = self._folder / "client.properties"
        file.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config={MODULES}.{login}\n"
        )
        where = ("--bootstrap-server", address or self._tools.bootstrap)
        return self._tools.run_as_given(main_class, *where, "--command-config", str(file), *arguments)


def printed(ran: ToolRun) -> list[Made]:
    """Return the tokens of a tool's table."""
    rows = re.findall(r"^(\S{22}) +(\S{88}) +(\S+) +(\S+) +\[", ran.output, re.MULTILINE)
    return [Made(*row) for row in rows]


@pytest.fixture(scope="module")
def cluster(kafka_jars_ready: None) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(
        2,
        security="SASL_PLAINTEXT",
        users={"alice": "a", "bob": "b", "carol": "c"},
        acls=[Acl("alice", "DESCRIBE", topic="t")],
        configs=KEY,
    ) as cluster:
        cluster.create_topic("t", partitions=1)
        yield cluster


@pytest.fixture
def users(cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[Users]:
    with KafkaTools(tmp_path, cluster.bootstrap_servers) as tools:
        yield Users(tools, tmp_path, {"alice": "a", "bob": "b", "carol": "c"})


def test_kafka_delegation_tokens(users: Users) -> None:
    made = users.create("alice", "--renewer-principal", "User:bob")
    assert (made.owner, made.requester) == ("User:alice", "User:alice")
    owner = "--owner-principal", "User:alice"

    # The other broker may be asked before it knows the token.
    def is_shown(user: str) -> bool:
        return printed(users.tokens(user, "--describe", *owner)) == [made]

    for user in ("alice", "bob"):
        wait_until(partial(is_shown, user), timeout=SECONDS, what=f"{user} sees the token")
    assert not is_shown("carol")
    renewal = "--renew", "--renew-time-period", "-1", "--hmac", made.hmac
    assert "New expiry date" in users.tokens("bob", *renewal).output
    refused = users.tokens("carol", *renewal)
    assert refused.status == 1
    assert "DelegationTokenOwnerMismatchException" in refused.errors
    other = users.tokens("alice", "--create", "--max-life-time-period", "-1", "--owner-principal", "User:bob")
    assert "DelegationTokenAuthorizationException" in other.errors
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        # The ACLs of its owner hold.
        listed = users.with_token("org.apache.kafka.tools.TopicCommand", made, mechanism, "--list")
        assert (listed.status, listed.output.strip()) == (0, "t"), listed
    again = users.with_token(TOOL, made, "SCRAM-SHA-256", "--create", "--max-life-time-period", "-1")
    assert "UnsupportedByAuthenticationException" in again.errors
    ended = users.tokens("alice", "--expire", "--expiry-time-period", "-1", "--hmac", made.hmac)
    assert ended.status == 0, ended
    gone = users.tokens("alice", *renewal)
    assert "DelegationTokenNotFoundException" in gone.errors
    late = users.with_token("org.apache.kafka.tools.TopicCommand", made, "SCRAM-SHA-512", "--list")
    assert "SaslAuthenticationException" in late.errors


@pytest.fixture(scope="module")
def rig(kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaRig]:
    prefix = "listener.name.clients."
    properties = KEY | {
        prefix + "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        prefix + "plain.sasl.jaas.config": (
            f'{MODULES}.plain.PlainLoginModule required user_alice="a" user_bob="b";'
        ),
        prefix + "scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
        prefix + "scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    }
    with KafkaRig(
        tmp_path_factory.mktemp("mixed-tokens"),
        brokers=2,
        ours=(OURS,),
        listeners={"CLIENTS": "SASL_PLAINTEXT"},
        properties=properties,
    ) as rig:
        yield rig


def address_of(rig: KafkaRig, broker_id: int) -> str:
    endpoint = rig.broker(broker_id).endpoint("CLIENTS")
    return f"{endpoint.host}:{endpoint.port}"


def logged_in(users: Users, token: Made, rig: KafkaRig, broker_id: int) -> bool:
    return all(
        users.with_token(
            "org.apache.kafka.tools.TopicCommand",
            token,
            mechanism,
            "--list",
            address=address_of(rig, broker_id),
        ).status
        == 0
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    )


@pytest.mark.long
@pytest.mark.parametrize(("maker", "other"), [(JVM, OURS), (OURS, JVM)])
def test_tokens_of_either_are_good_at_both(rig: KafkaRig, tmp_path: Path, maker: int, other: int) -> None:
    here, there = address_of(rig, maker), address_of(rig, other)
    with KafkaTools(tmp_path, here) as tools:
        users = Users(tools, tmp_path, {"alice": "a", "bob": "b"})
        made = users.create("alice", "--renewer-principal", "User:bob", address=here)
        wait_until(lambda: logged_in(users, made, rig, other), timeout=SECONDS, what="the other lets it in")
        assert logged_in(users, made, rig, maker)
        renewal = "--renew", "--renew-time-period", "3600000", "--hmac", made.hmac
        assert "New expiry date" in users.tokens("bob", *renewal, address=there).output
        owner = "--owner-principal", "User:alice"
        shown = [printed(users.tokens("alice", "--describe", *owner, address=one)) for one in (here, there)]
        assert shown == [[made], [made]]
        ended = users.tokens(
            "alice", "--expire", "--expiry-time-period", "-1", "--hmac", made.hmac, address=there
        )
        assert ended.status == 0, ended
        wait_until(lambda: not logged_in(users, made, rig, maker), timeout=SECONDS, what="it is gone")


@pytest.mark.long
def test_nodes_of_either_have_the_same_bytes(rig: KafkaRig, tmp_path: Path) -> None:
    with KafkaTools(tmp_path, address_of(rig, JVM)) as tools:
        users = Users(tools, tmp_path, {"alice": "a", "bob": "b"})
        found = []
        for broker_id in (JVM, OURS):
            made = users.create(
                "alice", "--renewer-principal", "User:b ob*~é", address=address_of(rig, broker_id)
            )
            data, _ = rig.zookeeper.get(f"/delegation_token/tokens/{made.token_id}")
            assert {"issueTimestamp", "expiryTimestamp", "maxTimestamp"} <= json.loads(data).keys()
            found.append(re.sub(r"\d{13}", "TIME", data.decode().replace(made.token_id, "ID")))
    assert found[0] == found[1]
