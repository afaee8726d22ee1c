"""The security of a broker's listeners, from settings under Kafka's names."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctrlchan.broker.config.broker_config import BrokerConfig
from ctrlchan.broker.config.listener_configs import security_of, security_protocols
from ctrlchan.config.names import names_without_effect
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.security.listener_security import ClientAuth
from ctrlchan.server.socket_server import Listener

MAP = {"listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL,CLIENTS:SSL"}
STORE = {
    "ssl.keystore.location": "/all.p12",
    "ssl.keystore.password": "s3cret",
    "ssl.client.auth": "required",
}


def test_the_map_gives_each_listener_its_protocol() -> None:
    found = security_protocols(MAP, ["INSIDE", "CLIENTS", "OUTSIDE"])
    assert [protocol.name for protocol in found.values()] == ["PLAINTEXT", "SSL", "SASL_SSL"]
    with pytest.raises(ConfigError, match=r"^listener\.security\.protocol\.map: 'SSL' has no"):
        security_protocols(MAP, ["SSL"])


def test_without_a_map_a_name_may_be_a_protocol() -> None:
    found = security_protocols({}, ["SASL_PLAINTEXT", "EXTERNAL"])
    assert [protocol.name for protocol in found.values()] == ["SASL_PLAINTEXT", "PLAINTEXT"]


def test_a_setting_of_one_listener_counts_before_that_of_all() -> None:
    configs = STORE | {"listener.name.clients.ssl.keystore.location": "/own.p12"}
    security = security_of(configs, "CLIENTS", SecurityProtocol.SSL)
    assert security.tls is not None
    assert (security.tls.certificate_file, security.tls.keystore_password) == ("/own.p12", "s3cret")
    assert security.client_auth is ClientAuth.REQUIRED
    assert security_of(STORE, "OTHER", SecurityProtocol.SSL).tls != security.tls
    assert security_of(STORE, "INSIDE", SecurityProtocol.PLAINTEXT).tls is None


def test_client_auth_of_sasl_ssl_is_the_listeners_own() -> None:
    sasl = STORE | {
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": 'x.PlainLoginModule required user_alice="a";',
    }
    assert security_of(sasl, "OUTSIDE", SecurityProtocol.SASL_SSL).client_auth is ClientAuth.NONE
    own = sasl | {"listener.name.outside.ssl.client.auth": "requested"}
    assert security_of(own, "OUTSIDE", SecurityProtocol.SASL_SSL).client_auth is ClientAuth.REQUESTED


def test_a_listener_without_a_certificate_is_named() -> None:
    with pytest.raises(ConfigError, match=r"listener X: SSL needs a certificate \(ssl\.keystore\.\*\)"):
        security_of({}, "X", SecurityProtocol.SSL)
    with pytest.raises(ConfigError, match=r"listener\.name\.x\.ssl\.client\.auth: 'maybe' is not none"):
        security_of(STORE | {"listener.name.x.ssl.client.auth": "maybe"}, "X", SecurityProtocol.SSL)


def test_brokers_take_the_settings_of_listeners() -> None:
    names = [
        "ssl.keystore.location",
        "listener.name.clients.ssl.key.password",
        "listener.name.clients.scram-sha-256.sasl.jaas.config",
        "plain.sasl.jaas.config",
        "listener.name.clients.ssl.keystore.locations",
        "listener.name.clients.num.partitions",
    ]
    assert names_without_effect(names) == names[-2:]


def test_no_secret_is_shown(tmp_path: Path) -> None:
    config = BrokerConfig(id=1, listener="CLIENTS", log_dirs=[str(tmp_path)], configs=MAP | STORE)
    listener = Listener("X", "h", 1, SecurityProtocol.SSL, security_of(STORE, "X", SecurityProtocol.SSL))
    assert "s3cret" not in f"{config!r} {listener!r}"
