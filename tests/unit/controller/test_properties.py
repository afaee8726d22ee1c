"""A broker's server.properties as settings of a controller."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.controller.settings.properties import settings_of
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.security.listener_security import ClientAuth
from ctrlchan.state import Endpoint

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def test_a_file_with_everything_plain(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "broker.id=1000\n"
        "broker.rack=here\n"
        "zookeeper.connect=one:2181,two:2181/kafka\n"
        "zookeeper.session.timeout.ms=6000\n"
        "zookeeper.connection.timeout.ms=9000\n"
        "inter.broker.protocol.version=2.8\n"
        "listeners=PLAINTEXT://10.0.0.1:9090\n"
        "delete.topic.enable=False\n"
        "unclean.leader.election.enable=true\n"
        "auto.leader.rebalance.enable=false\n"
        "leader.imbalance.per.broker.percentage=0\n"
        "leader.imbalance.check.interval.seconds=60\n"
        "num.partitions=6\n"
        "default.replication.factor=3\n"
        "log.retention.hours=2\n"
        "log.retention.minutes=5\n"
        "log.roll.hours=2\n"
        "log.segment.bytes=1000\n"
        "min.insync.replicas=2\n"
        "log.dirs=/data\n"
    )
    config = ControllerConfig(**settings_of(file))
    assert (config.controller_id, config.rack, config.zookeeper) == (1000, "here", "one:2181,two:2181/kafka")
    assert (config.zookeeper_session_timeout, config.zookeeper_connection_timeout) == (6.0, 9.0)
    assert config.inter_broker_protocol == "2.8"
    assert config.channel.controller_id == 1000
    endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "10.0.0.1", 9090)
    assert (config.listeners, config.advertised_listeners) == ((endpoint,), None)
    assert (config.delete_topics, config.unclean_leader_election) == (False, True)
    assert not config.auto_leader_rebalance
    assert (config.leader_imbalance_percentage, config.leader_imbalance_check_interval) == (0, 60)
    assert (config.num_partitions, config.default_replication_factor) == (6, 3)
    assert config.topic_defaults == {
        "min.insync.replicas": "2",
        "retention.ms": "300000",
        "segment.bytes": "1000",
        "segment.ms": "7200000",
        "unclean.leader.election.enable": "true",
    }


def test_what_a_file_does_not_set_has_its_default() -> None:
    settings = settings_of({"zookeeper.connect": "here:2181"})
    config = ControllerConfig(controller_id=5, **settings)
    assert (config.listeners, config.topic_defaults, config.listener_security) == ((), {}, {})
    assert config.zookeeper_session_timeout == 18


@pytest.mark.parametrize(
    "settings",
    [
        {"rack": "x" * 40_000},
        {"listeners": (Endpoint("x" * 40_000, SecurityProtocol.PLAINTEXT, "h", 1),)},
        {"advertised_listeners": (Endpoint("P", SecurityProtocol.PLAINTEXT, "x" * 40_000, 1),)},
    ],
)
def test_settings_that_no_request_can_carry_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"'xxx.*' has 40000 bytes, more than the 32767 of a string"):
        ControllerConfig(controller_id=1, zookeeper="h:1", **settings)


def test_listeners_and_their_security() -> None:
    settings = settings_of(
        {
            "listeners": "INTERNAL://:9091, EXTERNAL://0.0.0.0:9092",
            "advertised.listeners": "EXTERNAL://kafka.example:19092,INTERNAL://10.0.0.1:9091",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:SASL_SSL",
            "inter.broker.listener.name": "INTERNAL",
            "listener.name.external.ssl.keystore.location": "/keys.p12",
            "ssl.keystore.password": "secret",
            "listener.name.external.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN, SCRAM-SHA-512",
            "listener.name.external.plain.sasl.jaas.config": f'{PLAIN} username="a" user_bob="pw" ;',
        }
    )
    assert [str(one) for one in settings["listeners"]] == [
        "INTERNAL://0.0.0.0:9091",
        "EXTERNAL://0.0.0.0:9092",
    ]
    assert [str(one) for one in settings["advertised_listeners"]] == [
        "EXTERNAL://kafka.example:19092",
        "INTERNAL://10.0.0.1:9091",
    ]
    assert list(settings["listener_security"]) == ["EXTERNAL"]
    security = settings["listener_security"]["EXTERNAL"]
    assert security.tls is not None
    assert (security.tls.certificate_file, security.tls.keystore_password) == ("/keys.p12", "secret")
    assert security.client_auth is ClientAuth.REQUIRED
    assert security.mechanisms == ("PLAIN", "SCRAM-SHA-512")
    assert security.users == {"bob": "pw"}
    assert settings["channel"].inter_broker_listener == "INTERNAL"
    ControllerConfig(controller_id=1, zookeeper="here:2181", **settings)


def test_a_listener_on_every_address_is_advertised_by_the_name_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platform.node", lambda: "machine")
    settings = settings_of({"listeners": "PLAINTEXT://:9092,SSL://[::]:9093", "ssl.keystore.location": "/k"})
    assert [str(one) for one in settings["advertised_listeners"]] == [
        "PLAINTEXT://machine:9092",
        "SSL://machine:9093",
    ]


def test_an_authorizer() -> None:
    file = {"authorizer.class.name": "package.Own", "super.users": "User:admin", "own.setting": "secret"}
    config = ControllerConfig(controller_id=1, zookeeper="here:2181", **settings_of(file))
    assert config.authorizer == file
    assert "secret" not in repr(config)
    assert "authorizer" not in settings_of({"super.users": "User:admin"})
    with pytest.raises(ConfigError, match=r"allow\.everyone\.if\.no\.acl\.found"):
        settings_of(file | {"allow.everyone.if.no.acl.found": "maybe"})


@pytest.mark.parametrize(
    ("listeners", "settings", "for_brokers"),
    [
        ("A://h:1", {}, {"A"}),
        ("PLAINTEXT://h:1,B://h:2", {}, {"PLAINTEXT"}),
        ("A://h:1,B://h:2", {"inter.broker.listener.name": "B"}, {"B"}),
        (
            "A://h:1,B://h:2,C://h:3",
            {"inter.broker.listener.name": "B", "control.plane.listener.name": "C"},
            {"B", "C"},
        ),
    ],
)
def test_listeners_of_brokers(listeners: str, settings: dict[str, str], for_brokers: set[str]) -> None:
    names = "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    file = {"listeners": listeners, "listener.security.protocol.map": names} | settings
    config = ControllerConfig(controller_id=1, zookeeper="here:2181", **settings_of(file))
    assert {one.listener for one in config.listeners if config.is_for_brokers(one.listener)} == for_brokers


def test_tls_to_zookeeper() -> None:
    settings = settings_of(
        {
            "zookeeper.connect": "here:2182",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": "/ca.pem",
            "zookeeper.ssl.keystore.location": "/own.pem",
            "zookeeper.ssl.keystore.password": "secret",
            "zookeeper.set.acl": "true",
        }
    )
    config = ControllerConfig(controller_id=1, **settings)
    tls = config.zookeeper_settings.tls
    assert tls is not None
    assert (tls.ca, tls.certificate, tls.key, tls.key_password) == (
        "/ca.pem", "/own.pem", "/own.pem", "secret",
    )  # fmt: skip
    assert tls.verify_host
    assert config.zookeeper_settings.set_acl
    assert "secret" not in repr(config)


def test_a_type_of_store_that_nobody_knows() -> None:
    key = "zookeeper.ssl.truststore"
    with pytest.raises(ConfigError, match=rf"{key}\.type: 'BKS' is not PEM, PKCS12, JKS"):
        settings_of({"zookeeper.ssl.client.enable": "true", f"{key}.location": "/t", f"{key}.type": "BKS"})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("zookeeper.connect", ":::", "is not HOST:PORT"),
        ("zookeeper.session.timeout.ms", "soon", "Not a number of type INT"),
        ("zookeeper.session.timeout.ms", "0", "Value must be at least 1"),
        ("delete.topic.enable", "yes", "Expected value to be either true or false"),
        ("leader.imbalance.per.broker.percentage", "-1", "Value must be at least 0"),
        ("log.retention.hours", "x", "Not a number of type INT"),
        ("listeners", "9092", "'9092' is not NAME://HOST:PORT"),
        ("listeners", "NOWHERE://a:1", "'NOWHERE' has no protocol"),
        ("listeners", "PLAINTEXT://a:1,PLAINTEXT://b:1", "'PLAINTEXT' is listed twice"),
        ("listeners", "PLAINTEXT://a:99999", "is not HOST:PORT"),
        ("advertised.listeners", "SSL://a:1", "is not in both lists"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:1", "is no address that others can connect to"),
    ],
)
def test_an_error_has_file_line_and_key(tmp_path: Path, key: str, value: str, message: str) -> None:
    file = tmp_path / "server.properties"
    before = "listeners=PLAINTEXT://here:1\n" if key == "advertised.listeners" else "\n"
    file.write_text(f"{before}{key}={value}\n")
    before_key = rf"{re.escape(str(file))}:2: (Invalid value .* for configuration )?"
    with pytest.raises(ConfigError, match=rf"{before_key}{key}: .*{re.escape(message)}"):
        settings_of(file)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("ssl.client.auth", "maybe", "is not none"),
        ("sasl.enabled.mechanisms", "DIGEST-MD5", "DIGEST-MD5 is not PLAIN"),
    ],
)
def test_an_error_of_a_listener_has_its_key(key: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"listener.name.sasl_ssl.{key}: .*{message}"):
        settings_of(
            {
                "listeners": "SASL_SSL://here:1",
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                f"listener.name.sasl_ssl.{key}": value,
            }
        )
