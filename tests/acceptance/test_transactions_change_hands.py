"""Log directories with open transactions change hands: Kafka 3.9.1 and this broker go on with the other's.

One broker id has the same ``log.dirs`` all along, with one partition of ``__transaction_state``. Transactions
are open when the broker is stopped or killed. The next one commits, aborts or fences them, or their time ends
there. What readers of committed records and of offsets see is checked in each turn.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from ctrlchan.internal_topics import TRANSACTIONS_TOPIC
from tests.acceptance.test_log_directories import SMALL, check_files, controlled_broker, create_topic
from tests.kafka.waiting import wait_until
from tests.transactions.cluster import KEYS, KEYS_TOPIC, committed_offsets, find_coordinator
from tests.transactions.producers import Outcome, Transaction, TransactionalProducer
from tests.transactions.reading import View, read, unfinished
from tests.transactions.requests import Address, Connections

BROKER: Final = 1
SECONDS: Final = 90.0
TOPIC: Final = "transactions"
PARTITIONS: Final = 2
GROUP: Final = "readers"
KAFKA, OURS = False, True
STOP, KILL = False, True
#: Each hand-over of the two kinds in both directions.
TURNS: Final = ((KAFKA, STOP), (OURS, STOP), (KAFKA, KILL), (OURS, KILL), (KAFKA, STOP), (OURS, STOP))
#: Seconds: of transactions that go on in the next turn, and of those that nobody ends.
LONG, SHORT = 300.0, 3.0


class OneBroker:
    """The only broker, for its clients: it leads and coordinates everything."""

    is_stopped = False

    def __init__(self, address: Address) -> None:
        self._address = address

    def leader(self, topic: str, partition: int) -> Address:
        return self._address

    def coordinator(self, key: str, kind: int) -> Address:
        return self._address

    def read_producer_id(self) -> tuple[int, int]:
        raise AssertionError("all producers have transactions")


class Transactions:
    """Clients that live through all turns, and what readers must see."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connections = Connections()
        self._all: list[Transaction] = []
        self._sent = 0
        self._offset = 0
        self._producers: list[TransactionalProducer] = []
        self._commits, self._aborts = self._producer("commits"), self._producer("aborts")

    def close(self) -> None:
        for producer in self._producers:
            producer.close()
        self._connections.close()

    def begin(self) -> None:
        """Leave transactions open: for a commit, an abort, a producer that comes back, and nobody."""
        for producer in (
            self._commits,
            self._aborts,
            self._producer("returns"),
            self._producer("gone", SHORT),
        ):
            self._send(producer)
        # The broker may be killed after the answer to the commit, and before its markers.
        last = self._producer("last")
        for commits in (False, True):
            self._send(last)
            self._end(last, commits)

    def end(self) -> None:
        """Go on with what the last turn has left, and end it."""
        for producer, commits in ((self._commits, True), (self._aborts, False)):
            self._send(producer)
            self._end(producer, commits)
        self._producer("returns")

    def check(self) -> None:
        """Wait until nothing is open, and compare what is seen."""
        for partition in range(PARTITIONS):
            wait_until(
                partial(self._is_stable, partition), timeout=SECONDS, what="all transactions have ended"
            )
        self.check_open()
        offsets = wait_until(self._offsets, timeout=SECONDS, what="no transaction holds back an offset")
        for one in self._all:
            expected = -1 if one.outcome is not Outcome.COMMITTED or one.offset is None else one.offset[0]
            assert offsets[one.number] == expected, one

    def check_open(self, *, may_lag: bool = False) -> None:
        """Compare what is seen, which is nothing of an open transaction.

        ``may_lag``: the broker has just started, perhaps with the high watermark of its last checkpoint.
        """
        for partition in range(PARTITIONS):
            view = self._read(partition, committed=True)
            sent = {value for one in self._all for value, _ in one.sent[partition]}
            committed = [
                value
                for one in self._all
                if one.outcome is Outcome.COMMITTED
                for value, _ in one.sent[partition]
            ]
            seen = [value for _, value in view.visible]
            if view.last_stable_offset == view.high_watermark and not may_lag:
                assert sorted(seen) == sorted(committed)
            else:
                assert {*seen} <= {*committed}
            whole = self._read(partition, committed=False)
            written = {value for batch in whole.batches for value in batch.values}
            assert written <= sent if may_lag else written == sent
            # Markers may be above a high watermark that lags: Kafka does not look for them when it starts.
            assert may_lag or not unfinished(whole.batches, view.last_stable_offset)

    def _producer(self, transactional_id: str, timeout: float = LONG) -> TransactionalProducer:
        producer = TransactionalProducer(
            OneBroker(self._address), lambda _: None, transactional_id, TOPIC, GROUP,
            self._began, lambda _, __: None, timeout,
        )  # fmt: skip
        self._producers.append(producer)
        assert producer.init(False, lambda: None)
        return producer

    def _began(self, transactional_id: str) -> Transaction:
        self._all.append(Transaction(len(self._all) + 1, transactional_id, time.monotonic()))
        return self._all[-1]

    def _send(self, producer: TransactionalProducer) -> None:
        for partition in range(PARTITIONS):
            self._sent += 3
            producer.send(partition, [b"%d" % (self._sent - one) for one in (2, 1, 0)])
        self._offset += 1
        producer.commit_offset(self._offset)
        assert producer.go_on()

    def _end(self, producer: TransactionalProducer, commits: bool) -> None:
        producer.end(commits)
        assert producer.go_on()

    def _read(self, partition: int, committed: bool) -> View:
        def view() -> View | None:
            with suppress(OSError):  # a connection to the broker of the last turn
                found = read(
                    self._connections, self._address, TOPIC, partition, committed, time.monotonic() + SECONDS
                )
                return found if isinstance(found, View) else None
            return None

        return wait_until(view, timeout=SECONDS, what=f"{TOPIC}-{partition} is read")

    def _is_stable(self, partition: int) -> bool:
        view = self._read(partition, committed=False)
        return view.last_stable_offset == view.high_watermark

    def _offsets(self) -> dict[int, int] | None:
        return committed_offsets(self._connections, self._address, GROUP)


@pytest.mark.long
def test_open_transactions_change_hands(kafka_jars_ready: None, tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    properties = {
        "log.dirs": str(log_dir),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "log.index.size.max.bytes": "4096",
        "zookeeper.session.timeout.ms": "10000",
    }
    with controlled_broker(tmp_path / "rig", properties) as rig, ExitStack() as stack:
        create_topic(rig, TOPIC, PARTITIONS, SMALL | {"segment.bytes": "1000"})
        create_topic(rig, KEYS_TOPIC, 2 * KEYS, SMALL)
        endpoint = rig.broker(BROKER).endpoint("PLAINTEXT")
        wait_until(
            lambda: (
                find_coordinator((endpoint.host, endpoint.port), GROUP, 0)
                and find_coordinator((endpoint.host, endpoint.port), "commits", 1)
            ),
            timeout=SECONDS,
            what="there are coordinators",
        )
        transactions = Transactions((endpoint.host, endpoint.port))
        stack.callback(transactions.close)
        for number, (ours, kill) in enumerate(TURNS):
            if number:
                rig.restart_broker(BROKER, ours=ours)
                transactions.check_open(may_lag=True)
                transactions.end()
                transactions.check()
            transactions.begin()
            transactions.check_open()
            if kill:
                rig.kill_broker(BROKER)
            else:
                rig.stop_broker(BROKER)
                check_files([log_dir])
        assert len(list(log_dir.glob(f"{TOPIC}-*/*.txnindex"))) > 0
        assert len(list(log_dir.glob(f"{TRANSACTIONS_TOPIC}-0/*.log"))) > 0
