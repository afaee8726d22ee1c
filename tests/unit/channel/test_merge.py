"""Merged or not, requests leave a broker with the same ids, partitions and live brokers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan._codec import StringColumn, Topics, UpdateMetadataRequest
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.channel.coalescing.merge import facts_of, merge
from tests.unit.channel.bodies import DELETED, PlainUpdate, applied, body_of, picture, shared_body_of

TOPICS = ("a", "b", "long-name-of-a-topic")


def updates(version: int, value: int) -> st.SearchStrategy[PlainUpdate]:
    """Draw an update as a batch makes it: topics with live rows or deleted; ids may change or be unknown."""
    leaders = st.dictionaries(st.integers(0, 3), st.integers(-1, 2), min_size=1)
    deleted = st.sets(st.integers(0, 3), min_size=1).map(lambda rows: dict.fromkeys(rows, DELETED))
    topic = st.tuples(st.integers(0, 2), leaders | deleted)
    return st.builds(
        PlainUpdate,
        version=st.just(version),
        topics=st.dictionaries(st.sampled_from(TOPICS), topic),
        brokers=st.lists(st.integers(1, 4), unique=True),
        value=st.just(value),
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[PlainUpdate], list[PlainUpdate], list[int]]:
    """Draw earlier updates, requests, and how many are merged at a time, in up to two rounds."""
    version = draw(st.integers(0, 8))
    before = draw(st.lists(st.integers(0, 8).flatmap(lambda old: updates(old, 100)), max_size=3))
    requests = [draw(updates(version, value)) for value in range(1, draw(st.integers(1, 6)) + 1)]
    return before, requests, draw(st.lists(st.integers(1, 4), min_size=1, max_size=12))


def grouped(bodies: list[UpdateMetadataRequest], sizes: list[int], *, merged: bool) -> list[list[int]]:
    """Group indexes of neighbours as the channel merges them: as many as facts and ``sizes`` allow."""
    groups: list[list[int]] = []
    deleted: frozenset[bytes] = frozenset()
    size = 0
    for at, body in enumerate(bodies):
        facts = facts_of(body, merged=merged)
        before = facts_of(bodies[groups[-1][-1]], merged=merged) if groups else None
        if facts is None or before is None or size == 0 or facts.condemned & deleted:
            groups.append([at])
            deleted, size = frozenset(), sizes[at % len(sizes)]
        else:
            groups[-1].append(at)
        size -= 1
        deleted |= facts.deleting if facts is not None else frozenset()
    return groups


def merged_by(bodies: list[UpdateMetadataRequest], groups: list[list[int]]) -> list[UpdateMetadataRequest]:
    return [
        bodies[group[0]] if len(group) == 1 else body_of(merge([bodies[at] for at in group]))
        for group in groups
    ]


@given(histories())
def test_any_grouping_leaves_a_broker_in_the_same_state(
    history: tuple[list[PlainUpdate], list[PlainUpdate], list[int]],
) -> None:
    before, requests, sizes = history
    bodies = [body_of(shared_body_of(request)) for request in requests]
    first = merged_by(bodies, grouped(bodies, sizes, merged=False))
    # Merged requests are merged again.
    second = merged_by(first, grouped(first, sizes[::-1], merged=True))
    known = [body_of(shared_body_of(request)) for request in before]
    expected = picture(applied(MetadataCache(), known + bodies))
    assert picture(applied(MetadataCache(), known + first)) == expected
    assert picture(applied(MetadataCache(), known + second)) == expected


def one(version: int = 8, *requests: PlainUpdate) -> UpdateMetadataRequest:
    return body_of(merge([body_of(shared_body_of(request)) for request in requests]))


def test_the_latest_row_of_each_partition_remains() -> None:
    body = one(
        8,
        PlainUpdate(8, {"a": (1, {0: 1, 1: 1}), "b": (2, {0: 1})}, value=1),
        PlainUpdate(8, {"b": (2, {1: 2})}, value=2),
        PlainUpdate(8, {"a": (1, {1: 2})}, brokers=(2, 3), value=3),
    )
    assert body.topics.names.to_list() == ["a", "b"]
    assert body.topic_starts.tolist() == [0, 2, 4]
    assert body.partitions.partition.tolist() == [0, 1, 0, 1]
    assert body.partitions.leader_epoch.tolist() == [1, 3, 1, 2]
    assert body.partitions.isr.to_lists() == [[1, 1], [3, 2], [1, 1], [2, 2]]
    assert body.live_brokers.ids.tolist() == [2, 3]


def test_live_brokers_alone_replace_live_brokers() -> None:
    body = one(8, PlainUpdate(8, brokers=(1, 2)), PlainUpdate(8, brokers=(3,)))
    assert (len(body.partitions), body.live_brokers.ids.tolist()) == (0, [3])
    body = one(8, PlainUpdate(8, {"a": (1, {0: 1})}), PlainUpdate(8, brokers=(3,)))
    assert (len(body.partitions), body.live_brokers.ids.tolist()) == (1, [3])


def test_a_topic_created_again_keeps_its_new_id() -> None:
    gone = PlainUpdate(8, {"a": (1, {0: DELETED, 1: DELETED})})
    again = PlainUpdate(8, {"a": (2, {0: 1})}, value=2)
    body = one(8, gone, again)
    assert body.partitions.partition.tolist() == [0, 1]
    assert body.partitions.leader.tolist() == [1, DELETED]
    assert body.topics.ids[0, 0] == 2


def test_a_topic_created_and_deleted_has_a_live_row_before_its_deletions() -> None:
    body = one(
        8, PlainUpdate(8, {"a": (1, {0: 1, 1: 1})}), PlainUpdate(8, {"a": (1, {0: DELETED, 1: DELETED})})
    )
    assert body.partitions.leader.tolist() == [1, DELETED, DELETED]
    assert not picture(applied(MetadataCache(), [body]))["ids"]


def test_facts_separate_topics_with_deletions_only() -> None:
    def facts(request: PlainUpdate) -> tuple[set[bytes], set[bytes]] | None:
        found = facts_of(body_of(shared_body_of(request)))
        return None if found is None else (set(found.deleting), set(found.condemned))

    assert facts(PlainUpdate(8, {"a": (1, {0: DELETED}), "b": (1, {0: 1})})) == ({b"a"}, {b"a"})
    assert facts(PlainUpdate(8, {"a": (1, {0: DELETED, 1: 1})})) == ({b"a"}, set())
    # In v6 there is no id to keep; in v4 there are no topic states.
    assert facts(PlainUpdate(6, {"a": (1, {0: DELETED})})) == ({b"a"}, set())
    assert facts(PlainUpdate(4, {"a": (1, {0: DELETED})})) is None


def strange(what: str) -> UpdateMetadataRequest:
    body = body_of(shared_body_of(PlainUpdate(8, {"a": (1, {0: 1, 1: 1}), "b": (2, {0: 1})})))
    assert facts_of(body) is not None
    if what == "no rows":
        body.topic_starts = np.array([0, 3, 3], dtype=np.int64)
    elif what == "topic twice":
        body.topics = Topics(StringColumn.from_strings(["a", "a"]), body.topics.ids)
    elif what == "partition twice":
        body.partitions.partition[:2] = 0
    elif what == "deletion first":
        body.partitions.leader[0] = DELETED
    else:
        body.request_type = 2
    return body


@pytest.mark.parametrize("what", ["no rows", "topic twice", "partition twice", "deletion first", "full"])
def test_unusual_requests_are_not_merged(what: str) -> None:
    assert facts_of(strange(what)) is None
