"""Reads Metadata requests and writes their responses, in versions 0 to 12, from columns of partitions.

    MetadataRequest   topics?: topic id uuid (10+), name string (10+: string?); creation is allowed bool (4+),
                      operations on the cluster are asked for bool (8 to 10), those on topics bool (8+)
    MetadataResponse  throttle time int32 (3+), brokers: id int32, host string, port int32, rack string? (1+);
                      cluster id string? (2+), controller int32 (1+), topics: error int16, name string (12+: string?),
                      topic id uuid (10+), is internal bool (1+), partitions: error int16, index int32, leader int32,
                      leader epoch int32 (7+), replicas int32[], ISR int32[], offline replicas int32[] (5+);
                      of a topic: operations int32 (8+); of the cluster: operations int32 (8 to 10)

Flexible since version 9: lengths are compact, and tagged fields, of which there are none so far, end each structure.
Topics are null for all since version 1. Bytes after a request are ignored, as by Kafka.

Source: the JSON schemas of these names.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from ctrlchan._c.bytes cimport put_i16, swap_ints
from ctrlchan.server._cursor cimport Cursor, skip_tags, take
from ctrlchan.server._values cimport (
    LONGEST_STRING,
    check,
    decode,
    encoded,
    length_size,
    put_length,
    put_no_tags,
    put_number,
    put_text,
    read_count,
    read_nullable_count,
    read_nullable_text,
    read_text,
    text_size,
)

from typing import NamedTuple

cdef enum:
    RACK_SINCE = 1
    ALL_TOPICS_ARE_NULL_SINCE = 1
    CLUSTER_ID_SINCE = 2
    THROTTLE_TIME_SINCE = 3
    CREATION_SINCE = 4
    OFFLINE_SINCE = 5
    LEADER_EPOCH_SINCE = 7
    OPERATIONS_SINCE = 8
    CLUSTER_OPERATIONS_UNTIL = 10
    FLEXIBLE_SINCE = 9
    TOPIC_ID_SINCE = 10

    TOPIC_ID_BYTES = 16

NO_TOPIC_ID = bytes(TOPIC_ID_BYTES)


class MetadataRequest(NamedTuple):
    """``topics``: ids (zero: none) and names; None for all topics."""

    topics: list | None
    allows_creation: bool
    asks_cluster_operations: bool
    asks_topic_operations: bool


cdef struct Lists:
    const int32_t* starts
    const int32_t* lengths
    const int32_t* values


cdef class PartitionRows:
    """Columns of the partitions of a response; all have the same length. Raises ValueError for what they cannot be."""

    cdef const int16_t[::1] errors
    cdef const int32_t[::1] partition, leader, leader_epoch
    cdef Lists replicas, isr, offline
    # What the pointers belong to
    cdef list kept

    def __init__(self, errors, partition, leader, leader_epoch, replicas, isr, offline):
        self.errors, self.partition, self.leader, self.leader_epoch = errors, partition, leader, leader_epoch
        self.kept = []
        if not len(partition) == len(leader) == len(leader_epoch) == len(errors):
            raise ValueError("columns of different lengths")
        self.take(&self.replicas, replicas)
        self.take(&self.isr, isr)
        self.take(&self.offline, offline)

    def __len__(self):
        return len(self.partition)

    cdef int take(self, Lists* lists, column) except -1:
        """Note where the lists of a ListColumn are, each of which must lie within its values."""
        cdef const int32_t[::1] starts = column.starts
        cdef const int32_t[::1] lengths = column.lengths
        cdef const int32_t[::1] values = column.values
        cdef Py_ssize_t i, count = self.partition.shape[0], size = values.shape[0]
        if starts.shape[0] != count or lengths.shape[0] != count:
            raise ValueError("columns of different lengths")
        for i in range(count):
            if lengths[i] < 0 or lengths[i] > 0 and (starts[i] < 0 or <int64_t>starts[i] + lengths[i] > size):
                raise ValueError("a list that is not within its values")
        self.kept += [starts, lengths, values]
        # An empty column has no first element.
        lists.starts = &starts[0] if count > 0 else NULL
        lists.lengths = &lengths[0] if count > 0 else NULL
        lists.values = &values[0] if size > 0 else NULL
        return 0


cdef class TopicRows:
    """Columns of the topics of a response. Partitions of topic i are the rows from ``starts[i]`` to before ``starts[i + 1]``.

    ``ids``: uint8[n, 16]. Raises ValueError for what columns of topics cannot be.
    """

    cdef const int16_t[::1] errors
    cdef const int32_t[::1] operations, starts, name_starts, name_lengths
    cdef const uint8_t[::1] is_internal, name_data
    cdef const uint8_t[:, ::1] ids

    def __init__(self, errors, names, ids, is_internal, operations, starts):
        cdef Py_ssize_t i, count = len(errors)
        self.errors, self.ids, self.is_internal, self.operations, self.starts = errors, ids, is_internal, operations, starts
        self.name_starts, self.name_lengths, self.name_data = names.starts, names.lengths, names.data
        if not count == len(names) == len(ids) == len(is_internal) == len(operations) == len(starts) - 1:
            raise ValueError("columns of different lengths")
        if self.ids.shape[1] != TOPIC_ID_BYTES:
            raise ValueError(f"topic ids of {self.ids.shape[1]} bytes")
        for i in range(count):
            if not 0 <= self.starts[i] <= self.starts[i + 1]:
                raise ValueError(f"rows {self.starts[i]} to {self.starts[i + 1]} of topic {i}")
            if self.name_lengths[i] > LONGEST_STRING:
                raise ValueError(f"a string of {self.name_lengths[i]} bytes")
            if self.name_lengths[i] > 0 and not (
                0 <= self.name_starts[i] <= self.name_data.shape[0] - self.name_lengths[i]
            ):
                raise ValueError("a string that is not within its data")

    def __len__(self):
        return self.errors.shape[0]


# -- requests


def decode_metadata(frame, Py_ssize_t offset, int version):
    """Return the MetadataRequest at ``offset`` of a frame. Raises DecodeError."""
    return decode(frame, offset, version, FLEXIBLE_SINCE, read_metadata, "MetadataRequest")


cdef read_metadata(Cursor* c, int version):
    """Return the MetadataRequest. Raises ValueError."""
    cdef const uint8_t* id_bytes
    cdef list topics = None
    cdef int64_t count
    if version >= ALL_TOPICS_ARE_NULL_SINCE:
        count = read_nullable_count(c)
    else:
        # No topic means all of them.
        count = read_count(c, "the list of topics") or -1
    if count >= 0:
        topics = []
    while count > 0:
        count -= 1
        topic_id = NO_TOPIC_ID
        if version >= TOPIC_ID_SINCE:
            id_bytes = take(c, TOPIC_ID_BYTES)
            check(c)
            topic_id = PyBytes_FromStringAndSize(<const char*>id_bytes, TOPIC_ID_BYTES)
            name = read_nullable_text(c)
        else:
            name = read_text(c, "the name of a topic")
        skip_tags(c)
        check(c)
        topics.append((topic_id, name))
    allows_creation = read_flag(c) if version >= CREATION_SINCE else True
    of_cluster = read_flag(c) if OPERATIONS_SINCE <= version <= CLUSTER_OPERATIONS_UNTIL else False
    of_topics = read_flag(c) if version >= OPERATIONS_SINCE else False
    skip_tags(c)
    check(c)
    return MetadataRequest(topics, allows_creation, of_cluster, of_topics)


cdef inline object read_flag(Cursor* c):
    cdef const uint8_t* p = take(c, 1)
    return p != NULL and p[0] != 0


# -- responses


def encode_metadata(
    int version,
    nodes,
    cluster_id,
    int32_t controller_id,
    int32_t cluster_operations,
    TopicRows topics not None,
    PartitionRows rows not None,
):
    """Return the body of a MetadataResponse.

    ``nodes``: brokers with ``id``, ``host``, ``port`` and ``rack``. ``cluster_operations``: not written by versions that
    have none. Raises ValueError for texts that have no place in a message, and for topics whose rows do not exist.
    """
    cdef bint flexible = version >= FLEXIBLE_SINCE
    cdef list brokers = [(node.id, encoded(node.host), node.port, encoded(node.rack)) for node in nodes]
    cdef bytes cluster = encoded(cluster_id)
    cdef Py_ssize_t size, i, count = topics.errors.shape[0]
    if topics.starts[count] > rows.partition.shape[0]:
        raise ValueError(f"{topics.starts[count]} rows of {rows.partition.shape[0]}")
    size = 4 * (version >= THROTTLE_TIME_SINCE) + length_size(len(brokers), flexible, 4)
    for _, host, _, rack in brokers:
        size += 8 + text_size(host, flexible) + flexible
        if version >= RACK_SINCE:
            size += text_size(rack, flexible)
    if version >= CLUSTER_ID_SINCE:
        size += text_size(cluster, flexible)
    size += 4 * (version >= RACK_SINCE) + length_size(count, flexible, 4)
    with nogil:
        for i in range(count):
            size += topic_size(topics, i, rows, version)
    size += 4 * (OPERATIONS_SINCE <= version <= CLUSTER_OPERATIONS_UNTIL) + flexible

    body = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* p = <uint8_t*>PyBytes_AS_STRING(body)
    if version >= THROTTLE_TIME_SINCE:
        p = put_number(p, 0)
    p = put_length(p, len(brokers), flexible, 4)
    for node_id, host, port, rack in brokers:
        p = put_number(p, node_id)
        p = put_text(p, host, flexible)
        p = put_number(p, port)
        if version >= RACK_SINCE:
            p = put_text(p, rack, flexible)
        p = put_no_tags(p, flexible)
    if version >= CLUSTER_ID_SINCE:
        p = put_text(p, cluster, flexible)
    if version >= RACK_SINCE:
        p = put_number(p, controller_id)
    p = put_length(p, count, flexible, 4)
    with nogil:
        for i in range(count):
            p = put_topic(p, topics, i, rows, version)
    if OPERATIONS_SINCE <= version <= CLUSTER_OPERATIONS_UNTIL:
        p = put_number(p, cluster_operations)
    p = put_no_tags(p, flexible)
    assert p - <uint8_t*>PyBytes_AS_STRING(body) == size
    return body


cdef Py_ssize_t topic_size(TopicRows topics, Py_ssize_t i, PartitionRows rows, int version) noexcept nogil:
    """Return the bytes of a topic."""
    cdef bint flexible = version >= FLEXIBLE_SINCE
    cdef Py_ssize_t length = topics.name_lengths[i]
    cdef Py_ssize_t size = 2 + length_size(length, flexible, 2) + max(length, 0) + flexible
    size += TOPIC_ID_BYTES * (version >= TOPIC_ID_SINCE) + (version >= 1) + 4 * (version >= OPERATIONS_SINCE)
    return size + rows_size(rows, topics.starts[i], topics.starts[i + 1], version)


cdef uint8_t* put_topic(uint8_t* p, TopicRows topics, Py_ssize_t i, PartitionRows rows, int version) noexcept nogil:
    """Write a topic with its partitions; return the place behind it."""
    cdef bint flexible = version >= FLEXIBLE_SINCE
    cdef Py_ssize_t row, first = topics.starts[i], end = topics.starts[i + 1], length = topics.name_lengths[i]
    put_i16(p, topics.errors[i])
    p = put_length(p + 2, length, flexible, 2)
    if length > 0:
        memcpy(p, &topics.name_data[topics.name_starts[i]], length)
        p += length
    if version >= TOPIC_ID_SINCE:
        memcpy(p, &topics.ids[i, 0], TOPIC_ID_BYTES)
        p += TOPIC_ID_BYTES
    if version >= 1:
        p[0] = topics.is_internal[i] != 0
        p += 1
    p = put_length(p, end - first, flexible, 4)
    for row in range(first, end):
        p = put_partition(p, rows, row, version)
    if version >= OPERATIONS_SINCE:
        p = put_number(p, topics.operations[i])
    return put_no_tags(p, flexible)


cdef Py_ssize_t rows_size(PartitionRows rows, Py_ssize_t first, Py_ssize_t end, int version) noexcept nogil:
    """Return the bytes of the array of partitions."""
    cdef bint flexible = version >= FLEXIBLE_SINCE
    cdef Py_ssize_t i, size = length_size(end - first, flexible, 4)
    size += (end - first) * (10 + 4 * (version >= LEADER_EPOCH_SINCE) + flexible)
    for i in range(first, end):
        size += list_size(&rows.replicas, i, flexible) + list_size(&rows.isr, i, flexible)
        if version >= OFFLINE_SINCE:
            size += list_size(&rows.offline, i, flexible)
    return size


cdef uint8_t* put_partition(uint8_t* p, PartitionRows rows, Py_ssize_t i, int version) noexcept nogil:
    """Write a row; return the place behind it."""
    cdef bint flexible = version >= FLEXIBLE_SINCE
    put_i16(p, rows.errors[i])
    p = put_number(p + 2, rows.partition[i])
    p = put_number(p, rows.leader[i])
    if version >= LEADER_EPOCH_SINCE:
        p = put_number(p, rows.leader_epoch[i])
    p = put_list(p, &rows.replicas, i, flexible)
    p = put_list(p, &rows.isr, i, flexible)
    if version >= OFFLINE_SINCE:
        p = put_list(p, &rows.offline, i, flexible)
    return put_no_tags(p, flexible)


cdef inline Py_ssize_t list_size(const Lists* lists, Py_ssize_t i, bint flexible) noexcept nogil:
    return length_size(lists.lengths[i], flexible, 4) + 4 * <Py_ssize_t>lists.lengths[i]


cdef inline uint8_t* put_list(uint8_t* p, const Lists* lists, Py_ssize_t i, bint flexible) noexcept nogil:
    cdef int32_t length = lists.lengths[i]
    p = put_length(p, length, flexible, 4)
    if length > 0:
        swap_ints(p, lists.values + lists.starts[i], length)
    return p + 4 * <Py_ssize_t>length
