"""Reads the requests that a client sends in each transaction and writes their responses, in all its versions.

All other messages of transactions, and AddPartitionsToTxn between brokers, are kio's.

    AddPartitionsToTxnRequest   producer, topics: name string, partitions: index int32
    AddPartitionsToTxnResponse  throttle time int32, topics: name string, partitions: index int32, error int16
    AddOffsetsToTxnRequest      producer, group string
    EndTxnRequest               producer, committed bool
    Responses of these two      throttle time int32, error int16

A producer is a transactional id (string), a producer id (int64) and an epoch (int16). All are flexible since
version 3: lengths are compact, and tagged fields, of which there are none so far, end each structure. Bytes
after a request are ignored, as by Kafka.

Source: the JSON schemas of these names.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.requests import ProducerIdentity
from ctrlchan.broker.handlers._group_messages import encode_partition_errors
from ctrlchan._c.bytes cimport put_i16, put_i32
from ctrlchan.server._cursor cimport Cursor, read_i16, read_i32, read_i64, skip_tags, take
from ctrlchan.server._values cimport check, decode, read_count, read_text

cdef enum:
    FLEXIBLE_SINCE = 3


def decode_add_partitions(frame, Py_ssize_t offset, int version):
    """Return the transactional id, the producer and the partitions at ``offset`` of a frame, in their order.

    Of versions before 4. Raises DecodeError.
    """
    return decode(frame, offset, version, FLEXIBLE_SINCE, read_add_partitions, "AddPartitionsToTxnRequest")


def encode_add_partitions(int version, errors):
    """Return the body of an AddPartitionsToTxnResponse before version 4.

    ``errors``: pairs of TopicPartition and error code. Topics and partitions stay in their order.
    """
    return encode_partition_errors(True, version >= FLEXIBLE_SINCE, errors)


def decode_add_offsets(frame, Py_ssize_t offset, int version):
    """Return the transactional id, the producer and the group id at ``offset`` of a frame. Raises DecodeError."""
    return decode(frame, offset, version, FLEXIBLE_SINCE, read_add_offsets, "AddOffsetsToTxnRequest")


def decode_end(frame, Py_ssize_t offset, int version):
    """Return the transactional id, the producer and whether it commits, at ``offset`` of a frame. Raises DecodeError."""
    return decode(frame, offset, version, FLEXIBLE_SINCE, read_end, "EndTxnRequest")


def encode_error(int version, int error):
    """Return the body of an AddOffsetsToTxnResponse or an EndTxnResponse."""
    cdef uint8_t body[7]
    put_i32(body, 0)
    put_i16(body + 4, <int16_t>error)
    body[6] = 0
    return PyBytes_FromStringAndSize(<char*>body, 7 if version >= FLEXIBLE_SINCE else 6)


cdef read_add_partitions(Cursor* c, int version):
    """Return the fields of an AddPartitionsToTxnRequest. Raises ValueError."""
    cdef int64_t topics, partitions
    cdef list found = []
    transactional_id = read_text(c, "the transactional id")
    producer = read_producer(c)
    topics = read_count(c, "the list of topics")
    while topics > 0:
        topics -= 1
        topic = read_text(c, "the name of a topic")
        partitions = read_count(c, "the list of partitions")
        while partitions > 0:
            partitions -= 1
            found.append(TopicPartition(topic, read_i32(c)))
            check(c)
        skip_tags(c)
    skip_tags(c)
    check(c)
    return transactional_id, producer, found


cdef read_add_offsets(Cursor* c, int version):
    """Return the fields of an AddOffsetsToTxnRequest. Raises ValueError."""
    transactional_id = read_text(c, "the transactional id")
    producer = read_producer(c)
    group_id = read_text(c, "the group id")
    skip_tags(c)
    check(c)
    return transactional_id, producer, group_id


cdef read_end(Cursor* c, int version):
    """Return the fields of an EndTxnRequest. Raises ValueError."""
    transactional_id = read_text(c, "the transactional id")
    producer = read_producer(c)
    cdef const uint8_t* committed = take(c, 1)
    skip_tags(c)
    check(c)
    return transactional_id, producer, committed[0] != 0


cdef read_producer(Cursor* c):
    """Return the ProducerIdentity that comes next."""
    cdef int64_t producer_id = read_i64(c)
    return ProducerIdentity(producer_id, read_i16(c))
