"""Rows that vectors handle many at a time equal the rows of the plain loops.

Each test runs with the widest vectors of the processor (64 bytes with AVX-512), with those of 16 bytes, and
without vectors.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ctrlchan._codec import (
    LEADER_AND_ISR,
    UPDATE_METADATA,
    Brokers,
    LeaderAndIsrRequest,
    ListColumn,
    LiveLeaders,
    Partitions,
    SharedBody,
    StringColumn,
    Topics,
    UpdateMetadataRequest,
    _limit_vectors,
    decode_request,
    encode_head,
    leader_and_isr_body,
    update_metadata_body,
)
from ctrlchan.errors import DecodeError, EncodeError

Int32 = npt.NDArray[np.int32]
Generator = np.random.Generator

NONE, NO_TEXT = np.zeros(0, np.int32), StringColumn.from_strings([])
NO_BROKERS = Brokers(NONE, None, NO_TEXT, NONE, NONE, NONE, NO_TEXT, NO_TEXT, NONE)
NO_LEADERS = LiveLeaders(NONE, NO_TEXT, NONE)
#: One version of each layout of rows.
VERSIONS = [(UPDATE_METADATA, 8), (LEADER_AND_ISR, 4), (LEADER_AND_ISR, 7)]

each_version = pytest.mark.parametrize(("api_key", "version"), VERSIONS)


@pytest.fixture(autouse=True, params=[64, 16, 0], ids=["widest", "sixteen-bytes", "plain"])
def vectors(request: pytest.FixtureRequest) -> Iterator[int]:
    used = _limit_vectors(request.param)
    if used != request.param:
        _limit_vectors(64)
        pytest.skip(f"no vectors of {request.param} bytes here")
    yield used
    _limit_vectors(64)


# --------------------------------------------------------------------------------------- clusters of rows


def even(rng: Generator, n: int) -> list[int]:
    return [int(rng.integers(1, 4))] * n


def mostly_even(rng: Generator, n: int) -> list[int]:
    """Draw long stretches of one length with a few rows of other lengths among them."""
    lengths = np.repeat(rng.integers(0, 5, n // 40 + 1), 40)[:n]
    odd = rng.random(n) < 0.02
    return np.where(odd, rng.integers(0, 9, n), lengths).tolist()  # type: ignore[no-any-return]


def short(rng: Generator, n: int) -> list[int]:
    return rng.integers(0, 9, n).tolist()  # type: ignore[no-any-return]


def some_long(rng: Generator, n: int) -> list[int]:
    """Draw up to 300 values, so that counts have one or two varint bytes."""
    return np.where(rng.random(n) < 0.1, rng.integers(100, 300, n), 3).tolist()  # type: ignore[no-any-return]


def empty(rng: Generator, n: int) -> list[int]:
    return [0] * n


def rarely(rng: Generator, n: int) -> list[int]:
    return np.where(rng.random(n) < 0.05, rng.integers(1, 4, n), 0).tolist()  # type: ignore[no-any-return]


Lengths = Callable[[Generator, int], list[int]]
KINDS: list[tuple[Lengths, Lengths]] = [
    (even, empty),
    (even, rarely),
    (mostly_even, empty),
    (mostly_even, rarely),
    (short, short),
    (some_long, empty),
]
each_kind = pytest.mark.parametrize(("kind", "other"), KINDS, ids=lambda f: f.__name__)


def ints(rng: Generator, n: int) -> Int32:
    return rng.integers(-(2**31), 2**31, n, dtype=np.int64).astype(np.int32)


def lists_of(rng: Generator, lengths: list[int], *, shuffled: bool) -> ListColumn:
    """Draw lists one after the other (as Arrow has them), or anywhere in their values."""
    sizes = np.array(lengths, np.int32)
    values = ints(rng, int(sizes.sum()))
    starts = (np.cumsum(sizes) - sizes).astype(np.int32)
    if shuffled:
        starts = rng.integers(0, len(values) - sizes + 1).astype(np.int32)
    return ListColumn(starts, sizes, values)


def topics_of(n: int) -> Topics:
    ids = np.arange(16 * n, dtype=np.uint8).reshape(n, 16)
    return Topics(StringColumn.from_strings(f"topic-{i}" for i in range(n)), ids)


def cluster(rng: Generator, n: int, kind: Lengths, other: Lengths, topics: int = 4) -> Partitions:
    shuffled = bool(rng.integers(0, 4) == 0)
    topic_row = np.sort(rng.integers(0, topics, n)).astype(np.int32)
    recovery = np.where(rng.random(n) < 0.01, rng.integers(-128, 128, n), 0).astype(np.int32)
    numbers: Any = [*(ints(rng, n) for _ in range(5)), recovery]
    lists: Any = [lists_of(rng, kind(rng, n), shuffled=shuffled) for _ in range(2)]
    more: Any = [lists_of(rng, other(rng, n), shuffled=False) for _ in range(3)]
    return Partitions(topic_row, *numbers, *lists, *more)


def flags_of(rng: Generator, n: int) -> Any:
    return rng.integers(0, 3, n).astype(np.uint8)


def shared_body_of(
    api_key: int,
    version: int,
    topics: Topics,
    partitions: Partitions,
    rows: Any = None,
    is_new: Any = None,
) -> SharedBody:
    if api_key == UPDATE_METADATA:
        return update_metadata_body(version, topics, partitions, NO_BROKERS, rows)
    if version < 6:
        partitions = without_recovery(partitions)
    return leader_and_isr_body(version, topics, partitions, NO_LEADERS, rows, is_new=is_new)


def without_recovery(p: Partitions) -> Partitions:
    """Return the partitions without a recovery state, which versions before 6 do not carry."""
    return Partitions(
        p.topic_row, p.partition, p.controller_epoch, p.leader, p.leader_epoch, p.partition_epoch,
        np.zeros(len(p), np.int32), p.isr, p.replicas, p.adding, p.removing, p.offline,
    )  # fmt: skip


@dataclass
class Singly:
    """Rows written one by one: a message of one row is too short for vectors."""

    api_key: int
    version: int
    topics: Topics
    partitions: Partitions

    def row(self, row: int, is_new: int = 0) -> bytes:
        rows, flags = np.array([row]), np.array([is_new], np.uint8)
        whole = shared_body_of(
            self.api_key, self.version, self.topics, self.partitions, rows, flags
        ).to_bytes()
        # The message's only topic is before the row: counts, name, id. After the row: the topic's tags, no
        # broker or leader, tags.
        name = self.topics.names[int(self.partitions.topic_row[row])]
        assert name is not None
        before = 1 + 1 + len(name) + (16 if self.version >= 5 else 0) + 1
        return whole[before:-3]

    def message(self, rows: list[int], is_new: Any) -> bytes:
        """Return a whole shared body of these rows."""
        groups: list[tuple[int, list[bytes]]] = []
        for position, row in enumerate(rows):
            topic = int(self.partitions.topic_row[row])
            if not groups or groups[-1][0] != topic:
                groups.append((topic, []))
            groups[-1][1].append(self.row(row, 0 if is_new is None else int(is_new[position])))
        out = uvarint(len(groups) + 1)
        for topic, written in groups:
            name = self.topics.names[topic]
            assert name is not None
            out += uvarint(len(name) + 1) + name
            out += self.topics.ids[topic].tobytes() if self.version >= 5 else b""
            out += uvarint(len(written) + 1) + b"".join(written) + b"\0"
        return out + b"\1\0"


def uvarint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


# ------------------------------------------------------------------------------------------------ writing


@each_version
@each_kind
def test_rows_together_are_the_rows_one_by_one(
    api_key: int, version: int, kind: Lengths, other: Lengths
) -> None:
    for seed in range(4):
        rng = np.random.default_rng([seed, api_key, version])
        n = int(rng.integers(1, 300))
        topics, partitions = topics_of(4), cluster(rng, n, kind, other)
        is_new = flags_of(rng, n) if seed % 2 else None
        shared_body = shared_body_of(api_key, version, topics, partitions, None, is_new)
        singly = Singly(api_key, version, topics, partitions)
        assert shared_body.to_bytes() == singly.message(list(range(n)), is_new)


@each_version
def test_any_number_of_even_rows(api_key: int, version: int) -> None:
    rng = np.random.default_rng(5)
    topics, partitions = topics_of(1), cluster(rng, 70, even, empty, topics=1)
    singly = Singly(api_key, version, topics, partitions)
    written = [singly.row(row) for row in range(70)]
    for n in range(71):
        for first in (0, 1, 70 - n):
            rows = np.arange(first, min(first + n, 70))
            shared_body = shared_body_of(api_key, version, topics, partitions, rows).to_bytes()
            assert shared_body[: -2 if len(rows) == 0 else -3].endswith(b"".join(written[first : first + n]))


@each_version
@each_kind
def test_selected_rows(api_key: int, version: int, kind: Lengths, other: Lengths) -> None:
    rng = np.random.default_rng(7)
    n = 250
    topics, partitions = topics_of(4), cluster(rng, n, kind, other)
    singly = Singly(api_key, version, topics, partitions)
    selections = [
        np.arange(40, 200),
        np.arange(0, n, 7),
        np.flatnonzero(rng.random(n) < 0.9),
        np.sort(rng.integers(0, n, 60)),
        np.concatenate([np.arange(9, 30), np.arange(30, 60, 2), np.arange(61, 99)]),
        np.array([n - 1]),
    ]
    for rows in selections:
        is_new = flags_of(rng, len(rows))
        shared_body = shared_body_of(api_key, version, topics, partitions, rows, is_new)
        assert shared_body.to_bytes() == singly.message(rows.tolist(), is_new)


def test_topics_in_deletion_among_others() -> None:
    rng = np.random.default_rng(11)
    n, deleting = 200, np.array([0, 1, 0, 1], np.uint8)
    names, partitions = topics_of(4), cluster(rng, n, even, empty)
    topics = Topics(names.names, names.ids, deleting)
    read = decode(UPDATE_METADATA, 8, shared_body_of(UPDATE_METADATA, 8, topics, partitions)).partitions
    gone = deleting[partitions.topic_row] != 0
    assert gone.any()
    assert not gone.all()
    assert np.array_equal(read.leader, np.where(gone, -2, partitions.leader))
    assert np.array_equal(read.leader_epoch, np.where(gone, 0, partitions.leader_epoch))
    assert np.array_equal(read.partition_epoch, np.where(gone, 0, partitions.partition_epoch))
    assert read.isr.to_lists() == partitions.isr.to_lists()


@each_version
@pytest.mark.parametrize("row", [0, 3, 17, 99])
def test_an_error_names_a_list_outside_its_values_in_any_row(api_key: int, version: int, row: int) -> None:
    topics = topics_of(1)
    for start, length in [(-1, 3), (298, 3), (2**31 - 1, 3), (2**31 - 1, 2**31 - 1)]:
        partitions = cluster(np.random.default_rng(3), 100, lambda rng, n: [3] * n, empty, topics=1)
        partitions.replicas.starts[row] = start
        partitions.replicas.lengths[row] = length
        if start + length > 2**31:
            continue
        with pytest.raises(EncodeError, match=rf"row {row}\)") as caught:
            shared_body_of(api_key, version, topics, partitions).to_bytes()
        assert caught.value.field == "replicas"


# ------------------------------------------------------------------------------------------------ reading


def decode(
    api_key: int, version: int, shared_body: SharedBody
) -> UpdateMetadataRequest | LeaderAndIsrRequest:
    request = decode_request(
        api_key, version, encode_head(api_key, version, 1, 2, 3) + shared_body.to_bytes()
    )
    assert isinstance(request, UpdateMetadataRequest | LeaderAndIsrRequest)
    return request


@each_version
@each_kind
def test_rows_are_read_as_they_were(api_key: int, version: int, kind: Lengths, other: Lengths) -> None:
    for seed in range(4):
        rng = np.random.default_rng([seed, api_key, version, 1])
        # One of the four sizes is larger than the first columns of a decoder.
        n = 3000 if seed == 0 else int(rng.integers(1, 300))
        topics, partitions = topics_of(4), cluster(rng, n, kind, other)
        is_new = flags_of(rng, n)
        request = decode(api_key, version, shared_body_of(api_key, version, topics, partitions, None, is_new))
        read = request.partitions
        names = ["partition", "controller_epoch", "leader", "leader_epoch", "partition_epoch"]
        lists = ["isr", "replicas"]
        if api_key == UPDATE_METADATA:
            lists.append("offline")
        else:
            assert isinstance(request, LeaderAndIsrRequest)
            assert np.array_equal(request.is_new, is_new != 0)
            lists += ["adding", "removing"]
        if version == 7:
            names.append("recovery_state")
        for name in names:
            assert np.array_equal(getattr(read, name), getattr(partitions, name)), name
        for name in lists:
            assert getattr(read, name).to_lists() == getattr(partitions, name).to_lists(), name
        read_names = [request.topics.names[row] for row in read.topic_row]
        assert read_names == [topics.names[row] for row in partitions.topic_row]


@each_version
def test_columns_of_one_message_do_not_overlap(api_key: int, version: int) -> None:
    rng = np.random.default_rng(2)
    shared_body = shared_body_of(api_key, version, topics_of(4), cluster(rng, 3000, even, rarely))
    read = decode(api_key, version, shared_body).partitions
    columns = [read.topic_row, read.partition, read.controller_epoch, read.leader, read.leader_epoch]
    columns += [read.partition_epoch, read.isr.starts, read.isr.lengths, read.isr.values]
    columns += [read.replicas.starts, read.replicas.lengths, read.replicas.values]
    before = [column.copy() for column in columns]
    for k, column in enumerate(columns):
        column += 1
        for other in range(len(columns)):
            assert np.array_equal(columns[other], before[other] + (other <= k))


def test_unknown_tags_in_some_rows() -> None:
    rng = np.random.default_rng(13)
    topics, partitions = topics_of(1), cluster(rng, 80, even, empty, topics=1)
    singly = Singly(UPDATE_METADATA, 8, topics, partitions)
    tags = b"\x02\x05\x03abc\x09\x00"
    rows = [singly.row(row) for row in range(80)]
    tagged = [row[:-1] + tags if k % 9 == 4 else row for k, row in enumerate(rows)]
    plain = shared_body_of(UPDATE_METADATA, 8, topics, partitions).to_bytes()
    message = encode_head(UPDATE_METADATA, 8, 1, 2, 3) + plain.replace(b"".join(rows), b"".join(tagged))
    request = decode_request(UPDATE_METADATA, 8, message)
    assert request.unknown_tagged_fields == 2 * len(range(4, 80, 9))
    assert isinstance(request, UpdateMetadataRequest)
    assert request.partitions.replicas.to_lists() == partitions.replicas.to_lists()
    assert request.encode() == encode_head(UPDATE_METADATA, 8, 1, 2, 3) + plain


#: Fields of a partition state whose isr and replicas have three values, with the bytes they take.
FIELDS = {
    UPDATE_METADATA: [
        ("partitionIndex", 4), ("controllerEpoch", 4), ("leader", 4), ("leaderEpoch", 4), ("isr", 13),
        ("zkVersion", 4), ("replicas", 13), ("offlineReplicas", 1), ("_taggedFields", 1),
    ],
    LEADER_AND_ISR: [
        ("partitionIndex", 4), ("controllerEpoch", 4), ("leader", 4), ("leaderEpoch", 4), ("isr", 13),
        ("partitionEpoch", 4), ("replicas", 13), ("addingReplicas", 1), ("removingReplicas", 1), ("isNew", 1),
        ("leaderRecoveryState", 1), ("_taggedFields", 1),
    ],
}  # fmt: skip
#: Bytes of the smallest partition state: a count of more of them than the rest could hold is refused at once.
LEAST = {UPDATE_METADATA: 24, LEADER_AND_ISR: 27}


@pytest.mark.parametrize(("api_key", "version"), [(UPDATE_METADATA, 8), (LEADER_AND_ISR, 7)])
def test_a_message_cut_anywhere_among_its_rows(api_key: int, version: int) -> None:
    rng = np.random.default_rng(17)
    n = 90
    partitions = cluster(rng, n, lambda rng, n: [3] * n, empty, topics=1)
    partitions.recovery_state[:] = 0
    shared_body = shared_body_of(api_key, version, topics_of(1), partitions)
    message = encode_head(api_key, version, 1, 2, 3) + shared_body.to_bytes()
    fields = FIELDS[api_key]
    size = sum(length for _, length in fields)
    # After the rows: the topic's tags, the count of brokers or leaders, tags.
    first = len(message) - 3 - n * size
    for cut in range(first, len(message) - 3):
        if cut - first < n * LEAST[api_key]:
            expected = ("partitionStates", first - 1)
        else:
            at = first + (cut - first) // size * size
            for name, length in fields:
                expected = (name, at)
                at += length
                if at > cut:
                    break
        with pytest.raises(DecodeError) as caught:
            decode_request(api_key, version, message[:cut])
        assert (caught.value.field, caught.value.offset) == expected, cut


# ---------------------------------------------------------------------------------- the end of memory


@contextmanager
def memory_that_ends(n: int) -> Iterator[memoryview]:
    """Map n writable bytes; an access to the byte after them ends the process."""
    pages = (n + mmap.PAGESIZE - 1) // mmap.PAGESIZE + 1
    memory = mmap.mmap(-1, pages * mmap.PAGESIZE)
    whole = (ctypes.c_char * len(memory)).from_buffer(memory)
    last = ctypes.addressof(whole) + len(memory) - mmap.PAGESIZE
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert protect(last, mmap.PAGESIZE, 0) == 0
    view = memoryview(memory)
    end = len(memory) - mmap.PAGESIZE
    try:
        yield view[end - n : end]
    finally:
        assert protect(last, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0


def at_the_end_of_memory(column: Any, stack: ExitStack) -> Any:
    if column.size == 0:
        return column
    array = np.frombuffer(stack.enter_context(memory_that_ends(column.nbytes)), column.dtype)
    array[:] = column
    return array


def partitions_at_the_end_of_memory(p: Partitions, stack: ExitStack) -> Partitions:
    def lists(column: ListColumn | None) -> ListColumn:
        assert column is not None
        return ListColumn(
            *(at_the_end_of_memory(array, stack) for array in (column.starts, column.lengths, column.values))
        )

    numbers: Any = [
        at_the_end_of_memory(array, stack)
        for array in (
            p.topic_row, p.partition, p.controller_epoch, p.leader, p.leader_epoch, p.partition_epoch,
            p.recovery_state,
        )
    ]  # fmt: skip
    more: Any = [lists(column) for column in (p.isr, p.replicas, p.adding, p.removing, p.offline)]
    return Partitions(*numbers, *more)


@each_version
@each_kind
def test_no_memory_after_a_buffer_is_touched(
    api_key: int, version: int, kind: Lengths, other: Lengths
) -> None:
    rng = np.random.default_rng(19)
    for n in [1, 2, 3, 4, 5, 15, 16, 17, 33, 64, 127]:
        p = cluster(rng, n, kind, other)
        some = np.flatnonzero(rng.random(n) < 0.7)
        with ExitStack() as stack:
            partitions = partitions_at_the_end_of_memory(p, stack)
            for rows in (None, at_the_end_of_memory(some, stack)):
                shared_body = shared_body_of(api_key, version, topics_of(4), partitions, rows)
                expected = shared_body_of(api_key, version, topics_of(4), p, rows).to_bytes()
                out = stack.enter_context(memory_that_ends(shared_body.size))
                shared_body.write_into(out)
                assert bytes(out) == expected
                body = encode_head(api_key, version, 1, 2, 3) + expected
                data = stack.enter_context(memory_that_ends(len(body)))
                data[:] = body
                assert decode_request(api_key, version, data).encode() == body
                cut = stack.enter_context(memory_that_ends(len(body) - 1))
                cut[:] = body[:-1]
                with pytest.raises(DecodeError):
                    decode_request(api_key, version, cut)


@each_version
def test_bytes_around_the_message_do_not_change(api_key: int, version: int) -> None:
    rng = np.random.default_rng(23)
    for n in [1, 7, 40, 200]:
        shared_body = shared_body_of(api_key, version, topics_of(4), cluster(rng, n, mostly_even, rarely))
        for offset in range(3):
            out = bytearray(b"\xaa" * (shared_body.size + 600))
            shared_body.write_into(out, offset)
            assert out[:offset] == b"\xaa" * offset
            assert out[offset : offset + shared_body.size] == shared_body.to_bytes()
            assert out[offset + shared_body.size :] == b"\xaa" * (600 - offset)


# ------------------------------------------------------------------------------------- other threads


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Repeat ``work`` in another thread."""
    done = threading.Event()

    def repeat() -> None:
        while not done.is_set():
            work()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@each_version
def test_columns_that_change_while_they_are_written(api_key: int, version: int) -> None:
    rng = np.random.default_rng(29)
    n = 2000
    partitions = cluster(rng, n, even, empty)
    changing = [partitions.isr.starts, partitions.isr.lengths, partitions.replicas.starts]
    sound = [column.copy() for column in changing]
    wild = [rng.choice(np.array([-1, 0, 3, 2**31 - 1], np.int32), n) for _ in changing]
    rows = np.arange(n)
    sound_rows, wild_rows = rows.copy(), rng.integers(-5, 2 * n, n)

    def change() -> None:
        for values in (wild, sound):
            for column, new in zip(changing, values, strict=True):
                column[:] = new
        rows[:] = wild_rows
        rows[:] = sound_rows

    with meanwhile(change):
        for selected in (None, rows):
            for _ in range(150):
                try:
                    shared_body = shared_body_of(api_key, version, topics_of(4), partitions, selected)
                except EncodeError:
                    continue
                with memory_that_ends(shared_body.size) as out:
                    try:
                        shared_body.write_into(out)
                    except EncodeError:
                        continue


@each_version
def test_bytes_that_change_while_they_are_read(api_key: int, version: int) -> None:
    rng = np.random.default_rng(31)
    shared_body = shared_body_of(api_key, version, topics_of(4), cluster(rng, 2000, even, rarely))
    body = encode_head(api_key, version, 1, 2, 3) + shared_body.to_bytes()
    wild = np.frombuffer(body, np.uint8).copy()
    wild[rng.integers(0, len(wild), 200)] ^= 7
    with memory_that_ends(len(body)) as data:
        bytes_read = np.frombuffer(data, np.uint8)

        def change() -> None:
            bytes_read[:] = wild
            bytes_read[:] = np.frombuffer(body, np.uint8)

        bytes_read[:] = np.frombuffer(body, np.uint8)
        with meanwhile(change):
            for _ in range(300):
                try:
                    request = decode_request(api_key, version, data)
                except DecodeError:
                    continue
                for lists in (request.partitions.isr, request.partitions.replicas):  # type: ignore[union-attr]
                    assert (lists.starts >= 0).all()
                    assert (lists.lengths >= 0).all()
                    assert (lists.starts.astype(np.int64) + lists.lengths <= len(lists.values)).all()
