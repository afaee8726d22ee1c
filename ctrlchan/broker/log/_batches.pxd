from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t


cdef enum:
    # Bytes of a batch's header, and of base offset and length, which the length does not count.
    HEADER_BYTES = 61
    # Bytes of a control batch with the end of a transaction
    MARKER_BYTES = 78
    OFFSET_AND_LENGTH_BYTES = 12
    # Where fields are that are read alone, or changed in place.
    LEADER_EPOCH_AT = 12
    MAGIC_AT = 16
    CRC_AT = 17
    ATTRIBUTES_AT = 21
    LAST_OFFSET_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    PRODUCER_ID_AT = 43
    PRODUCER_EPOCH_AT = 51
    BASE_SEQUENCE_AT = 53

    # Formats of records: entries of formats 0 and 1 were written before Kafka 0.11.
    FORMAT_0 = 0
    FORMAT_1 = 1
    FORMAT_2 = 2

    # Attributes of a batch.
    COMPRESSION = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    DELETE_HORIZON = 0x40

    # ``Rules.compression``: keep what the producer chose.
    PRODUCER = -1

# Who appends. A follower's append is REPLICATION. Source: AppendOrigin.
cpdef enum Origin:
    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2


# The header of one batch, in host byte order.
#
# An entry of format 0 or 1 counts as a batch. Its header has one offset, that of its last record, which is both
# ``base_offset`` and the last offset here: the first one of a compressed entry is in what it carries. It has no leader
# epoch and no producer, its attributes are the codec and LOG_APPEND_TIME, and ``count`` is -1.
cdef struct Batch:
    int64_t base_offset
    # Of the whole batch, with base offset and length.
    int32_t size
    int32_t leader_epoch
    int8_t magic
    uint32_t crc
    int16_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t count


# What is demanded of the records of one append: the topic's configuration, and the time.
cdef struct Rules:
    int64_t now_ms
    # message.timestamp.before.max.ms and .after.max.ms
    int64_t before_max_ms
    int64_t after_max_ms
    int32_t max_message_bytes
    int32_t segment_bytes
    # compression.type: 0-4 or PRODUCER
    int8_t compression
    # Of this codec, as ``compress`` takes it.
    int32_t compression_level
    int8_t origin
    # message.timestamp.type=LogAppendTime
    bint log_append_time
    # cleanup.policy has "compact": a record needs a key.
    bint compacted
    # Produce before version 7
    bint refuses_zstd


# The batches of one append. Offsets are those in the batches until ``assign_offsets``.
cdef struct Appended:
    int64_t first_offset
    int64_t last_offset
    # The first batch has format 0 or 1: ``first_offset`` is the offset of its last record.
    bint begins_old
    # Some batch has format 0 or 1.
    bint has_old
    # -1 without a timestamp
    int64_t max_timestamp
    # The last offset of the batch that has it; -1 without a timestamp
    int64_t offset_of_max_timestamp
    # Bytes of the whole batches; what follows them is not appended (as Kafka).
    int64_t size
    int32_t last_leader_epoch
    int32_t batches
    # Records, by the offsets of the batches
    int64_t count
    # Log-append time or, with create time, what the header of the only batch must say.
    int64_t header_timestamp
    int16_t header_attributes
    # The only batch is compressed or must be: ``check`` has to look at its records.
    bint needs_decompression
    # Records of a leader's append that were refused one by one (KIP-467), and the index of the first one.
    int32_t bad_records
    int32_t first_bad_record


# The end of a transaction, which a control batch says (EndTransactionMarker).
cdef struct Marker:
    bint is_aborted
    int32_t coordinator_epoch
    int64_t timestamp


# The key and the value of a record. A negative size: null.
cdef struct KeyValue:
    const uint8_t* key
    const uint8_t* value
    int32_t key_size
    int32_t value_size


# A record with what its batch says of it.
cdef struct FullRecord:
    int64_t offset
    int64_t timestamp
    KeyValue pair


cdef uint32_t checksum(const uint8_t* data, int64_t size) noexcept nogil
cdef void read_batch(const uint8_t* data, Batch* batch) noexcept nogil
# Return the bytes of the header of this format.
cdef int32_t header_bytes(int8_t magic) noexcept nogil
cdef int next_batch(const uint8_t* data, int64_t size, Batch* batch) noexcept nogil
cdef bint has_valid_crc(const uint8_t* data, const Batch* batch) noexcept nogil
# Read the record at ``p``; return the byte after it, NULL if it is not whole.
cdef const uint8_t* next_key_value(const uint8_t* p, const uint8_t* end, KeyValue* found) noexcept nogil
# As ``next_key_value``, with offset and timestamp of a record of ``batch``.
cdef const uint8_t* next_record(
    const uint8_t* p, const uint8_t* end, const Batch* batch, FullRecord* found
) noexcept nogil
# Return the (key, value) of so many records, or None if they do not fit into the bytes.
cdef list key_values(const uint8_t* records, const uint8_t* end, int64_t count)
cdef bint read_marker(const uint8_t* data, const Batch* batch, Marker* marker) noexcept nogil
# Write the header of an uncompressed batch of ``size`` bytes, but for its CRC. Its offset is 0, its leader epoch is
# unknown, and all its records have the timestamp. Without a producer: -1.
cdef void write_header(
    uint8_t* data,
    int64_t size,
    int32_t count,
    int16_t attributes,
    int64_t timestamp,
    int64_t producer_id,
    int16_t producer_epoch,
    int32_t base_sequence,
) noexcept nogil
# Write the CRC of a batch of ``size`` bytes, whose other bytes are written.
cdef void write_crc(uint8_t* data, int64_t size) noexcept nogil
# Write a control batch of MARKER_BYTES that ends a transaction. Its offset is 0, and its leader epoch is unknown.
cdef void write_marker(
    uint8_t* data, int64_t producer_id, int16_t producer_epoch, const Marker* marker
) noexcept nogil
cdef int check_batches(
    const uint8_t* data, int64_t size, const Rules* rules, Appended* appended
) noexcept nogil
# Decide what the header of a checked batch says after the append.
cdef void set_header(const Batch* batch, const Rules* rules, Appended* appended) noexcept nogil
cdef int check_replicated(const uint8_t* data, int64_t size, Appended* appended) noexcept nogil
cdef void assign_offsets(
    uint8_t* data, Appended* appended, int64_t next_offset, int32_t leader_epoch
) noexcept nogil


# ``Rules`` that Python code has made.
cdef class AppendRules:
    cdef Rules rules


# Batches that are checked and may be appended: the bytes, and what was found in them.
cdef class Checked:
    cdef readonly bytearray data
    cdef Appended appended
    # Records that were written anew, in how many nanoseconds, and the bytes that this needed (RecordValidationStats)
    cdef readonly int64_t converted_records
    cdef readonly int64_t conversion_ns
    cdef readonly int64_t temporary_bytes
