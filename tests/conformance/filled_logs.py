"""Logs that hold batches of every kind, and what is in their folders."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Final

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.log._log import Log
from tests.unit.broker.log.batches import CONTROL, TRANSACTIONAL, PlainRecord, batch_of
from tests.unit.broker.log.old_formats.old_logs import entries

__all__ = ["CONFIG", "FOREVER", "contents", "fill", "fill_old"]

CONFIG: Final = LogConfig(
    segment_bytes=2000, segment_index_bytes=4096, index_interval_bytes=300, retention_ms=-1
)
TODAY: Final = time.time_ns() // 1_000_000
#: Producers do not expire.
FOREVER: Final = 2**31 - 1
BATCHES: Final = 70


def fill(log: Log) -> None:
    """Append plain, idempotent and transactional batches of several leader epochs."""
    sequences = {7: 0, 8: 0, 9: 0}
    opened: set[int] = set()
    for number in range(BATCHES):
        end = log.end_offset + (number % 17 == 16)  # a gap, as after compaction
        fields = {"base_offset": end, "leader_epoch": number // 15, "base_timestamp": TODAY + number * 3 % 50}
        producer = 7 + number % 4
        records = [
            PlainRecord(n, n, value=bytes([number]) * (number * 7 % 90)) for n in range(1 + number % 3)
        ]
        if producer in sequences:
            fields |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
            if producer == 9 and number % 16 == 10 and producer in opened:
                opened.discard(producer)
                fields |= {"attributes": TRANSACTIONAL | CONTROL, "base_sequence": -1}
                marker = struct.pack(">hh", 0, number // 16 % 2)
                records = [PlainRecord(0, key=marker, value=struct.pack(">hi", 0, 0))]
            else:
                sequences[producer] += len(records)
                if producer == 9:
                    opened.add(producer)
                    fields["attributes"] = TRANSACTIONAL
        log.append_as_follower(batch_of(records, 0, **fields).encoded())


def fill_old(log: Log) -> None:
    """Append entries of format 0, of format 1, and then batches of format 2; some entries carry others."""
    for number in range(BATCHES):
        end = log.end_offset + (number % 17 == 16)
        pairs = [(b"k%d" % n, bytes([number]) * 20, TODAY + number * 3 % 50) for n in range(1 + number % 3)]
        if number > 50:
            plain = [PlainRecord(n, 0, value=value) for n, (_, value, _) in enumerate(pairs)]
            fields = {"base_offset": end, "leader_epoch": 0, "base_timestamp": TODAY + number}
            log.append_as_follower(batch_of(plain, 0, **fields).encoded())
            continue
        append_time = TODAY if number % 11 == 10 else -1
        codec = number % 4
        log.append_as_follower(
            entries(number // 25 % 2, codec, end, pairs, append_time=append_time if codec else -1)
        )


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files that have contents. The last line of a checkpoint may have no end."""
    return {path.name: data for path in folder.iterdir() if (data := path.read_bytes().rstrip(b"\n"))}
