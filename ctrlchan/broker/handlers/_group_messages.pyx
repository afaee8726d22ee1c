"""Reads Heartbeat, OffsetCommit and TxnOffsetCommit requests and writes their responses, in all versions.

Clients send these for as long as they live. JoinGroup and SyncGroup: ``_membership_messages.pyx``; all other messages of
groups are kio's.

    HeartbeatRequest      group string, generation int32, member id string, instance id string? (3+)
    HeartbeatResponse     throttle time int32 (1+), error int16
    OffsetCommitRequest   group string, generation int32 (1+), member id string (1+), instance id string? (7+),
                          retention int64 (2 to 4), topics: name string, partitions: index int32, offset int64,
                          leader epoch int32 (6+), commit timestamp int64 (1), metadata string?
    OffsetCommitResponse  throttle time int32 (3+), topics: name string, partitions: index int32, error int16

    TxnOffsetCommitRequest   transactional id string, group string, producer id int64, producer epoch int16,
                             generation int32 (3+), member id string (3+), instance id string? (3+),
                             topics: name string, partitions: index int32, offset int64,
                             leader epoch int32 (2+), metadata string?
    TxnOffsetCommitResponse  throttle time int32, topics: as of OffsetCommitResponse

Heartbeat is flexible since version 4, OffsetCommit since version 8, TxnOffsetCommit since version 3: lengths
are compact, and tagged fields, of which there are none so far, end each structure. Bytes after a request are
ignored, as by Kafka.

Source: the JSON schemas of these names.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.group.requests import (
    NO_GENERATION,
    NO_RETENTION,
    UNKNOWN_MEMBER,
    CommitRequest,
    HeartbeatRequest,
    OffsetToCommit,
    TransactionalCommitRequest,
)
from ctrlchan._c.bytes cimport put_i16
from ctrlchan.server._cursor cimport Cursor, read_i16, read_i32, read_i64, skip_tags
from ctrlchan.server._values cimport (
    check,
    decode,
    encoded,
    length_size,
    put_length,
    put_no_tags,
    put_number,
    put_text,
    read_count,
    read_nullable_text,
    read_text,
    text_size,
)

cdef enum:
    HEARTBEAT_FLEXIBLE_SINCE = 4
    COMMIT_FLEXIBLE_SINCE = 8
    TXN_COMMIT_FLEXIBLE_SINCE = 3


def decode_heartbeat(frame, Py_ssize_t offset, int version):
    """Return the HeartbeatRequest at ``offset`` of a frame. Raises DecodeError."""
    return decode(frame, offset, version, HEARTBEAT_FLEXIBLE_SINCE, read_heartbeat, "HeartbeatRequest")


def decode_offset_commit(frame, Py_ssize_t offset, int version):
    """Return the CommitRequest at ``offset`` of a frame. Raises DecodeError."""
    return decode(frame, offset, version, COMMIT_FLEXIBLE_SINCE, read_offset_commit, "OffsetCommitRequest")


def decode_txn_offset_commit(frame, Py_ssize_t offset, int version):
    """Return the TransactionalCommitRequest at ``offset`` of a frame. Raises DecodeError."""
    return decode(
        frame, offset, version, TXN_COMMIT_FLEXIBLE_SINCE, read_txn_offset_commit, "TxnOffsetCommitRequest"
    )


def encode_heartbeat(int version, int error):
    """Return the body of a HeartbeatResponse."""
    cdef uint8_t body[7]
    cdef uint8_t* p = body
    if version >= 1:
        p = put_number(p, 0)
    put_i16(p, <int16_t>error)
    p = put_no_tags(p + 2, version >= HEARTBEAT_FLEXIBLE_SINCE)
    return PyBytes_FromStringAndSize(<char*>body, p - body)


def encode_offset_commit(int version, errors):
    """Return the body of an OffsetCommitResponse. ``errors``: as of ``encode_partition_errors``."""
    return encode_partition_errors(version >= 3, version >= COMMIT_FLEXIBLE_SINCE, errors)


def encode_txn_offset_commit(int version, errors):
    """Return the body of a TxnOffsetCommitResponse. ``errors``: as of ``encode_partition_errors``."""
    return encode_partition_errors(True, version >= TXN_COMMIT_FLEXIBLE_SINCE, errors)


def encode_partition_errors(bint has_throttle_time, bint flexible, errors):
    """Return the body of a response that has the errors of partitions, and no other fields.

    ``errors``: pairs of TopicPartition and error code. Topics and partitions stay in their order.
    """
    cdef dict topics = {}
    cdef list rows
    for (topic, partition), error in errors:
        if topic in topics:
            rows = topics[topic]
        else:
            rows = topics[topic] = [encoded(topic)]
        rows.append((partition, error))
    cdef Py_ssize_t size = length_size(len(topics), flexible, 4) + 4 * has_throttle_time + flexible
    for rows in topics.values():
        size += text_size(rows[0], flexible)
        size += length_size(len(rows) - 1, flexible, 4) + (len(rows) - 1) * (6 + flexible) + flexible
    body = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* p = <uint8_t*>PyBytes_AS_STRING(body)
    if has_throttle_time:
        p = put_number(p, 0)
    p = put_length(p, len(topics), flexible, 4)
    for rows in topics.values():
        p = put_topic(p, rows, flexible)
    put_no_tags(p, flexible)
    return body


# -- requests


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
    generation_id, member_id, instance_id, retention = NO_GENERATION, UNKNOWN_MEMBER, None, NO_RETENTION
    group_id = read_text(c, "the group id")
    if version >= 1:
        generation_id = read_i32(c)
        member_id = read_text(c, "the member id")
    if version >= 7:
        instance_id = read_nullable_text(c)
    if 2 <= version <= 4:
        retention = read_i64(c)
    offsets = read_offsets(c, version >= 6, version == 1)
    skip_tags(c)
    check(c)
    return CommitRequest(group_id, offsets, generation_id, member_id, instance_id, retention)


cdef read_txn_offset_commit(Cursor* c, int version):
    """Return the TransactionalCommitRequest. Raises ValueError."""
    cdef int64_t producer_id
    cdef int16_t producer_epoch
    generation_id, member_id, instance_id = NO_GENERATION, UNKNOWN_MEMBER, None
    transactional_id = read_text(c, "the transactional id")
    group_id = read_text(c, "the group id")
    producer_id = read_i64(c)
    producer_epoch = read_i16(c)
    if version >= 3:
        generation_id = read_i32(c)
        member_id = read_text(c, "the member id")
        instance_id = read_nullable_text(c)
    offsets = read_offsets(c, version >= 2, False)
    skip_tags(c)
    check(c)
    return TransactionalCommitRequest(
        transactional_id, group_id, producer_id, producer_epoch, offsets, generation_id, member_id, instance_id
    )


cdef list read_offsets(Cursor* c, bint has_leader_epoch, bint has_timestamp):
    """Return the list of OffsetToCommit of all topics. Raises ValueError."""
    cdef int32_t partition, leader_epoch
    cdef int64_t offset, timestamp
    cdef int64_t topics, partitions
    cdef list offsets = []
    topics = read_count(c, "the list of topics")
    while topics > 0:
        topics -= 1
        topic = read_text(c, "the name of a topic")
        partitions = read_count(c, "the list of partitions")
        while partitions > 0:
            partitions -= 1
            partition = read_i32(c)
            offset = read_i64(c)
            leader_epoch = read_i32(c) if has_leader_epoch else -1
            timestamp = read_i64(c) if has_timestamp else -1
            metadata = read_nullable_text(c)
            skip_tags(c)
            check(c)
            offsets.append(
                OffsetToCommit(TopicPartition(topic, partition), offset, leader_epoch, metadata, timestamp)
            )
        skip_tags(c)
    return offsets


# -- responses


cdef uint8_t* put_topic(uint8_t* p, list rows, bint flexible) except NULL:
    """Write a topic: ``rows`` are its name, then its partitions with their errors; return the place behind it."""
    cdef Py_ssize_t i
    p = put_text(p, rows[0], flexible)
    p = put_length(p, len(rows) - 1, flexible, 4)
    for i in range(1, len(rows)):
        partition, error = rows[i]
        p = put_number(p, partition)
        put_i16(p, error)
        p = put_no_tags(p + 2, flexible)
    return put_no_tags(p, flexible)
