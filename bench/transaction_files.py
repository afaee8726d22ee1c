"""Segment files with transactions, written as a broker leaves them, and put into the logs of stopped brokers.

Both sides start on the same bytes: what would take a broker hours to write through requests takes seconds.
"""

from __future__ import annotations

import shutil
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from ctrlchan.broker.coordinator.transaction.records import record_of
from ctrlchan.broker.coordinator.transaction.states import TransactionState
from ctrlchan.broker.coordinator.transaction.transaction import Transition
from ctrlchan.internal_topics import TRANSACTIONS_TOPIC, coordinator_partition
from tests.unit.broker.log.batches import PlainBatch, PlainRecord

__all__ = [
    "STATE_PARTITIONS",
    "open_transactions",
    "put_log",
    "state_topic",
    "transactional_id",
    "transactions_of",
]

#: Of ``__transaction_state``: Kafka's default.
STATE_PARTITIONS: Final = 50
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x30
#: Producer ids of the files, which no broker hands out in a run.
_FIRST_PRODUCER: Final = 1_000_000
_SEGMENT: Final = "00000000000000000000.log"
_DAY_MS: Final = 86_400_000
#: Bytes that are written at once.
_CHUNK: Final = 1 << 20


def _now_ms() -> int:
    return int(time.time() * 1000)


def _batch(
    offset: int, producer: int, sequence: int, records: bytes, count: int, now_ms: int, attributes: int
) -> bytes:
    """Return a batch of a producer, as it is in a log."""
    return PlainBatch(
        records,
        count,
        base_offset=offset,
        leader_epoch=0,
        attributes=attributes,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
    ).encoded()


def _records(count: int) -> bytes:
    """Return encoded records of 100 bytes each."""
    return b"".join(PlainRecord(i, key=None, value=b"%0100d" % i).encoded() for i in range(count))


def _marker(offset: int, producer: int, commits: bool, now_ms: int) -> bytes:
    """Return the batch that ends a transaction."""
    record = PlainRecord(0, key=struct.pack(">hh", 0, commits), value=struct.pack(">hi", 0, 0)).encoded()
    return _batch(offset, producer, -1, record, 1, now_ms, _CONTROL)


def _write(file: Path, batches: Iterable[bytes]) -> None:
    with file.open("wb", buffering=_CHUNK) as out:
        for batch in batches:
            out.write(batch)


def transactions_of(file: Path, count: int, records: int, aborts_every: int) -> int:
    """Write so many transactions of one producer: a batch of records of 100 bytes each, and its marker.

    Each ``aborts_every``-th is aborted. Return the offset of the last transaction.
    """
    data, now_ms = _records(records), _now_ms()

    def batches() -> Iterator[bytes]:
        for number in range(count):
            offset = number * (records + 1)
            sequence = number * records
            yield _batch(offset, _FIRST_PRODUCER, sequence, data, records, now_ms, _TRANSACTIONAL)
            yield _marker(offset + records, _FIRST_PRODUCER, number % aborts_every != 0, now_ms)

    _write(file, batches())
    return (count - 1) * (records + 1)


def open_transactions(file: Path, producers: int) -> None:
    """Write one record of each of so many producers; all their transactions stay open."""
    data, now_ms = _records(1), _now_ms()
    _write(
        file,
        (
            _batch(number, _FIRST_PRODUCER + number, 0, data, 1, now_ms, _TRANSACTIONAL)
            for number in range(producers)
        ),
    )


def transactional_id(number: int) -> str:
    """Return one of the ids of ``state_topic``; all have the same length."""
    return f"producer-{number:08}"


def state_topic(folder: Path, ids: int) -> list[Path]:
    """Write ``__transaction_state`` with so many ids of committed transactions, a file for each partition."""
    now_ms = _now_ms()
    logs: list[list[bytes]] = [[] for _ in range(STATE_PARTITIONS)]
    for number in range(ids):
        name = transactional_id(number)
        log = logs[coordinator_partition(name, STATE_PARTITIONS)]
        producer = _FIRST_PRODUCER + number
        key, value = record_of(
            name,
            Transition(
                TransactionState.COMPLETE_COMMIT,
                producer,
                producer,
                0,
                -1,
                60_000,
                frozenset(),
                now_ms - _DAY_MS,
                now_ms,
            ),
        )
        record = PlainRecord(0, key=key, value=value).encoded()
        log.append(
            PlainBatch(
                record,
                1,
                base_offset=len(log),
                leader_epoch=0,
                base_timestamp=now_ms,
                max_timestamp=now_ms,
            ).encoded()
        )
    files = [folder / f"{TRANSACTIONS_TOPIC}-{partition}" for partition in range(STATE_PARTITIONS)]
    for file, log in zip(files, logs, strict=True):
        _write(file, log)
    return files


def put_log(logs: Path, topic: str, partition: int, file: Path) -> None:
    """Make a file the only segment of a partition in a broker's log directory, as after a power failure.

    At its next start the broker reads the segment and writes its indexes.
    """
    folder = logs / f"{topic}-{partition}"
    for old in folder.iterdir():
        if old.name != "partition.metadata":
            old.unlink()
    shutil.copyfile(file, folder / _SEGMENT)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (logs / name).unlink(missing_ok=True)
