"""What a client before Kafka 0.11 has produced, as one batch of format 2.

The errors and their order are Kafka's: UnifiedLog.analyzeAndValidateRecords, then LogValidator for a log of format 2. A
request of version 0 to 2 may have many entries that are not compressed, or one whose value has others. What such an entry
carries is decompressed into memory of a fixed size (``compression.py``); Kafka has no limit.
"""

cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from ctrlchan._c.bytes cimport put_i64
from ctrlchan._c.clocks cimport monotonic_ns
from ctrlchan._c.error_codes cimport (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    NONE,
    RECORD_LIST_TOO_LARGE,
    UNKNOWN_SERVER_ERROR,
)
from ctrlchan.broker.log._batches cimport (
    CLIENT,
    COMPRESSION,
    FORMAT_1,
    FORMAT_2,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_AT,
    OFFSET_AND_LENGTH_BYTES,
    PRODUCER,
    AppendRules,
    Appended,
    Batch,
    Checked,
    KeyValue,
    Rules,
    has_valid_crc,
    next_batch,
    set_header,
    write_crc,
    write_header,
)
from ctrlchan.broker.log._varints cimport zigzag
from ctrlchan.broker.log.old_formats._entries cimport (
    APPEND_TIME_FLAG,
    CODEC_MASK,
    END,
    ENTRY,
    ENTRY_HEAD_BYTES,
    WRONG_SIZE,
    Entry,
    Found,
    end_of,
    entry_timestamp,
    has_valid_entry_crc,
    read_entry,
    read_key_size,
    read_pair,
)
from ctrlchan.broker.log.old_formats._records cimport record_size, write_record

from ctrlchan.broker.log import compression
from ctrlchan.broker.log._batches import check
from ctrlchan.broker.log.old_formats import wrappers

cdef enum:
    NO_TIMESTAMP = -1
    NO_PRODUCER_ID = -1
    NO_PRODUCER_EPOCH = -1
    NO_SEQUENCE = -1
    ZSTD = 4


# What the entries and batches of a request have in common.
cdef struct Request:
    int32_t count
    # Of the first one
    int8_t magic
    # Of the last one that is compressed, 0: none is
    int8_t codec
    # Bytes of the whole ones
    int64_t size


# Entries without a codec: those of a request, or those that a wrapper carries.
cdef struct Entries:
    const uint8_t* begin
    const uint8_t* end
    int8_t magic
    # A wrapper carries them. Its timestamp is that of the append, and of all of them
    bint are_wrapped
    bint have_append_time
    int64_t append_time
    int32_t count
    # What Kafka counts of them: with offset and size
    int64_t size


# The records of the batch that is written.
cdef struct Written:
    int64_t size
    int64_t base_timestamp
    int64_t max_timestamp


# -- the request


cdef int analyze(const uint8_t* data, int64_t size, const Rules* rules, Request* request) noexcept nogil:
    """Check sizes and CRCs of all that a request has, in any format; return the error code."""
    cdef Batch batch
    cdef Entry entry
    cdef int codec, error
    memset(request, 0, sizeof(Request))
    while True:
        error = next_batch(data + request.size, size - request.size, &batch)
        if error != NONE or batch.size == 0:
            return error
        if batch.magic == FORMAT_2 and rules.origin == CLIENT and batch.base_offset != 0:
            return INVALID_RECORD
        if batch.size > rules.max_message_bytes:
            return MESSAGE_TOO_LARGE
        if batch.magic == FORMAT_2:
            if not has_valid_crc(data + request.size, &batch):
                return CORRUPT_MESSAGE
            codec = batch.attributes & COMPRESSION
        else:
            read_entry(data + request.size, data + request.size + batch.size, &entry)
            if not has_valid_entry_crc(&entry):
                return CORRUPT_MESSAGE
            codec = entry.attributes & CODEC_MASK
        if codec > ZSTD:
            return UNKNOWN_SERVER_ERROR
        if codec:
            request.codec = <int8_t>codec
        if request.count == 0:
            request.magic = batch.magic
        request.count += 1
        request.size += batch.size


# -- entries


cdef int read_wrapped(const Entry* wrapper, Entries* entries) noexcept nogil:
    """Count the entries that a wrapper carries, between ``begin`` and ``end``; return the error code.

    What is cut at the end is ignored. Source: AbstractLegacyRecordBatch.DeepRecordsIterator.
    """
    cdef Entry entry
    cdef const uint8_t* p = entries.begin
    cdef int64_t last_offset = 0
    cdef Found found = read_entry(p, entries.end, &entry)
    entries.magic, entries.are_wrapped = wrapper.magic, True
    entries.have_append_time = wrapper.magic and wrapper.attributes & APPEND_TIME_FLAG != 0
    entries.append_time = entry_timestamp(wrapper)
    entries.count, entries.size = 0, 0
    while found == ENTRY:
        entries.count += 1
        entries.size += ENTRY_HEAD_BYTES + entry.record_size
        last_offset = entry.offset
        p = end_of(&entry)
        found = read_entry(p, entries.end, &entry)
    if found == WRONG_SIZE:
        return CORRUPT_MESSAGE
    if entries.count == 0:
        return INVALID_RECORD
    entries.end = p
    # The wrapper has the last offset, or 0, which librdkafka wrote.
    if wrapper.magic == FORMAT_1 and wrapper.offset != 0 and wrapper.offset < last_offset:
        return INVALID_RECORD
    return NONE


cdef inline int64_t timestamp_in(const Entries* entries, const Entry* entry) noexcept nogil:
    """Return the timestamp of an entry. In format 0 there is none."""
    return entries.append_time if entries.have_append_time and entry.magic == FORMAT_1 else entry_timestamp(entry)


@cython.overflowcheck(False)
cdef int check_entry(const Entries* entries, const Entry* entry, const Rules* rules, bint* ends) noexcept nogil:
    """Return the error of one entry. ``ends``: the next one is not looked at. Source: LogValidator.validateRecord."""
    cdef int64_t timestamp, age
    cdef int32_t key_size
    cdef bint has_append_time = entries.have_append_time
    ends[0] = True
    if entries.are_wrapped:
        if entry.attributes & CODEC_MASK:
            return INVALID_RECORD if entry.attributes & CODEC_MASK <= ZSTD else UNKNOWN_SERVER_ERROR
        # Kafka collects these errors.
        ends[0] = False
        if entry.magic != entries.magic:
            return INVALID_RECORD
        if not has_valid_entry_crc(entry):
            ends[0] = True
            return CORRUPT_MESSAGE
    elif entry.magic != entries.magic:
        return INVALID_RECORD
    else:
        has_append_time = entry.magic and entry.attributes & APPEND_TIME_FLAG != 0
    if rules.compacted:
        if not read_key_size(entry, &key_size):
            ends[0] = True
            return UNKNOWN_SERVER_ERROR
        if key_size < 0:
            return INVALID_RECORD
    timestamp = timestamp_in(entries, entry)
    if not rules.log_append_time and timestamp != NO_TIMESTAMP:
        # Differences wrap, as in Java.
        age = <int64_t>(<uint64_t>rules.now_ms - <uint64_t>timestamp)
        if age > rules.before_max_ms or <int64_t>(~<uint64_t>age + 1) > rules.after_max_ms:
            return INVALID_TIMESTAMP
    elif has_append_time:
        return INVALID_TIMESTAMP
    return NONE


cdef bint have_pairs(const Entries* entries) noexcept nogil:
    """Return whether key and value of each entry fit into it. A batch of format 2 among them gets its error later."""
    cdef Entry entry
    cdef KeyValue pair
    cdef const uint8_t* p = entries.begin
    while read_entry(p, entries.end, &entry) == ENTRY:
        if entry.magic < FORMAT_2 and not read_pair(&entry, &pair):
            return False
        p = end_of(&entry)
    return True


cdef int check_entries(const Entries* entries, const Rules* rules, bint writes_at_once) noexcept nogil:
    """Check all entries; return the error code. ``writes_at_once``: Kafka writes one before it checks the next one."""
    cdef Entry entry
    cdef const uint8_t* p = entries.begin
    cdef int error, worst = NONE
    cdef bint ends = False
    if writes_at_once and not have_pairs(entries):
        return UNKNOWN_SERVER_ERROR
    while read_entry(p, entries.end, &entry) == ENTRY:
        error = check_entry(entries, &entry, rules, &ends)
        if error != NONE and ends:
            return error
        if worst != INVALID_TIMESTAMP and error != NONE:
            worst = error
        if error == NONE and writes_at_once and timestamp_in(entries, &entry) < NO_TIMESTAMP:
            return UNKNOWN_SERVER_ERROR
        p = end_of(&entry)
    if worst == NONE and not (writes_at_once or have_pairs(entries)):
        return UNKNOWN_SERVER_ERROR
    return worst


# -- the batch


@cython.overflowcheck(False)
cdef int write_records(const Entries* entries, uint8_t* out, Written* written) noexcept nogil:
    """Write the records of checked entries, with offsets 0, 1, 2 …; return the error code.

    With ``out`` NULL their bytes are only counted. Source: MemoryRecordsBuilder, DefaultRecord.writeTo.
    """
    cdef Entry entry
    cdef KeyValue pair
    cdef const uint8_t* p = entries.begin
    cdef int32_t index = 0
    cdef int64_t timestamp
    cdef uint64_t delta
    written.size, written.max_timestamp = 0, NO_TIMESTAMP
    while read_entry(p, entries.end, &entry) == ENTRY:
        p = end_of(&entry)
        read_pair(&entry, &pair)
        pair.key_size, pair.value_size = max(pair.key_size, -1), max(pair.value_size, -1)
        timestamp = timestamp_in(entries, &entry)
        if timestamp < NO_TIMESTAMP:
            return UNKNOWN_SERVER_ERROR
        if index == 0:
            written.base_timestamp = timestamp
        written.max_timestamp = max(written.max_timestamp, timestamp)
        delta = zigzag(timestamp - written.base_timestamp)
        written.size += record_size(delta, zigzag(index), &pair)
        if out != NULL:
            out = write_record(out, delta, zigzag(index), &pair)
        index += 1
    return NONE


cdef int build(Checked checked, const Entries* entries, const Rules* rules, int codec) except? -2:
    """Set the batch of checked entries; return the error code."""
    cdef Written written
    cdef Batch batch
    cdef bytearray records
    cdef uint8_t[::1] view
    cdef uint8_t* out
    cdef int64_t began = monotonic_ns()
    cdef int error
    with nogil:
        error = write_records(entries, NULL, &written)
    if error != NONE:
        return error
    if written.size > compression.MAX_DECOMPRESSED_BYTES:
        return MESSAGE_TOO_LARGE
    records = bytearray(HEADER_BYTES + written.size)
    view = records
    out = &view[0]
    with nogil:
        write_records(entries, out + HEADER_BYTES, &written)
    view = None
    if codec:
        level = None if rules.compression == PRODUCER else rules.compression_level
        records = bytearray(HEADER_BYTES) + compression.compress(codec, bytes(records[HEADER_BYTES:]), level)
    memset(&batch, 0, sizeof(Batch))
    memset(&checked.appended, 0, sizeof(Appended))
    batch.size, batch.count = <int32_t>len(records), entries.count
    batch.attributes = <int16_t>(codec | (LOG_APPEND_TIME if rules.log_append_time else 0))
    batch.max_timestamp = rules.now_ms if rules.log_append_time else written.max_timestamp
    checked.appended.max_timestamp, checked.appended.first_bad_record = written.max_timestamp, -1
    set_header(&batch, rules, &checked.appended)
    view = records
    out = &view[0]
    with nogil:
        write_header(
            out, batch.size, batch.count, batch.attributes, written.base_timestamp, NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH, NO_SEQUENCE
        )
        put_i64(out + MAX_TIMESTAMP_AT, batch.max_timestamp)
        write_crc(out, batch.size)
    checked.data = records
    checked.appended.size, checked.appended.batches, checked.appended.count = batch.size, 1, batch.count
    checked.appended.last_offset = batch.count - 1
    checked.converted_records, checked.conversion_ns = batch.count, monotonic_ns() - began
    checked.temporary_bytes = HEADER_BYTES + written.size
    if batch.size > rules.max_message_bytes:
        return MESSAGE_TOO_LARGE
    return RECORD_LIST_TOO_LARGE if batch.size > rules.segment_bytes else NONE


cdef int convert(const uint8_t[::1] data, const Request* request, const Rules* rules, Checked checked) except? -2:
    """Check entries of format 0 or 1, and make their batch; return the error code."""
    cdef Entry wrapper
    cdef KeyValue pair
    cdef Entries entries
    cdef const uint8_t[::1] carried
    cdef int codec = request.codec if rules.compression == PRODUCER else rules.compression
    cdef bint writes_at_once = not (request.codec or codec)
    cdef int error
    memset(&entries, 0, sizeof(Entries))
    if request.codec:
        if request.count > 1:
            return INVALID_RECORD
        read_entry(&data[0], &data[0] + request.size, &wrapper)
        if request.codec == ZSTD:
            return INVALID_RECORD
        if not read_pair(&wrapper, &pair):
            return UNKNOWN_SERVER_ERROR
        if pair.value_size < 0:
            return INVALID_RECORD
        try:
            carried = wrappers.decompress(
                request.codec, request.magic, (<const char*>pair.value)[:pair.value_size]
            )
        except wrappers.TooLargeError:
            return MESSAGE_TOO_LARGE
        except wrappers.CorruptError:
            return UNKNOWN_SERVER_ERROR
        if carried.shape[0] == 0:
            return INVALID_RECORD
        entries.begin, entries.end = &carried[0], &carried[0] + carried.shape[0]
        with nogil:
            error = read_wrapped(&wrapper, &entries)
        if error != NONE:
            return error
    else:
        entries.begin, entries.end = &data[0], &data[0] + request.size
        entries.magic, entries.count, entries.size = request.magic, request.count, request.size
    with nogil:
        error = check_entries(&entries, rules, writes_at_once)
    if error == NONE:
        error = build(checked, &entries, rules, codec)
    if error == NONE and not writes_at_once:
        # Kafka's count has the sizes of the records that it was given, too.
        checked.temporary_bytes += entries.size + (1 if request.codec else request.count) * HEADER_BYTES
    return error


def check_old(data, AppendRules rules not None):
    """Check what a Produce of version 0 to 2 has for one partition; return (error code, Checked).

    Entries of format 0 and 1 become one batch of format 2. A single batch of format 2 is checked as by ``check``. Without
    a whole entry ``Checked.size`` is 0, which is no error: nothing is appended.
    """
    cdef const uint8_t[::1] view = data
    cdef Checked checked = Checked()
    cdef Request request
    cdef const uint8_t* begin = &view[0] if view.shape[0] else NULL
    cdef int error
    checked.data = bytearray()
    with nogil:
        error = analyze(begin, view.shape[0], &rules.rules, &request)
    if error != NONE or request.count == 0:
        return error, checked
    if request.magic == FORMAT_2:
        return (INVALID_RECORD, checked) if request.count > 1 else check(data, rules)
    return convert(view, &request, &rules.rules, checked), checked
