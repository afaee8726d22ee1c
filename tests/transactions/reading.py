"""A partition as a reader of committed records sees it, and as it stands in the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from ctrlchan.broker.log._batches import read_header
from ctrlchan.broker.log.records import read_records
from ctrlchan.peers.messages import duration
from tests.transactions.requests import Address, Connections, make_part

__all__ = ["Batch", "View", "read", "unfinished"]

_CONTROL: Final = 0x20
_TRANSACTIONAL: Final = 0x10
_MAX_BYTES: Final = 2**24


class Batch(NamedTuple):
    """A batch of the log. ``commits``: of a marker."""

    offset: int
    last_offset: int
    producer_id: int
    transactional: bool
    commits: bool | None
    values: tuple[bytes, ...]


class View(NamedTuple):
    """A partition from its begin, as the last answer to a Fetch has it. ``visible``: what a reader sees."""

    high_watermark: int
    last_stable_offset: int
    batches: list[Batch]
    visible: list[tuple[int, bytes]]


def read(
    connections: Connections, leader: Address, topic: str, partition: int, committed: bool, deadline: float
) -> View | int:
    """Return what is read from the begin to the end, or an error. Raises OSError when there is no answer."""
    view = View(0, 0, [], [])
    offset = 0
    while True:
        asked = make_part(
            "fetch",
            "FetchPartition",
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=_MAX_BYTES,
        )
        answer = connections.ask(
            leader,
            "fetch",
            deadline,
            replica_id=-1,
            max_wait=duration(0),
            min_bytes=0,
            isolation_level=int(committed),
            topics=(make_part("fetch", "FetchTopic", topic=topic, partitions=(asked,)),),
            forgotten_topics_data=(),
        )
        found = answer.responses[0].partitions[0]
        if found.error_code.value:
            return int(found.error_code.value)
        # An answer of Kafka has records of one segment.
        batches = list(_batches(bytes(found.records or b"")))
        view = View(
            int(found.high_watermark),
            int(found.last_stable_offset),
            view.batches + batches,
            view.visible + list(_visible(batches, found.aborted_transactions or ())),
        )
        if not batches:
            return view
        offset = batches[-1].last_offset + 1


def unfinished(batches: Sequence[Batch], below: int) -> list[Batch]:
    """Return the batches of transactions below an offset that no later marker ends."""
    return [
        batch
        for place, batch in enumerate(batches)
        if batch.transactional
        and batch.commits is None
        and batch.offset < below
        and not any(
            later.producer_id == batch.producer_id and later.commits is not None
            for later in batches[place + 1 :]
        )
    ]


def _batches(data: bytes) -> Iterator[Batch]:
    at = 0
    while at + 12 <= len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12])
        if end > len(data):
            return
        batch = data[at:end]
        header, records = read_header(batch, 0), list(read_records(batch))
        is_marker = bool(header.attributes & _CONTROL)
        yield Batch(
            header.base_offset,
            header.base_offset + header.last_offset_delta,
            header.producer_id,
            bool(header.attributes & _TRANSACTIONAL),
            (records[0].key or b"")[2:4] == b"\0\1" if is_marker else None,
            () if is_marker else tuple(record.value or b"" for record in records),
        )
        at = end


def _visible(batches: Sequence[Batch], aborted: Sequence[Any]) -> Iterator[tuple[int, bytes]]:
    """Yield what a consumer keeps: the batches of aborted transactions begin at offsets that the answer has.

    Source: ``CompletedFetch`` of Kafka's consumer.
    """
    begins = sorted((int(one.first_offset), int(one.producer_id)) for one in aborted)
    dropped: set[int] = set()
    for batch in batches:
        while begins and begins[0][0] <= batch.last_offset:
            dropped.add(begins.pop(0)[1])
        if batch.commits is not None:
            if not batch.commits:
                dropped.discard(batch.producer_id)
        elif not (batch.transactional and batch.producer_id in dropped):
            yield from ((batch.offset + number, value) for number, value in enumerate(batch.values))
