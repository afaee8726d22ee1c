# A bounded cursor over bytes. Every read checks its end; the first fault is kept and stops all later reads.
#
# After a fault the cursor stands at the end, so that loops end at their next read: callers test
# `r.fault.reason` once per row or per list, not after each field.

cdef struct Reader:
    const uint8_t* start
    const uint8_t* p
    const uint8_t* end
    Fault* fault
    int64_t unknown_tags


cdef int open_reader(Reader* r, Fault* fault, const uint8_t[::1] data, int64_t offset) except -1:
    """Stand at ``offset`` of ``data``, which the caller keeps alive."""
    if not 0 <= offset <= data.shape[0]:
        raise ValueError(f"offset {offset} is outside the {data.shape[0]} bytes given")
    fault.reason = R_NONE
    r.start = uint8_pointer(data)
    r.p = r.start + offset
    r.end = r.start + data.shape[0]
    r.fault = fault
    r.unknown_tags = 0
    return 0


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
    """An array's count; 0 after a fault. Refused when the rest cannot hold that many of ``least`` bytes each."""
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
    """A string's length, its bytes checked and standing at the cursor; -1: null, or a fault."""
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
    """Skip a tagged-field section in which no tag is known to us, counting its fields (KIP-482)."""
    if r.p < r.end and r.p[0] == 0:
        r.p += 1
        return 0
    return skip_tags(r, -1, NULL)


cdef int skip_tags(Reader* r, int64_t known_tag, const uint8_t** known) noexcept nogil:
    """Skip tagged fields; the one-byte field ``known_tag`` is not counted, ``known`` is pointed at its byte."""
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
    """Strings read from the wire, copied into columns of their own. ``most``: how many there can be."""

    cdef object starts, lengths
    cdef int32_t* c_starts
    cdef int32_t* c_lengths
    cdef uint8_t* data
    cdef int64_t n, used, room

    def __cinit__(self, int64_t most):
        self.data = NULL
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
        """Is this the string that was added last?"""
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


cdef struct ListFill:
    int32_t* starts
    int32_t* lengths


cdef struct PartitionFill:
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
    # A byte column: is_new of LeaderAndIsr, delete of StopReplica.
    uint8_t* flags
    # One buffer for the values of every list column, with room for all bytes there are.
    int32_t* values
    int64_t used
    int64_t n


cdef class PartitionFiller:
    """Partition columns being read. ``most``: the most rows, ``most_values``: the most list values there can be.

    Only the columns that the api and version have are made; the others come out as their defaults.
    """

    cdef dict columns
    cdef object values, flags
    cdef PartitionFill c

    def __init__(self, int api_key, int version, int64_t most, int64_t most_values):
        self.columns = {}
        if most_values > 0x7FFFFFFF:
            raise DecodeError("more values than an int32 column can index", api=request_name(api_key), version=version)
        self.c.topic_row = self.make("topic_row", most)
        self.c.partition = self.make("partition", most)
        self.c.leader_epoch = self.make("leader_epoch", most)
        if api_key != API_UPDATE_METADATA:
            self.flags = np.empty(most, np.uint8)
            self.c.flags = writable_uint8(self.flags)
        if api_key == API_STOP_REPLICA:
            return
        self.values = np.empty(most_values, np.int32)
        self.c.values = writable_int32(self.values)
        self.c.controller_epoch = self.make("controller_epoch", most)
        self.c.leader = self.make("leader", most)
        self.c.partition_epoch = self.make("partition_epoch", most)
        self.c.isr = self.make_list("isr", most)
        self.c.replicas = self.make_list("replicas", most)
        if api_key == API_LEADER_AND_ISR:
            self.c.recovery_state = self.make("recovery_state", most)
            if version >= 3:
                self.c.adding = self.make_list("adding", most)
                self.c.removing = self.make_list("removing", most)
        elif version >= 4:
            self.c.offline = self.make_list("offline", most)

    cdef int32_t* make(self, str name, int64_t most) except? NULL:
        column = np.empty(most, np.int32)
        self.columns[name] = column
        return writable_int32(column)

    cdef ListFill make_list(self, str name, int64_t most) except *:
        cdef ListFill fill
        fill.starts = self.make(name + "_starts", most)
        fill.lengths = self.make(name + "_lengths", most)
        return fill

    cdef ListColumn list_column(self, str name):
        if name + "_starts" not in self.columns:
            return zero_lists(self.c.n)
        return ListColumn(self.column(name + "_starts"), self.column(name + "_lengths"), self.values)

    cdef object column(self, str name):
        if name not in self.columns:
            return np.zeros(self.c.n, np.int32)
        return trim(self.columns[name], self.c.n)

    cdef Partitions partitions(self):
        """The columns, cut to the rows that were read."""
        trim(self.values, self.c.used)
        return Partitions(
            self.column("topic_row"), self.column("partition"), self.column("controller_epoch"),
            self.column("leader"), self.column("leader_epoch"), self.column("partition_epoch"),
            self.column("recovery_state"), self.list_column("isr"), self.list_column("replicas"),
            self.list_column("adding"), self.list_column("removing"), self.list_column("offline"),
        )


cdef inline const uint8_t* get_list(const uint8_t* p, const uint8_t* end, PartitionFill* c, ListFill* lists, int64_t row, bint flexible) noexcept nogil:
    """Read one [int32] at ``p``; the byte after it, or NULL when it is cut or its count is wrong.

    The fast way of the row loops; what is wrong is found out by reading the row again with a Reader.
    """
    cdef int64_t count
    if flexible:
        if end - p < 1 or p[0] == 0 or p[0] >= 0x80:
            return get_long_list(p, end, c, lists, row)
        count = <int64_t>p[0] - 1
        p += 1
    else:
        if end - p < 4:
            return NULL
        count = get_i32(p)
        p += 4
    if count < 0 or end - p < 4 * count:
        return NULL
    lists.starts[row] = <int32_t>c.used
    lists.lengths[row] = <int32_t>count
    swap_ints(c.values + c.used, p, count)
    c.used += count
    return p + 4 * count


cdef const uint8_t* get_long_list(const uint8_t* p, const uint8_t* end, PartitionFill* c, ListFill* lists, int64_t row) noexcept nogil:
    """``get_list`` for a count of more than one varint byte."""
    cdef uint32_t count = 0
    cdef int size = get_uvarint(p, end, &count)
    if size <= 0 or count == 0 or (end - p - size) // 4 < <int64_t>count - 1:
        return NULL
    p += size
    count -= 1
    lists.starts[row] = <int32_t>c.used
    lists.lengths[row] = <int32_t>count
    swap_ints(c.values + c.used, p, count)
    c.used += count
    return p + 4 * <int64_t>count


cdef int32_t* writable_int32(array) except? NULL:
    cdef int32_t[::1] view = array
    return &view[0] if view.shape[0] > 0 else NULL


cdef int64_t* writable_int64(array) except? NULL:
    cdef int64_t[::1] view = array
    return &view[0] if view.shape[0] > 0 else NULL


cdef uint8_t* writable_uint8(array) except? NULL:
    cdef uint8_t[::1] view = array
    return &view[0] if view.shape[0] > 0 else NULL


cdef object trim(array, int64_t n):
    """Shrink a freshly filled array in place: columns are made for the most rows that the bytes could hold."""
    array.resize((n,) + array.shape[1:], refcheck=False)
    return array


cdef int skip_list(Reader* r, bint flexible, int field) noexcept nogil:
    """Read past an [int32], recording what is wrong with it."""
    cdef int64_t count = read_count(r, flexible, 4, field)
    r.p += 4 * count
    return 0


cdef object zero_lists(int64_t n):
    """A list column of n empty lists: what a version that lacks the field says."""
    zeros = np.zeros(n, np.int32)
    return ListColumn(zeros, zeros, np.empty(0, np.int32))


cdef int check_end(Reader* r) noexcept nogil:
    if r.fault.reason == R_NONE and r.p != r.end:
        stop(r, R_TRAILING, F_MESSAGE, r.p)
    return 0
