"""The levels of Python's loggers as configs of a broker: resources of the type BROKER_LOGGER (KIP-412).

The loggers are those of the process, so brokers that share one share them. ``kafka.utils.Log4jController``
and ``RuntimeLoggerManager`` of Kafka 3.9.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from ctrlchan.config.changes import Change, Operation
from ctrlchan.config.described import ConfigSource, DescribedConfig
from ctrlchan.config.setting import ConfigType
from ctrlchan.errors import ErrorCode, KafkaError

__all__ = ["alter_levels", "described_levels"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

#: The name of the logger above all others.
_ROOT: Final = "root"
#: Below DEBUG Python has no name.
_TRACE: Final = 5
#: Names of levels, the highest first.
_LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": _TRACE,
}


def described_levels() -> list[DescribedConfig]:
    """Return each logger with the level that counts for it."""
    names = [_ROOT, *sorted(name for name in list(logging.Logger.manager.loggerDict) if _exists(name))]
    return [
        DescribedConfig(
            name,
            _name_of(_logger(name).getEffectiveLevel()),
            ConfigType.UNKNOWN,
            ConfigSource.DYNAMIC_BROKER_LOGGER,
            False,
            (),
        )
        for name in names
    ]


def alter_levels(node_id: int, resource: str, changes: Sequence[Change], *, validate_only: bool) -> None:
    """Set or unset levels. ``resource``: must be the id of this node. Raises KafkaError."""
    try:
        number = int(resource)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {resource}"
        ) from None
    if number != node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {node_id}, but received {number}"
        )
    for change in changes:
        _check(change)
    if validate_only:
        return
    for name, operation, value in changes:
        if operation == Operation.SET:
            _logger(name).setLevel(_LEVELS[value or ""])
            _LOG.warning("the log level of %s is %s now", name, value)
        else:
            _logger(name).setLevel(logging.NOTSET)
            _LOG.warning("the logger %s has no level of its own any more", name)


def _check(change: Change) -> None:
    """Raise KafkaError for a change that cannot be."""
    name, operation, value = change
    if operation in (Operation.APPEND, Operation.SUBTRACT):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{Operation(operation).name} operation is not allowed for the BROKER_LOGGER resource",
        )
    if operation not in (Operation.SET, Operation.DELETE):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unknown operation type {operation} is not allowed for the BROKER_LOGGER resource",
        )
    if not _exists(name):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == Operation.SET and value not in _LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(_LEVELS))}",
        )
    if operation == Operation.DELETE and name == _ROOT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Removing the log level of the {_ROOT} logger is not allowed"
        )


def _exists(name: str) -> bool:
    """Return whether there is a logger of this name; nobody makes one by asking for it."""
    return name == _ROOT or isinstance(logging.Logger.manager.loggerDict.get(name), logging.Logger)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == _ROOT else name)


def _name_of(level: int) -> str:
    return next((name for name, least in _LEVELS.items() if level >= least), "TRACE")
