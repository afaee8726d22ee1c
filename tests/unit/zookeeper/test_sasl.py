"""A session with SASL (DIGEST-MD5), by the package pure-sasl."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ctrlchan.errors import ConfigError, ZooKeeperError
from ctrlchan.zookeeper.session import ZooKeeperSession
from ctrlchan.zookeeper.settings import SaslSettings, ZooKeeperSettings
from tests.kafka.zookeeper import ZooKeeperServer


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("sasl")
    login = folder / "jaas.conf"
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    login.write_text(f'Server {{ {module} required user_kafka="s3cret"; }};\n')
    with ZooKeeperServer(
        folder / "zookeeper",
        configuration="authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n",
        options=[f"-Djava.security.auth.login.config={login}"],
    ) as server:
        yield server.address


def test_a_session_with_sasl(address: str) -> None:
    sasl = SaslSettings(username="kafka", password="s3cret")
    one = ZooKeeperSession(ZooKeeperSettings(connect=address, sasl=sasl, set_acl=True))
    # One attempt may take a whole session timeout (18 s) on a busy machine: leave time for another.
    one.start(60)
    try:
        one.create_path("/config/users/alice")
        assert one.get("/config/users/alice") is not None
    finally:
        one.close()
    with (
        ZooKeeperSession(ZooKeeperSettings(connect=address)) as stranger,
        pytest.raises(ZooKeeperError, match="NO_AUTH"),
    ):
        stranger.get("/config/users/alice")


def test_a_wrong_password_is_reported(address: str) -> None:
    sasl = SaslSettings(username="kafka", password="wrong")
    one = ZooKeeperSession(ZooKeeperSettings(connect=address, sasl=sasl))
    with pytest.raises(ZooKeeperError, match=r"zookeeper .*: no connection") as raised:
        one.start(3)
    assert "wrong" not in str(raised.value)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match="SASL needs the package pure-sasl"):
        ZooKeeperSettings(connect="localhost:1", sasl=SaslSettings())
