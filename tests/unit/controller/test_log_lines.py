"""What the controller logs, in Kafka's words: contexts, levels, names of partitions."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from kazoo.client import KazooClient

from ctrlchan.controller.handlers import elections
from ctrlchan.controller.handlers.controlled_shutdown import controlled_shutdown
from ctrlchan.controller.handlers.elections import ElectionType
from ctrlchan.controller.machines.log_texts import Listed, ListedPartitions
from ctrlchan.state_change_log import TRACE
from tests.unit.controller.manual_controller import (
    CONTROLLER_ID,
    ManualController,
    create_topic,
    register_brokers,
)

LOGGER = "ctrlchan.controller"
CONTEXT = f"[Controller id={CONTROLLER_ID}] "


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [
        record.getMessage().removeprefix(CONTEXT)
        for record in caplog.records
        if record.levelno == level and record.name == LOGGER
    ]


@pytest.fixture
def cluster(znodes: KazooClient) -> KazooClient:
    """Three brokers; topic t has two partitions on 1, 2, 3, the first of which has 2 as its leader."""
    register_brokers(znodes, 1, 2, 3)
    create_topic(znodes, "t", {0: [1, 2, 3], 1: [1, 2, 3]}, isr={0: [2, 1, 3]})
    return znodes


def test_an_automatic_election(
    cluster: KazooClient, zookeeper: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ManualController(zookeeper) as controller:
        caplog.set_level(TRACE, LOGGER)
        elections.rebalance(controller.core)
    assert all(one.getMessage().startswith(CONTEXT) for one in caplog.records if one.name == LOGGER)
    assert lines(caplog, TRACE) == [
        "Checking need to trigger auto leader balancing",
        "Leader imbalance ratio for broker 1 is 0.5",
    ]
    assert lines(caplog, logging.DEBUG) == ["Topics not in preferred replica for broker 1 t-0"]
    assert lines(caplog, logging.INFO) == [
        "Processing automatic preferred replica leader election",
        "Starting replica leader election (PREFERRED) for partitions t-0 triggered by AutoTriggered",
    ]


def test_an_election_by_request(
    cluster: KazooClient, zookeeper: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ManualController(zookeeper) as controller:
        caplog.set_level(logging.INFO, LOGGER)
        elections.elect_leaders(controller.core, [("t", 0), ("t", 1)], ElectionType.PREFERRED)
    assert lines(caplog, logging.INFO) == [
        "Starting replica leader election (PREFERRED) for partitions t-0 triggered by AdminClientTriggered"
    ]


def test_a_controlled_shutdown(
    cluster: KazooClient, zookeeper: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ManualController(zookeeper) as controller:
        caplog.set_level(logging.DEBUG, LOGGER)
        controlled_shutdown(controller.core, 3, None)
    assert lines(caplog, logging.INFO) == ["Shutting down broker 3"]
    assert lines(caplog, logging.DEBUG)[:2] == ["All shutting down brokers: 3", "Live brokers: 1, 2"]


def test_a_line_names_the_first_ones(cluster: KazooClient, zookeeper: str) -> None:
    assert str(Listed([])) == ""
    assert str(Listed(range(20))).endswith("18, 19")
    assert str(Listed(range(23))).endswith("18, 19 and 3 more")
    with ManualController(zookeeper) as controller:
        context = controller.core.context
        assert str(ListedPartitions(context, context.all_rows)) == "t-0, t-1"
        named = ListedPartitions(context, np.zeros(22, np.int64), lambda place: f" to {place}")
        assert str(named).startswith("t-0 to 0, t-0 to 1, ")
        assert str(named).endswith("t-0 to 19 and 2 more")
