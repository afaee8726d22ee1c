"""Frames and results, against the codec itself."""

from __future__ import annotations

import struct

import pytest

from ctrlchan._codec import (
    HIGHEST_VERSION,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    decode_request_header,
    encode_frame_prefix,
    encode_head,
    encode_response_header,
    response_header_version,
)
from ctrlchan.channel.outcome import OutcomeKind
from ctrlchan.channel.queues.frames import evaluate_response, prefix_of
from tests.fault.peer import response_body
from tests.fault.requests import leader_and_isr, stop_replica, update

ALL_VERSIONS = [
    (api_key, version) for api_key, highest in HIGHEST_VERSION.items() for version in range(highest + 1)
]
BY_API = {LEADER_AND_ISR: leader_and_isr, STOP_REPLICA: stop_replica, UPDATE_METADATA: update}


@pytest.mark.parametrize("client_id", [b"0", b"", b"controller-" * 100])
@pytest.mark.parametrize(("api_key", "version"), ALL_VERSIONS)
def test_a_patched_prefix_is_what_the_codec_writes_for_that_broker(
    api_key: int, version: int, client_id: bytes
) -> None:
    prefix = prefix_of(api_key, version, 5, 6, 0, False, client_id)
    patched = bytearray(prefix.frame_bytes(1000))
    struct.pack_into(">i", patched, 8, 41)
    if prefix.epoch_at:
        struct.pack_into(">q", patched, prefix.epoch_at, 1234567890123)
    head = encode_head(api_key, version, 5, 6, 1234567890123)
    assert patched == encode_frame_prefix(api_key, version, 41, client_id, head, 1000)
    assert decode_request_header(patched[4:]).correlation_id == 41


def test_request_type_and_delete_partitions_are_in_the_head() -> None:
    full, other = (prefix_of(LEADER_AND_ISR, 7, 5, 6, kind, False, b"0").data for kind in (2, 1))
    assert full != other
    keep, delete = (prefix_of(STOP_REPLICA, 1, 5, 6, 0, flag, b"0").data for flag in (False, True))
    assert keep != delete


@pytest.mark.parametrize("version", range(HIGHEST_VERSION[UPDATE_METADATA] + 1))
def test_the_expected_response_of_update_metadata_is_plain_success(version: int) -> None:
    prefix = prefix_of(UPDATE_METADATA, version, 0, 7, 0, False, b"0")
    body = _body(UPDATE_METADATA, version)
    assert prefix.expect == body
    # It must fit into the eight bytes of a command.
    assert len(prefix.expect) <= 8
    assert prefix.success is not None
    assert prefix.success.kind is OutcomeKind.ACKNOWLEDGED
    assert prefix.success == evaluate_response(update(version=version), body)


@pytest.mark.parametrize("api_key", [LEADER_AND_ISR, STOP_REPLICA])
def test_responses_that_list_partitions_are_always_decoded(api_key: int) -> None:
    assert prefix_of(api_key, 0, 0, 7, 0, False, b"0").expect == b""


def _body(api_key: int, version: int, error: int = 0, partitions: list[int] | None = None) -> bytes:
    header = encode_response_header(response_header_version(api_key, version), 0)
    return header[4:] + response_body(api_key, version, error, partitions)


@pytest.mark.parametrize(("api_key", "version"), ALL_VERSIONS)
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (0, OutcomeKind.ACKNOWLEDGED),
        (11, OutcomeKind.FENCED),
        (77, OutcomeKind.FENCED),
        (31, OutcomeKind.REFUSED),
        (35, OutcomeKind.REFUSED),
        (-1, OutcomeKind.REFUSED),
        (12345, OutcomeKind.REFUSED),
    ],
)
def test_the_error_code_decides_the_kind(api_key: int, version: int, error: int, kind: OutcomeKind) -> None:
    result = evaluate_response(BY_API[api_key](version=version), _body(api_key, version, error))
    assert result is not None
    assert result.kind is kind
    assert result.error_code == error
    assert result.response is not None
    assert result.response.error_code == error


@pytest.mark.parametrize("partitions", [1, 3, 2000])
@pytest.mark.parametrize(
    ("api_key", "version"), [(LEADER_AND_ISR, 0), (LEADER_AND_ISR, 7), (STOP_REPLICA, 0), (STOP_REPLICA, 4)]
)
def test_partition_errors_give_their_own_kind(api_key: int, version: int, partitions: int) -> None:
    request = BY_API[api_key](version=version)
    fine = evaluate_response(request, _body(api_key, version, 0, [0] * partitions))
    assert fine is not None
    assert fine.kind is OutcomeKind.ACKNOWLEDGED
    broken = evaluate_response(request, _body(api_key, version, 0, [0] * (partitions - 1) + [56]))
    assert broken is not None
    assert broken.kind is OutcomeKind.PARTITION_ERRORS
    assert broken.response is not None
    assert broken.response.partition_error.tolist() == [0] * (partitions - 1) + [56]


@pytest.mark.parametrize("body", [b"", b"\0", b"\xff" * 40, b"\0" * 40, b"\xff" * 200])
def test_garbage_has_no_result(body: bytes) -> None:
    assert evaluate_response(leader_and_isr(), body) is None


def test_equal_small_responses_are_decoded_once() -> None:
    body = _body(UPDATE_METADATA, 8, 31)
    assert evaluate_response(update(), body) is evaluate_response(update(5), body)
