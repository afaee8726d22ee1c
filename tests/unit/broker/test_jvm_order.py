"""The order of JVM hash maps: against a JVM's own words, and against slow models of both maps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan.broker.metadata.jvm_order import (
    concurrent_map_order,
    java_map_order,
    long_hashes,
    partition_hashes,
    scala_map_order,
    string_hashes,
    topic_partition_hashes,
)

# What Scala 2.13 and OpenJDK 17 printed for the keys TopicPartition("topic-<t>", p), t of 12, p of 4, put in
# this order and numbered from 0.
SCALA_WORDS = (
    "30 34 38 2 6 10 14 42 18 46 22 26 35 39 3 7 11 15 19 23 41 27 45 31 "
    "20 24 28 32 36 0 4 8 12 40 16 44 25 29 33 37 1 5 43 9 47 13 17 21"
)
JAVA_WORDS = (
    "20 30 24 34 28 38 32 36 2 6 0 10 4 14 42 8 18 46 12 22 40 16 26 44 "
    "25 35 29 39 33 37 3 7 1 11 5 15 43 9 19 47 13 23 41 17 27 45 21 31"
)
# What a ConcurrentHashMap of OpenJDK 17 printed for the same keys, and for as many Longs, number i being
# i * 7919 * 1000003, negative for an odd i.
CONCURRENT_WORDS = SCALA_WORDS
CONCURRENT_LONGS = {
    11: "0 8 5 7 6 4 3 10 2 9 1",
    12: "0 5 7 11 3 10 1 8 6 4 2 9",
    40: (
        "0 37 29 5 7 11 33 14 10 22 32 21 1 38 28 39 6 24 20 34 35 2 13 30 16 19 27 25 12 3 17 15 8 36 4 18 "
        "26 9 23 31"
    ),
}


def unsigned(number: int) -> int:
    return number & 0xFFFFFFFF


def signed(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number


def model_scala_map(puts: Sequence[tuple[int, int]]) -> list[int]:
    """A chained table whose buckets are sorted by hash; entries are (key, hash), named by their first put."""
    size, entries = 16, 0
    table: list[list[tuple[int, int, int]]] = [[] for _ in range(size)]  # (hash, key, first put)
    for number, (key, raw) in enumerate(puts):
        if entries + 1 >= size * 3 // 4:
            size *= 2
            old, table = table, [[] for _ in range(size)]
            for entry in (entry for bucket in old for entry in bucket):
                table[entry[0] & (size - 1)].append(entry)
        spread = raw ^ (raw >> 16)
        bucket = table[spread & (size - 1)]
        if any(entry[1] == key for entry in bucket):
            continue
        behind = [i for i, entry in enumerate(bucket) if signed(entry[0]) <= signed(spread)]
        bucket.insert(behind[-1] + 1 if behind else 0, (spread, key, number))
        entries += 1
    return [entry[2] for bucket in table for entry in bucket]


def model_java_map(puts: Sequence[tuple[int, int]]) -> list[int]:
    """A chained table whose buckets are in order of insertion (as long as none becomes a tree)."""
    first = {key: (number, raw) for number, (key, raw) in reversed(list(enumerate(puts)))}
    size = 16
    while len(first) > size * 3 // 4:
        size *= 2
    table: list[list[int]] = [[] for _ in range(size)]
    for number, raw in sorted(first.values()):
        table[(raw ^ (raw >> 16)) & (size - 1)].append(number)
    return [number for bucket in table for number in bucket]


# Few keys and few hashes: many collisions. A key has one hash.
PUTS = st.lists(st.integers(0, 40), max_size=60).flatmap(
    lambda keys: st.tuples(
        st.just(keys),
        st.lists(
            st.one_of(st.integers(0, 40), st.integers(0, 2**32 - 1)),
            min_size=41,
            max_size=41,
        ),
    )
)


@given(PUTS)
def test_maps_against_their_models(case: tuple[list[int], list[int]]) -> None:
    keys, hash_of = case
    puts = [(key, hash_of[key]) for key in keys]
    columns = np.array(keys, dtype=np.int64), np.array([h for _, h in puts], dtype=np.uint32)
    assert scala_map_order(*columns).tolist() == model_scala_map(puts)
    assert java_map_order(*columns).tolist() == model_java_map(puts)


def test_maps_against_a_real_jvm() -> None:
    topics = string_hashes([f"topic-{number}" for number in range(12)])
    hashes = topic_partition_hashes(np.repeat(topics, 4), np.tile(np.arange(4, dtype=np.int32), 12))
    keys = np.arange(48, dtype=np.int64)
    assert scala_map_order(keys, hashes).tolist() == [int(word) for word in SCALA_WORDS.split()]
    assert java_map_order(keys, hashes).tolist() == [int(word) for word in JAVA_WORDS.split()]
    assert concurrent_map_order(keys, hashes).tolist() == [int(word) for word in CONCURRENT_WORDS.split()]


@pytest.mark.parametrize(("count", "words"), CONCURRENT_LONGS.items())
def test_longs_against_a_real_jvm(count: int, words: str) -> None:
    longs = [number * 7919 * 1000003 * (-1) ** number for number in range(count)]
    order = concurrent_map_order(np.arange(count, dtype=np.int64), long_hashes(longs))
    assert order.tolist() == [int(word) for word in words.split()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("é", 233),
        ("\U0001f600", 1772899),  # two UTF-16 units
        ("x" * 300, None),
    ],
)
def test_string_hashes(text: str, expected: int | None) -> None:
    units = text.encode("utf-16-le")
    model = 0
    for at in range(0, len(units), 2):
        model = unsigned(model * 31 + int.from_bytes(units[at : at + 2], "little"))
    hashed = string_hashes(["other", text, ""])
    assert hashed.tolist() == [unsigned(string_hashes(["other"])[0]), model, 0]
    assert expected is None or hashed[1] == expected


def test_hashes_of_partitions_wrap_around() -> None:
    topic = np.array([0xFFFFFFFF, 5], dtype=np.uint32)
    partition = np.array([2**31 - 1, -3], dtype=np.int32)
    assert topic_partition_hashes(topic, partition).tolist() == [
        unsigned((31 + 2**31 - 1) * 31 + 0xFFFFFFFF),
        unsigned((31 - 3) * 31 + 5),
    ]
    assert partition_hashes(topic, partition).tolist() == [
        unsigned(31 + 0xFFFFFFFF + 17 * (2**31 - 1)),
        unsigned(31 + 5 - 17 * 3),
    ]
