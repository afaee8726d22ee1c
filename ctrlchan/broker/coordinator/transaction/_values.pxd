# Records of transactional ids without an open transaction.

from libc.stdint cimport int32_t, uint8_t

cdef enum:
    # Of a value: where the fields are, and how long it is without partitions, which stand before the last two.
    PRODUCER_ID_AT = 2
    EPOCH_AT = 10
    STATE_AT = 16
    TOPICS_AT = 17
    UPDATE_AT = 21
    START_AT = 29
    VALUE_BYTES = 37

# Whether the key is one of version 0, with its size.
cdef bint is_plain_key(const uint8_t* key, Py_ssize_t size) noexcept nogil
# Whether ``read_value`` finds an id without an open transaction in a value of version 0.
cdef bint is_idle_value(const uint8_t* value, Py_ssize_t size) noexcept nogil
# Take a record into the ids: its value becomes the last one, or a tombstone (None) removes the id. The key is plain.
cdef int take_record(dict ids, const uint8_t* key, Py_ssize_t key_size, value) except -1
