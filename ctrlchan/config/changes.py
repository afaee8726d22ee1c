"""Changes to the configs of topics, and to the dynamic configs of brokers.

A broker or a controller changes the dynamic configs of its own id, and those of all brokers. Source:
``ConfigHelper``, ``ConfigAdminManager``, ``ZkAdminManager.alterConfigs`` and
``ZkAdminManager.incrementalAlterConfigs`` (Kafka 3.9).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from ctrlchan.config.parsing import InvalidValueError, check_configs
from ctrlchan.config.policies import NO_POLICIES, AlteredConfigs, Policies
from ctrlchan.config.setting import LIST, Setting
from ctrlchan.config.table import DYNAMIC, TOPICS
from ctrlchan.errors import ErrorCode, KafkaError

__all__ = [
    "Change",
    "ConfigStore",
    "Operation",
    "alter_broker",
    "alter_topic",
    "check_changes",
    "replace_broker",
    "replace_topic",
]


class Operation(IntEnum):
    """``AlterConfigOp.OpType``."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """A change of one config. ``operation``: unchecked."""

    name: str
    operation: int
    value: str | None


class ConfigStore(Protocol):
    """Where configs are kept: ZooKeeper. Methods may raise CtrlchanError.

    ``broker_id`` is None for the configs of all brokers. What is read of them can be used, and passwords are
    decoded.
    """

    @property
    def id(self) -> int:
        """The id of the broker or controller that makes the change."""

    def has_topic(self, name: str) -> bool: ...
    def read_topic_config(self, name: str) -> Mapping[str, str] | None: ...
    def write_topic_config(self, name: str, config: Mapping[str, str]) -> None: ...
    def read_broker_config(self, broker_id: int | None) -> dict[str, str]: ...
    def check_broker_config(
        self, broker_id: int | None, config: Mapping[str, str], changed: Sequence[str]
    ) -> None:
        """Raise KafkaError (INVALID_REQUEST) for dynamic configs that brokers cannot have.

        ``changed``: the names that a request sets or removes.
        """

    def write_broker_config(self, broker_id: int | None, config: Mapping[str, str]) -> None: ...


def alter_topic(
    store: ConfigStore,
    name: str,
    changes: Sequence[Change],
    policies: Policies = NO_POLICIES,
    *,
    validate_only: bool,
) -> None:
    """Apply changes to the configs of a topic (IncrementalAlterConfigs). Raises KafkaError."""
    check_changes(changes)
    _check_named(name)
    config: dict[str, str] = {}
    if store.has_topic(name):
        config |= store.read_topic_config(name) or {}
    # As in Kafka, an invalid operation is refused before an unknown topic.
    for change in changes:
        _apply(config, change, TOPICS)
    _check_exists(store, name)
    _finish_topic(store, name, config, changes, policies, validate_only=validate_only)


def replace_topic(
    store: ConfigStore,
    name: str,
    changes: Sequence[Change],
    policies: Policies = NO_POLICIES,
    *,
    validate_only: bool,
) -> None:
    """Replace all configs of a topic (AlterConfigs). Raises KafkaError."""
    check_changes(changes)
    _check_named(name)
    _check_exists(store, name)
    config = {change.name: change.value or "" for change in changes}
    _finish_topic(store, name, config, changes, policies, validate_only=validate_only)


def _finish_topic(
    store: ConfigStore,
    name: str,
    config: Mapping[str, str],
    changes: Sequence[Change],
    policies: Policies,
    *,
    validate_only: bool,
) -> None:
    """Check the configs that a topic would have, and write them."""
    _check_values(name, config)
    _check_policy(policies, "TOPIC", name, changes)
    if not validate_only:
        store.write_topic_config(name, config)


def alter_broker(
    store: ConfigStore,
    name: str,
    changes: Sequence[Change],
    policies: Policies = NO_POLICIES,
    *,
    validate_only: bool,
) -> None:
    """Apply changes to the dynamic configs of the store's own id, or of all brokers (no name).

    Raises KafkaError.
    """
    check_changes(changes)
    broker_id = _broker_id(store, name)
    config = store.read_broker_config(broker_id)
    for change in changes:
        _apply(config, change, DYNAMIC)
    _finish_broker(store, name, broker_id, config, changes, policies, validate_only=validate_only)


def replace_broker(
    store: ConfigStore,
    name: str,
    changes: Sequence[Change],
    policies: Policies = NO_POLICIES,
    *,
    validate_only: bool,
) -> None:
    """Replace all dynamic configs in the same way (AlterConfigs). Raises KafkaError."""
    check_changes(changes)
    broker_id = _broker_id(store, name)
    config = {change.name: change.value or "" for change in changes}
    _finish_broker(store, name, broker_id, config, changes, policies, validate_only=validate_only)


def _finish_broker(
    store: ConfigStore,
    name: str,
    broker_id: int | None,
    config: Mapping[str, str],
    changes: Sequence[Change],
    policies: Policies,
    *,
    validate_only: bool,
) -> None:
    """Check the dynamic configs that one broker or all would have, and write them."""
    store.check_broker_config(broker_id, config, [one.name for one in changes])
    _check_policy(policies, "BROKER", name, changes)
    if not validate_only:
        store.write_broker_config(broker_id, config)


def _check_values(topic: str, config: Mapping[str, str]) -> None:
    try:
        check_configs(config)
    except InvalidValueError as error:
        resource = f"ConfigResource(type=TOPIC, name='{topic}')"
        text = f"Invalid config value for resource {resource}: {error.message}"
        raise KafkaError(error.code, text) from None


def _check_policy(policies: Policies, kind: str, name: str, changes: Sequence[Change]) -> None:
    configs = {change.name: change.value for change in changes}
    policies.check_configs(AlteredConfigs(resource_type=kind, name=name, configs=configs))


def check_changes(changes: Sequence[Change]) -> None:
    """Raise KafkaError for a config that is changed twice, or to no value."""
    repeated = sorted(key for key, count in Counter(one.name for one in changes).items() if count > 1)
    if repeated:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys : {','.join(repeated)}"
        )
    without = [one.name for one in changes if one.operation != Operation.DELETE and one.value is None]
    if without:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(without)}")


def _broker_id(store: ConfigStore, name: str) -> int | None:
    """Return the id that a resource names, None for all brokers."""
    if not name:
        return None
    if re.fullmatch(r"[+-]?[0-9]{1,10}", name) is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if int(name) != store.id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {store.id}, but received {name}",
        )
    return int(name)


def _check_named(name: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")


def _check_exists(store: ConfigStore, name: str) -> None:
    if not store.has_topic(name):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _apply(config: dict[str, str], change: Change, rows: Mapping[str, Setting[Any]]) -> None:
    name, value = change.name, change.value or ""
    if change.operation == Operation.SET:
        config[name] = value
    elif change.operation == Operation.DELETE:
        config.pop(name, None)
    elif change.operation in (Operation.APPEND, Operation.SUBTRACT):
        verb = Operation(change.operation).name.lower()
        row = rows.get(name)
        if row is None or row.type is not LIST:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Config value {verb} is not allowed for config key: {name}"
            )
        present = [part for part in config.get(name, row.default or "").split(",") if part]
        if change.operation == Operation.APPEND:
            present += [part for part in value.split(",") if part not in present]
        else:
            present = [part for part in present if part not in value.split(",")]
        config[name] = ",".join(present)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {change.operation}")
