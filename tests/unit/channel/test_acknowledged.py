"""Metadata that brokers know, push by push; ``tests/unit/batch/test_differences.py`` has it with a state."""

from __future__ import annotations

from ctrlchan.channel import OutcomeKind, Sent
from ctrlchan.channel.queues.acknowledged import AcknowledgedMetadata, MetadataStatus
from tests.fault.requests import update
from tests.unit.batch.manual_channel import publish


class Channel:
    def __init__(self) -> None:
        self.statuses = {1: MetadataStatus(10, 0), 2: MetadataStatus(20, 0)}
        self.acknowledged: AcknowledgedMetadata[str] = AcknowledgedMetadata(
            lambda ids: {one: self.statuses[one] for one in ids if one in self.statuses}
        )

    def push(self, metadata: str, *ids: int, full: bool = False) -> list[Sent]:
        push = self.acknowledged.push(ids, metadata, full=full)
        sent = [Sent(one, update(), None, 0) for one in ids]
        push.watch(sent)
        return sent

    def expected(self, *ids: int) -> dict[str | None, list[int]]:
        return self.acknowledged.expected(ids)


def test_metadata_is_expected_once_sent_and_certain_once_acknowledged() -> None:
    channel = Channel()
    assert channel.expected(2, 1) == {None: [2, 1]}
    first, second = channel.push("a", 1, 2, full=True)
    assert channel.expected(1, 2) == {"a": [1, 2]}
    assert channel.acknowledged.of(1) is None
    publish(first, OutcomeKind.ACKNOWLEDGED)
    assert channel.acknowledged.of(1) == "a"
    [third] = channel.push("b", 1)
    assert channel.expected(1, 2) == {"b": [1], "a": [2]}
    publish(second, OutcomeKind.REFUSED)
    assert channel.expected(1, 2) == {"b": [1], None: [2]}
    publish(third, OutcomeKind.ACKNOWLEDGED)
    assert channel.acknowledged.of(1) == "b"


def test_a_push_that_builds_on_a_failed_one_proves_nothing() -> None:
    channel = Channel()
    publish(channel.push("a", 1, full=True)[0], OutcomeKind.ACKNOWLEDGED)
    [lost] = channel.push("b", 1)
    [behind] = channel.push("c", 1)
    publish(lost, OutcomeKind.CANCELLED)
    assert channel.expected(1) == {"a": [1]}
    publish(behind, OutcomeKind.ACKNOWLEDGED)
    assert channel.acknowledged.of(1) == "a"
    [again] = channel.push("c", 1)
    publish(again, OutcomeKind.ACKNOWLEDGED)
    assert channel.acknowledged.of(1) == "c"


def test_a_full_push_repairs_failures_before_it() -> None:
    channel = Channel()
    publish(channel.push("a", 1, full=True)[0], OutcomeKind.ACKNOWLEDGED)
    [lost] = channel.push("b", 1)
    [full] = channel.push("c", 1, full=True)
    publish(lost, OutcomeKind.REFUSED)
    assert channel.expected(1) == {"c": [1]}
    publish(full, OutcomeKind.ACKNOWLEDGED)
    assert channel.acknowledged.of(1) == "c"


def test_nothing_is_known_of_a_new_generation_or_after_a_metadata_error() -> None:
    channel = Channel()
    publish(channel.push("a", 1, full=True)[0], OutcomeKind.ACKNOWLEDGED)
    [late] = channel.push("b", 1)
    channel.statuses[1] = MetadataStatus(11, 0)
    assert channel.expected(1) == {None: [1]}
    [fresh] = channel.push("c", 1, full=True)
    # The end of a request of the old generation changes nothing for the new one.
    publish(late, OutcomeKind.BROKER_GONE)
    assert channel.expected(1) == {"c": [1]}
    publish(fresh, OutcomeKind.ACKNOWLEDGED)
    channel.statuses[1] = MetadataStatus(11, 1)
    assert channel.expected(1) == {None: [1]}
    assert channel.acknowledged.of(1) is None
    # After a cancelled full push nothing is certain.
    [full] = channel.push("d", 1, full=True)
    assert channel.expected(1) == {"d": [1]}
    publish(full, OutcomeKind.CANCELLED)
    assert channel.expected(1) == {None: [1]}


def test_a_push_that_was_begun_before_another_one() -> None:
    channel = Channel()
    channel.push("a", 1, full=True)
    early = channel.acknowledged.push((1,), "b", full=False)
    channel.push("c", 1)
    # It builds on metadata that is not the last any more.
    early.watch([Sent(1, update(), None, 0)])
    assert channel.expected(1) == {None: [1]}
    # A broker that is removed during a push, and one that the channel never had.
    del channel.statuses[2]
    channel.push("x", 2, full=True)
    assert channel.expected(2) == {None: [2]}
    changed = channel.acknowledged.push((1,), "d", full=False)
    channel.statuses[1] = MetadataStatus(12, 0)
    changed.watch([Sent(1, update(), None, 0)])
    assert channel.expected(1) == {None: [1]}


def test_a_request_that_ended_before_watch() -> None:
    channel = Channel()
    push = channel.acknowledged.push((1,), "a", full=True)
    sent = Sent(1, update(), None, 0)
    publish(sent, OutcomeKind.ACKNOWLEDGED)
    push.watch([sent])
    assert channel.acknowledged.of(1) == "a"
