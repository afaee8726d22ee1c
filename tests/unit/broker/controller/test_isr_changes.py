"""AlterPartition: changes of several partitions in one request, and the answers that end them."""

from __future__ import annotations

import io
from concurrent.futures import Future
from datetime import timedelta
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta

from ctrlchan.broker.replica.isr_changes import AlteredPartition, IsrChange, IsrChanges
from ctrlchan.errors import ErrorCode
from ctrlchan.peers.requests import Answer, OutgoingRequest
from tests.kafka.waiting import wait_until

TOPIC, TOPIC_ID = "orders", bytes(range(16))
EPOCH = 5
SOON = 20.0


class Controller:
    """Takes requests, which the test answers in version 3."""

    def __init__(self) -> None:
        self.requests: list[OutgoingRequest] = []
        self.answers: list[Future[Answer]] = []

    def send(self, request: OutgoingRequest, _timeout: float) -> Future[Answer]:
        self.requests.append(request)
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
        self.answers[number].set_result(Answer(3, body.getvalue()))


def test_a_change_ends_with_an_answer_that_says_something_of_the_partition() -> None:
    controller = Controller()
    changes = IsrChanges(controller.send, lambda: (1, 99))
    asked = [changes.submit(IsrChange(TOPIC, TOPIC_ID, index, EPOCH, 7, (1,))) for index in range(3)]
    # The first one goes alone, the others together.
    controller.answer(0, {0: int(ErrorCode.UNKNOWN_SERVER_ERROR)})
    assert not asked[0].done()
    controller.answer(1, {0: 0, 1: int(ErrorCode.INVALID_UPDATE_VERSION)})
    assert asked[0].result(SOON) == AlteredPartition(0, 1, EPOCH, (1,), 8)
    assert asked[1].result(SOON).error == ErrorCode.INVALID_UPDATE_VERSION
    controller.answer(2, {2: int(ErrorCode.KAFKA_STORAGE_ERROR)})
    controller.answer(3, {2: int(ErrorCode.INELIGIBLE_REPLICA)})
    assert asked[2].result(SOON).error == ErrorCode.INELIGIBLE_REPLICA
    changes.stop()


@pytest.mark.parametrize("version", range(4))
def test_every_version_of_a_request_says_the_same(version: int) -> None:
    controller = Controller()
    changes = IsrChanges(controller.send, lambda: (1, 99))
    changes.submit(IsrChange(TOPIC, TOPIC_ID, 2, EPOCH, 7, (1, 3)))
    (request,) = controller.requests
    changes.stop()
    entity: Any = import_module(f"kio.schema.alter_partition.v{version}.request").AlterPartitionRequest
    body = request.encode(version)
    read, size = entity_reader(entity)(memoryview(body), 0)
    assert size == len(body)
    ((topic,),) = (read.topics,)
    assert (read.broker_id, read.broker_epoch) == (1, 99)
    assert topic.topic_id.bytes == TOPIC_ID if version >= 2 else topic.topic_name == TOPIC
    (partition,) = topic.partitions
    assert (partition.partition_index, partition.leader_epoch, partition.partition_epoch) == (2, EPOCH, 7)
    isr = [one.broker_id for one in partition.new_isr_with_epochs] if version >= 3 else partition.new_isr
    assert list(isr) == [1, 3]


def test_a_topic_without_an_id_is_asked_for_by_name() -> None:
    controller = Controller()
    changes = IsrChanges(controller.send, lambda: (1, 99))
    changes.submit(IsrChange(TOPIC, bytes(16), 0, EPOCH, 7, (1,)))
    assert [request.versions for request in controller.requests] == [range(2)]
    changes.stop()
