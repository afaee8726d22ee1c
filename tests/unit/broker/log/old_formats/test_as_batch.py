"""What entries of formats 0 and 1 carry, read as a batch of format 2."""

from __future__ import annotations

import dataclasses
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan.broker.log import compression
from ctrlchan.broker.log._batches import crc32c_of, read_header
from ctrlchan.broker.log.compression import GZIP, LZ4, SNAPPY, ZSTD
from ctrlchan.broker.log.old_formats._as_batch import as_batch
from ctrlchan.broker.log.records import as_format_2, offsets_and_timestamps, read_records
from ctrlchan.errors import ErrorCode, KafkaError
from tests.unit.broker.log.made_batches import batch
from tests.unit.broker.log.old_formats.entries import APPEND_TIME, OldEntry, wrapped
from tests.unit.broker.log.old_formats.old_logs import CODECS, entries

PAIRS = st.lists(
    st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=200), st.integers(0, 2**40)),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
@given(pairs=PAIRS, first=st.integers(0, 2**40))
def test_records_of_another_client_are_read(
    magic: int, codec: int, pairs: list[tuple[bytes | None, bytes | None, int]], first: int
) -> None:
    pairs = pairs if codec else pairs[:1]
    data = entries(magic, codec, first, pairs)
    found = [tuple(one)[:5] for one in read_records(data)]
    assert found == [
        (first + n, time if magic else -1, key, value, []) for n, (key, value, time) in enumerate(pairs)
    ]
    header = read_header(as_format_2(data))
    assert header[:5] == (first, len(as_format_2(data)), -1, 2, crc32c_of(as_format_2(data)[21:]))
    assert (header.last_offset_delta, header.record_count) == (len(pairs) - 1, len(pairs))
    assert header.max_timestamp == (max(time for _, _, time in pairs) if magic else -1)
    old = read_header(data)
    assert (old.base_offset, old.last_offset_delta, old.magic) == (first + len(pairs) - 1, 0, magic)
    assert (old.max_timestamp, old.leader_epoch, old.producer_id) == (header.max_timestamp, -1, -1)


def test_the_time_of_an_append_is_that_of_all_records() -> None:
    data = entries(1, GZIP, 5, [(None, b"a", 10), (None, b"b", 20)], append_time=99)
    assert list(offsets_and_timestamps(data)) == [(5, 99), (6, 99)]
    header = read_header(as_format_2(data))
    assert (header.attributes, header.max_timestamp) == (0x08, 99)
    # Without others inside, the entry has it alone.
    alone = OldEntry(offset=3, timestamp=50, attributes=APPEND_TIME).encoded()
    assert list(offsets_and_timestamps(alone)) == [(3, 50)]
    assert read_header(alone).attributes == 0x08
    # Format 0 has no such attribute.
    assert read_header(OldEntry(magic=0, attributes=0x78).encoded()).attributes == 0


def test_offsets_of_a_compacted_entry_have_gaps() -> None:
    kept = [OldEntry(b"%d" % n, offset=n) for n in (0, 4, 9)]
    assert [one.offset for one in read_records(wrapped(kept, GZIP, offset=29).encoded())] == [20, 24, 29]
    kept = [dataclasses.replace(one, magic=0, offset=one.offset + 20) for one in kept]
    assert [one.offset for one in read_records(wrapped(kept, GZIP).encoded())] == [20, 24, 29]


@pytest.mark.parametrize("extreme", [2**63 - 1, -(2**63), -1, 0])
def test_any_timestamp_is_kept(extreme: int) -> None:
    carried = [OldEntry(offset=0, timestamp=5), OldEntry(offset=1, timestamp=extreme)]
    data = wrapped(carried, SNAPPY, offset=8, timestamp=extreme).encoded()
    assert list(offsets_and_timestamps(data)) == [(7, 5), (8, extreme)]


def test_what_is_cut_inside_is_no_record() -> None:
    carried = [OldEntry(offset=0), OldEntry(offset=1)]
    data = wrapped(carried, GZIP, offset=8, after=OldEntry().encoded()[:-1]).encoded()
    assert [one.offset for one in read_records(data)] == [7, 8]


def test_records_of_another_format_than_their_entry_are_noticed() -> None:
    """The cleaner of some releases of Kafka wrote such entries (KAFKA-4298)."""
    carried = [OldEntry(offset=0, magic=0), OldEntry(offset=1)]
    data = wrapped(carried, GZIP, magic=1, offset=8).encoded()
    assert as_batch(data).has_other_format
    assert list(offsets_and_timestamps(data)) == [(7, -1), (8, 1000)]
    assert not as_batch(wrapped(carried[1:], GZIP, offset=8).encoded()).has_other_format


def test_a_batch_of_format_2_is_itself() -> None:
    data = batch([b"a"])
    assert as_format_2(data) is data


ONE = OldEntry(offset=0)
BOMB = compression.compress(GZIP, bytes(compression.MAX_DECOMPRESSED_BYTES + 1))


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (wrapped([ONE], GZIP, payload=b"garbage"), "cannot be decompressed"),
        (wrapped([ONE], LZ4, payload=b""), "cannot be decompressed"),
        (wrapped([ONE], GZIP, payload=BOMB), "cannot be decompressed: more than"),
        (wrapped([], GZIP), "carries nothing"),
        (OldEntry(None, attributes=GZIP), "without a value"),
        (OldEntry(attributes=GZIP, pair=b""), "without a value"),
        (wrapped([wrapped([ONE], GZIP)], GZIP, offset=3), "a compressed entry that carries another one"),
        (wrapped([dataclasses.replace(ONE, magic=2)], GZIP, magic=1), "unknown format"),
        (wrapped([dataclasses.replace(ONE, magic=-1)], GZIP, magic=1), "unknown format"),
        (wrapped([dataclasses.replace(ONE, size=13)], GZIP), "a size that no entry has"),
        (wrapped([dataclasses.replace(ONE, pair=b"\0\0\0\1")], GZIP), "do not fit"),
        (wrapped([dataclasses.replace(ONE, offset=9)], GZIP, offset=8), "below the one of the last"),
        (wrapped([ONE, dataclasses.replace(ONE, offset=2**31 + 1)], GZIP, offset=2**33), "too far"),
        (wrapped([dataclasses.replace(ONE, magic=0, offset=-1)], GZIP), "impossible offset"),
        (wrapped([ONE], GZIP, offset=2**63 - 1), "impossible offset"),
        (OldEntry(offset=2**63 - 1), "impossible offset"),
        (OldEntry(offset=-1), "impossible offset"),
        (OldEntry(pair=struct.pack(">ii", -1, 5)), "do not fit"),
        (OldEntry(attributes=ZSTD), "codec 4"),
        (OldEntry(attributes=7), "codec 7"),
    ],
)
def test_damage_is_an_error(entry: OldEntry, why: str) -> None:
    with pytest.raises(KafkaError, match=why) as raised:
        as_batch(entry.encoded())
    assert raised.value.code == ErrorCode.CORRUPT_MESSAGE


def test_bytes_that_are_no_entry() -> None:
    whole = OldEntry().encoded()
    for data in (b"", whole[:11], whole[:-1]):
        with pytest.raises(KafkaError, match="no whole entry"):
            as_batch(data)


@given(
    data=st.binary(max_size=100) | st.builds(OldEntry, magic=st.integers(0, 1)).map(OldEntry.encoded),
    where=st.integers(0, 60),
    byte=st.integers(1, 255),
)
def test_changed_bytes_are_read_or_refused(data: bytes, where: int, byte: int) -> None:
    changed = bytearray(data)
    if where < len(changed):
        changed[where] ^= byte
    try:
        found = as_batch(bytes(changed)).batch
    except KafkaError:
        return
    assert read_header(found).size == len(found)
    assert len(list(read_records(found))) == read_header(found).record_count
