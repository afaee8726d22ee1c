"""Requests of transactional producers to an EmbeddedCluster, as bytes of several connections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ctrlchan import TEMPORARY, EmbeddedCluster
from ctrlchan.errors import ErrorCode
from tests.kafka.waiting import wait_until
from tests.unit.controller.server.requests import Connection, connection, part, timeout

FIND_COORDINATOR, INIT, ADD_PARTITIONS, END, LIST = 10, 22, 24, 26, 66
TOPIC = "t"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, log_dir=TEMPORARY) as cluster:
        cluster.create_topic(TOPIC)
        with connection(cluster.bootstrap_servers) as client:
            wait_until(lambda: found(client), timeout=60, what="the coordinator")
        yield cluster


def found(client: Connection) -> bool:
    answer = client.ask(FIND_COORDINATOR, 3, {"key": "any", "key_type": 1})
    return int(answer.error_code) == 0


def init(client: Connection, name: str) -> dict[str, Any]:
    """Return what the next requests of the producer begin with."""
    fields = {"transactional_id": name, "transaction_timeout": timeout(60)}
    answer = wait_until(lambda: initialised(client, fields), timeout=60, what="the producer has its id")
    return {
        "transactional_id": name,
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
    }


def initialised(client: Connection, fields: dict[str, Any]) -> Any:
    """Return the answer, or None: the client has to ask again."""
    answer = client.ask(INIT, 4, fields)
    return None if int(answer.error_code) else answer


def add(client: Connection, producer: dict[str, Any]) -> int:
    topic = part(ADD_PARTITIONS, 3, "AddPartitionsToTxnTopic", name=TOPIC, partitions=(0,))
    fields = {f"v3_and_below_{name}": value for name, value in producer.items()}
    answer = client.ask(ADD_PARTITIONS, 3, fields | {"v3_and_below_topics": (topic,)})
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def end(client: Connection, producer: dict[str, Any], commit: bool = True) -> int:
    return int(client.ask(END, 3, producer | {"committed": commit}).error_code)


def state(client: Connection, name: str) -> str:
    listed = client.ask(LIST, 0, {"state_filters": (), "producer_id_filters": ()}).transaction_states
    return {each.transactional_id: str(each.transaction_state) for each in listed}[name]


def test_an_end_that_was_delayed_does_not_end_the_next_transaction(cluster: EmbeddedCluster) -> None:
    address = cluster.bootstrap_servers
    with connection(address) as old, connection(address) as new:
        # The broker knows a connection from its first request on.
        assert found(old)
        producer = init(old, "delayed")
        assert add(old, producer) == 0
        # The client has lost its connection and asks again; its first request is still on its way.
        assert end(new, producer) == 0
        wait_until(
            lambda: state(new, "delayed") == "CompleteCommit", timeout=60, what="the first is complete"
        )
        assert end(old, producer) == 0
        assert add(new, producer) == 0
        assert end(old, producer) == ErrorCode.INVALID_TXN_STATE
        assert state(new, "delayed") == "Ongoing"
        assert end(new, producer, commit=False) == 0
        wait_until(lambda: state(new, "delayed") == "CompleteAbort", timeout=60, what="the second is aborted")


@pytest.mark.parametrize("after", [False, True])
def test_the_answer_to_an_end_is_lost(cluster: EmbeddedCluster, after: bool) -> None:
    name = f"lost-{after}"
    with connection(cluster.bootstrap_servers) as client:
        producer = init(client, name)
        assert add(client, producer) == 0
        cluster.broker(1).disconnect("EndTxn", after=after)
        with pytest.raises(ConnectionError):
            end(client, producer)
    with connection(cluster.bootstrap_servers) as client:
        if after:
            wait_until(lambda: state(client, name) == "CompleteCommit", timeout=60, what="it is committed")
        else:
            assert state(client, name) == "Ongoing"
        assert end(client, producer) == 0


@pytest.mark.parametrize("api", ["InitProducerId", "AddPartitionsToTxn", "EndTxn"])
@pytest.mark.parametrize("after", [False, True])
def test_each_request_fails_on_demand(cluster: EmbeddedCluster, api: str, after: bool) -> None:
    name = f"{api}-{after}"
    error = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    with connection(cluster.bootstrap_servers) as client:
        cluster.broker(1).fail(api, error=error, after=after)
        fields = {"transactional_id": name, "transaction_timeout": timeout(60)}
        first = client.ask(INIT, 4, fields)
        assert int(first.error_code) == (error if api == "InitProducerId" else 0)
        producer = init(client, name)
        assert producer["producer_epoch"] == (0 if api == "InitProducerId" and not after else 1)
        if api == "AddPartitionsToTxn":
            assert add(client, producer) == error
            assert (state(client, name) == "Ongoing") is after
        assert add(client, producer) == 0
        if api == "EndTxn":
            assert end(client, producer) == error
        assert end(client, producer) in (0, ErrorCode.CONCURRENT_TRANSACTIONS)
        wait_until(lambda: state(client, name) == "CompleteCommit", timeout=60, what="it is committed")
