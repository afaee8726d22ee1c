"""Reads Heartbeat and OffsetCommit requests and writes their responses, in all versions.

Consumers send these two for as long as they live; all other messages of groups are kio's.

    HeartbeatRequest      group string, generation int32, member id string, instance id string? (3+)
    HeartbeatResponse     throttle time int32 (1+), error int16
    OffsetCommitRequest   group string, generation int32 (1+), member id string (1+), instance id string? (7+),
                          retention int64 (2 to 4), topics: name string, partitions: index int32, offset int64,
                          leader epoch int32 (6+), commit timestamp int64 (1), metadata string?
    OffsetCommitResponse  throttle time int32 (3+), topics: name string, partitions: index int32, error int16

Heartbeat is flexible since version 4, OffsetCommit since version 8: lengths are compact, and tagged fields, of
which there are none so far, end each structure. Bytes after a request are ignored, as by Kafka.

Source: the JSON schemas of these names.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from ctrlchan.broker.coordinator.requests import (
    NO_GENERATION,
    NO_RETENTION,
    UNKNOWN_MEMBER,
    CommitRequest,
    HeartbeatRequest,
    OffsetToCommit,
    TopicPartition,
)
from ctrlchan.broker.replication._cursor cimport (
    Cursor,
    read_i32,
    read_i64,
    read_size,
    read_string,
    skip_tags,
)
from ctrlchan.errors import DecodeError

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char* data, Py_ssize_t size, const char* errors)

cdef extern from "_wire/bytes.h":
    void put_i16(uint8_t* p, int16_t v) nogil
    void put_i32(uint8_t* p, int32_t v) nogil
    uint8_t* put_uvarint(uint8_t* p, uint32_t v) nogil
    int uvarint_size(uint32_t v) nogil

cdef enum:
    HEARTBEAT_FLEXIBLE_SINCE = 4
    COMMIT_FLEXIBLE_SINCE = 8
    LONGEST_STRING = 0x7fff


def decode_heartbeat(frame, Py_ssize_t offset, int version):
    """Return the HeartbeatRequest at ``offset`` of a frame. Raises DecodeError."""
    cdef Cursor c
    cdef Py_buffer view
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        start(&c, &view, offset, version >= HEARTBEAT_FLEXIBLE_SINCE)
        return read_heartbeat(&c, version)
    except ValueError as error:
        raise DecodeError(str(error), api="HeartbeatRequest", version=version) from error
    finally:
        PyBuffer_Release(&view)


def decode_offset_commit(frame, Py_ssize_t offset, int version):
    """Return the CommitRequest at ``offset`` of a frame. Raises DecodeError."""
    cdef Cursor c
    cdef Py_buffer view
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        start(&c, &view, offset, version >= COMMIT_FLEXIBLE_SINCE)
        return read_offset_commit(&c, version)
    except ValueError as error:
        raise DecodeError(str(error), api="OffsetCommitRequest", version=version) from error
    finally:
        PyBuffer_Release(&view)


def encode_heartbeat(int version, int error):
    """Return the body of a HeartbeatResponse."""
    cdef uint8_t body[7]
    cdef uint8_t* p = body
    if version >= 1:
        put_i32(p, 0)
        p += 4
    put_i16(p, <int16_t>error)
    p += 2
    if version >= HEARTBEAT_FLEXIBLE_SINCE:
        p[0] = 0
        p += 1
    return PyBytes_FromStringAndSize(<char*>body, p - body)


def encode_offset_commit(int version, errors):
    """Return the body of an OffsetCommitResponse.

    ``errors``: pairs of TopicPartition and error code. Topics and partitions stay in their order.
    """
    cdef dict topics = {}
    cdef list rows
    for (topic, partition), error in errors:
        if topic in topics:
            rows = topics[topic]
        else:
            rows = topics[topic] = [topic.encode()]
        rows.append((partition, error))
    cdef bint flexible = version >= COMMIT_FLEXIBLE_SINCE
    cdef Py_ssize_t size = length_size(len(topics), flexible, 4) + 4 * (version >= 3) + flexible
    for rows in topics.values():
        size += length_size(PyBytes_GET_SIZE(rows[0]), flexible, 2) + PyBytes_GET_SIZE(rows[0])
        size += length_size(len(rows) - 1, flexible, 4) + (len(rows) - 1) * (6 + flexible) + flexible
    body = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* p = <uint8_t*>PyBytes_AS_STRING(body)
    if version >= 3:
        put_i32(p, 0)
        p += 4
    p = put_length(p, len(topics), flexible, 4)
    for rows in topics.values():
        p = put_topic(p, rows, flexible)
    if flexible:
        p[0] = 0
    return body


# -- requests


cdef inline void start(Cursor* c, const Py_buffer* view, Py_ssize_t offset, bint flexible) noexcept:
    """Let ``c`` read the bytes of ``view`` from ``offset`` on."""
    c.at = <const uint8_t*>view.buf + offset
    c.end = <const uint8_t*>view.buf + view.len
    c.flexible = flexible
    c.failed = offset < 0 or offset > view.len


cdef read_heartbeat(Cursor* c, int version):
    """Return the HeartbeatRequest. Raises ValueError."""
    group_id = read_text(c, "the group id")
    generation_id = read_i32(c)
    member_id = read_text(c, "the member id")
    instance_id = read_nullable_text(c) if version >= 3 else None
    skip_tags(c)
    check(c)
    return HeartbeatRequest(group_id, generation_id, member_id, instance_id)


cdef read_offset_commit(Cursor* c, int version):
    """Return the CommitRequest. Raises ValueError."""
    cdef int32_t partition, leader_epoch
    cdef int64_t offset, timestamp
    cdef int64_t topics, partitions
    cdef list offsets = []
    generation_id, member_id, instance_id, retention = NO_GENERATION, UNKNOWN_MEMBER, None, NO_RETENTION
    group_id = read_text(c, "the group id")
    if version >= 1:
        generation_id = read_i32(c)
        member_id = read_text(c, "the member id")
    if version >= 7:
        instance_id = read_nullable_text(c)
    if 2 <= version <= 4:
        retention = read_i64(c)
    topics = read_count(c, "the list of topics")
    while topics > 0:
        topics -= 1
        topic = read_text(c, "the name of a topic")
        partitions = read_count(c, "the list of partitions")
        while partitions > 0:
            partitions -= 1
            partition = read_i32(c)
            offset = read_i64(c)
            leader_epoch = read_i32(c) if version >= 6 else -1
            timestamp = read_i64(c) if version == 1 else -1
            metadata = read_nullable_text(c)
            skip_tags(c)
            check(c)
            offsets.append(
                OffsetToCommit(TopicPartition(topic, partition), offset, leader_epoch, metadata, timestamp)
            )
        skip_tags(c)
    skip_tags(c)
    check(c)
    return CommitRequest(group_id, offsets, generation_id, member_id, instance_id, retention)


cdef inline int check(const Cursor* c) except -1:
    """Raise ValueError if a read has failed."""
    if c.failed:
        raise ValueError("the message ends too early")
    return 0


cdef read_nullable_text(Cursor* c):
    """Return a string or None. Raises ValueError, also for bytes that are not UTF-8."""
    cdef int64_t size
    cdef const uint8_t* p = read_string(c, &size)
    check(c)
    if size > LONGEST_STRING:
        raise ValueError(f"a string of {size} bytes")
    return None if p == NULL else PyUnicode_DecodeUTF8(<const char*>p, size, NULL)


cdef read_text(Cursor* c, name):
    """Return a string. Raises ValueError, also when it is null."""
    value = read_nullable_text(c)
    if value is None:
        raise ValueError(f"{name} is null")
    return value


cdef int64_t read_count(Cursor* c, name) except -1:
    """Return the number of elements of an array. Raises ValueError when it is null, or more than the bytes left."""
    cdef int64_t count = read_size(c, False)
    check(c)
    if count < 0:
        raise ValueError(f"{name} is null")
    if count > c.end - c.at:
        raise ValueError(f"an array of {count} elements in {c.end - c.at} bytes")
    return count


# -- responses


cdef inline Py_ssize_t length_size(Py_ssize_t length, bint flexible, int fixed) noexcept:
    """Return how many bytes the length of a string (``fixed`` 2) or an array (4) has."""
    return uvarint_size(<uint32_t>length + 1) if flexible else fixed


cdef inline uint8_t* put_length(uint8_t* p, Py_ssize_t length, bint flexible, int fixed) noexcept:
    """Write the length of a string (``fixed`` 2) or an array (4); return the place behind it."""
    if flexible:
        return put_uvarint(p, <uint32_t>length + 1)
    if fixed == 2:
        put_i16(p, <int16_t>length)
    else:
        put_i32(p, <int32_t>length)
    return p + fixed


cdef uint8_t* put_topic(uint8_t* p, list rows, bint flexible) except NULL:
    """Write a topic: ``rows`` are its name, then its partitions with their errors; return the place behind it."""
    cdef Py_ssize_t i, size
    cdef object name = rows[0]
    size = PyBytes_GET_SIZE(name)
    p = put_length(p, size, flexible, 2)
    memcpy(p, PyBytes_AS_STRING(name), size)
    p = put_length(p + size, len(rows) - 1, flexible, 4)
    for i in range(1, len(rows)):
        partition, error = rows[i]
        put_i32(p, partition)
        put_i16(p + 4, error)
        p += 6
        if flexible:
            p[0] = 0
            p += 1
    if flexible:
        p[0] = 0
        p += 1
    return p
