"""A broker's server.properties as settings: Kafka's names, the right listener's values, where errors are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ctrlchan import ChannelConfig
from ctrlchan.channel.properties import settings_of
from ctrlchan.config.properties_file import read_properties
from ctrlchan.errors import ConfigError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def test_the_syntax_of_java() -> None:
    text = (
        "# a comment \\\n"
        "! another\n"
        "\n"
        "plain=value\r\n"
        "  spaced  :  value with spaces  \n"
        "blank value\n"
        "long=one,\\\n"
        "     two\n"
        "key\\ with\\=signs=x\\ty\\u00e9\\\\z\n"
        "empty=\n"
        "alone\n"
        "twice=1\n"
        "twice=2\n"
        "last=to the end\\"
    )
    found = read_properties(text)
    assert {key: entry.value for key, entry in found.items()} == {
        "plain": "value",
        "spaced": "value with spaces  ",
        "blank": "value",
        "long": "one,two",
        "key with=signs": "x\tyé\\z",
        "empty": "",
        "alone": "",
        "twice": "2",
        "last": "to the end",
    }
    assert (found["long"].line, found["twice"].line) == (7, 13)


def test_a_file_without_any_of_the_keys() -> None:
    config = ChannelConfig.from_properties({"zookeeper.connect": "zk:2181", "log.dirs": "/data"})
    assert config == ChannelConfig(inter_broker_listener="PLAINTEXT")


def test_plain_settings() -> None:
    config = ChannelConfig.from_properties(
        {
            "broker.id": "12",
            "inter.broker.protocol.version": "2.8-IV1",
            "controller.socket.timeout.ms": "15000",
            "request.timeout.ms": "20000",
            "socket.connection.setup.timeout.ms": "2500",
            "socket.connection.setup.timeout.max.ms": "5000",
            "socket.request.max.bytes": "1000000",
            "security.inter.broker.protocol": "PLAINTEXT",
        },
        retry_backoff=0.5,
        controller_id=7,
    )
    assert (config.controller_id, config.inter_broker_protocol, config.max_request_bytes) == (
        7,
        "2.8-IV1",
        1_000_000,
    )
    assert (config.socket_timeout, config.connection_setup_timeout) == (15.0, 2.5)
    assert config.request_timeout == 20.0
    assert (config.connection_setup_timeout_max, config.retry_backoff) == (5.0, 0.5)


TWO_LISTENERS = {
    "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT, CTRL:sasl_ssl,OUT:SSL",
    "inter.broker.listener.name": "INSIDE",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.inside.plain.sasl.jaas.config": f'{PLAIN} username="in" password="inside";',
    "listener.name.ctrl.sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
    "listener.name.ctrl.scram-sha-256.sasl.jaas.config": SCRAM
    + " username='ctrl' password='a b;\\\"c' x=y ;",
    "ssl.truststore.location": "/etc/all.pem",
    "ssl.truststore.type": "PEM",
    "listener.name.ctrl.ssl.truststore.location": "/etc/ctrl.pem",
    "listener.name.ctrl.ssl.endpoint.identification.algorithm": "",
    "listener.name.ctrl.ssl.enabled.protocols": "TLSv1.3,TLSv1.1",
    "ssl.key.password": "key",
}


def test_the_inter_broker_listener_is_used() -> None:
    config = ChannelConfig.from_properties(TWO_LISTENERS)
    assert (config.listener_name, config.broker_listener) == (None, "INSIDE")
    assert config.security_protocol == "SASL_PLAINTEXT"
    assert config.tls is None
    assert config.sasl is not None
    assert (config.sasl.mechanism, config.sasl.username, config.sasl.password) == ("PLAIN", "in", "inside")


@pytest.mark.parametrize("given", [False, True])
def test_the_control_plane_listener_comes_first_with_its_own_values(given: bool) -> None:
    if given:
        config = ChannelConfig.from_properties(TWO_LISTENERS, listener="CTRL")
    else:
        config = ChannelConfig.from_properties(TWO_LISTENERS | {"control.plane.listener.name": "CTRL"})
    assert (config.listener_name, config.broker_listener) == ("CTRL", "INSIDE")
    assert config.security_protocol == "SASL_SSL"
    assert config.sasl is not None
    assert config.sasl.mechanism == "SCRAM-SHA-256"
    assert config.sasl.password == 'a b;"c'
    assert config.tls is not None
    assert (config.tls.ca_file, config.tls.key_password) == ("/etc/ctrl.pem", "key")
    assert (config.tls.verify_host_name, config.tls.versions) == (False, ("TLSv1.3",))


def test_certificates_in_the_file_itself() -> None:
    config = ChannelConfig.from_properties(
        {
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": "CA",
            "ssl.keystore.certificate.chain": "CHAIN",
            "ssl.keystore.key": "KEY",
        }
    )
    assert config.tls is not None
    assert (config.tls.ca_pem, config.tls.certificate_pem, config.tls.key_pem) == ("CA", "CHAIN", "KEY")
    assert config.tls.verify_host_name
    assert "KEY" not in repr(config)


SASL = {"security.inter.broker.protocol": "SASL_PLAINTEXT"}
WRONG: dict[str, tuple[dict[str, str], str, str]] = {
    "number": ({"broker.id": "one"}, "broker.id", "Invalid value one for configuration"),
    "time": (
        {"controller.socket.timeout.ms": "0"},
        "controller.socket.timeout.ms",
        "Value must be at least 1",
    ),
    "ibp": ({"inter.broker.protocol.version": "4.7"}, "inter.broker.protocol.version", "4.7"),
    "protocol": ({"security.inter.broker.protocol": "TLS"}, "security.inter.broker.protocol", "'TLS'"),
    "map": ({"listener.security.protocol.map": "A:B"}, "listener.security.protocol.map", "'A:B'"),
    "listener": ({"inter.broker.listener.name": "X"}, "inter.broker.listener.name", "'X' has no protocol"),
    "both": (
        {"inter.broker.listener.name": "SSL", "security.inter.broker.protocol": "SSL"},
        "security.inter.broker.protocol",
        "only one",
    ),
    "mechanism": (
        SASL | {"sasl.mechanism.inter.broker.protocol": "CRAM-MD5"},
        "sasl.mechanism.inter.broker.protocol",
        "CRAM-MD5 is not PLAIN",
    ),
    "no mechanism": (SASL, "sasl.mechanism.inter.broker.protocol", "GSSAPI needs"),
    "no user of tokens": (
        SASL
        | {
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.jaas.config": "x.OAuthBearerLoginModule required;",
        },
        "sasl.jaas.config",
        "an unsecured token needs a user",
    ),
    "no secret of tokens": (
        SASL
        | {
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "https://host/token",
            "sasl.jaas.config": "x.OAuthBearerLoginModule required clientId=s3cret;",
        },
        "sasl.jaas.config",
        "client_id and client_secret",
    ),
    "no jaas": (
        SASL | {"sasl.mechanism.inter.broker.protocol": "PLAIN"},
        "plain.sasl.jaas.config",
        "it is missing",
    ),
    "another module": (
        SASL
        | {
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "plain.sasl.jaas.config": f"{SCRAM} password=s3cret;",
        },
        "plain.sasl.jaas.config",
        "its login module is not PlainLoginModule",
    ),
    "half a jaas": (
        SASL
        | {
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "plain.sasl.jaas.config": f'{PLAIN} password="s3cret',
        },
        "plain.sasl.jaas.config",
        "it is not",
    ),
    "no user": (
        SASL
        | {
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "plain.sasl.jaas.config": f"{PLAIN} password=s3cret;",
        },
        "plain.sasl.jaas.config",
        "username: it is empty",
    ),
    "provider": (
        SASL
        | {
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "plain.sasl.jaas.config": PLAIN + ' username="a" password="${file:/etc/s3cret:p}";',
        },
        "plain.sasl.jaas.config",
        "config provider",
    ),
    "host check": (
        {"security.inter.broker.protocol": "SSL", "ssl.endpoint.identification.algorithm": "none"},
        "ssl.endpoint.identification.algorithm",
        "'none'",
    ),
    "old tls": (
        {"security.inter.broker.protocol": "SSL", "ssl.enabled.protocols": "TLSv1,TLSv1.1"},
        "ssl.enabled.protocols",
        "neither TLSv1.2 nor TLSv1.3",
    ),
    "store type": (
        {"security.inter.broker.protocol": "SSL", "ssl.truststore.type": "BKS"},
        "ssl.truststore.type",
        "'BKS'",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_error_names_file_line_and_key(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    properties, key, reason = WRONG[case]
    file = tmp_path / "server.properties"
    lines = ["# first"] + [f"{name}={value}" for name, value in properties.items()]
    file.write_text("\n".join(lines))
    with pytest.raises(ConfigError) as raised:
        settings_of(file)
    text = str(raised.value)
    at = next((f":{n}" for n, line in enumerate(lines, 1) if line.startswith(key + "=")), "")
    assert text.startswith(f"{file}{at}: ")
    assert f"{key}: " in text
    assert reason in text
    assert "s3cret" not in text


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.properties: No such file"):
        ChannelConfig.from_properties(tmp_path / "none.properties")
