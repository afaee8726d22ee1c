"""Batches and partitions of records that a cluster's own ``produce`` makes: as Kafka's producers do."""

from __future__ import annotations

import warnings

from hypothesis import given
from hypothesis import strategies as st

from ctrlchan.broker.log.records import read_records
from ctrlchan.embedded.batches import encode_records, partition_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas so
    from kafka.partitioner.default import murmur2

BYTES = st.none() | st.binary(max_size=300)


@given(
    values=st.lists(BYTES, min_size=1, max_size=100),
    key=BYTES,
    headers=st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=70),
)
def test_a_batch_is_read_as_it_was_written(
    values: list[bytes | None], key: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    found = list(read_records(encode_records(values, key, headers, 1_700_000_000_000)))
    assert [record.value for record in found] == values
    assert [record.offset for record in found] == list(range(len(values)))
    assert {record.timestamp for record in found} == {1_700_000_000_000}
    assert all(record.key == key for record in found)
    wanted = [(name.encode(), value) for name, value in headers]
    assert all(record.headers == wanted for record in found)


@given(key=st.binary(max_size=50), partitions=st.integers(1, 1000))
def test_a_key_has_the_partition_of_kafkas_producers(key: bytes, partitions: int) -> None:
    assert partition_of(key, partitions) == (murmur2(key) & 0x7FFFFFFF) % partitions


def test_partitions_of_known_keys() -> None:
    # From Kafka's UtilsTest.testMurmur2.
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key, value in hashes.items():
        assert partition_of(key, 2**31) == value & 0x7FFFFFFF
