"""Columns <-> wire bytes for the three control requests and their responses. Sans-io; the GIL is released.

The public face, with shapes, dtypes and errors, is ``_codec.pyi``. The parts, in the order they build on
each other (one C unit, several files for people):

    errors      the error family; how a nogil loop tells of a fault
    fields      Kafka's field names, for those errors
    versions    which versions exist and which are flexible
    columns     the column classes: NumPy arrays with C pointers
    writer      strings, counts and lists onto the wire
    reader      a bounded cursor; columns being filled
    tails       the part of a body that all brokers share: rows grouped by topic, exact size, one write
    headers     the part of a body that belongs to one broker; request and response headers; frame prefixes
    update_metadata, leader_and_isr, stop_replica
                one file a request: its layout, sizes, writes and reads
    requests    what reading the three has in common, and the way in
    responses   the three responses
"""

import operator

import numpy as np

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy


cdef extern from "_wire/bytes.h" nogil:
    void put_i16(uint8_t* p, int16_t value)
    void put_i32(uint8_t* p, int32_t value)
    void put_i64(uint8_t* p, int64_t value)
    int16_t get_i16(const uint8_t* p)
    int32_t get_i32(const uint8_t* p)
    int64_t get_i64(const uint8_t* p)
    void put_four(uint8_t* p, int32_t a, int32_t b, int32_t c, int32_t d)
    bint put_short_list(uint8_t* p, const int32_t* values, int64_t n)
    void swap_ints(void* to, const void* source, int64_t n)
    int uvarint_size(uint32_t value)
    uint8_t* put_uvarint(uint8_t* p, uint32_t value)
    int get_uvarint(const uint8_t* p, const uint8_t* end, uint32_t* value)
    bint utf8_valid(const uint8_t* p, int64_t n)


include "_wire/errors.pxi"
include "_wire/fields.pxi"
include "_wire/versions.pxi"
include "_wire/columns.pxi"
include "_wire/writer.pxi"
include "_wire/reader.pxi"
include "_wire/tails.pxi"
include "_wire/headers.pxi"
include "_wire/update_metadata.pxi"
include "_wire/leader_and_isr.pxi"
include "_wire/stop_replica.pxi"
include "_wire/requests.pxi"
include "_wire/responses.pxi"
