"""Reads JoinGroup and SyncGroup requests and writes their responses, in all versions.

Every member of a group sends both in each rebalance; LeaveGroup, which a member sends once, is kio's.

    JoinGroupRequest    group string, session timeout int32, rebalance timeout int32 (1+), member id string,
                        instance id string? (5+), protocol type string, protocols: name string, metadata bytes,
                        reason string? (8+)
    JoinGroupResponse   throttle time int32 (2+), error int16, generation int32, protocol type string? (7+),
                        protocol name string (null 7+), leader string, skip assignment bool (9+), member id string,
                        members: member id string, instance id string? (5+), metadata bytes
    SyncGroupRequest    group string, generation int32, member id string, instance id string? (3+),
                        protocol type string? (5+), protocol name string? (5+),
                        assignments: member id string, assignment bytes
    SyncGroupResponse   throttle time int32 (1+), error int16, protocol type string? (5+), protocol name string? (5+),
                        assignment bytes

JoinGroup is flexible since version 6, SyncGroup since version 4: lengths are compact, and tagged fields, of
which there are none so far, end each structure. Bytes after a request are ignored, as by Kafka.

Source: the JSON schemas of these names.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_AsStringAndSize, PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int64_t, uint8_t
from libc.string cimport memcpy

from ctrlchan.broker.coordinator.group.requests import JoinRequest, SyncRequest
from ctrlchan._c.bytes cimport put_i16
from ctrlchan.server._cursor cimport Cursor, read_bytes, read_i32, skip_tags
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
    JOIN_FLEXIBLE_SINCE = 6
    SYNC_FLEXIBLE_SINCE = 4
    # Fields of JoinGroup.
    REBALANCE_TIMEOUT_SINCE = 1
    JOIN_THROTTLE_TIME_SINCE = 2
    MEMBER_ID_REQUIRED_SINCE = 4
    JOIN_INSTANCE_SINCE = 5
    JOIN_PROTOCOL_TYPE_SINCE = 7
    REASON_SINCE = 8
    SKIP_ASSIGNMENT_SINCE = 9
    # Fields of SyncGroup.
    SYNC_THROTTLE_TIME_SINCE = 1
    SYNC_INSTANCE_SINCE = 3
    SYNC_PROTOCOL_SINCE = 5


def decode_join(frame, Py_ssize_t offset, int version, client_id, client_host):
    """Return the JoinRequest at ``offset`` of a frame, of the client of this id and host. Raises DecodeError."""
    read = decode(frame, offset, version, JOIN_FLEXIBLE_SINCE, read_join, "JoinGroupRequest")
    return read._replace(client_id=client_id, client_host=client_host)


def decode_sync(frame, Py_ssize_t offset, int version):
    """Return the SyncRequest at ``offset`` of a frame. Raises DecodeError."""
    return decode(frame, offset, version, SYNC_FLEXIBLE_SINCE, read_sync, "SyncGroupRequest")


def encode_join(int version, result):
    """Return the body of a JoinGroupResponse. ``result``: a JoinResult; no protocol is null since version 7.

    Raises ValueError for texts that have no place in a message.
    """
    cdef bint flexible = version >= JOIN_FLEXIBLE_SINCE
    cdef bint has_throttle_time = version >= JOIN_THROTTLE_TIME_SINCE
    cdef bint has_instance = version >= JOIN_INSTANCE_SINCE
    cdef bint has_type = version >= JOIN_PROTOCOL_TYPE_SINCE
    cdef bint can_skip = version >= SKIP_ASSIGNMENT_SINCE
    cdef bytes protocol_type = encoded(result.protocol_type) if has_type else None
    cdef bytes protocol_name = encoded(result.protocol_name or (None if has_type else ""))
    cdef bytes leader_id = encoded(result.leader_id), own_id = encoded(result.member_id)
    cdef list members = [
        (encoded(one), encoded(instance) if has_instance else None, metadata)
        for one, instance, metadata in result.members
    ]
    cdef Py_ssize_t size = 4 * has_throttle_time + 6 + can_skip + flexible
    if has_type:
        size += text_size(protocol_type, flexible)
    size += text_size(protocol_name, flexible) + text_size(leader_id, flexible) + text_size(own_id, flexible)
    size += length_size(len(members), flexible, 4)
    for member_id, instance_id, metadata in members:
        size += text_size(member_id, flexible) + bytes_size(metadata, flexible) + flexible
        if has_instance:
            size += text_size(instance_id, flexible)
    body = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* p = put_start(<uint8_t*>PyBytes_AS_STRING(body), has_throttle_time, result.error)
    p = put_number(p, result.generation_id)
    if has_type:
        p = put_text(p, protocol_type, flexible)
    p = put_text(p, protocol_name, flexible)
    p = put_text(p, leader_id, flexible)
    if can_skip:
        p[0] = bool(result.skip_assignment)
        p += 1
    p = put_text(p, own_id, flexible)
    p = put_length(p, len(members), flexible, 4)
    for member_id, instance_id, metadata in members:
        p = put_text(p, member_id, flexible)
        if has_instance:
            p = put_text(p, instance_id, flexible)
        p = put_bytes(p, metadata, flexible)
        p = put_no_tags(p, flexible)
    p = put_no_tags(p, flexible)
    assert p - <uint8_t*>PyBytes_AS_STRING(body) == size
    return body


def encode_sync(int version, result):
    """Return the body of a SyncGroupResponse. ``result``: a SyncResult.

    Raises ValueError for texts that have no place in a message.
    """
    cdef bint flexible = version >= SYNC_FLEXIBLE_SINCE
    cdef bint has_throttle_time = version >= SYNC_THROTTLE_TIME_SINCE
    cdef bint has_protocol = version >= SYNC_PROTOCOL_SINCE
    cdef bytes protocol_type = encoded(result.protocol_type) if has_protocol else None
    cdef bytes protocol_name = encoded(result.protocol_name) if has_protocol else None
    assignment = result.assignment
    cdef Py_ssize_t size = 4 * has_throttle_time + 2 + bytes_size(assignment, flexible) + flexible
    if has_protocol:
        size += text_size(protocol_type, flexible) + text_size(protocol_name, flexible)
    body = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* p = put_start(<uint8_t*>PyBytes_AS_STRING(body), has_throttle_time, result.error)
    if has_protocol:
        p = put_text(p, protocol_type, flexible)
        p = put_text(p, protocol_name, flexible)
    p = put_bytes(p, assignment, flexible)
    p = put_no_tags(p, flexible)
    assert p - <uint8_t*>PyBytes_AS_STRING(body) == size
    return body


# -- requests


cdef read_join(Cursor* c, int version):
    """Return the JoinRequest, without the client's id and host. Raises ValueError."""
    cdef int64_t count
    cdef list protocols = []
    instance_id = reason = None
    group_id = read_text(c, "the group id")
    session_timeout = read_i32(c)
    rebalance_timeout = read_i32(c) if version >= REBALANCE_TIMEOUT_SINCE else session_timeout
    member_id = read_text(c, "the member id")
    if version >= JOIN_INSTANCE_SINCE:
        instance_id = read_nullable_text(c)
    protocol_type = read_text(c, "the protocol type")
    count = read_count(c, "the list of protocols")
    while count > 0:
        count -= 1
        name = read_text(c, "the name of a protocol")
        protocols.append((name, read_blob(c, "the metadata of a protocol")))
        skip_tags(c)
    if version >= REASON_SINCE:
        reason = read_nullable_text(c)
    skip_tags(c)
    check(c)
    return JoinRequest(
        group_id,
        member_id,
        "",
        "",
        session_timeout,
        rebalance_timeout,
        protocol_type,
        tuple(protocols),
        instance_id,
        version >= MEMBER_ID_REQUIRED_SINCE and instance_id is None,
        version >= SKIP_ASSIGNMENT_SINCE,
        reason,
    )


cdef read_sync(Cursor* c, int version):
    """Return the SyncRequest. Raises ValueError."""
    cdef int64_t count
    cdef dict assignments = {}
    instance_id = protocol_type = protocol_name = None
    group_id = read_text(c, "the group id")
    generation_id = read_i32(c)
    member_id = read_text(c, "the member id")
    if version >= SYNC_INSTANCE_SINCE:
        instance_id = read_nullable_text(c)
    if version >= SYNC_PROTOCOL_SINCE:
        protocol_type = read_nullable_text(c)
        protocol_name = read_nullable_text(c)
    count = read_count(c, "the list of assignments")
    while count > 0:
        count -= 1
        assigned = read_text(c, "the member id of an assignment")
        assignments[assigned] = read_blob(c, "an assignment")
        skip_tags(c)
    skip_tags(c)
    check(c)
    return SyncRequest(
        group_id, generation_id, member_id, instance_id, protocol_type, protocol_name, assignments
    )


cdef bytes read_blob(Cursor* c, name):
    """Return bytes. Raises ValueError, also when they are null."""
    cdef int64_t size
    cdef const uint8_t* p = read_bytes(c, &size)
    check(c)
    if p == NULL:
        raise ValueError(f"{name} is null")
    return PyBytes_FromStringAndSize(<const char*>p, size)


# -- responses


cdef Py_ssize_t bytes_size(value, bint flexible) except -1:
    """Return how many bytes ``value`` has, with its length. Raises TypeError if it is not bytes."""
    cdef Py_ssize_t size
    cdef char* start
    PyBytes_AsStringAndSize(value, &start, &size)
    return length_size(size, flexible, 4) + size


cdef uint8_t* put_start(uint8_t* p, bint has_throttle_time, int error) noexcept nogil:
    """Write a throttle time of 0, where there is one, and the error; return the place behind them."""
    if has_throttle_time:
        p = put_number(p, 0)
    put_i16(p, <int16_t>error)
    return p + 2


cdef uint8_t* put_bytes(uint8_t* p, value, bint flexible) except NULL:
    """Write bytes; return the place behind them."""
    cdef Py_ssize_t size
    cdef char* start
    PyBytes_AsStringAndSize(value, &start, &size)
    p = put_length(p, size, flexible, 4)
    memcpy(p, start, size)
    return p + size
