"""Kafka's tools over SASL_SSL as a user with ACLs, in a cluster of both kinds of brokers.

A broker of Kafka and two of the package follow a controller: Kafka's broker, or a ``ctrlchan controller``.
What the tools do under one controller is there under the next one, and is undone there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ctrlchan.embedded.certificates import Certificates
from tests.acceptance.controller import nodes
from tests.acceptance.controller.load import write_large
from tests.acceptance.controller.tools import KafkaTools, ToolRun
from tests.acceptance.secured_listeners import MODULES
from tests.kafka.ports import free_port
from tests.kafka.processes import Child, Reaper
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

JVM, OURS, OTHER = 1, 2, 3
CONTROLLER = 1000
TIMEOUT = 90.0
PASSWORDS = {"operator": "0perator", "bob": "b0b"}
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ACLS, CONFIGS, TOPICS, REASSIGN, TOKENS = (
    "kafka.admin.AclCommand",
    "kafka.admin.ConfigCommand",
    "org.apache.kafka.tools.TopicCommand",
    "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "org.apache.kafka.tools.DelegationTokenCommand",
)
#: First and second controller.
TURNS = pytest.mark.parametrize("ours_is_first", [False, True], ids=["from Kafka's", "from ours"])


class Cluster:
    """The rig, the controller of the package while it runs, and tools for users."""

    def __init__(self, rig: KafkaRig, folder: Path, tools: KafkaTools, properties: dict[str, str]) -> None:
        self.rig = rig
        self._folder = folder
        self.tools = tools
        self._properties = properties
        self._reaper = Reaper()
        self._controller: Child | None = None

    def close(self) -> None:
        self.to_jvm()
        self._reaper.close()

    # -- controllers

    def to_ours(self) -> None:
        """Let a ``ctrlchan controller`` take over."""
        if self._controller is None:
            file = self._folder / "controller.properties"
            listeners = f"PLAINTEXT://127.0.0.1:{free_port()},CLIENTS://127.0.0.1:{free_port()}"
            own = {"zookeeper.connect": self.rig.zookeeper_connect, "listeners": listeners}
            own |= {"inter.broker.listener.name": "PLAINTEXT"}
            own |= {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL"}
            file.write_text("".join(f"{key}={value}\n" for key, value in (self._properties | own).items()))
            command = [sys.executable, "-m", "ctrlchan", "controller", "--config", str(file)]
            command += ["--id", str(CONTROLLER), "--take-over"]
            self._controller = Child("the controller", command, self._folder / "controller.log", self._reaper)
        controller = self._controller

        def is_elected() -> bool:
            controller.check_alive()
            return self.rig.jvm_controller() == CONTROLLER

        wait_until(is_elected, timeout=TIMEOUT, what="our controller has taken over")

    def to_jvm(self) -> None:
        """End the controller of the package; Kafka's broker follows it."""
        if self._controller is not None:
            self._controller.terminate(TIMEOUT)
            self._controller = None
        wait_until(
            lambda: self.rig.jvm_controller() == JVM, timeout=TIMEOUT, what="Kafka's broker is elected"
        )

    def begin(self, ours: bool) -> None:
        (self.to_ours if ours else self.to_jvm)()

    def hand_over(self) -> None:
        """Change the controller."""
        self.begin(self._controller is None)

    # -- tools

    def address(self, broker_id: int) -> str:
        endpoint = self.rig.broker(broker_id).endpoint("CLIENTS")
        return f"{endpoint.host}:{endpoint.port}"

    def ask(
        self, tool: str, broker_id: int, *arguments: str, user: str = "operator", mechanism: str = "PLAIN",
        login: str = "",
    ) -> ToolRun:  # fmt: skip
        """Run a tool as a user at one broker."""
        login = login or f'username="{user}" password="{PASSWORDS[user]}"'
        file = self._folder / "client.properties"
        file.write_text(
            f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config={MODULES[mechanism]} required {login};\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={self._folder / 'authority.pem'}\n"
        )
        where = ("--bootstrap-server", self.address(broker_id), "--command-config", str(file))
        return self.tools.run_as_given(tool, *where, *arguments)

    def do(self, tool: str, broker_id: int, *arguments: str) -> str:
        """Run a tool as the operator until it is successful: it may find the former controller first."""
        runs: list[ToolRun] = []

        def is_done() -> bool:
            runs.append(self.ask(tool, broker_id, *arguments))
            return runs[-1].status == 0

        try:
            wait_until(is_done, timeout=TIMEOUT, what=f"{tool} {arguments}")
        except TimeoutError:
            raise AssertionError(str(runs[-1])) from None
        return runs[-1].output

    def wait_for(self, tool: str, arguments: tuple[str, ...], text: str, *, there: bool = True) -> None:
        """Wait until a tool shows a text, or none, at Kafka's broker and at ours."""
        for broker_id in (JVM, OURS):
            shown = ""

            def agrees(broker_id: int = broker_id) -> bool:
                nonlocal shown
                run = self.ask(tool, broker_id, *arguments)
                shown = str(run)
                return run.status == 0 and (re.search(text, run.output) is not None) == there

            try:
                wait_until(agrees, timeout=TIMEOUT, what=f"broker {broker_id} shows {text}")
            except TimeoutError:
                raise AssertionError(f"broker {broker_id}, {text!r}, {there}: {shown}") from None


@pytest.fixture(scope="module")
def cluster(kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("secured-tools")
    certificates = Certificates(folder)
    Path(certificates.ca_file).rename(folder / "authority.pem")
    prefix = "listener.name.clients."
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    properties = {
        prefix + "ssl.keystore.type": "PEM",
        prefix + "ssl.keystore.location": certificates.issue("broker", ["127.0.0.1", "localhost"]),
        prefix + "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM)),
        prefix + "plain.sasl.jaas.config": f"{MODULES['PLAIN']} required {users};",
        **{f"{prefix}{one.lower()}.sasl.jaas.config": f"{MODULES[one]} required;" for one in SCRAM},
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        # Brokers and controllers among themselves.
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": "the key of this cluster",
        "delegation.token.expiry.check.interval.ms": "1000",
    }
    with (
        KafkaRig(
            folder, brokers=3, ours=(OURS, OTHER), listeners={"CLIENTS": "SASL_SSL"}, properties=properties
        ) as rig,
        KafkaTools(folder, rig.bootstrap) as tools,
    ):
        given = ("--add", "--allow-principal", "User:operator", "--operation", "All")
        for resource in ("--cluster", "--topic=*", "--group=*", "--delegation-token=*", "--user-principal=*"):
            run = tools.run(ACLS, *given, *resource.split("="))
            assert run.status == 0, run
        cluster = Cluster(rig, folder, tools, properties)
        try:
            cluster.wait_for(ACLS, ("--list", "--cluster"), "User:operator")
            yield cluster
        finally:
            cluster.close()


@TURNS
def test_kafka_acls(cluster: Cluster, ours_is_first: bool) -> None:
    cluster.begin(ours_is_first)
    first, second = (OURS, JVM) if ours_is_first else (JVM, OURS)
    allowed = ("--allow-principal", "User:bob")
    resources = [
        (("--topic", "one", "--operation", "Read"), "TOPIC, name=one, patternType=LITERAL"),
        (
            ("--topic", "many-", "--resource-pattern-type", "prefixed", "--operation", "Write"),
            "TOPIC, name=many-, patternType=PREFIXED",
        ),
        (("--group", "readers", "--operation", "Read"), "GROUP, name=readers, patternType=LITERAL"),
        (
            ("--transactional-id", "t", "--resource-pattern-type", "prefixed", "--operation", "Write"),
            "TRANSACTIONAL_ID, name=t, patternType=PREFIXED",
        ),
        (("--delegation-token", "a-token", "--operation", "Describe"), "DELEGATION_TOKEN, name=a-token"),
        (("--user-principal", "User:carol", "--operation", "CreateTokens"), "USER, name=User:carol"),
    ]
    for options, shown in resources:
        cluster.do(ACLS, first, "--add", *allowed, *options)
        cluster.wait_for(ACLS, ("--list", "--principal", "User:bob"), shown)
    cluster.hand_over()
    for options, shown in resources:
        cluster.wait_for(ACLS, ("--list", "--principal", "User:bob"), shown)
        cluster.do(ACLS, second, "--remove", "--force", *allowed, *options)
        cluster.wait_for(ACLS, ("--list", "--principal", "User:bob"), shown, there=False)


@TURNS
def test_acls_hold(cluster: Cluster, ours_is_first: bool) -> None:
    """What a user sees at both kinds of brokers, and whom the controller lets change topics."""
    cluster.begin(ours_is_first)
    first, second = (OURS, JVM) if ours_is_first else (JVM, OURS)
    topic = f"of-bob-{ours_is_first}"
    created = ("--create", "--topic", topic, "--partitions", "1", "--replication-factor", "3")
    refused = cluster.ask(TOPICS, first, *created, user="bob")
    assert "Authorization" in refused.output + refused.errors, refused
    cluster.do(ACLS, first, "--add", "--allow-principal", "User:bob", "--topic", topic, "--operation", "All")

    def bob(broker_id: int, *arguments: str) -> ToolRun:
        return cluster.ask(TOPICS, broker_id, *arguments, user="bob")

    def is_successful(broker_id: int, *arguments: str) -> bool:
        return bob(broker_id, *arguments).status == 0

    wait_until(partial(is_successful, first, *created), timeout=TIMEOUT, what="bob creates his topic")
    cluster.hand_over()
    for broker_id in (first, second):
        assert bob(broker_id, "--list").output.split() == [topic]
    deleted = ("--delete", "--topic", topic)
    wait_until(partial(is_successful, second, *deleted), timeout=TIMEOUT, what="bob deletes his topic")
    cluster.do(ACLS, second, "--remove", "--force", "--allow-principal", "User:bob", "--topic", topic)


#: Options of an entity, one of its configs, and a value. Every broker shows them.
SHARED = [
    (("--entity-type", "users", "--entity-name", "bob"), "producer_byte_rate", "1048576"),
    (("--entity-type", "users", "--entity-default"), "request_percentage", "200"),
    (("--entity-type", "clients", "--entity-name", "an app"), "consumer_byte_rate", "2097152"),
    (
        ("--entity-type", "users", "--entity-name", "bob", "--entity-type", "clients", "--entity-default"),
        "controller_mutation_rate",
        "1000",
    ),
    (("--entity-type", "ips", "--entity-name", "127.0.0.9"), "connection_creation_rate", "500"),
    (("--entity-type", "ips", "--entity-default"), "connection_creation_rate", "1000"),
    (("--entity-type", "brokers", "--entity-default"), "message.max.bytes", "2000000"),
]
#: Those that one broker has and shows.
OF_BROKERS = [(JVM, "log.cleaner.threads", "2"), (OURS, "max.connections.per.ip", "1000")]


@TURNS
def test_kafka_configs(cluster: Cluster, ours_is_first: bool) -> None:
    """Of users, clients, addresses, and of all brokers."""
    cluster.begin(ours_is_first)
    first, second = (OURS, JVM) if ours_is_first else (JVM, OURS)
    for entity, name, value in SHARED:
        cluster.do(CONFIGS, first, "--alter", "--add-config", f"{name}={value}", *entity)
        cluster.wait_for(CONFIGS, ("--describe", *entity), f"{name}={value}")
    cluster.hand_over()
    for entity, name, value in SHARED:
        cluster.wait_for(CONFIGS, ("--describe", *entity), f"{name}={value}")
        cluster.do(CONFIGS, second, "--alter", "--delete-config", name, *entity)
        cluster.wait_for(CONFIGS, ("--describe", *entity), f"{name}={value}", there=False)


@TURNS
def test_configs_of_one_broker(cluster: Cluster, ours_is_first: bool) -> None:
    cluster.begin(ours_is_first)
    for broker_id, name, value in OF_BROKERS:
        entity = ("--entity-type", "brokers", "--entity-name", str(broker_id))
        cluster.do(CONFIGS, broker_id, "--alter", "--add-config", f"{name}={value}", *entity)
        cluster.hand_over()
        assert f"{name}={value}" in cluster.do(CONFIGS, broker_id, "--describe", *entity)
        cluster.do(CONFIGS, broker_id, "--alter", "--delete-config", name, *entity)
        assert name not in cluster.do(CONFIGS, broker_id, "--describe", *entity)


@TURNS
def test_scram_users(cluster: Cluster, ours_is_first: bool) -> None:
    cluster.begin(ours_is_first)
    first, second = (OURS, JVM) if ours_is_first else (JVM, OURS)
    entity = ("--entity-type", "users", "--entity-name", "carol")

    def is_let_in(mechanism: str, broker_id: int) -> bool:
        login = 'username="carol" password="c4rol"'
        return cluster.ask(TOPICS, broker_id, "--list", mechanism=mechanism, login=login).status == 0

    def wait_for(mechanism: str, let_in: bool) -> None:
        for broker_id in (JVM, OURS):
            wait_until(
                lambda broker_id=broker_id: is_let_in(mechanism, broker_id) == let_in,  # type: ignore[misc]
                timeout=TIMEOUT,
                what=f"broker {broker_id} lets carol in by {mechanism}: {let_in}",
            )

    for mechanism in SCRAM:
        made = f"{mechanism}=[iterations=4096,password=c4rol]"
        cluster.do(CONFIGS, first, "--alter", "--add-config", made, *entity)
        wait_for(mechanism, True)
    cluster.hand_over()
    for mechanism in SCRAM:
        wait_for(mechanism, True)
        cluster.do(CONFIGS, second, "--alter", "--delete-config", mechanism, *entity)
        wait_for(mechanism, False)


def token_in(text: str) -> tuple[str, str]:
    found = re.search(r"^(\S{22}) +(\S{88}) ", text, re.MULTILINE)
    assert found is not None, text
    return found[1], found[2]


@TURNS
def test_kafka_delegation_tokens(cluster: Cluster, ours_is_first: bool) -> None:
    cluster.begin(ours_is_first)
    first, second = (OURS, JVM) if ours_is_first else (JVM, OURS)
    owner = ("--owner-principal", "User:operator")
    made = cluster.do(TOKENS, first, "--create", "--max-life-time-period", "-1", *owner)
    token_id, hmac = token_in(made)
    login = f'username="{token_id}" password="{hmac}" tokenauth="true"'

    def is_let_in(broker_id: int) -> bool:
        return cluster.ask(TOPICS, broker_id, "--list", mechanism=SCRAM[0], login=login).status == 0

    for _ in range(2):
        cluster.wait_for(TOKENS, ("--describe", *owner), re.escape(hmac))
        for broker_id in (JVM, OURS):
            wait_until(partial(is_let_in, broker_id), timeout=TIMEOUT, what=f"{broker_id} lets it in")
        cluster.do(TOKENS, second, "--renew", "--renew-time-period", "3600000", "--hmac", hmac)
        cluster.hand_over()
    cluster.do(TOKENS, second, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    cluster.wait_for(TOKENS, ("--describe", *owner), re.escape(hmac), there=False)
    assert not is_let_in(first)


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "Kafka's"])
def test_a_controller_removes_expired_tokens(cluster: Cluster, ours: bool) -> None:
    cluster.begin(ours)
    owner = ("--owner-principal", "User:operator")
    for broker_id in (JVM, OURS):
        made = cluster.do(TOKENS, broker_id, "--create", "--max-life-time-period", "3000", *owner)
        token_id, hmac = token_in(made)
        path = f"/delegation_token/tokens/{token_id}"
        wait_until(
            lambda path=path: cluster.rig.zookeeper.exists(path) is None,  # type: ignore[misc]
            timeout=TIMEOUT,
            what=f"{path} is removed",
        )
        cluster.wait_for(TOKENS, ("--describe", *owner), re.escape(hmac), there=False)
        for one in (JVM, OURS):
            login = f'username="{token_id}" password="{hmac}" tokenauth="true"'
            late = cluster.ask(TOPICS, one, "--list", mechanism=SCRAM[1], login=login)
            assert "SaslAuthenticationException" in late.errors, late


@TURNS
def test_kafka_reassign_partitions(cluster: Cluster, ours_is_first: bool) -> None:
    cluster.begin(ours_is_first)
    first, second = (OURS, JVM) if ours_is_first else (JVM, OURS)
    topic = f"moved-{ours_is_first}"
    cluster.do(TOPICS, first, "--create", "--topic", topic, "--replica-assignment", f"{JVM}:{OURS}")
    write_large(cluster.rig.bootstrap, topic, 0)
    plan = cluster.tools.plan({(topic, 0): [OTHER, OURS]})
    file = ("--reassignment-json-file", plan)
    throttled = ("--describe", "--entity-type", "topics", "--entity-name", topic)
    cluster.do(REASSIGN, first, "--execute", *file, "--throttle", "1")
    cluster.wait_for(CONFIGS, throttled, "follower.replication.throttled.replicas=0:3")
    for broker_id in (JVM, OURS, OTHER):
        rates = cluster.do(
            CONFIGS, broker_id, "--describe", "--entity-type", "brokers", "--entity-name", str(broker_id)
        )
        assert "leader.replication.throttled.rate=1 " in rates
    cluster.hand_over()
    progress = cluster.do(REASSIGN, second, "--verify", *file, "--preserve-throttles")
    assert "is still in progress" in progress
    cluster.do(REASSIGN, second, "--execute", "--additional", *file, "--throttle", "100000000")
    found: list[str] = []

    def is_complete() -> bool:
        run = cluster.ask(REASSIGN, second, "--verify", *file)
        found.append(str(run))
        return "is completed." in run.output

    wait_until(is_complete, timeout=TIMEOUT, what="the reassignment is complete")
    assert "Clearing" in found[-1], found[-1]
    cluster.wait_for(CONFIGS, throttled, "throttled.replicas", there=False)
    for broker_id in (JVM, OURS, OTHER):
        rates = cluster.do(
            CONFIGS, broker_id, "--describe", "--entity-type", "brokers", "--entity-name", str(broker_id)
        )
        assert "throttled.rate" not in rates
    assert list(nodes.partition_nodes(cluster.rig.zookeeper, {topic})[topic, 0].replicas) == [OTHER, OURS]
    cluster.do(TOPICS, second, "--delete", "--topic", topic)
