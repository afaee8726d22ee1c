"""Reads the records of transactional ids without an open transaction, which most records of a log are, natively.

The value of such a record is kept as it is until a request asks for the id (``ids.py``). The layout is in ``records.py``.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MIN, int64_t, uint8_t

from ctrlchan._c.bytes cimport get_i16, get_i32, get_i64

cdef enum:
    KEY_HEAD = 4
    # Of a value: where the fields are, and how long it is without partitions.
    PRODUCER_ID_AT = 2
    EPOCH_AT = 10
    STATE_AT = 16
    TOPICS_AT = 17
    UPDATE_AT = 21
    START_AT = 29
    VALUE_BYTES = 37

    EMPTY = 0
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    NO_START = -1


cdef bint is_plain_key(bytes key):
    """Return whether a key has version 0 and its size."""
    cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(key)
    return len(key) >= KEY_HEAD and get_i16(at) == 0 and get_i16(at + 2) == len(key) - KEY_HEAD


cdef bint is_idle_value(bytes value):
    """Return whether ``read_value`` finds an id without an open transaction in a value of version 0."""
    cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(value)
    return (
        len(value) >= VALUE_BYTES
        and get_i16(at) == 0
        and get_i64(at + PRODUCER_ID_AT) >= 0
        and get_i16(at + EPOCH_AT) >= 0
        and get_i32(at + TOPICS_AT) <= 0
        and (
            at[STATE_AT] == EMPTY
            or (at[STATE_AT] in (COMPLETE_COMMIT, COMPLETE_ABORT) and get_i64(at + START_AT) != NO_START)
        )
    )


def take_idle(dict ids not None, records not None, Py_ssize_t first):
    """Take records from index `first` on into `ids`; return the index of the first one that is no such record.

    The value of an id becomes the last one of `ids`; a tombstone removes it.
    """
    cdef Py_ssize_t index, before
    for index in range(first, len(records)):
        key, value = records[index]
        if type(key) is not bytes or not is_plain_key(<bytes>key):
            return index
        if value is not None and not is_idle_value(<bytes?>value):
            return index
        name = PyUnicode_DecodeUTF8(PyBytes_AS_STRING(key) + KEY_HEAD, len(<bytes>key) - KEY_HEAD, "replace")
        if value is None:
            ids.pop(name, None)
            continue
        before = len(ids)
        ids[name] = value
        if len(ids) == before:
            del ids[name]
            ids[name] = value
    return len(records)


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
