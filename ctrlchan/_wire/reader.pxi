# A bounded cursor over bytes. Every read checks the end; the first fault is kept and stops all later reads.
#
# A fault moves the cursor to the end, so that loops end at their next read: callers test `r.fault.reason`
# once per row or per list, not after each field.

cdef struct Reader:
    const uint8_t* start
    const uint8_t* p
    const uint8_t* end
    Fault* fault
    int64_t unknown_tags


@cython.no_gc
cdef class InputBytes:
    """Holds the memory of a bytes-like object until it is freed.

    A typed memoryview would do the same, but Cython generates 15,000 lines of C for the first one.
    """

    cdef Py_buffer view

    def __cinit__(self, data):
        PyObject_GetBuffer(data, &self.view, PyBUF_ND)
        if self.view.ndim != 1 or self.view.itemsize != 1:
            raise ValueError(
                f"expected bytes, got {self.view.ndim} dimensions of items of {self.view.itemsize} bytes"
            )

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef InputBytes open_reader(Reader* r, Fault* fault, data, int64_t offset):
    """Put ``r`` at ``offset`` of ``data``. The caller must keep the result as long as it uses ``r``."""
    cdef InputBytes held = InputBytes(data)
    if not 0 <= offset <= held.view.len:
        raise ValueError(f"offset {offset} is outside the {held.view.len} bytes given")
    fault.reason = R_NONE
    r.start = <const uint8_t*>held.view.buf
    r.p = r.start + offset
    r.end = r.start + held.view.len
    r.fault = fault
    r.unknown_tags = 0
    return held


cdef inline int stop(Reader* r, int reason, int field, const uint8_t* at) noexcept nogil:
    """Record the fault at ``at`` and end the reading; always -1."""
    fail(r.fault, reason, field, at - r.start)
    r.p = r.end
    return -1


cdef inline bint read_room(Reader* r, int64_t n, int field) noexcept nogil:
    if r.end - r.p >= n:
        return True
    stop(r, R_CUT, field, r.p)
    return False


cdef inline uint8_t read_u8(Reader* r, int field) noexcept nogil:
    if not read_room(r, 1, field):
        return 0
    cdef uint8_t value = r.p[0]
    r.p += 1
    return value


cdef inline int16_t read_i16(Reader* r, int field) noexcept nogil:
    if not read_room(r, 2, field):
        return 0
    r.p += 2
    return get_i16(r.p - 2)


cdef inline int32_t read_i32(Reader* r, int field) noexcept nogil:
    if not read_room(r, 4, field):
        return 0
    r.p += 4
    return get_i32(r.p - 4)


cdef inline int64_t read_i64(Reader* r, int field) noexcept nogil:
    if not read_room(r, 8, field):
        return 0
    r.p += 8
    return get_i64(r.p - 8)


cdef uint32_t read_uvarint(Reader* r, int field) noexcept nogil:
    cdef uint32_t value = 0
    cdef int size = get_uvarint(r.p, r.end, &value)
    if size <= 0:
        stop(r, R_CUT if size == 0 else R_VARINT, field, r.p)
        return 0
    r.p += size
    return value


cdef inline int64_t read_count(Reader* r, bint flexible, int64_t least, int field) noexcept nogil:
    """Read an array's count; 0 after a fault. The rest of the data must have ``least`` bytes for each element."""
    cdef const uint8_t* at = r.p
    cdef int64_t count
    if flexible:
        if r.p < r.end and r.p[0] < 0x80:
            count = <int64_t>r.p[0] - 1
            r.p += 1
        else:
            count = <int64_t>read_uvarint(r, field) - 1
    else:
        count = read_i32(r, field)
    if r.fault.reason != R_NONE:
        return 0
    if count < 0:
        stop(r, R_NULL if count == -1 else R_NEGATIVE_COUNT, field, at)
        return 0
    if count * least > r.end - r.p:
        stop(r, R_COUNT_TOO_LARGE, field, at)
        return 0
    return count


cdef int64_t read_string_length(Reader* r, bint flexible, bint nullable, int field) noexcept nogil:
    """Read a string's length and check its bytes, which follow at the cursor; -1: null, or a fault."""
    cdef const uint8_t* at = r.p
    cdef int64_t length = <int64_t>read_uvarint(r, field) - 1 if flexible else read_i16(r, field)
    if r.fault.reason != R_NONE:
        return -1
    if length < 0:
        if length < -1:
            return stop(r, R_NEGATIVE_COUNT, field, at)
        if not nullable:
            return stop(r, R_NULL, field, at)
        return -1
    if length > MAX_STRING:
        return stop(r, R_STRING_TOO_LONG, field, at)
    if r.end - r.p < length:
        return stop(r, R_LENGTH_TOO_LARGE, field, at)
    if not utf8_valid(r.p, length):
        return stop(r, R_UTF8, field, r.p)
    return length


cdef int read_tags(Reader* r) noexcept nogil:
    """Skip a section of tagged fields that has no known tags, and count its fields (KIP-482)."""
    if r.p < r.end and r.p[0] == 0:
        r.p += 1
        return 0
    return skip_tags(r, -1, NULL)


cdef int skip_tags(Reader* r, int64_t known_tag, const uint8_t** known) noexcept nogil:
    """Skip tagged fields and count them, except the one-byte field ``known_tag``: ``known`` is set to its byte."""
    cdef int64_t n = read_uvarint(r, F_TAGGED_FIELDS)
    cdef int64_t i, tag, last = -1
    cdef uint32_t size
    cdef const uint8_t* at
    for i in range(n):
        at = r.p
        tag = read_uvarint(r, F_TAGGED_FIELDS)
        size = read_uvarint(r, F_TAGGED_FIELDS)
        if r.fault.reason != R_NONE:
            return -1
        if tag <= last:
            return stop(r, R_TAG_ORDER, F_TAGGED_FIELDS, at)
        if size > r.end - r.p:
            return stop(r, R_LENGTH_TOO_LARGE, F_TAGGED_FIELDS, at)
        if tag == known_tag:
            if size != 1:
                return stop(r, R_TAG_SIZE, F_TYPE, at)
            known[0] = r.p
        else:
            r.unknown_tags += 1
        r.p += size
        last = tag
    return 0


# ------------------------------------------------------------------------------- columns being filled


cdef class StringFiller:
    """Strings read from the wire, copied into new columns. ``most``: the largest possible number of strings."""

    cdef object starts, lengths
    cdef int32_t* c_starts
    cdef int32_t* c_lengths
    cdef uint8_t* data
    cdef int64_t n, used, room

    def __cinit__(self, int64_t most):
        self.starts, self.lengths = np.empty(most, np.int32), np.empty(most, np.int32)
        self.c_starts = writable_int32(self.starts)
        self.c_lengths = writable_int32(self.lengths)

    def __dealloc__(self):
        free(self.data)

    cdef int add(self, const uint8_t* text, int64_t length) noexcept nogil:
        """Append one string (-1: null); -1 when there is no memory."""
        cdef uint8_t* grown
        self.c_starts[self.n] = <int32_t>self.used
        self.c_lengths[self.n] = <int32_t>length
        # Not `+=`: with None checks on (the debug build), Cython wants the GIL for that.
        self.n = self.n + 1
        if length <= 0:
            return 0
        if self.used + length > self.room:
            if self.used + length > 0x7FFFFFFF:
                return -1
            self.room = 2 * (self.used + length) + 1024
            grown = <uint8_t*>realloc(self.data, self.room)
            if grown == NULL:
                return -1
            self.data = grown
        memcpy(self.data + self.used, text, length)
        self.used = self.used + length
        return 0

    cdef bint is_last(self, const uint8_t* text, int64_t length) noexcept nogil:
        """Return whether this is the string that was added last."""
        return (
            self.n > 0
            and self.c_lengths[self.n - 1] == length
            and (length == 0 or memcmp(self.data + self.c_starts[self.n - 1], text, length) == 0)
        )

    cdef StringColumn column(self):
        data = PyBytes_FromStringAndSize(<const char*>self.data, self.used)
        return StringColumn(
            trim(self.starts, self.n), trim(self.lengths, self.n), np.frombuffer(data, dtype=np.uint8)
        )


cdef int add_text(StringFiller strings, const uint8_t* text, int64_t length) except -1:
    if strings.add(text, length) < 0:
        raise MemoryError()
    return 0


cdef int read_text(Reader* r, bint flexible, bint nullable, StringFiller strings, int field) except -1:
    """Read one string into ``strings``; adds nothing after a fault."""
    cdef int64_t length = read_string_length(r, flexible, nullable, field)
    if r.fault.reason != R_NONE:
        return 0
    add_text(strings, r.p, length)
    if length > 0:
        r.p += length
    return 0


cdef enum:
    # Rows and values of the first columns, before anything is known about the message.
    FIRST_ROWS = 64
    FIRST_VALUES = 128
    # int32 in a page. Columns of more than a page begin at different places within their pages: otherwise columns
    # that are filled at the same time would evict each other from the processor's first cache.
    PAGE = 1024
    STAGGER = 80


cdef class PartitionFiller:
    """Partition columns being read from the bytes between ``begin`` and ``end``.

    Only the columns that the api and version have are made; the others get their defaults. All columns with one
    element a row share one piece of memory: new pages of the system cost more time than the reading, and the
    allocator keeps one large piece for the next message. The size is estimated from the rows read so far, so that
    the piece is rarely made twice and is not made for the most rows that the bytes could hold.
    """

    cdef int api_key, version
    cdef const uint8_t* begin
    cdef const uint8_t* end
    cdef int64_t least
    cdef object rows, isr_values, replica_values, adding_values, removing_values, offline_values, zeros
    cdef ListColumn no_lists
    cdef const int32_t* start
    cdef int32_t* place
    cdef int64_t stride
    cdef PartitionFill c

    @staticmethod
    cdef PartitionFiller of(int api_key, int version, const uint8_t* begin, const uint8_t* end):
        cdef PartitionFiller self = PartitionFiller.__new__(PartitionFiller)
        if (end - begin) // 4 > 0x7FFFFFFF:
            raise DecodeError(
                REASONS[R_TOO_MANY_VALUES], api=request_name(api_key), version=version, field="partitionStates"
            )
        self.api_key = api_key
        self.version = version
        self.begin = begin
        self.end = end
        self.least = least_row(api_key, version)
        return self

    cdef int64_t guess(self, int64_t have, const uint8_t* p) noexcept:
        """Estimate the final number from the ``have`` read before ``p``: in proportion, and a sixteenth more."""
        if p <= self.begin:
            return have
        return have + <int64_t>(have * 1.0625 * (self.end - p) / (p - self.begin)) + FIRST_ROWS

    cdef int64_t n_columns(self) noexcept:
        """Return how many columns `make_rows` moves; the byte column of flags counts as one more."""
        if self.api_key == API_STOP_REPLICA:
            return 3 + 1
        if self.api_key == API_UPDATE_METADATA:
            return 10 + (2 if self.version >= 4 else 0)
        return 11 + (4 if self.version >= 3 else 0) + 1

    cdef int make_rows(self, int64_t count, const uint8_t* p) except -1:
        """Make room for ``count`` more rows, and for the rows expected after them."""
        cdef int64_t most = self.c.n + (self.end - p) // self.least
        cdef int64_t room = max(min(most, max(self.guess(self.c.n, p), 3 * self.c.room // 2)), self.c.n + count)
        cdef bint um = self.api_key == API_UPDATE_METADATA
        cdef bint lai = self.api_key == API_LEADER_AND_ISR
        self.stride = room + FILL_SLACK
        if self.stride > PAGE:
            self.stride = (self.stride + PAGE - 1) // PAGE * PAGE + STAGGER
        # `old` keeps the old piece until its rows have been moved.
        old, self.rows = self.rows, np.empty(self.n_columns() * self.stride, np.int32)
        self.start = self.place = writable_int32(self.rows)
        self.move(&self.c.topic_row)
        self.move(&self.c.partition)
        self.move(&self.c.leader_epoch)
        if um or lai:
            self.move(&self.c.controller_epoch)
            self.move(&self.c.leader)
            self.move(&self.c.partition_epoch)
            self.move_list(&self.c.isr, p)
            self.move_list(&self.c.replicas, p)
        if um and self.version >= 4:
            self.move_list(&self.c.offline, p)
        if lai:
            self.move(&self.c.recovery_state)
        if lai and self.version >= 3:
            self.move_list(&self.c.adding, p)
            self.move_list(&self.c.removing, p)
        if not um:
            if self.c.n > 0:
                memcpy(self.place, self.c.flags, self.c.n)
            self.c.flags = <uint8_t*>self.place
        self.c.room = room
        return 0

    cdef void move(self, int32_t** column) noexcept:
        if self.c.n > 0:
            memcpy(self.place, column[0], 4 * self.c.n)
        column[0] = self.place
        self.place += self.stride

    cdef int move_list(self, ListFill* fill, const uint8_t* p) except -1:
        self.move(&fill.starts)
        self.move(&fill.lengths)
        return self.make_values(fill, 0, p) if fill.room == 0 else 0

    cdef int make_values(self, ListFill* fill, int64_t count, const uint8_t* p) except -1:
        """Make room for ``count`` more values in a list column, and for the values expected after them."""
        cdef int64_t most = fill.used + (self.end - p) // 4
        cdef int64_t room = max(min(most, max(self.guess(fill.used, p), 3 * fill.room // 2)), fill.used + count)
        room += FIRST_VALUES
        values = np.empty(room + FILL_SLACK, np.int32)
        cdef int32_t* place = writable_int32(values)
        if fill.used > 0:
            memcpy(place, fill.values, 4 * fill.used)
        fill.values = place
        fill.room = room
        if fill == &self.c.isr:
            self.isr_values = values
        elif fill == &self.c.replicas:
            self.replica_values = values
        elif fill == &self.c.adding:
            self.adding_values = values
        elif fill == &self.c.removing:
            self.removing_values = values
        else:
            self.offline_values = values
        return 0

    cdef object column(self, const int32_t* column):
        """Return a column as an array of the rows that were read; zeros when the message has no such column."""
        cdef int64_t first
        if column != NULL and self.c.n > 0:
            # Pointers to bytes: with overflow checks (the debug build), Cython loses the types of other pointers.
            first = (<const uint8_t*>column - <const uint8_t*>self.start) // sizeof(int32_t)
            return self.rows[first : first + self.c.n]
        if self.zeros is None:
            # Read-only, because all columns that the version does not have share it.
            self.zeros = np.zeros(self.c.n, np.int32)
            self.zeros.flags.writeable = False
        return self.zeros

    cdef object flags(self):
        cdef int64_t first = self.c.flags - <const uint8_t*>self.start
        if self.c.n == 0:
            return np.empty(0, np.uint8)
        return self.rows.view(_np_uint8)[first : first + self.c.n]

    cdef ListColumn list_column(self, const ListFill* fill, values):
        if fill.lengths == NULL:
            if self.no_lists is None:
                zeros = self.column(NULL)
                self.no_lists = ListColumn(zeros, zeros, zeros[:0])
            return self.no_lists
        return ListColumn(self.column(fill.starts), self.column(fill.lengths), values[:fill.used])

    cdef Partitions partitions(self):
        """Return the columns, cut to the rows that were read."""
        cdef PartitionFill* c = &self.c
        return Partitions(
            self.column(c.topic_row), self.column(c.partition), self.column(c.controller_epoch),
            self.column(c.leader), self.column(c.leader_epoch), self.column(c.partition_epoch),
            self.column(c.recovery_state), self.list_column(&c.isr, self.isr_values),
            self.list_column(&c.replicas, self.replica_values), self.list_column(&c.adding, self.adding_values),
            self.list_column(&c.removing, self.removing_values),
            self.list_column(&c.offline, self.offline_values),
        )


cdef int reserve_rows(PartitionFiller filler, int64_t count, const uint8_t* p) noexcept nogil:
    """Make room for ``count`` rows; -1 when there is no memory."""
    if filler.c.room - filler.c.n >= count:
        return 0
    with gil:
        try:
            return filler.make_rows(count, p)
        except MemoryError:
            return -1


cdef int reserve_values(PartitionFiller filler, ListFill* fill, int64_t count, const uint8_t* p) noexcept nogil:
    """Make room for ``count`` values and for the vectors of `get_rows`; -1 when there is no memory."""
    if fill.room - fill.used >= count + FEW_LISTS_ROOM:
        return 0
    with gil:
        try:
            return filler.make_values(fill, count, p)
        except MemoryError:
            return -1


cdef const uint8_t* get_list(const uint8_t* p, const uint8_t* end, PartitionFiller filler, ListFill* fill, bint flexible) noexcept nogil:
    """Read the next row's [int32] at ``p``; returns the byte after it, or NULL when it is cut or its count is wrong.

    The caller then reads the row again with a Reader, which records the fault.
    """
    cdef int64_t row = filler.c.n
    cdef uint32_t varint = 0
    cdef int64_t count
    cdef int size
    if flexible:
        size = get_uvarint(p, end, &varint)
        if size <= 0:
            return NULL
        count = <int64_t>varint - 1
        p += size
    else:
        if end - p < 4:
            return NULL
        count = get_i32(p)
        p += 4
    if count < 0 or (end - p) // 4 < count or reserve_values(filler, fill, count, p) < 0:
        return NULL
    fill.starts[row] = <int32_t>fill.used
    fill.lengths[row] = <int32_t>count
    swap_ints(fill.values + fill.used, p, count)
    fill.used += count
    return p + 4 * count


cdef void* writable(array) except? NULL:
    """Return the memory of a contiguous array, NULL when it is empty."""
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, PyBUF_WRITABLE)
    PyBuffer_Release(&view)
    return view.buf if view.len > 0 else NULL


cdef int32_t* writable_int32(array) except? NULL:
    return <int32_t*>writable(array)


cdef int64_t* writable_int64(array) except? NULL:
    return <int64_t*>writable(array)


cdef object trim(array, int64_t n):
    """Shrink a filled array in place: it was made for the most rows that the bytes could hold."""
    array.resize((n,) + array.shape[1:], refcheck=False)
    return array


cdef int skip_list(Reader* r, bint flexible, int field) noexcept nogil:
    """Skip an [int32] and record a fault in it."""
    cdef int64_t count = read_count(r, flexible, 4, field)
    r.p += 4 * count
    return 0


cdef int check_end(Reader* r) noexcept nogil:
    if r.fault.reason == R_NONE and r.p != r.end:
        stop(r, R_TRAILING, F_MESSAGE, r.p)
    return 0
