"""Reads AlterPartition requests, in versions 0 to 3, into columns.

    AlterPartitionRequest   broker id int32, broker epoch int64, topics: name string (0, 1) or id uuid (2+),
                            partitions: index int32, leader epoch int32, ISR int32[] (0 to 2) or
                            ISR: broker id int32, broker epoch int64 (3+), recovery state int8 (1+),
                            partition epoch int32

All versions are flexible: lengths are compact, and tagged fields, of which there are none so far, end each structure. Bytes
after a request are ignored, as by Kafka.

A bounce of a broker changes thousands of partitions. A request is read twice: first its partitions and ISRs are counted,
then they are written into columns of that size.

Source: ``AlterPartitionRequest.json``.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from ctrlchan.server._cursor cimport Cursor, read_i32, read_i64, skip_tags, take
from ctrlchan.server._values cimport check, decode, read_count, read_text

from typing import NamedTuple

import numpy as np

cdef enum:
    FLEXIBLE_SINCE = 0
    RECOVERY_STATE_SINCE = 1
    TOPIC_ID_SINCE = 2
    ISR_WITH_EPOCHS_SINCE = 3

    TOPIC_ID_BYTES = 16
    # Of an ISR, from ISR_WITH_EPOCHS_SINCE on
    EPOCH_BYTES = 8


cdef int32_t nothing = 0


class Decoded(NamedTuple):
    """``topics``: names or ids. The columns are int32, one row for each partition; ``topic``: its place in ``topics``.

    The ISR of row i: ``isr_lengths[i]`` of the ``isr_values`` from ``isr_starts[i]`` on.
    """

    broker_id: int
    broker_epoch: int
    topics: list
    topic: np.ndarray
    partition: np.ndarray
    leader_epoch: np.ndarray
    partition_epoch: np.ndarray
    recovery_state: np.ndarray
    isr_starts: np.ndarray
    isr_lengths: np.ndarray
    isr_values: np.ndarray


# Where columns are written to; NULL: rows and entries are only counted.
cdef struct Columns:
    int32_t* topic
    int32_t* partition
    int32_t* leader_epoch
    int32_t* partition_epoch
    int32_t* recovery_state
    int32_t* isr_starts
    int32_t* isr_lengths
    int32_t* isr_values
    int64_t rows
    int64_t entries


def decode_alter_partition(frame, Py_ssize_t offset, int version):
    """Return the Decoded request at ``offset`` of a frame. Raises DecodeError."""
    return decode(frame, offset, version, FLEXIBLE_SINCE, read_request, "AlterPartitionRequest")


cdef read_request(Cursor* c, int version):
    """Return the Decoded request. Raises ValueError."""
    cdef Columns columns
    cdef Cursor topics_at
    cdef int32_t broker_id = read_i32(c)
    cdef int64_t broker_epoch = read_i64(c)
    check(c)
    topics_at = c[0]
    columns.topic = NULL
    read_topics(c, version, &columns, None)
    skip_tags(c)
    check(c)
    made = [np.empty(columns.rows, np.int32) for _ in range(7)]
    values = np.empty(columns.entries, np.int32)
    columns.topic, columns.partition, columns.leader_epoch = first(made[0]), first(made[1]), first(made[2])
    columns.partition_epoch, columns.recovery_state = first(made[3]), first(made[4])
    columns.isr_starts, columns.isr_lengths, columns.isr_values = first(made[5]), first(made[6]), first(values)
    cdef list topics = []
    read_topics(&topics_at, version, &columns, topics)
    return Decoded(broker_id, broker_epoch, topics, *made, values)


cdef int32_t* first(int32_t[::1] column) noexcept:
    """Return where a column begins. Nothing is written into one without rows, but it is no NULL."""
    return &column[0] if column.shape[0] else &nothing


cdef int read_topics(Cursor* c, int version, Columns* columns, list topics) except -1:
    """Read all topics. Raises ValueError. ``topics`` gets their names or ids, unless rows are only counted."""
    cdef int64_t count = read_count(c, "the list of topics"), number, partitions
    cdef const uint8_t* topic_id
    columns.rows = columns.entries = 0
    for number in range(count):
        if version >= TOPIC_ID_SINCE:
            topic_id = take(c, TOPIC_ID_BYTES)
            check(c)
            if topics is not None:
                topics.append(PyBytes_FromStringAndSize(<const char*>topic_id, TOPIC_ID_BYTES))
        else:
            name = read_text(c, "the name of a topic")
            if topics is not None:
                topics.append(name.encode())
        partitions = read_count(c, "the list of partitions")
        while partitions > 0:
            partitions -= 1
            take_partition(c, version, columns, number)
        skip_tags(c)
        check(c)
    return 0


cdef int take_partition(Cursor* c, int version, Columns* columns, int64_t topic) except -1:
    """Read one partition as the next row. Raises ValueError."""
    cdef int64_t row = columns.rows, entry = columns.entries, left
    cdef int32_t partition = read_i32(c), leader_epoch = read_i32(c), broker_id, partition_epoch
    cdef int64_t count = read_count(c, "an ISR")
    cdef const uint8_t* state = NULL
    for left in range(count):
        broker_id = read_i32(c)
        if version >= ISR_WITH_EPOCHS_SINCE:
            take(c, EPOCH_BYTES)
            skip_tags(c)
        if columns.topic != NULL:
            columns.isr_values[entry + left] = broker_id
    if version >= RECOVERY_STATE_SINCE:
        state = take(c, 1)
    partition_epoch = read_i32(c)
    skip_tags(c)
    check(c)
    if columns.topic != NULL:
        columns.topic[row], columns.partition[row] = <int32_t>topic, partition
        columns.leader_epoch[row], columns.partition_epoch[row] = leader_epoch, partition_epoch
        columns.recovery_state[row] = <int32_t>(<const int8_t*>state)[0] if state != NULL else 0
        columns.isr_starts[row], columns.isr_lengths[row] = <int32_t>entry, <int32_t>count
    columns.rows += 1
    columns.entries += count
    return 0
