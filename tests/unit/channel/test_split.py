"""Split requests: parts of the right size, in order, that together equal the request."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan._codec import (
    HIGHEST_VERSION,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    ControlRequestBody,
    ControlResponse,
    LeaderAndIsrRequest,
    ListColumn,
    LiveLeaders,
    Partitions,
    StopReplicaRequest,
    StringColumn,
    Topics,
    UpdateMetadataRequest,
    decode_request,
    encode_head,
)
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.channel.coalescing.bodies import rows_of
from ctrlchan.channel.coalescing.split import split, worst_of
from ctrlchan.channel.outcome import OutcomeKind, RequestResult
from tests.unit.channel.bodies import applied, live, picture


def request(api_key: int, version: int, counts: list[int], brokers: int = 2) -> ControlRequestBody:
    """Return a request with these numbers of partitions per topic; lists and names differ in length."""
    rows = sum(counts)
    topic_row = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    partition = np.concatenate([np.zeros(0), *map(np.arange, counts)]).astype(np.int32)
    topics = Topics(
        StringColumn.from_strings([f"{'t' * (1 + row % 5)}-{row}" for row in range(len(counts))]),
        np.full((len(counts), 16), 1 if _has_ids(api_key, version) else 0, dtype=np.uint8),
    )
    starts = np.append(0, np.cumsum(counts)).astype(np.int64)
    common: dict[str, Any] = {
        "version": version,
        "controller_id": 1,
        "controller_epoch": 7,
        "topics": topics,
        "topic_starts": starts,
    }
    if api_key == STOP_REPLICA:
        body: ControlRequestBody = StopReplicaRequest(
            **common,
            topic_row=topic_row,
            partition=partition,
            leader_epoch=np.full(rows, -1, dtype=np.int32),
            delete=np.zeros(rows, dtype=np.uint8),
        )
    else:
        lists = ListColumn.from_lists([list(range(row % 4)) for row in range(rows)])
        numbers = np.arange(rows, dtype=np.int32)
        partitions = Partitions(
            topic_row,
            partition,
            numbers,
            numbers % 3,
            numbers,
            numbers,
            np.zeros(rows, np.int32),
            lists,
            lists,
        )
        if api_key == UPDATE_METADATA:
            body = UpdateMetadataRequest(
                **common, partitions=partitions, live_brokers=live(list(range(brokers)), version)
            )
        else:
            leaders = LiveLeaders(
                np.arange(3, dtype=np.int32),
                StringColumn.from_strings(["a", "bb", "ccc"]),
                np.arange(3, dtype=np.int32),
            )
            is_new = (numbers % 2).astype(np.uint8) * (version > 0)
            body = LeaderAndIsrRequest(**common, partitions=partitions, live_leaders=leaders, is_new=is_new)
    return again(body)


def _has_ids(api_key: int, version: int) -> bool:
    return version >= {LEADER_AND_ISR: 5, UPDATE_METADATA: 7}.get(api_key, 99)


def api_of(body: ControlRequestBody) -> int:
    if isinstance(body, UpdateMetadataRequest):
        return UPDATE_METADATA
    return LEADER_AND_ISR if isinstance(body, LeaderAndIsrRequest) else STOP_REPLICA


def again(body: ControlRequestBody) -> ControlRequestBody:
    return decode_request(api_of(body), body.version, body.encode())


def head_of(body: ControlRequestBody) -> bytes:
    return encode_head(api_of(body), body.version, body.controller_id, body.controller_epoch)


def shared_body_size(body: ControlRequestBody) -> int:
    return len(body.encode()) - len(head_of(body))


def rows(body: ControlRequestBody) -> list[tuple[object, ...]]:
    """Return every row with its topic, in order."""
    topic = np.repeat(np.arange(len(body.topics)), np.diff(body.topic_starts))
    names = body.topics.names.to_list()
    columns: list[Any]
    if isinstance(body, StopReplicaRequest):
        columns = [body.partition, body.leader_epoch, body.delete]
        lists: list[ListColumn] = []
    else:
        partitions = body.partitions
        columns = [partitions.partition, partitions.leader, partitions.leader_epoch]
        columns += [body.is_new] if isinstance(body, LeaderAndIsrRequest) else []
        lists = [partitions.isr, partitions.replicas]
    return [
        (
            names[topic[row]],
            bytes(body.topics.ids[topic[row]]),
            *(int(c[row]) for c in columns),
            *(c[row].tolist() for c in lists),
        )
        for row in range(len(topic))
    ]


APIS = [(api_key, version) for api_key, highest in HIGHEST_VERSION.items() for version in range(highest + 1)]


@given(
    st.sampled_from(APIS),
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    st.integers(0, 2000),
    st.data(),
)
def test_parts_together_equal_the_request_and_none_is_too_large(
    api: tuple[int, int], counts: list[int], above: int, data: st.DataObject
) -> None:
    body = request(*api, counts)
    head = head_of(body)
    limit = 40 + above
    parts = split(body, limit)
    if parts is None:
        # A single row is too large.
        return
    assert all(part.size <= limit for part in parts)
    bodies = [decode_request(*api, head + part.to_bytes()) for part in parts]
    assert [row for part in bodies for row in rows(part)] == rows(body)
    if len(parts) == 1 and not isinstance(body, LeaderAndIsrRequest):
        assert head + parts[0].to_bytes() == body.encode()
    if isinstance(body, UpdateMetadataRequest):
        updates = [part for part in bodies if isinstance(part, UpdateMetadataRequest)]
        assert all(part.live_brokers.ids.tolist() == body.live_brokers.ids.tolist() for part in updates)
        whole = applied(MetadataCache(), [body])
        assert picture(applied(MetadataCache(), updates)) == picture(whole)


@pytest.mark.parametrize("api", APIS)
def test_a_part_ends_exactly_where_one_row_more_would_be_too_much(api: tuple[int, int]) -> None:
    body = request(*api, [40])
    size = shared_body_size(body)
    parts = split(body, size - 1)
    assert parts is not None
    assert [part.rows for part in parts] == [39, 1]


def test_a_topic_is_cut_only_when_it_is_too_large_itself() -> None:
    body = request(UPDATE_METADATA, 8, [5, 5, 60, 5])
    two_topics = split(request(UPDATE_METADATA, 8, [5, 5]), 2**31)
    assert two_topics is not None
    parts = split(body, two_topics[0].size + 100)
    assert parts is not None
    decoded = [decode_request(UPDATE_METADATA, 8, head_of(body) + part.to_bytes()) for part in parts]
    assert decoded[0].topics.names.to_list() == ["t-0", "tt-1"]
    assert decoded[1].topics.names.to_list() == ["ttt-2"]
    assert sum(rows_of(part) for part in decoded) == 75
    assert len(decoded[-1].topics) <= 2


def test_leaders_of_other_parts_are_left_out() -> None:
    body = request(LEADER_AND_ISR, 7, [1, 1, 1])
    parts = split(body, shared_body_size(request(LEADER_AND_ISR, 7, [1])) + 30)
    assert parts is not None
    decoded = [decode_request(LEADER_AND_ISR, 7, head_of(body) + part.to_bytes()) for part in parts]
    assert [part.live_leaders.ids.tolist() for part in decoded if isinstance(part, LeaderAndIsrRequest)] == [
        [row] for row in range(len(parts))
    ]


def test_requests_that_cannot_be_split() -> None:
    # One row with many brokers, brokers alone, and a full request.
    assert split(request(UPDATE_METADATA, 8, [1, 1], brokers=50), 300) is None
    assert split(request(UPDATE_METADATA, 8, [], brokers=50), 300) is None
    full = request(LEADER_AND_ISR, 7, [10])
    assert isinstance(full, LeaderAndIsrRequest)
    full.request_type = 2
    assert split(full, 100) is None


def test_topics_without_rows_stay() -> None:
    body = request(UPDATE_METADATA, 8, [0, 3, 0, 3, 0])
    parts = split(body, shared_body_size(body) - 1)
    assert parts is not None
    decoded = [decode_request(UPDATE_METADATA, 8, head_of(body) + part.to_bytes()) for part in parts]
    names = [name for part in decoded for name in part.topics.names.to_list()]
    assert names == body.topics.names.to_list()


def response(kind: OutcomeKind, code: int = 0, errors: tuple[int, ...] = ()) -> RequestResult:
    return RequestResult(
        kind,
        code,
        ControlResponse(
            api_key=STOP_REPLICA,
            version=4,
            error_code=code,
            topics=Topics(StringColumn.from_strings([f"topic-{len(errors)}"])),
            topic_starts=np.array([0, len(errors)], dtype=np.int64),
            partition=np.arange(len(errors), dtype=np.int32),
            partition_error=np.array(errors, dtype=np.int32),
        ),
    )


def test_the_worst_part_decides_and_all_responses_are_kept() -> None:
    worst = worst_of(
        [
            response(OutcomeKind.ACKNOWLEDGED, errors=(0,)),
            response(OutcomeKind.PARTITION_ERRORS, errors=(56, 0)),
            response(OutcomeKind.ACKNOWLEDGED, errors=(0, 0, 0)),
        ]
    )
    assert worst.kind is OutcomeKind.PARTITION_ERRORS
    assert worst.response is not None
    assert worst.response.topics.names.to_list() == ["topic-1", "topic-2", "topic-3"]
    assert worst.response.topic_starts.tolist() == [0, 1, 3, 6]
    assert worst.response.partition_error.tolist() == [0, 56, 0, 0, 0, 0]
    gone = RequestResult(OutcomeKind.BROKER_GONE)
    assert worst_of([response(OutcomeKind.FENCED, 77), gone, gone]) is gone
    assert worst_of([response(OutcomeKind.ACKNOWLEDGED), response(OutcomeKind.REFUSED, 31)]).error_code == 31
