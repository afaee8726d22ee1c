"""InitProducerId: ids for idempotent producers, and transactional ids of other coordinators."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from ctrlchan.broker.producer_ids import Block
from ctrlchan.errors import ErrorCode
from tests.unit.broker.groups.group_broker import DEADLINE, GroupBroker, group_broker, ms

HIGHEST = 5


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[GroupBroker]:
    with group_broker(tmp_path, leads=False) as made:
        yield made


def send(
    broker: GroupBroker, version: int, transactional_id: str | None = None, **fields: Any
) -> Future[Any]:
    return broker.send(
        "InitProducerId",
        version,
        transactional_id=transactional_id,
        transaction_timeout=ms(60_000),
        **fields,
    )


def answer(future: Future[Any]) -> tuple[int, int, int]:
    response = future.result(DEADLINE)
    return response.error_code.value, response.producer_id, response.producer_epoch


@pytest.mark.parametrize("version", range(HIGHEST + 1))
def test_ids_of_a_block_that_comes_later(tmp_path: Path, version: int) -> None:
    block: Future[Block] = Future()
    with group_broker(tmp_path, leads=False, allocate=lambda: block) as broker:
        sent = [send(broker, version), send(broker, version)]
        assert not any(one.done() for one in sent)
        block.set_result((4_000, 1_000))
        assert [answer(one) for one in sent] == [(0, 4_000, 0), (0, 4_001, 0)]
        # A producer that begins a new epoch gets a new id.
        assert answer(send(broker, version, producer_id=4_000, producer_epoch=3)) == (0, 4_002, 0)


def test_without_a_block_the_client_tries_again(tmp_path: Path) -> None:
    block: Future[Block] = Future()
    with group_broker(tmp_path, leads=False, allocate=lambda: block) as broker:
        sent = send(broker, HIGHEST)
        block.set_exception(TimeoutError("no controller"))
        assert answer(sent) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)


def test_an_id_without_an_epoch_is_invalid(broker: GroupBroker) -> None:
    incomplete: list[dict[str, Any]] = [{"producer_id": 4_000}, {"producer_epoch": 3}]
    for fields in incomplete:
        assert answer(send(broker, HIGHEST, **fields)) == (ErrorCode.INVALID_REQUEST, -1, -1)
    assert answer(send(broker, HIGHEST, "")) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize("version", range(HIGHEST + 1))
def test_a_transactional_id_needs_its_coordinator(broker: GroupBroker, version: int) -> None:
    assert answer(send(broker, version, "mine")) == (ErrorCode.NOT_COORDINATOR, -1, -1)
