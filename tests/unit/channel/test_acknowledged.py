"""What brokers know, push by push; ``tests/unit/batch/test_differences.py`` has the same with a state."""

from __future__ import annotations

from ctrlchan.channel import OutcomeKind, Sent
from ctrlchan.channel.queues.acknowledged import Acknowledged, BrokerStatus
from tests.fault.requests import update
from tests.unit.batch.promising import publish


class Channel:
    def __init__(self) -> None:
        self.statuses = {1: BrokerStatus(10, 0), 2: BrokerStatus(20, 0)}
        self.acknowledged: Acknowledged[str] = Acknowledged(
            lambda ids: {one: self.statuses[one] for one in ids if one in self.statuses}
        )

    def push(self, knowledge: str, *ids: int, full: bool = False) -> list[Sent]:
        push = self.acknowledged.push(ids, knowledge, full=full)
        sent = [Sent(one, update(), None, 0) for one in ids]
        push.watch(sent)
        return sent

    def told(self, *ids: int) -> dict[str | None, list[int]]:
        return self.acknowledged.told(ids)


def test_told_when_sent_and_known_for_certain_when_acknowledged() -> None:
    channel = Channel()
    assert channel.told(2, 1) == {None: [2, 1]}
    first, second = channel.push("a", 1, 2, full=True)
    assert channel.told(1, 2) == {"a": [1, 2]}
    assert channel.acknowledged.of(1) is None
    publish(first, OutcomeKind.ACKNOWLEDGED)
    assert channel.acknowledged.of(1) == "a"
    [third] = channel.push("b", 1)
    assert channel.told(1, 2) == {"b": [1], "a": [2]}
    publish(second, OutcomeKind.REFUSED)
    assert channel.told(1, 2) == {"b": [1], None: [2]}
    publish(third, OutcomeKind.ACKNOWLEDGED)
    assert channel.acknowledged.of(1) == "b"


def test_what_builds_on_a_failure_proves_nothing() -> None:
    channel = Channel()
    publish(channel.push("a", 1, full=True)[0], OutcomeKind.ACKNOWLEDGED)
    [lost] = channel.push("b", 1)
    [behind] = channel.push("c", 1)
    publish(lost, OutcomeKind.CANCELLED)
    assert channel.told(1) == {"a": [1]}
    publish(behind, OutcomeKind.ACKNOWLEDGED)
    assert channel.acknowledged.of(1) == "a"
    [again] = channel.push("c", 1)
    publish(again, OutcomeKind.ACKNOWLEDGED)
    assert channel.acknowledged.of(1) == "c"


def test_a_full_push_makes_failures_before_it_good() -> None:
    channel = Channel()
    publish(channel.push("a", 1, full=True)[0], OutcomeKind.ACKNOWLEDGED)
    [lost] = channel.push("b", 1)
    [full] = channel.push("c", 1, full=True)
    publish(lost, OutcomeKind.REFUSED)
    assert channel.told(1) == {"c": [1]}
    publish(full, OutcomeKind.ACKNOWLEDGED)
    assert channel.acknowledged.of(1) == "c"


def test_generations_and_troubles() -> None:
    channel = Channel()
    publish(channel.push("a", 1, full=True)[0], OutcomeKind.ACKNOWLEDGED)
    [late] = channel.push("b", 1)
    channel.statuses[1] = BrokerStatus(11, 0)
    assert channel.told(1) == {None: [1]}
    [fresh] = channel.push("c", 1, full=True)
    # The end of the former generation's request says nothing of this one.
    publish(late, OutcomeKind.BROKER_GONE)
    assert channel.told(1) == {"c": [1]}
    publish(fresh, OutcomeKind.ACKNOWLEDGED)
    channel.statuses[1] = BrokerStatus(11, 1)
    assert channel.told(1) == {None: [1]}
    assert channel.acknowledged.of(1) is None
    # A full push that was taken back has nothing to fall back to.
    [full] = channel.push("d", 1, full=True)
    assert channel.told(1) == {"d": [1]}
    publish(full, OutcomeKind.CANCELLED)
    assert channel.told(1) == {None: [1]}


def test_pushes_that_cross() -> None:
    channel = Channel()
    channel.push("a", 1, full=True)
    early = channel.acknowledged.push((1,), "b", full=False)
    channel.push("c", 1)
    # What it builds on is no longer what was told last.
    early.watch([Sent(1, update(), None, 0)])
    assert channel.told(1) == {None: [1]}
    # A broker that went while something was sent to it, and one that was never there.
    del channel.statuses[2]
    channel.push("x", 2, full=True)
    assert channel.told(2) == {None: [2]}
    changed = channel.acknowledged.push((1,), "d", full=False)
    channel.statuses[1] = BrokerStatus(12, 0)
    changed.watch([Sent(1, update(), None, 0)])
    assert channel.told(1) == {None: [1]}


def test_an_outcome_that_is_there_before_anybody_watches() -> None:
    channel = Channel()
    push = channel.acknowledged.push((1,), "a", full=True)
    sent = Sent(1, update(), None, 0)
    publish(sent, OutcomeKind.ACKNOWLEDGED)
    push.watch([sent])
    assert channel.acknowledged.of(1) == "a"
