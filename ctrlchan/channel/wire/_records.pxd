# The records of ``records.py`` as C structs; that file describes the fields.

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t


# From ``offset`` on it is the same for every broker a request goes to (``records.COMMAND_REST``).
cdef packed struct Command:
    uint8_t kind
    uint8_t expect_size
    uint16_t epoch_at
    uint32_t slot
    uint64_t sequence
    uint64_t offset
    uint32_t size
    uint32_t prefix_size
    int32_t controller_epoch
    unsigned char expect[8]
    uint32_t following

cdef packed struct Report:
    uint8_t kind
    uint8_t failure
    uint16_t inline_size
    uint32_t slot
    uint64_t sequence
    uint32_t attempts
    int32_t correlation_id
    uint64_t first_byte_ns
    uint64_t last_byte_ns
    uint64_t response_ns
    int32_t error
    uint32_t following
    unsigned char response[40]
