"""A transcoded body has the fields of its version; a field that must not be left out is an error."""

from __future__ import annotations

import numpy as np
import pytest

from ctrlchan._codec import (
    HIGHEST_VERSION,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UnsupportedVersionError,
    UpdateMetadataRequest,
    decode_request,
    encode_head,
)
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.channel.coalescing.transcode import transcode
from tests.unit.channel.bodies import PlainUpdate, applied, body_of, picture, shared_body_of
from tests.unit.channel.test_split import APIS, api_of, request, rows

PAIRS = [(api, new) for api in APIS for new in range(HIGHEST_VERSION[api[0]] + 1)]


@pytest.mark.parametrize(("api", "version"), PAIRS)
def test_every_version_to_every_version(api: tuple[int, int], version: int) -> None:
    brokers = 2 if min(api[1], version) > 0 or api[0] != UPDATE_METADATA else 1
    body = request(*api, [3, 2, 4], brokers=brokers)
    [(shared_body, delete)] = transcode(body, version)
    assert (shared_body.version, shared_body.rows, delete) == (version, 9, False)
    head = encode_head(api[0], version, 1, 7)
    decoded_body = decode_request(api[0], version, head + shared_body.to_bytes())
    # There and back: fields that the other version does not have are lost, the others are unchanged.
    shared = min(version, api[1])
    at_shared = [
        decode_request(
            api[0], shared, encode_head(api[0], shared, 1, 7) + transcode(one, shared)[0][0].to_bytes()
        )
        for one in (body, decoded_body)
    ]
    assert rows(at_shared[0]) == rows(at_shared[1])
    if isinstance(decoded_body, UpdateMetadataRequest) and version > 2:
        assert decoded_body.live_brokers.listeners.to_list() == ["PLAINTEXT"] * brokers


@pytest.mark.parametrize("version", range(8))
def test_a_broker_of_an_older_version_gets_the_fields_of_that_version(version: int) -> None:
    old = body_of(shared_body_of(PlainUpdate(version, {"a": (0, {0: 1, 1: 2})}, (1, 2), 3)))
    new = body_of(shared_body_of(PlainUpdate(8, {"a": (0, {0: 1, 1: 2})}, (1, 2), 3)))
    [(shared_body, _)] = transcode(new, version)
    assert picture(applied(MetadataCache(), [body_of(shared_body)])) == picture(
        applied(MetadataCache(), [old])
    )


def test_deletions_and_stops_are_two_requests_below_version_3() -> None:
    body = request(STOP_REPLICA, 4, [3, 2])
    assert isinstance(body, StopReplicaRequest)
    body.delete[:] = [0, 1, 0, 1, 1]
    decoded = []
    for shared_body, delete in transcode(body, 1):
        head = encode_head(STOP_REPLICA, 1, 1, 7, delete_partitions=delete)
        decoded_body = decode_request(STOP_REPLICA, 1, head + shared_body.to_bytes())
        assert isinstance(decoded_body, StopReplicaRequest)
        decoded.append(
            (
                decoded_body.delete_partitions,
                decoded_body.partition.tolist(),
                decoded_body.topics.names.to_list(),
            )
        )
    assert decoded == [(False, [0, 2], ["t-0"]), (True, [1, 0, 1], ["t-0", "tt-1"])]
    [(shared_body, _)] = transcode(body, 3)
    decoded_body = decode_request(
        STOP_REPLICA, 3, encode_head(STOP_REPLICA, 3, 1, 7) + shared_body.to_bytes()
    )
    assert isinstance(decoded_body, StopReplicaRequest)
    assert decoded_body.delete.tolist() == [0, 1, 0, 1, 1]


def test_fields_that_must_not_be_left_out() -> None:
    leaders = request(LEADER_AND_ISR, 7, [2])
    assert isinstance(leaders, LeaderAndIsrRequest)
    assert api_of(leaders) == LEADER_AND_ISR
    metadata = body_of(shared_body_of(PlainUpdate(8, {"a": (1, {0: 1})})))
    names = metadata.live_brokers.listeners
    metadata.live_brokers = type(metadata.live_brokers)(
        metadata.live_brokers.ids,
        metadata.live_brokers.epochs,
        metadata.live_brokers.racks,
        metadata.live_brokers.endpoint_starts,
        metadata.live_brokers.endpoint_lengths,
        metadata.live_brokers.ports,
        metadata.live_brokers.hosts,
        type(names).from_strings(["INTERNAL"]),
        np.zeros(1, dtype=np.int32),
    )
    assert transcode(metadata, 3)
    with pytest.raises(UnsupportedVersionError, match="INTERNAL"):
        transcode(metadata, 2)
    with pytest.raises(UnsupportedVersionError, match="PLAINTEXT"):
        transcode(metadata, 0)
