"""Log lines that begin with a context."""

from __future__ import annotations

import logging

import pytest

from ctrlchan.log_context import ContextLogger

LOGGER = logging.getLogger("ctrlchan.test_log_context")
CONTEXT = "[Partition t-0 broker=1] "


class Formatted:
    """Counts how often it was formatted."""

    def __init__(self) -> None:
        self.count = 0

    def __str__(self) -> str:
        self.count += 1
        return "formatted"


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error", "exception", "critical"])
def test_lines_of_each_level_begin_with_the_context(level: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, LOGGER.name)
    getattr(ContextLogger(LOGGER, CONTEXT), level)("it has %d records", 7)
    [record] = caplog.records
    assert record.getMessage() == "[Partition t-0 broker=1] it has 7 records"
    assert record.levelname == {"exception": "ERROR"}.get(level, level.upper())
    assert record.name == LOGGER.name


def test_the_line_is_of_who_writes_it(caplog: pytest.LogCaptureFixture) -> None:
    log = ContextLogger(LOGGER, CONTEXT)
    log.warning("one")
    log.log(logging.ERROR, "two")
    assert {one.funcName for one in caplog.records} == {"test_the_line_is_of_who_writes_it"}


def test_percent_signs_are_themselves(caplog: pytest.LogCaptureFixture) -> None:
    log = ContextLogger(LOGGER, "[Log partition=t-0, dir=/a%d] ")
    log.error("50%")
    log.error("%s of %d", "%s", 2)
    assert caplog.messages == ["[Log partition=t-0, dir=/a%d] 50%", "[Log partition=t-0, dir=/a%d] %s of 2"]


def test_an_exception_has_its_stack(caplog: pytest.LogCaptureFixture) -> None:
    log = ContextLogger(LOGGER, CONTEXT)
    try:
        raise OSError("the disk")
    except OSError:
        log.exception("it failed")
    assert "OSError: the disk" in caplog.text


def test_nothing_is_formatted_while_the_level_is_off(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, LOGGER.name)
    log, argument = ContextLogger(LOGGER, CONTEXT), Formatted()
    log.info("%s", argument)
    log.log(logging.DEBUG, "%s", argument)
    assert (caplog.messages, argument.count) == ([], 0)
    log.warning("%s", argument)
    assert argument.count > 0
