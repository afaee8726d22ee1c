"""Levels of loggers as configs of a broker."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ctrlchan.config.changes import Change, Operation
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.log_levels import alter_levels, described_levels

NAME = "tests.of.levels"
SET, DELETE, APPEND, SUBTRACT = Operation


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger(NAME)
    yield found
    found.setLevel(logging.NOTSET)


def levels() -> dict[str, str | None]:
    return {one.name: one.value for one in described_levels()}


def alter(*changes: Change, node: str = "7", validate_only: bool = False) -> None:
    alter_levels(7, node, changes, validate_only=validate_only)


def test_a_level_is_set_and_unset(logger: logging.Logger) -> None:
    for level, number in (("TRACE", 5), ("DEBUG", 10), ("WARN", 30), ("FATAL", 50)):
        alter(Change(NAME, SET, level))
        assert logger.level == number
        assert levels()[NAME] == level
    alter(Change(NAME, DELETE, None))
    assert logger.level == logging.NOTSET
    assert levels()[NAME] == levels()["root"]


def test_levels_without_a_name_of_their_own(logger: logging.Logger) -> None:
    for number, level in ((1, "TRACE"), (15, "DEBUG"), (35, "WARN"), (99, "FATAL")):
        logger.setLevel(number)
        assert levels()[NAME] == level


def test_who_only_asks_makes_no_logger() -> None:
    with pytest.raises(KafkaError):
        alter(Change("no.such.logger", SET, "INFO"))
    assert "no.such.logger" not in levels()
    # A logger below it exists, but nobody has asked for this one.
    assert "tests.of" not in levels()


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (Change("no.such", SET, "INFO"), ErrorCode.INVALID_CONFIG, "Logger no.such does not exist!"),
        (Change("tests.of", DELETE, None), ErrorCode.INVALID_CONFIG, "does not exist"),
        (Change(NAME, SET, "info"), ErrorCode.INVALID_CONFIG, "DEBUG, ERROR, FATAL, INFO, TRACE, WARN"),
        (Change("root", DELETE, None), ErrorCode.INVALID_REQUEST, "root logger is not allowed"),
        (Change(NAME, APPEND, "INFO"), ErrorCode.INVALID_REQUEST, "APPEND operation is not allowed"),
        (Change(NAME, SUBTRACT, "INFO"), ErrorCode.INVALID_REQUEST, "SUBTRACT operation is not allowed"),
        (Change(NAME, 9, "INFO"), ErrorCode.INVALID_REQUEST, "Unknown operation type 9"),
    ],
)
def test_what_is_refused(logger: logging.Logger, change: Change, code: int, text: str) -> None:
    with pytest.raises(KafkaError, match=text) as raised:
        alter(Change(NAME, SET, "ERROR"), change)
    assert raised.value.code == code
    # All or nothing.
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize("node", ["8", "one", ""])
def test_levels_of_another_node(node: str) -> None:
    with pytest.raises(KafkaError) as raised:
        alter(Change(NAME, SET, "ERROR"), node=node)
    assert raised.value.code == ErrorCode.INVALID_REQUEST


def test_a_request_that_only_validates(logger: logging.Logger) -> None:
    alter(Change(NAME, SET, "ERROR"), validate_only=True)
    assert logger.level == logging.NOTSET
