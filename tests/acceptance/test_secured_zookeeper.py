"""A broker, its authorizer and a controller on a real ZooKeeper with SASL, and on one with TLS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from ctrlchan import ControllerConfig, EmbeddedCluster, KafkaController
from ctrlchan.controller.settings.properties import settings_of
from ctrlchan.embedded.certificates import Certificates
from ctrlchan.errors import CtrlchanError
from tests.kafka.ports import free_port
from tests.kafka.waiting import wait_until
from tests.kafka.zookeeper import ZooKeeperServer

DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
PASSWORD = "s3cret"
SEEN = "world"


@dataclass(frozen=True)
class Secured:
    """A ZooKeeper: the address without TLS, that of clients, their settings, the scheme of their names."""

    plain: str
    address: str
    configs: dict[str, str]
    scheme: str
    folder: Path


@pytest.fixture(scope="module", params=["SASL", "TLS"])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    if request.param == "SASL":
        login = folder / "server.conf"
        login.write_text(f'Server {{ {DIGEST} required user_kafka="{PASSWORD}"; }};\n')
        jaas = folder / "client.conf"
        jaas.write_text(f'Client {{ {DIGEST} required username="kafka" password="{PASSWORD}"; }};\n')
        with ZooKeeperServer(
            folder / "zookeeper",
            configuration="authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n",
            options=[f"-Djava.security.auth.login.config={login}"],
        ) as server:
            configs = {"java.security.auth.login.config": str(jaas), "zookeeper.set.acl": "true"}
            yield Secured(server.address, server.address, configs, "sasl", folder)
        return
    certificates = Certificates(folder)
    server_file, client_file = certificates.issue("zookeeper", ["localhost"]), certificates.issue("kafka")
    port = free_port()
    with ZooKeeperServer(
        folder / "zookeeper",
        configuration=(
            f"secureClientPort={port}\n"
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"ssl.keyStore.location={server_file}\n"
            f"ssl.trustStore.location={certificates.ca_file}\n"
            "ssl.clientAuth=need\n"
        ),
    ) as server:
        configs = {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": certificates.ca_file,
            "zookeeper.ssl.keystore.location": client_file,
            "zookeeper.set.acl": "true",
        }
        yield Secured(server.address, f"localhost:{port}", configs, "x509", folder)


def schemes(client: KazooClient, path: str) -> set[str]:
    """The schemes of the ACLs of a node: whose names may do something with it."""
    acls, _ = client.get_acls(path)
    return {acl.id.scheme for acl in acls}


def test_only_their_creator_changes_nodes(secured: Secured) -> None:
    configs = {
        **secured.configs,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    properties = {"zookeeper.connect": secured.address, "listeners": "PLAINTEXT://127.0.0.1:0"}
    config = ControllerConfig(controller_id=1000, **settings_of({**properties, **secured.configs}))
    stranger = KazooClient(secured.plain)
    with (
        KafkaController(config) as controller,
        EmbeddedCluster(1, zookeeper=secured.address, configs=configs) as cluster,
    ):
        controller.wait_until_active(60)
        cluster.create_topic("orders", timeout=60)
        stranger.start(30)
        try:
            wait_until(lambda: stranger.exists("/kafka-acl-changes"), what="the authorizer has its nodes")
            for path in ("/brokers/ids/1", "/brokers/topics/orders", "/controller", "/kafka-acl"):
                assert schemes(stranger, path) == {secured.scheme, SEEN}, path
            # Passwords are not for everybody.
            with pytest.raises(NoAuthError):
                stranger.get("/config/users")
            with pytest.raises(NoAuthError):
                stranger.set("/brokers/topics/orders", b"{}")
        finally:
            stranger.stop()
            stranger.close()


def test_a_refused_broker_says_why(secured: Secured) -> None:
    configs = dict(secured.configs)
    if secured.scheme == "sasl":
        wrong = secured.folder / "wrong.conf"
        wrong.write_text(f'Client {{ {DIGEST} required username="kafka" password="wr0ng"; }};\n')
        configs["java.security.auth.login.config"] = str(wrong)
    else:
        other = secured.folder / "other"
        other.mkdir()
        configs["zookeeper.ssl.truststore.location"] = Certificates(other).ca_file
    with pytest.raises(CtrlchanError, match=f"no ZooKeeper answers at {secured.address}") as raised:
        EmbeddedCluster(1, zookeeper=secured.address, configs=configs)
    assert "wr0ng" not in str(raised.value)
