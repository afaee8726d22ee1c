"""Columns <-> wire bytes for the three control requests and their responses. Sans-io; the GIL is released.

``_codec.pyi`` documents the public names with shapes, dtypes and errors. The parts, in the order they build on
each other (one C unit in several files):

    errors      the exceptions; how a nogil loop reports a fault
    fields      Kafka's field names, for those errors
    versions    which versions exist and which are flexible
    columns     the column classes: NumPy arrays with C pointers
    writer      writes strings, counts and lists
    reader      a bounded cursor; columns being filled
    shared_bodies
                the part of a body that all brokers share: rows grouped by topic, exact size, one write
    headers     the part of a body that belongs to one broker; request and response headers; frame prefixes
    update_metadata, leader_and_isr, stop_replica
                one file a request: its layout, sizes, writes and reads
    requests    common parts of reading the three; decode_request
    responses   the three responses
"""

import operator

import numpy as np

cimport cython
from cpython.buffer cimport PyBUF_ND, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from ctrlchan._c.bytes cimport (
    get_i16,
    get_i32,
    get_i64,
    get_uvarint,
    put_bytes,
    put_i16,
    put_i32,
    put_i64,
    put_uvarint,
    swap_ints,
    utf8_valid,
    uvarint_size,
)

cdef extern from "_wire/columns.h" nogil:
    ctypedef struct Lists:
        int64_t n
        const int32_t* starts
        const int32_t* lengths
        const int32_t* values
        int64_t n_values

    ctypedef struct PartitionColumns:
        const int32_t* topic_row
        const int32_t* partition
        const int32_t* controller_epoch
        const int32_t* leader
        const int32_t* leader_epoch
        const int32_t* partition_epoch
        const int32_t* recovery_state
        Lists isr
        Lists replicas
        Lists adding
        Lists removing
        Lists offline

    ctypedef struct Stretch:
        int64_t position
        int64_t stop
        int64_t isr
        int64_t replicas

    ctypedef struct RowSource:
        const PartitionColumns* columns
        int64_t n_columns
        const int64_t* rows
        const uint8_t* is_new
        Stretch* stretches
        int64_t n_stretches

    cdef enum:
        FILL_SLACK
        FEW_LISTS_ROOM

    ctypedef struct ListFill:
        int32_t* starts
        int32_t* lengths
        int32_t* values
        int64_t used
        int64_t room

    ctypedef struct PartitionFill:
        int64_t n
        int64_t room
        int32_t* topic_row
        int32_t* partition
        int32_t* controller_epoch
        int32_t* leader
        int32_t* leader_epoch
        int32_t* partition_epoch
        int32_t* recovery_state
        ListFill isr
        ListFill replicas
        ListFill adding
        ListFill removing
        ListFill offline
        uint8_t* flags

    int32_t once_i32(const int32_t* p)
    int64_t once_i64(const int64_t* p)
    int64_t row_at(const RowSource* source, int64_t position)


cdef extern from "_wire/rows.h" nogil:
    ctypedef enum RowLayout:
        UPDATE_METADATA_ROWS
        LEADER_AND_ISR_4_ROWS
        LEADER_AND_ISR_6_ROWS

    int prepare_rows(int most)
    uint8_t* put_rows(uint8_t* p, const uint8_t* end, RowSource* source, int64_t* position, int64_t stop, RowLayout layout)
    const uint8_t* get_rows(const uint8_t* p, const uint8_t* end, PartitionFill* fill, int32_t topic, int64_t* left, RowLayout layout)
    int64_t find_stretches(const RowSource* source, int64_t n, RowLayout layout, Stretch** found)


cdef extern from "_wire/scan.h" nogil:
    int64_t topic_run(const int32_t* topic_row, const RowSource* source, int64_t i, int64_t stop, int32_t* topic)
    int64_t lists_size(const Lists* lists, const RowSource* source, int64_t start, int64_t stop, bint flexible, int64_t* wrong)


prepare_rows(64)


def _limit_vectors(int most):
    """For tests and profiles: use vectors of at most so many bytes (0, 16 or 64). What is used from now on."""
    return prepare_rows(most)



include "_wire/errors.pxi"
include "_wire/fields.pxi"
include "_wire/versions.pxi"
include "_wire/columns.pxi"
include "_wire/writer.pxi"
include "_wire/reader.pxi"
include "_wire/shared_bodies.pxi"
include "_wire/headers.pxi"
include "_wire/update_metadata.pxi"
include "_wire/leader_and_isr.pxi"
include "_wire/stop_replica.pxi"
include "_wire/requests.pxi"
include "_wire/responses.pxi"
