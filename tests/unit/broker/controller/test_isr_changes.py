"""AlterPartition: wishes for several partitions in one request, and the answers that end a wish."""

from __future__ import annotations

import io
from concurrent.futures import Future
from datetime import timedelta
from importlib import import_module
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_writer
from kio.static.primitive import i32Timedelta

from ctrlchan.broker.controller.connection import OutgoingRequest
from ctrlchan.broker.controller.isr_changes import AlteredPartition, IsrChanges
from ctrlchan.errors import ErrorCode
from tests.kafka.waiting import wait_until

TOPIC, TOPIC_ID = "orders", bytes(range(16))
EPOCH = 5
SOON = 20.0


class Controller:
    """Takes requests, which the test answers."""

    def __init__(self) -> None:
        self.answers: list[Future[bytes]] = []

    def send(self, _request: OutgoingRequest, _timeout: float) -> Future[bytes]:
        self.answers.append(Future())
        return self.answers[-1]

    def answer(self, number: int, errors: dict[int, int]) -> None:
        """Answer a request with an error code for each partition."""
        wait_until(lambda: len(self.answers) > number, timeout=SOON, what=f"request {number}")
        schema: Any = import_module("kio.schema.alter_partition.v3.response")
        partitions = tuple(
            schema.PartitionData(
                partition_index=index,
                error_code=KioErrorCode(error),
                leader_id=1,
                leader_epoch=EPOCH,
                isr=(1,),
                partition_epoch=8,
            )
            for index, error in errors.items()
        )
        response = schema.AlterPartitionResponse(
            throttle_time=i32Timedelta.parse(timedelta(0)),
            error_code=KioErrorCode(0),
            topics=(schema.TopicData(topic_id=UUID(bytes=TOPIC_ID), partitions=partitions),),
        )
        body = io.BytesIO()
        entity_writer(schema.AlterPartitionResponse)(body, response)
        self.answers[number].set_result(body.getvalue())


def test_a_wish_ends_with_an_answer_that_says_something_of_the_partition() -> None:
    controller = Controller()
    changes = IsrChanges(controller.send, lambda: (1, 99))
    wishes = [changes.submit(TOPIC, TOPIC_ID, index, EPOCH, 7, [1]) for index in range(3)]
    # The first wish goes alone, the others together.
    controller.answer(0, {0: int(ErrorCode.UNKNOWN_SERVER_ERROR)})
    assert not wishes[0].done()
    controller.answer(1, {0: 0, 1: int(ErrorCode.INVALID_UPDATE_VERSION)})
    assert wishes[0].result(SOON) == AlteredPartition(0, 1, EPOCH, (1,), 8)
    assert wishes[1].result(SOON).error == ErrorCode.INVALID_UPDATE_VERSION
    controller.answer(2, {2: int(ErrorCode.KAFKA_STORAGE_ERROR)})
    controller.answer(3, {2: int(ErrorCode.INELIGIBLE_REPLICA)})
    assert wishes[2].result(SOON).error == ErrorCode.INELIGIBLE_REPLICA
    changes.stop()
