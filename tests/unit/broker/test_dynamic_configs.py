"""Dynamic configs of one broker: which it takes, what its parts get (Kafka: DynamicBrokerConfigTest)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ctrlchan.broker.config.dynamic_configs import DynamicConfigs
from ctrlchan.broker.config.log_configs import LogConfigs
from ctrlchan.broker.config.parts import server_settings
from ctrlchan.config import table
from ctrlchan.config.described import ConfigSource, broker_configs
from ctrlchan.errors import ConfigError, ErrorCode, KafkaError
from ctrlchan.server.socket_server import ListenerLimits

SECRET = {"password.encoder.secret": "the secret"}
KEY_PASSWORD = "listener.name.external.ssl.key.password"


def made(**static: str) -> DynamicConfigs:
    configs = {name.replace("_", "."): value for name, value in static.items()}
    return DynamicConfigs(1, configs, LogConfigs(1, configs, threading.RLock()))


def refused(configs: dict[str, str], *, per_broker: bool = True, **static: str) -> str:
    with pytest.raises(KafkaError) as raised:
        made(**static).check_broker_configs(configs, per_broker=per_broker)
    assert raised.value.code == ErrorCode.INVALID_REQUEST
    return raised.value.message


def test_the_brokers_own_stand_over_those_of_all_over_the_file() -> None:
    dynamic = made(num_io_threads="4", background_threads="4")
    got: list[int] = []
    dynamic.follow(table.NUM_IO_THREADS.of, got.append)
    dynamic.set_broker_configs({}, {"num.io.threads": "5"})
    dynamic.set_broker_configs({"num.io.threads": "6"}, {"num.io.threads": "5"})
    dynamic.set_broker_configs({"num.io.threads": "6"}, {"num.io.threads": "7"})
    dynamic.set_broker_configs({}, {"num.io.threads": "7"})
    dynamic.set_broker_configs({}, {})
    assert got == [4, 5, 6, 7, 4]
    assert dynamic.effective == {"num.io.threads": "4", "background.threads": "4"}


def test_a_part_does_not_get_the_settings_that_it_has() -> None:
    dynamic = made(num_io_threads="4")
    got: list[int] = []
    dynamic.follow(table.NUM_IO_THREADS.of, got.append, present=4)
    dynamic.set_broker_configs({"background.threads": "9"}, {})
    assert got == []
    dynamic.set_broker_configs({"num.io.threads": "5"}, {})
    dynamic.follow(table.NUM_IO_THREADS.of, got.append, present=4)
    assert got == [5, 5]


def test_a_part_that_fails_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    dynamic = made()
    got: list[Any] = []

    def fail(threads: int) -> None:
        if threads != 8:
            raise OSError("no thread")

    dynamic.follow(table.NUM_IO_THREADS.of, fail)
    dynamic.follow(table.NUM_IO_THREADS.of, got.append)
    dynamic.set_broker_configs({"num.io.threads": "9"}, {})
    assert got == [8, 9]
    assert "changed configs have no effect: no thread" in caplog.text


def test_what_cannot_be_used_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    dynamic = made()
    dynamic.set_broker_configs(
        {"num.io.threads": "x", "background.threads": "11", "broker.id": "7", "ssl.key.password": "hidden"},
        {"listener.name.external.ssl.keystore.location": "/a", "log.cleaner.threads": "2"},
    )
    assert dynamic.effective == {"background.threads": "11", "log.cleaner.threads": "2"}
    assert caplog.text.count("a dynamic config in ZooKeeper is not used") == 4
    assert "hidden" not in caplog.text


@pytest.mark.parametrize("per_broker", [True, False])
@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        ({"broker.id": "2"}, "Cannot update these configs dynamically: Set(broker.id)"),
        ({"sasl.login.class": "x"}, "Cannot update these configs dynamically: Set(sasl.login.class)"),
        ({"log.dirs": "/a"}, "Cannot update these configs dynamically: Set(log.dirs)"),
        (
            {"ssl.keystore.location": "/a"},
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            "Set(ssl.keystore.location)",
        ),
        ({"num.io.threads": "many"}, "Invalid value many for configuration num.io.threads: Not a number"),
        ({"leader.replication.throttled.rate": "-1"}, "Value must be at least 0"),
        ({"listener.name.external.max.connections": "-1"}, "Value must be at least 0"),
        ({"max.connections.per.ip.overrides": "somewhere"}, "Each entry must be HOST:LIMIT"),
        ({"log.retention.ms": "0"}, "log.retention.ms"),
    ],
)
def test_refused_configs(configs: dict[str, str], reason: str, per_broker: bool) -> None:
    assert reason in refused(configs, per_broker=per_broker)


@pytest.mark.parametrize(
    "name",
    [
        "advertised.listeners",
        "principal.builder.class",
        "sasl.jaas.config",
        "listener.name.external.ssl.keystore.location",
        "listener.name.external.plain.sasl.jaas.config",
    ],
)
def test_configs_of_one_broker_are_refused_for_all(name: str) -> None:
    text = refused({name: "x"}, per_broker=False)
    assert text == (
        f"Cannot update these configs at default cluster level, broker id must be specified: Set({name})"
    )


@pytest.mark.parametrize("per_broker", [True, False])
@pytest.mark.parametrize(
    "configs",
    [
        {"of.a.plugin": "1"},
        {"listener.name.external.max.connections": "5"},
        {"listener.name.external.num.network.threads": "2"},
        {"leader.replication.throttled.rate": "5"},
        {"log.cleanup.policy": "compact,delete"},
    ],
)
def test_configs_that_are_taken(configs: dict[str, str], per_broker: bool) -> None:
    made().check_broker_configs(configs, per_broker=per_broker)


@pytest.mark.parametrize(
    ("name", "default"),
    [("num.io.threads", 8), ("background.threads", 10), ("num.recovery.threads.per.data.dir", 1)],
)
def test_numbers_of_threads_change_from_half_to_double(name: str, default: int) -> None:
    for number in (max(1, default // 2), default * 2):
        made().check_broker_configs({name: str(number)}, per_broker=True)
    assert refused({name: str(default * 2 + 1)}) == (
        "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update "
        f"validation failed for {name}={default * 2 + 1}, value should not be greater than double the "
        f"current value {default} for configuration Invalid dynamic configuration"
    )
    if default > 3:
        assert f"at least half the current value {default}" in refused({name: str(default // 2 - 1)})


def test_a_change_of_threads_counts_from_the_present_number() -> None:
    dynamic = made()
    dynamic.set_broker_configs({}, {"num.io.threads": "16", "log.cleaner.threads": "2"})
    dynamic.check_broker_configs({"num.io.threads": "32", "log.cleaner.threads": "4"}, per_broker=True)
    with pytest.raises(KafkaError, match="Log cleaner threads cannot be increased to more than double"):
        dynamic.check_broker_configs({"log.cleaner.threads": "5"}, per_broker=True)
    # What all brokers have does not count where a broker has its own.
    dynamic.set_broker_configs({"num.io.threads": "16"}, {})
    dynamic.check_broker_configs({"num.io.threads": "100"}, per_broker=False)


@pytest.mark.parametrize("name", ["listeners", "advertised.listeners", "listener.security.protocol.map"])
def test_what_a_broker_binds_is_set_in_its_file(name: str) -> None:
    assert f"{name} cannot be changed while the broker runs" in refused({name: "PLAINTEXT:PLAINTEXT"})


def test_limits_of_connections_are_made_of_all_configs() -> None:
    dynamic = made(max_connections="100")
    got: list[Any] = []
    dynamic.follow(server_settings, got.append)
    dynamic.set_broker_configs({"max.connections.per.ip.overrides": "127.0.0.1:7"}, {"max.connections": "50"})
    assert [one.max_connections for one in got] == [100, 50]
    assert got[1].max_connections_per_ip_overrides == {"127.0.0.1": 7}


def test_a_listener_has_limits_of_its_own() -> None:
    prefix = "listener.name.external."
    dynamic = made(max_connection_creation_rate="30")
    got: list[Any] = []
    dynamic.follow(server_settings, got.append)
    dynamic.set_broker_configs({f"{prefix}max.connections": "5"}, {})
    dynamic.set_broker_configs({}, {f"{prefix}max.connection.creation.rate": "6"})
    dynamic.set_broker_configs({}, {"max.connection.creation.rate": "7"})
    assert [one.max_connection_creation_rate for one in got] == [30, 30, 30, 7]
    assert [one.limits_of_listeners for one in got] == [
        {},
        {"external": ListenerLimits(5, None)},
        {"external": ListenerLimits(None, 6)},
        {},
    ]


@pytest.mark.parametrize("prefix", ["", "listener.name.external."])
@pytest.mark.parametrize("name", ["max.connections", "max.connection.creation.rate"])
def test_a_limit_of_connections_is_above_0(prefix: str, name: str) -> None:
    assert refused({f"{prefix}{name}": "0"}) == (
        f"Invalid value org.apache.kafka.common.config.ConfigException: Invalid {name} 0 for configuration "
        "Invalid dynamic configuration"
    )
    made().check_broker_configs({f"{prefix}{name}": "1"}, per_broker=True)


def test_verification_of_transactions_is_followed() -> None:
    name = "transaction.partition.verification.enable"
    dynamic = made(transaction_partition_verification_enable="false")
    switched: list[bool] = []
    dynamic.follow(table.TRANSACTION_PARTITION_VERIFICATION_ENABLE.of, switched.append)
    dynamic.set_broker_configs({}, {name: "true"})
    dynamic.set_broker_configs({"log.retention.ms": "77"}, {name: "true"})
    dynamic.set_broker_configs({name: "false"}, {name: "true"})
    dynamic.set_broker_configs({name: "perhaps"}, {})
    assert switched == [False, True, False]


def test_passwords_are_encoded_in_zookeeper() -> None:
    dynamic = made(password_encoder_secret="the secret")
    encoded = dynamic.encoded({KEY_PASSWORD: "hidden", "num.io.threads": "9"})
    assert encoded["num.io.threads"] == "9"
    assert "hidden" not in encoded[KEY_PASSWORD]
    assert dynamic.decoded(encoded, per_broker=True) == {KEY_PASSWORD: "hidden", "num.io.threads": "9"}


def test_a_password_needs_the_secret(caplog: pytest.LogCaptureFixture) -> None:
    encoded = made(password_encoder_secret="the secret").encoded({KEY_PASSWORD: "hidden"})
    dynamic = made()
    with pytest.raises(KafkaError) as raised:
        dynamic.encoded({KEY_PASSWORD: "hidden"})
    assert (raised.value.code, raised.value.message) == (
        ErrorCode.INVALID_CONFIG,
        "Invalid config value for resource ConfigResource(type=BROKER, name='1'): "
        "Password encoder secret not configured",
    )
    assert dynamic.decoded(encoded, per_broker=True) == {}
    assert f"{KEY_PASSWORD}: Password encoder secret not configured" in caplog.text


def test_passwords_of_the_old_secret_are_encoded_again() -> None:
    old = made(password_encoder_secret="old").encoded({KEY_PASSWORD: "hidden", "num.io.threads": "9"})
    both = made(password_encoder_secret="new", password_encoder_old_secret="old")
    again = both.encoded_again(old)
    assert again is not None
    new = made(password_encoder_secret="new")
    assert new.decoded(again, per_broker=True) == {KEY_PASSWORD: "hidden", "num.io.threads": "9"}
    assert both.encoded_again(again) is None
    assert new.encoded_again(old) is None
    assert both.encoded_again({"num.io.threads": "9"}) is None


def test_files_are_read_again_when_a_client_writes_equal_values() -> None:
    dynamic = made(num_io_threads="4")
    got: list[str] = []
    dynamic.follow(
        table.NUM_IO_THREADS.of,
        lambda threads: got.append(f"taken {threads}"),
        reread=lambda: got.append("read again"),
    )
    for _ in range(2):
        dynamic.written({"background.threads": "11"})
    # Another value counts when it is in ZooKeeper.
    dynamic.written({"num.io.threads": "5"})
    assert got == ["taken 4", "read again", "read again"]


def test_files_that_cannot_be_used_are_an_invalid_config() -> None:
    dynamic = made()

    def fail() -> None:
        raise ConfigError("no file")

    dynamic.follow(table.NUM_IO_THREADS.of, lambda _: None, reread=fail)
    with pytest.raises(KafkaError, match=r"Invalid config value for resource .*: no file") as raised:
        dynamic.written({})
    assert raised.value.code == ErrorCode.INVALID_CONFIG


def test_a_part_may_refuse_changed_settings() -> None:
    dynamic = made()

    def refuse(threads: int) -> None:
        raise ConfigError(f"not {threads}")

    dynamic.follow(table.NUM_IO_THREADS.of, lambda _: None, check=refuse)
    dynamic.check_broker_configs({"background.threads": "11"}, per_broker=True)
    with pytest.raises(KafkaError, match="not 9 for configuration Invalid dynamic") as raised:
        dynamic.check_broker_configs({"num.io.threads": "9"}, per_broker=True)
    assert raised.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["ssl.client.auth", "plain.sasl.jaas.config", "ssl.allow.dn.changes", "x.y"])
def test_a_listener_that_is_there_keeps_its_other_configs(name: str) -> None:
    """Source: ``DynamicListenerConfig.validateReconfiguration``."""
    dynamic = made()
    prefix = "listener.name.external."
    # Nothing listens there yet.
    dynamic.check_broker_configs({prefix + name: "none"}, per_broker=True)
    there = DynamicConfigs(1, SECRET, LogConfigs(1, SECRET, threading.RLock()), ["EXTERNAL"])
    there.check_broker_configs({f"{prefix}ssl.keystore.location": "/a"}, per_broker=True)
    there.check_broker_configs({f"{prefix}max.connections": "7"}, per_broker=True)
    with pytest.raises(KafkaError, match="existing listener ListenerName\\(EXTERNAL\\), restart broker"):
        there.check_broker_configs({prefix + name: "none"}, per_broker=True)
    # What it has already may be written again.
    there.set_broker_configs(there.encoded({prefix + name: "none"}), {})
    there.check_broker_configs({prefix + name: "none"}, per_broker=True)


def test_what_describe_configs_shows_of_a_listener() -> None:
    location = "listener.name.external.ssl.keystore.location"
    own = {location: "/b", KEY_PASSWORD: "hidden", "of.a.plugin": "1"}
    static = {"ssl.keystore.location": "/a", "ssl.key.password": "hidden"}
    configs: dict[str, Any] = {one.name: one for one in broker_configs(static, own)}
    assert configs[location].value == "/b"
    assert configs[location].synonyms[:2] == (
        (location, "/b", ConfigSource.DYNAMIC_BROKER),
        ("ssl.keystore.location", "/a", ConfigSource.STATIC_BROKER),
    )
    assert (configs[location].read_only, configs["ssl.keystore.location"].read_only) == (True, False)
    assert (configs[KEY_PASSWORD].value, configs[KEY_PASSWORD].is_sensitive) == (None, True)
    assert (configs["of.a.plugin"].value, configs["of.a.plugin"].is_sensitive) == (None, True)
    assert not any("hidden" in str(one) for one in configs.values())


@pytest.mark.parametrize(
    ("configs", "is_taken"),
    [
        ({"max.connections.per.ip": "100"}, True),
        ({"max.connections.per.ip": "0"}, False),
        ({"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:100"}, True),
        ({"max.connections.per.ip.overrides": "hostName1:100,hostName2:0"}, True),
        ({"max.connections.per.ip.overrides": "hostName#:100"}, False),
        ({"max.connections": "100", "listener.name.external.max.connections": "10"}, True),
        ({"max.connection.creation.rate": "110"}, True),
        ({"listener.name.external.max.connection.creation.rate": "20"}, True),
    ],
)
@pytest.mark.parametrize("per_broker", [True, False])
def test_limits_of_connections(configs: dict[str, str], is_taken: bool, per_broker: bool) -> None:
    dynamic = made()
    dynamic.follow(server_settings, lambda _: None)
    if is_taken:
        dynamic.check_broker_configs(configs, per_broker=per_broker)
    else:
        with pytest.raises(KafkaError):
            dynamic.check_broker_configs(configs, per_broker=per_broker)


def test_a_time_in_another_unit_stays_and_is_not_dynamic(caplog: pytest.LogCaptureFixture) -> None:
    configs = {"log.retention.minutes": "1"}
    topics = LogConfigs(1, configs, threading.RLock())
    dynamic = DynamicConfigs(1, configs, topics)
    dynamic.set_broker_configs({}, {"message.max.bytes": "12345678"})
    assert (topics.defaults.retention_ms, topics.defaults.max_message_bytes) == (60_000, 12345678)
    dynamic.set_broker_configs({}, {"log.retention.minutes": "3", "log.retention.hours": "3"})
    assert topics.defaults.retention_ms == 60_000
    assert caplog.text.count("Cannot update these configs dynamically") == 2
