# Entries of formats 0 and 1.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from ctrlchan.broker.log._batches cimport KeyValue

cdef enum:
    # Offset and size of an entry
    ENTRY_HEAD_BYTES = 12
    # The least record: one of format 0 without key and value
    LEAST_RECORD_BYTES = 14
    # Attributes of a record: the codec, and in format 1 whether the timestamp is that of the append
    CODEC_MASK = 0x07
    APPEND_TIME_FLAG = 0x08


cdef enum Found:
    # What ``read_entry`` has found: an entry, the end (the last entry may be cut), or a size that no record has
    ENTRY = 1
    END = 0
    WRONG_SIZE = -1


# An entry whose bytes are all there. Its key and value may still be wrong.
cdef struct Entry:
    int64_t offset
    # From the CRC on
    const uint8_t* record
    int32_t record_size
    int8_t magic
    int8_t attributes


# Read the entry at ``p``.
cdef Found read_entry(const uint8_t* p, const uint8_t* end, Entry* entry) noexcept nogil
# Return the byte after an entry.
cdef const uint8_t* end_of(const Entry* entry) noexcept nogil
cdef bint has_valid_entry_crc(const Entry* entry) noexcept nogil
# Return the timestamp of an entry, -1 in format 0.
cdef int64_t entry_timestamp(const Entry* entry) noexcept nogil
# Read the size of the key; a negative one: there is none. Return False if the record is too short.
cdef bint read_key_size(const Entry* entry, int32_t* size) noexcept nogil
# Read key and value. Return False if they do not fit into the record. Bytes behind the value mean nothing.
cdef bint read_pair(const Entry* entry, KeyValue* pair) noexcept nogil
# Return the bytes of an entry.
cdef int64_t entry_size(int magic, const KeyValue* pair) noexcept nogil
# Write an entry with its CRC; return the byte after it.
cdef uint8_t* write_entry(
    uint8_t* out, int magic, int64_t offset, int attributes, int64_t timestamp, const KeyValue* pair
) noexcept nogil
