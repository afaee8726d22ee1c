"""Offset commits in transactions: what the answer of a coordinator does to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import pytest

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.group.requests import TransactionalCommitRequest
from ctrlchan.broker.coordinator.offsets_verification import OffsetsVerification
from ctrlchan.broker.coordinator.transaction.requests import ProducerIdentity
from ctrlchan.errors import ErrorCode
from ctrlchan.internal_topics import OFFSETS_TOPIC

GUARD = 5
COMMIT = TransactionalCommitRequest("id", "group", 7, 0, ())
HERE, ELSEWHERE = TopicPartition(OFFSETS_TOPIC, 3), TopicPartition(OFFSETS_TOPIC, 4)


class _Partition:
    def begin_verification(self, producer_id: int, producer_epoch: int, base_sequence: int) -> int:
        return GUARD


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({HERE: ErrorCode.NONE}, ErrorCode.NONE),
        (
            {HERE: ErrorCode.TRANSACTION_ABORTABLE},
            ErrorCode.TRANSACTION_ABORTABLE,
        ),
        # An answer without the partition confirms nothing.
        ({}, ErrorCode.NETWORK_EXCEPTION),
        ({ELSEWHERE: ErrorCode.NONE}, ErrorCode.NETWORK_EXCEPTION),
    ],
)
def test_an_answer_counts_for_its_partitions(
    answer: Mapping[TopicPartition, ErrorCode], error: ErrorCode
) -> None:
    class Verifier:
        def verify(
            self,
            transactional_id: str,
            producer: ProducerIdentity,
            partitions: Collection[TopicPartition],
            then: Callable[[Mapping[TopicPartition, ErrorCode]], None],
        ) -> None:
            then(answer)

    verification = OffsetsVerification(lambda topic, partition: _Partition())
    verification.verifier = Verifier()
    verified: list[tuple[int, int]] = []
    verification.verify(3, COMMIT, lambda *result: verified.append(result))
    assert verified == [(error, GUARD)]
