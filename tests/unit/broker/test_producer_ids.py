"""Producer ids from blocks."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from ctrlchan.broker.producer_ids import Block, ProducerIds, random_block
from ctrlchan.errors import ErrorCode, KafkaError


class Allocator:
    def __init__(self) -> None:
        self.asked: list[Future[Block]] = []

    def __call__(self) -> Future[Block]:
        self.asked.append(Future())
        return self.asked[-1]


def results(taken: list[Future[int]]) -> list[int]:
    assert all(one.done() for one in taken)
    return [one.result() for one in taken]


def test_requests_wait_for_a_block() -> None:
    allocator = Allocator()
    ids = ProducerIds(1, allocator)
    taken = [ids.take() for _ in range(5)]
    [block] = allocator.asked
    assert not any(one.done() for one in taken)
    block.set_result((3_000, 2))
    assert results(taken[:2]) == [3_000, 3_001]
    allocator.asked[1].set_result((9_000, 1_000))
    assert results([*taken, ids.take()]) == [3_000, 3_001, 9_000, 9_001, 9_002, 9_003]
    assert len(allocator.asked) == 2


@pytest.mark.parametrize("block", [(5, 0), (-1, 1_000), (2**63 - 10, 1_000), None])
def test_requests_fail_together_with_the_block(block: Block | None) -> None:
    allocator = Allocator()
    ids = ProducerIds(1, allocator)
    taken = [ids.take(), ids.take()]
    if block is None:
        allocator.asked[0].set_exception(KafkaError(ErrorCode.STALE_BROKER_EPOCH))
    else:
        allocator.asked[0].set_result(block)
    for one in taken:
        error = one.exception()
        assert isinstance(error, KafkaError)
        assert error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    again = ids.take()
    allocator.asked[1].set_result((7, 1))
    assert again.result() == 7


def test_an_allocation_that_raises_fails_the_request() -> None:
    def allocate() -> Future[Block]:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)

    assert isinstance(ProducerIds(1, allocate).take().exception(), KafkaError)


def test_random_blocks_differ_and_are_ids() -> None:
    ids = ProducerIds(1, random_block)
    taken = results([ids.take() for _ in range(1_001)])
    assert len(set(taken)) == 1_001
    assert taken[:1_000] == list(range(taken[0], taken[0] + 1_000))
    assert all(0 <= one < 2**63 for one in taken)
