"""Tests that the encoder refuses text that is not UTF-8, as the decoder does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ctrlchan._codec import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    Brokers,
    ControlResponse,
    EncodeError,
    ListColumn,
    LiveLeaders,
    Partitions,
    StringColumn,
    Topics,
    encode_frame_prefix,
    encode_request_header,
    leader_and_isr_body,
    stop_replica_body,
    update_metadata_body,
)

LATIN_1 = b"caf\xe9"
CUT = b"caf\xc3"
SURROGATE = "\ud800".encode("utf-8", "surrogatepass")
OVERLONG = b"\xc0\xaf"
ZEROS = np.zeros(1, np.int32)
LISTS = ListColumn.from_lists([[1]])
each_bad_text = pytest.mark.parametrize("text", [LATIN_1, CUT, SURROGATE, OVERLONG], ids=repr)


def column(text: bytes) -> StringColumn:
    return StringColumn.from_strings([text])


def topics(name: bytes = b"t") -> Topics:
    return Topics(column(name))


def partitions() -> Partitions:
    return Partitions(ZEROS, ZEROS, ZEROS, ZEROS, ZEROS, ZEROS, ZEROS, LISTS, LISTS)


def brokers(rack: bytes = b"r", host: bytes = b"h", listener: bytes = b"PLAINTEXT") -> Brokers:
    one = np.ones(1, np.int32)
    return Brokers(one, None, column(rack), ZEROS, one, one, column(host), column(listener), ZEROS)


def leaders(host: bytes = b"h") -> LiveLeaders:
    return LiveLeaders(ZEROS, column(host), ZEROS)


BODIES: dict[str, Callable[[bytes, int], object]] = {
    "UpdateMetadata topicName": lambda text, v: update_metadata_body(
        v, topics(text), partitions(), brokers()
    ),
    "UpdateMetadata host": lambda text, v: update_metadata_body(
        v, topics(), partitions(), brokers(host=text)
    ),
    "UpdateMetadata listener": lambda text, v: update_metadata_body(
        max(v, 3), topics(), partitions(), brokers(listener=text)
    ),
    "UpdateMetadata rack": lambda text, v: update_metadata_body(
        max(v, 2), topics(), partitions(), brokers(rack=text)
    ),
    "LeaderAndIsr topicName": lambda text, v: leader_and_isr_body(v, topics(text), partitions(), leaders()),
    "LeaderAndIsr hostName": lambda text, v: leader_and_isr_body(v, topics(), partitions(), leaders(text)),
    "StopReplica": lambda text, v: stop_replica_body(min(v, 4), topics(text), ZEROS, ZEROS, ZEROS),
}


@each_bad_text
@pytest.mark.parametrize("version", [0, 4, 7])
@pytest.mark.parametrize("field", BODIES)
def test_a_body_with_invalid_utf8_is_refused(field: str, version: int, text: bytes) -> None:
    with pytest.raises(EncodeError, match="not valid UTF-8") as raised:
        BODIES[field](text, version)
    assert raised.value.field


@each_bad_text
@pytest.mark.parametrize(("api_key", "version"), [(LEADER_AND_ISR, 4), (STOP_REPLICA, 0)])
def test_a_response_with_invalid_utf8_is_refused(api_key: int, version: int, text: bytes) -> None:
    response = ControlResponse(
        api_key=api_key,
        version=version,
        error_code=0,
        topics=topics(text),
        topic_starts=np.array([0, 1]),
        partition=ZEROS,
        partition_error=ZEROS,
    )
    with pytest.raises(EncodeError, match="not valid UTF-8"):
        response.encode()


@each_bad_text
def test_a_client_id_of_invalid_utf8_is_refused(text: bytes) -> None:
    with pytest.raises(EncodeError, match="not valid UTF-8"):
        encode_request_header(1, LEADER_AND_ISR, 0, 1, text)
    with pytest.raises(EncodeError, match="not valid UTF-8"):
        encode_frame_prefix(LEADER_AND_ISR, 0, 1, text, b"head", 0)


def test_text_of_every_length_of_utf8_is_encoded() -> None:
    text = "aé€😀".encode()  # 1, 2, 3 and 4 bytes
    assert text in update_metadata_body(8, topics(text), partitions(), brokers(text, text, text)).to_bytes()


def test_a_string_that_no_selected_row_uses_is_not_checked() -> None:
    two = Topics(StringColumn.from_strings([b"t", LATIN_1]))
    assert update_metadata_body(8, two, partitions(), brokers()).to_bytes()
