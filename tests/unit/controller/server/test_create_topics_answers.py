"""The answers of CreateTopics that are put together from bytes: kio reads them, and writes the same."""

from __future__ import annotations

import io
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader, entity_writer

from ctrlchan.controller.admin.topics import CreatedTopic
from ctrlchan.controller.server.apis.create_topics import _Answers
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.kio_messages import ClientMessages


@pytest.mark.parametrize("version", range(8))
@pytest.mark.parametrize("count", [0, 1, 5, 200])
def test_bytes(version: int, count: int) -> None:
    answers = _Answers(ClientMessages("create_topics", version), {"retention.ms": "9"})
    error = KafkaError(ErrorCode.INVALID_CONFIG, "a reason")
    for number in range(count):
        own = {"segment.ms": str(number % 2)} if number % 3 else {}
        topic = CreatedTopic(bytes([number % 5]) * 16, {0: [1, 2], 1: [2, 1]}, own)
        answers.add(f"topic-{number}", error if number % 4 == 3 else topic, None)
    schema: Any = load_response_schema(19, version)
    body = answers.response()
    read, size = entity_reader(schema)(body, 0)
    assert size == len(body)
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, read)
    assert buffer.getvalue() == body
    assert [topic.name for topic in read.topics] == [f"topic-{number}" for number in range(count)]
    for number, topic in enumerate(read.topics):
        if number % 4 == 3:
            assert topic.error_code.value == ErrorCode.INVALID_CONFIG
        if version >= 5:
            configs = {one.name: (one.value, one.config_source) for one in topic.configs}
            expected = {} if number % 4 == 3 else {"retention.ms": ("9", 4)}
            assert configs.items() >= expected.items()
            assert len(configs) == (0 if number % 4 == 3 else 36)


def test_an_error_goes_before_the_result() -> None:
    answers = _Answers(ClientMessages("create_topics", 7), {})
    answers.add("t", CreatedTopic(bytes(16), {0: [1]}, {}), KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    schema: Any = load_response_schema(19, 7)
    (topic,) = entity_reader(schema)(answers.response(), 0)[0].topics
    assert (topic.error_code.value, topic.error_message, topic.configs) == (7, None, ())
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)
