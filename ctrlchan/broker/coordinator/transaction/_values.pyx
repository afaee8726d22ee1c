"""Writes the values of records of transactional ids natively, and reads most of them.

Most records of a log are of ids without an open transaction. The value of such a record is kept as it is until a request
asks for the id (``ids.py``). The layout is in ``records.py``.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from ctrlchan._c.bytes cimport get_i16, get_i32, get_i64, put_i16, put_i32, put_i64

cdef enum:
    KEY_HEAD = 4
    # Of a topic in a value: the sizes before its name and before its partitions.
    TOPIC_BYTES = 6

    EMPTY = 0
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    NO_START = -1


cdef bint is_plain_key(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    return size >= KEY_HEAD and get_i16(at) == 0 and get_i16(at + 2) == size - KEY_HEAD


cdef bint is_idle_value(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    return (
        size >= VALUE_BYTES
        and get_i16(at) == 0
        and get_i64(at + PRODUCER_ID_AT) >= 0
        and get_i16(at + EPOCH_AT) >= 0
        and get_i32(at + TOPICS_AT) <= 0
        and (
            at[STATE_AT] == EMPTY
            or (at[STATE_AT] in (COMPLETE_COMMIT, COMPLETE_ABORT) and get_i64(at + START_AT) != NO_START)
        )
    )


cdef int take_record(dict ids, const uint8_t* key, Py_ssize_t key_size, value) except -1:
    cdef Py_ssize_t before
    name = PyUnicode_DecodeUTF8(<const char*>key + KEY_HEAD, key_size - KEY_HEAD, "replace")
    if value is None:
        ids.pop(name, None)
        return 0
    before = len(ids)
    ids[name] = value
    if len(ids) == before:
        del ids[name]
        ids[name] = value
    return 0


def take_idle(dict ids not None, records not None, Py_ssize_t first):
    """Take records from index `first` on into `ids`; return the index of the first one that is no such record.

    The value of an id becomes the last one of `ids`; a tombstone removes it.
    """
    cdef Py_ssize_t index
    for index in range(first, len(records)):
        key, value = records[index]
        if type(key) is not bytes or not is_plain_key(bytes_at(<bytes>key), len(<bytes>key)):
            return index
        if value is not None and not is_idle_value(bytes_at(<bytes?>value), len(<bytes>value)):
            return index
        take_record(ids, bytes_at(<bytes>key), len(<bytes>key), value)
    return len(records)


cdef inline const uint8_t* bytes_at(bytes data):
    return <const uint8_t*>PyBytes_AS_STRING(data)


def updated_ms(each not None):
    """Return when a Transaction, or the id of a value, was updated last."""
    if type(each) is bytes:
        return get_i64(<const uint8_t*>PyBytes_AS_STRING(<bytes>each) + UPDATE_AT)
    return each.update_ms


def are_in_order(dict ids not None):
    """Return whether no id of `ids` was updated before the one that precedes it."""
    cdef int64_t before = INT64_MIN, this
    for each in ids.values():
        if type(each) is bytes:
            this = get_i64(<const uint8_t*>PyBytes_AS_STRING(<bytes>each) + UPDATE_AT)
        else:
            this = each.update_ms
        if this < before:
            return False
        before = this
    return True


def state_number(bytes value not None):
    """Return the number of the state in a value that ``take_idle`` has taken."""
    return (<const uint8_t*>PyBytes_AS_STRING(value))[STATE_AT]


def encode_value(
    int64_t producer_id, int16_t epoch, int32_t timeout_ms, int8_t state, partitions not None, int64_t update_ms,
    int64_t start_ms
):
    """Return a value of version 0. `partitions`: pairs of topic and number."""
    cdef Py_ssize_t size = VALUE_BYTES
    cdef uint8_t* at
    cdef bytes name
    cdef list numbers
    cdef dict topics = {}
    for topic, number in partitions:
        name = (<str?>topic).encode()
        if name in topics:
            (<list>topics[name]).append(number)
        else:
            topics[name] = [number]
            size += TOPIC_BYTES + len(name)
        size += sizeof(int32_t)
    value = PyBytes_FromStringAndSize(NULL, size)
    at = <uint8_t*>PyBytes_AS_STRING(value)
    put_i16(at, 0)
    put_i64(at + PRODUCER_ID_AT, producer_id)
    put_i16(at + EPOCH_AT, epoch)
    put_i32(at + EPOCH_AT + 2, timeout_ms)
    at[STATE_AT] = <uint8_t>state
    # An Empty id has no list: null.
    put_i32(at + TOPICS_AT, -1 if state == EMPTY else <int32_t>len(topics))
    at += UPDATE_AT
    for name, numbers in topics.items():
        put_i16(at, <int16_t>len(name))
        memcpy(at + 2, PyBytes_AS_STRING(name), len(name))
        put_i32(at + 2 + len(name), <int32_t>len(numbers))
        at += TOPIC_BYTES + len(name)
        for number in numbers:
            put_i32(at, number)
            at += sizeof(int32_t)
    put_i64(at, update_ms)
    put_i64(at + 8, start_ms)
    return value
