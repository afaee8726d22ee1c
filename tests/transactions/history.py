"""One history on the cluster: does its steps, notes what is answered, and checks what is seen."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Final

from tests.kafka.waiting import wait_until
from tests.transactions.cluster import BROKERS, PARTITIONS, SharedCluster
from tests.transactions.producers import (
    Outcome,
    PlainProducer,
    Transaction,
    TransactionalProducer,
)
from tests.transactions.reading import View, read, unfinished
from tests.transactions.requests import Address, Connections
from tests.transactions.steps import (
    IDS,
    TARGETS,
    Crash,
    End,
    Init,
    Kill,
    Look,
    Move,
    Offsets,
    Plain,
    Plan,
    Send,
    Step,
    Stop,
    Whole,
)

__all__ = ["History"]

#: Seconds for the ends of all transactions, once nothing is faulty.
_SECONDS: Final = 120.0
#: The group's offset of a key that nobody has committed.
_NO_OFFSET: Final = -1


class History:
    """A history with partitions, transactional ids and a group of its own. ``events``: what has happened."""

    def __init__(self, cluster: SharedCluster) -> None:
        self.events: list[str] = []
        self._cluster = cluster
        self.topic, self._first = cluster.next_partitions()
        name = f"{self.topic}-{self._first}"
        self._group = f"group-{name}"
        self._ids = [f"{one}-{name}" for one in IDS]
        self._transactions: list[Transaction] = []
        self._connections = Connections()
        self._producers = [self._producer(one) for one in self._ids]
        self._plain = PlainProducer(cluster, self.events.append, self.topic)
        self._offsets = 1000
        #: Ids of which a request to initialise may still be carried out.
        self._late_inits: set[str] = set()
        #: Of each partition: what was seen at the last look, and up to where.
        self._seen: dict[int, tuple[int, list[tuple[int, bytes]]]] = {}
        #: Steps until the broker with a fault goes on.
        self._faulty_for = 0

    def run(self, plan: Plan) -> None:
        """Do all steps, end all faults and transactions, and check everything. Raises AssertionError."""
        try:
            for step in plan.steps:
                self._count_down()
                self.events.append(f"  {step}")
                self._do(step)
            self.events.append("  resume")
            self._cluster.resume()
            self._finish(plan.returns)
            self._check()
        finally:
            for client in (*self._producers, self._plain):
                client.close()
            self._connections.close()
            self._cluster.resume()

    @property
    def outcomes(self) -> Counter[str]:
        """How many transactions have ended in which way."""
        return Counter(one.outcome.value for one in self._transactions)

    def _do(self, step: Step) -> None:
        match step:
            case Init():
                self._init(self._producers[step.producer], step.recovers)
            case Send():
                producer = self._ready(step.producer)
                if producer is not None:
                    number = len(self.events)
                    values = [b"%d of event %d" % (one, number) for one in range(step.count)]
                    producer.send(self._partition(step.partition), values)
                    producer.go_on()
            case Offsets():
                producer = self._ready(step.producer)
                if producer is not None:
                    self._offsets += 1
                    producer.commit_offset(self._offsets)
                    producer.go_on()
            case End():
                producer = self._ready(step.producer)
                if producer is not None and producer.transaction is not None:
                    producer.end(step.commits)
                    producer.go_on()
            case Whole():
                self._whole(step)
            case Crash():
                self._crash(step.producer, step.within)
            case Plain():
                self._plain.send(self._partition(step.partition), b"plain %d" % len(self.events))
            case Look():
                self._look(self._partition(step.partition))
            case Move():
                self._move(step.target, step.to)
            case Kill() | Stop():
                self._begin_fault(step)

    def _producer(self, transactional_id: str) -> TransactionalProducer:
        return TransactionalProducer(
            self._cluster,
            self.events.append,
            transactional_id,
            self.topic,
            self._group,
            self._begin,
            self._initialised,
        )

    def _partition(self, number: int) -> int:
        return self._first + number

    def _begin(self, transactional_id: str) -> Transaction:
        transaction = Transaction(len(self._transactions) + 1, transactional_id, time.monotonic())
        self._transactions.append(transaction)
        return transaction

    def _ready(self, number: int) -> TransactionalProducer | None:
        """Return a producer that waits for nothing; one that has ended comes back."""
        producer = self._producers[number]
        if not producer.go_on():
            return None
        if producer.identity is None:
            self._init(producer, recovers=False)
        return producer if producer.identity is not None else None

    def _init(self, producer: TransactionalProducer, recovers: bool) -> None:
        def fence() -> None:
            for other in self._producers:
                if other is not producer and other.transactional_id == producer.transactional_id:
                    other.may_be_fenced = True

        if not producer.init(recovers, fence):
            self._late_inits.add(producer.transactional_id)

    def _initialised(self, producer: TransactionalProducer, perhaps_again: bool) -> None:
        if perhaps_again:
            self._late_inits.add(producer.transactional_id)
        producer.is_fenced = False
        producer.may_be_fenced = producer.transactional_id in self._late_inits
        for other in self._producers:
            if other is not producer and other.transactional_id == producer.transactional_id:
                other.is_fenced = True

    def _whole(self, step: Whole) -> None:
        producer = self._ready(step.producer)
        if producer is None:
            return
        for number in range(PARTITIONS):
            partition = self._partition((step.partition + number) % PARTITIONS)
            producer.send(partition, [b"whole %d" % len(self.events)])
        self._offsets += 1
        producer.commit_offset(self._offsets)
        if producer.go_on() and producer.transaction is not None:
            producer.end(step.commits)
            producer.go_on()

    def _crash(self, number: int, within: str) -> None:
        producer = self._producers[number]
        if within != "nothing" and producer.go_on() and producer.identity is not None:
            if within == "send":
                producer.send(self._first, [b"last %d" % len(self.events)])
            elif within == "offsets":
                self._offsets += 1
                producer.commit_offset(self._offsets)
            elif within == "add":
                producer.add(self._first)
            elif producer.transaction is not None:
                producer.end(within == "commit")
            if producer.go_on(but=1) and producer.requests:
                producer.send_last()
        producer.crash()

    def _move(self, target: int, to: int) -> None:
        if target < PARTITIONS:
            self._cluster.move(self.topic, self._partition(target), to)
        elif target < TARGETS - 1:
            self._cluster.move_coordinator(self._ids[target - PARTITIONS + 1], 1, to)
        else:
            self._cluster.move_coordinator(self._group, 0, to)

    def _begin_fault(self, step: Kill | Stop) -> None:
        if self._cluster.is_healing:
            self._cluster.heal()
        if self._cluster.faulty is not None:
            return
        if step.target < PARTITIONS:
            broker = self._cluster.leader_id(self.topic, self._partition(step.target))
        elif step.target < TARGETS - 1:
            broker = self._cluster.coordinator_id(self._ids[step.target - PARTITIONS + 1], 1)
        else:
            broker = self._cluster.coordinator_id(self._group, 0)
        if broker not in BROKERS:
            return
        self.events.append(f"    broker {broker}")
        if isinstance(step, Kill):
            self._cluster.kill(broker)
        else:
            self._cluster.stop(broker, step.forgotten)
            if step.forgotten:
                # A coordinator that is none any more, and does not know it yet, does not know new producers.
                for producer in self._producers:
                    producer.meets_zombies = True
        self._faulty_for = step.steps + 1

    def _count_down(self) -> None:
        if self._faulty_for:
            self._faulty_for -= 1
            if not self._faulty_for:
                self.events.append("  resume")
                self._cluster.resume()

    def _finish(self, returns: bool) -> None:
        """Let all transactions end: by producers that come back, or by their time."""
        wait_until(
            lambda: not self._cluster.is_stopped, timeout=_SECONDS, what="a killed coordinator is back"
        )
        for client in (*self._producers, self._plain):
            assert client.go_on(), "no answer although nothing is faulty"
        if returns:
            for transactional_id in sorted(set(self._ids)):
                self.events.append(f"  a producer returns as {transactional_id}")
                producer = self._producer(transactional_id)
                try:
                    self._init(producer, recovers=False)
                    assert producer.identity is not None
                finally:
                    producer.close()
        wait_until(
            lambda: not self._cluster.open_transactions(set(self._ids)),
            timeout=_SECONDS,
            what="all transactions have ended",
        )
        for number in range(PARTITIONS):
            wait_until(
                partial(self._is_stable, self._partition(number)),
                timeout=_SECONDS,
                what=f"the last stable offset of {self.topic}-{self._partition(number)} reaches the end",
            )

    def _is_stable(self, partition: int) -> bool:
        view = self._read(partition, committed=False)
        return view is not None and view.last_stable_offset == view.high_watermark

    def _look(self, partition: int) -> list[tuple[int, bytes]] | None:
        """Read a partition; return what a reader of committed records sees, None without an answer."""
        view = self._read(partition, committed=True)
        if view is None:
            return None
        end = view.last_stable_offset
        assert end <= view.high_watermark
        assert all(batch.last_offset < end for batch in view.batches), f"a batch beyond {end}"
        offsets = [offset for offset, _ in view.visible]
        assert offsets == sorted(set(offsets))
        before_end, before = self._seen.get(partition, (0, []))
        assert before == [one for one in view.visible if one[0] < before_end], "what was seen has changed"
        if end >= before_end:
            self._seen[partition] = end, view.visible
        values = {value for _, value in view.visible}
        for transaction in self._transactions:
            if transaction.outcome in (Outcome.OPEN, Outcome.ABORTED):
                seen = [value for value, _ in transaction.sent.get(partition, ()) if value in values]
                assert not seen, f"{seen} of {transaction} are seen"
        whole = self._read(partition, committed=False)
        # The high watermark of a new leader may be lower: a marker that the former one knew is above it.
        if whole is not None and whole.high_watermark >= view.high_watermark:
            left = unfinished(whole.batches, end)
            assert not left, f"{left} are below the last stable offset {end}, and no marker ends them"
        return view.visible

    def _read(self, partition: int, committed: bool) -> View | None:
        deadline = time.monotonic() + (0.4 if self._cluster.is_stopped else 10)
        leader: Address | None = self._cluster.leader(self.topic, partition)
        if leader is not None:
            with suppress(OSError):
                found = read(self._connections, leader, self.topic, partition, committed, deadline)
                return found if isinstance(found, View) else None
        return None

    def _check(self) -> None:
        """Check what is seen when nothing is open any more."""
        visible: dict[int, list[bytes]] = {}
        for number in range(PARTITIONS):
            partition = self._partition(number)
            seen = wait_until(
                partial(self._looked, partition),
                timeout=_SECONDS,
                what=f"all that was acknowledged is read from {self.topic}-{partition}",
            )
            visible[partition] = [value for _, value in seen[0]]
        offsets = self._cluster.committed_offsets(self._group)
        sent: Counter[bytes] = Counter()
        for transaction in self._transactions:
            self._check_transaction(transaction, visible, offsets)
            sent.update(value for values in transaction.sent.values() for value, _ in values)
        self._check_shared_key(offsets)
        for partition, values in self._plain.sent.items():
            seen_values = [value for value in visible[partition] if value.startswith(b"plain")]
            assert seen_values == [value for value, _ in values]
            sent.update(value for value, _ in values)
        counted = Counter(value for values in visible.values() for value in values)
        assert counted <= sent, f"seen twice, or never sent: {counted - sent}"

    def _looked(self, partition: int) -> tuple[list[tuple[int, bytes]]] | None:
        """Read a partition as ``_look``; None while something is missing that was acknowledged.

        A new leader learns only from the Fetches of its followers how far they have replicated.
        """
        seen = self._look(partition)
        wanted = [*self._plain.sent.get(partition, ())]
        for transaction in self._transactions:
            if transaction.outcome is Outcome.COMMITTED:
                wanted += transaction.sent.get(partition, ())
        acknowledged = {value for value, is_acknowledged in wanted if is_acknowledged}
        return (seen,) if seen is not None and acknowledged <= {value for _, value in seen} else None

    def _check_transaction(
        self, transaction: Transaction, visible: dict[int, list[bytes]], offsets: dict[int, int]
    ) -> None:
        """Check that a transaction is wholly there, or not at all; note which, if that was not known."""
        offset = offsets[transaction.number]
        is_there = [offset == transaction.offset[0]] if transaction.offset is not None else []
        if transaction.offset is None:
            assert offset == _NO_OFFSET
        for partition, sent in transaction.sent.items():
            own = {value for value, _ in sent}
            seen = [value for value in visible[partition] if value in own]
            assert seen in ([], [value for value, _ in sent]), f"{seen} of {transaction}"
            is_there.append(bool(seen))
        text = f"{transaction}: visible {is_there}, offset {offset}"
        if transaction.outcome is Outcome.UNKNOWN and is_there:
            assert len(set(is_there)) == 1, text
            transaction.outcome = Outcome.COMMITTED if is_there[0] else Outcome.ABORTED
        assert set(is_there) <= {transaction.outcome is Outcome.COMMITTED}, text
        assert offset in (_NO_OFFSET, (transaction.offset or (0,))[0]), text

    def _check_shared_key(self, offsets: dict[int, int]) -> None:
        """Check that the last committed offset of the shared key counts."""
        with_offsets = [one for one in self._transactions if one.offset is not None]
        if any(one.offset_was_repeated or (one.offset and not one.offset[1]) for one in with_offsets):
            return  # nobody knows in which order they are in the log
        committed = [one for one in with_offsets if one.outcome is Outcome.COMMITTED]
        last = max(committed, key=lambda one: one.offset_at, default=None)
        assert offsets[0] == (_NO_OFFSET if last is None or last.offset is None else last.offset[0])
