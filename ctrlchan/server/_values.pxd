# Python values of the messages that handler threads read and write without kio: over ``_cursor.pxd``. Reads raise ValueError.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from ctrlchan._c.bytes cimport put_i16, put_i32, put_uvarint, uvarint_size
from ctrlchan.server._cursor cimport Cursor, read_size, read_string

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char* data, Py_ssize_t size, const char* errors)

cdef enum:
    LONGEST_STRING = 0x7fff


cdef inline void start(Cursor* c, const Py_buffer* view, Py_ssize_t offset, bint flexible) noexcept:
    """Let ``c`` read the bytes of ``view`` from ``offset`` on."""
    c.at = <const uint8_t*>view.buf + offset
    c.end = <const uint8_t*>view.buf + view.len
    c.flexible = flexible
    c.failed = offset < 0 or offset > view.len


cdef inline int check(const Cursor* c) except -1:
    """Raise ValueError if a read has failed."""
    if c.failed:
        raise ValueError("the message ends too early")
    return 0


ctypedef object (*Reader)(Cursor* c, int version)


cdef inline object decode(frame, Py_ssize_t offset, int version, int flexible_since, Reader read, api):
    """Return what ``read`` makes of the bytes of ``frame`` from ``offset`` on. Raises DecodeError."""
    cdef Cursor c
    cdef Py_buffer view
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        start(&c, &view, offset, version >= flexible_since)
        return read(&c, version)
    except ValueError as error:
        from ctrlchan.errors import DecodeError

        raise DecodeError(str(error), api=api, version=version) from error
    finally:
        PyBuffer_Release(&view)


cdef inline object read_nullable_text(Cursor* c):
    """Return a string or None. Raises ValueError, also for bytes that are not UTF-8."""
    cdef int64_t size
    cdef const uint8_t* p = read_string(c, &size)
    check(c)
    if size > LONGEST_STRING:
        raise ValueError(f"a string of {size} bytes")
    return None if p == NULL else PyUnicode_DecodeUTF8(<const char*>p, size, NULL)


cdef inline object read_text(Cursor* c, name):
    """Return a string. Raises ValueError, also when it is null."""
    value = read_nullable_text(c)
    if value is None:
        raise ValueError(f"{name} is null")
    return value


cdef inline int64_t read_nullable_count(Cursor* c) except -2:
    """Return the number of elements of an array, -1 for null. Raises ValueError when it is more than the bytes left."""
    cdef int64_t count = read_size(c, False)
    check(c)
    if count > c.end - c.at:
        raise ValueError(f"an array of {count} elements in {c.end - c.at} bytes")
    return max(count, -1)


cdef inline int64_t read_count(Cursor* c, name) except -1:
    """Return the number of elements of an array. Raises ValueError, also when it is null."""
    cdef int64_t count = read_nullable_count(c)
    if count < 0:
        raise ValueError(f"{name} is null")
    return count


cdef inline Py_ssize_t length_size(Py_ssize_t length, bint flexible, int fixed) noexcept nogil:
    """Return how many bytes the length of a string (``fixed`` 2) or an array (4) has; -1 is null."""
    return uvarint_size(<uint32_t>(length + 1)) if flexible else fixed


cdef inline uint8_t* put_length(uint8_t* p, Py_ssize_t length, bint flexible, int fixed) noexcept nogil:
    """Write the length of a string (``fixed`` 2) or an array (4), -1 for null; return the place behind it."""
    if flexible:
        return put_uvarint(p, <uint32_t>(length + 1))
    if fixed == 2:
        put_i16(p, <int16_t>length)
    else:
        put_i32(p, <int32_t>length)
    return p + fixed


cdef inline bytes encoded(text):
    """Return a string's bytes, None for None. Raises ValueError for one that has no place in a message."""
    if text is None:
        return None
    cdef bytes found = text.encode()
    if len(found) > LONGEST_STRING:
        raise ValueError(f"a string of {len(found)} bytes")
    return found


cdef inline Py_ssize_t text_size(bytes text, bint flexible) noexcept:
    """Return how many bytes a string or null has, with its length."""
    cdef Py_ssize_t size = -1 if text is None else PyBytes_GET_SIZE(text)
    return length_size(size, flexible, 2) + max(size, 0)


cdef inline uint8_t* put_text(uint8_t* p, bytes text, bint flexible) noexcept:
    """Write a string or null; return the place behind it."""
    cdef Py_ssize_t size = -1 if text is None else PyBytes_GET_SIZE(text)
    p = put_length(p, size, flexible, 2)
    if size > 0:
        memcpy(p, PyBytes_AS_STRING(text), size)
    return p + max(size, 0)


cdef inline uint8_t* put_number(uint8_t* p, int32_t value) noexcept nogil:
    """Write an int32; return the place behind it."""
    put_i32(p, value)
    return p + 4


cdef inline uint8_t* put_no_tags(uint8_t* p, bint flexible) noexcept nogil:
    """Write that there are no tagged fields, where there can be any; return the place behind."""
    if flexible:
        p[0] = 0
    return p + flexible
