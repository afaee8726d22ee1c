"""Many partitions at once: requests to ZooKeeper made of columns, and columns made of its answers.

A hundred thousand partitions take one Python object each in no place here. JSON is read in the exact form
in which Kafka and this package write it: no blanks, known names, each once, integers that int32 holds. What
has another form is given back to the caller as it stands, who parses it with ``ctrlchan.zookeeper.nodes``.

Layout of a request of many operations: a header (type int32, done int8, error int32) and the operation, for
each, and a closing header. Strings and data have an int32 length before them. Source: MultiOperationRecord.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from ctrlchan._c.bytes cimport get_i32, get_i64, put_i32

import numpy as np

cdef enum:
    # Opcodes.
    CREATE = 1
    GET_DATA = 4
    SET_DATA = 5
    CHECK = 13
    ERROR = -1
    # Sizes in bytes.
    HEADER = 9
    STAT = 68
    # Where the stat has the version of the data.
    STAT_VERSION = 32
    # The longest decimal int32 and a comma.
    NUMBER = 12
    # More than all fixed parts of one operation, with the JSON of a state without its ISR.
    FIXED = 256

#: Kinds of ``encode_writes``.
SET_STATES, CREATE_STATES, CREATE_EMPTY = range(3)


# -- bytes that are written


cdef struct Out:
    uint8_t* data
    int64_t size
    int64_t capacity


cdef int reserve(Out* out, int64_t more) except -1 nogil:
    """Make room for ``more`` bytes."""
    cdef int64_t capacity
    cdef uint8_t* data
    if out.size + more > out.capacity:
        capacity = max(2 * out.capacity, out.size + more)
        data = <uint8_t*>realloc(out.data, capacity)
        if data == NULL:
            with gil:
                raise MemoryError()
        out.data, out.capacity = data, capacity
    return 0


cdef inline void put_header(Out* out, int32_t kind, bint done) noexcept nogil:
    put_i32(out.data + out.size, kind)
    out.data[out.size + 4] = done
    put_i32(out.data + out.size + 5, -1)
    out.size += HEADER


cdef inline void put_number(Out* out, int32_t number) noexcept nogil:
    put_i32(out.data + out.size, number)
    out.size += 4


cdef inline void put_bytes(Out* out, const char* data, int64_t size) noexcept nogil:
    memcpy(out.data + out.size, data, size)
    out.size += size


cdef inline void put_digits(Out* out, int64_t number) noexcept nogil:
    cdef char digits[20]
    cdef int begin = 20
    cdef bint negative = number < 0
    if negative:
        number = -number
    while True:
        begin -= 1
        digits[begin] = <char>(48 + number % 10)
        number //= 10
        if number == 0:
            break
    if negative:
        begin -= 1
        digits[begin] = 45
    put_bytes(out, digits + begin, 20 - begin)


cdef struct Text:
    const char* data
    int64_t size


cdef inline Text text_of(bytes value):
    cdef Text text
    text.data, text.size = PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
    return text


cdef class PartitionPaths:
    """The paths of one node of each partition: ``head + name + middle + partition + end``.

    ``names``: bytes, which ``topic_row`` int32[n] indexes; ``partition`` int32[n].
    """

    cdef bytes head, middle, end
    cdef list names
    cdef const int32_t[::1] topic_row, partition
    cdef Text* texts
    cdef Text c_head, c_middle, c_end
    cdef int64_t longest

    def __cinit__(self, bytes head not None, bytes middle not None, bytes end not None, names,
                  const int32_t[::1] topic_row, const int32_t[::1] partition):
        cdef Py_ssize_t i
        self.head, self.middle, self.end = head, middle, end
        self.names = list(names)
        self.topic_row, self.partition = topic_row, partition
        if topic_row.shape[0] != partition.shape[0]:
            raise ValueError(f"{topic_row.shape[0]} topic rows but {partition.shape[0]} partitions")
        self.c_head, self.c_middle, self.c_end = text_of(head), text_of(middle), text_of(end)
        self.texts = <Text*>malloc(max(1, len(self.names)) * sizeof(Text))
        if self.texts == NULL:
            raise MemoryError()
        for i in range(len(self.names)):
            self.texts[i] = text_of(<bytes?>self.names[i])
            self.longest = max(self.longest, self.texts[i].size)
        for i in range(topic_row.shape[0]):
            if not 0 <= topic_row[i] < len(self.names):
                raise IndexError(f"row {i}: topic row {topic_row[i]} of {len(self.names)} topics")
        self.longest += len(head) + len(middle) + len(end) + NUMBER

    def __dealloc__(self):
        free(self.texts)

    def __len__(self):
        return self.topic_row.shape[0]

    def __getitem__(self, int64_t row):
        """Return the path of this row."""
        name = self.names[self.topic_row[row]]
        return b"%b%b%b%d%b" % (self.head, name, self.middle, self.partition[row], self.end)

    cdef inline void put(self, Out* out, int64_t row) noexcept nogil:
        cdef int64_t begin = out.size
        cdef Text* name = &self.texts[self.topic_row[row]]
        out.size += 4
        put_bytes(out, self.c_head.data, self.c_head.size)
        put_bytes(out, name.data, name.size)
        put_bytes(out, self.c_middle.data, self.c_middle.size)
        put_digits(out, self.partition[row])
        put_bytes(out, self.c_end.data, self.c_end.size)
        put_i32(out.data + begin, <int32_t>(out.size - begin - 4))


def encode_reads(PartitionPaths paths not None, int64_t begin, int64_t max_rows, int64_t max_bytes):
    """Return (body of a multiRead of the rows from ``begin`` on, the row behind the last one in it)."""
    cdef Out out
    cdef int64_t row = begin, count = len(paths)
    out.data, out.size, out.capacity = NULL, 0, 0
    try:
        with nogil:
            reserve(&out, 64 * 1024)
            while row < count and row - begin < max_rows:
                reserve(&out, 2 * HEADER + 5 + paths.longest)
                if out.size + 2 * HEADER + 5 + paths.longest > max_bytes and row > begin:
                    break
                put_header(&out, GET_DATA, False)
                paths.put(&out, row)
                out.data[out.size] = 0
                out.size += 1
                row += 1
            put_header(&out, -1, True)
        return PyBytes_FromStringAndSize(<char*>out.data, out.size), row
    finally:
        free(out.data)


cdef struct StateRow:
    int32_t leader
    int32_t leader_epoch
    int32_t controller_epoch
    int32_t recovery_state


cdef void put_state(Out* out, StateRow state, const int32_t* isr, int32_t isr_length) noexcept nogil:
    """Write the data of a state node. Source: ``nodes.encode_partition_state``."""
    cdef int64_t begin = out.size
    cdef int32_t i
    out.size += 4
    put_bytes(out, b'{"version":1,"leader":', 22)
    put_digits(out, state.leader)
    put_bytes(out, b',"leader_epoch":', 16)
    put_digits(out, state.leader_epoch)
    put_bytes(out, b',"controller_epoch":', 20)
    put_digits(out, state.controller_epoch)
    put_bytes(out, b',"isr":[', 8)
    for i in range(isr_length):
        if i:
            out.data[out.size] = 44
            out.size += 1
        put_digits(out, isr[i])
    out.data[out.size] = 93
    out.size += 1
    if state.recovery_state:
        put_bytes(out, b',"leader_recovery_state":', 25)
        put_digits(out, state.recovery_state)
    out.data[out.size] = 125
    out.size += 1
    put_i32(out.data + begin, <int32_t>(out.size - begin - 4))


cdef class StateValues:
    """What is written: int32[n] columns and an ISR for each row."""

    cdef const int32_t[::1] leader, leader_epoch, controller_epoch, recovery_state
    cdef const int32_t[::1] starts, lengths, values
    cdef int64_t n

    def __init__(self, const int32_t[::1] leader, const int32_t[::1] leader_epoch,
                 const int32_t[::1] controller_epoch, const int32_t[::1] recovery_state,
                 const int32_t[::1] starts, const int32_t[::1] lengths, const int32_t[::1] values):
        cdef Py_ssize_t i
        self.leader, self.leader_epoch = leader, leader_epoch
        self.controller_epoch, self.recovery_state = controller_epoch, recovery_state
        self.starts, self.lengths, self.values = starts, lengths, values
        self.n = leader.shape[0]
        if not (
            leader_epoch.shape[0] == controller_epoch.shape[0] == recovery_state.shape[0]
            == starts.shape[0] == lengths.shape[0] == self.n
        ):
            raise ValueError(f"{self.n} leaders but a column of another length")
        for i in range(self.n):
            if starts[i] < 0 or lengths[i] < 0 or <int64_t>starts[i] + lengths[i] > values.shape[0]:
                raise IndexError(f"row {i}: the ISR points outside its values")

    def __len__(self):
        return self.n

    cdef inline void put(self, Out* out, int64_t row) noexcept nogil:
        cdef StateRow state
        cdef const int32_t* isr = NULL
        state.leader, state.leader_epoch = self.leader[row], self.leader_epoch[row]
        state.controller_epoch, state.recovery_state = self.controller_epoch[row], self.recovery_state[row]
        if self.lengths[row]:
            isr = &self.values[self.starts[row]]
        put_state(out, state, isr, self.lengths[row])

    def encoded(self, int64_t row):
        """Return the data of this row's state node."""
        cdef Out out
        if not 0 <= row < self.n:
            raise IndexError(row)
        out.data, out.size, out.capacity = NULL, 0, 0
        try:
            reserve(&out, FIXED + <int64_t>NUMBER * self.lengths[row])
            self.put(&out, row)
            return PyBytes_FromStringAndSize(<char*>out.data + 4, out.size - 4)
        finally:
            free(out.data)


def encode_writes(int kind, bytes guard not None, PartitionPaths paths not None, const int64_t[::1] rows,
                  int64_t begin, StateValues values, const int32_t[::1] versions, bytes acl not None,
                  int64_t max_rows, int64_t max_bytes):
    """Return (body of a multi of the guard and a write of each row, the place behind the last row in it).

    ``guard``: an encoded operation. ``rows``: int64, of ``paths``, ``values`` and ``versions``, written from
    place ``begin`` on. ``kind``: SET_STATES (``versions``: expected ones), CREATE_STATES, or CREATE_EMPTY (nodes
    without data, ``values`` may be None). ``acl``: encoded ACLs of new nodes.
    """
    cdef Out out
    cdef Text c_guard = text_of(guard), c_acl = text_of(acl)
    cdef int64_t place = begin, count = rows.shape[0], row, need, n = len(paths)
    cdef bint empty = kind == CREATE_EMPTY, create = kind != SET_STATES
    if not empty and (values is None or values.n != n):
        raise ValueError(f"values of {0 if values is None else values.n} rows for {n} paths")
    if not create and versions.shape[0] != n:
        raise ValueError(f"{versions.shape[0]} versions for {n} paths")
    for place in range(begin, count):
        if not 0 <= rows[place] < n:
            raise IndexError(f"row {rows[place]} of {n}")
    place = begin
    out.data, out.size, out.capacity = NULL, 0, 0
    try:
        with nogil:
            reserve(&out, 64 * 1024 + c_guard.size)
            put_bytes(&out, c_guard.data, c_guard.size)
            while place < count and place - begin < max_rows:
                row = rows[place]
                need = FIXED + paths.longest + c_acl.size
                if not empty:
                    need += <int64_t>NUMBER * values.lengths[row]
                if out.size + need > max_bytes and place > begin:
                    break
                reserve(&out, need)
                put_header(&out, CREATE if create else SET_DATA, False)
                paths.put(&out, row)
                if empty:
                    put_number(&out, -1)
                else:
                    values.put(&out, row)
                if create:
                    put_bytes(&out, c_acl.data, c_acl.size)
                    put_number(&out, 0)
                else:
                    put_number(&out, versions[row])
                place += 1
            reserve(&out, HEADER)
            put_header(&out, -1, True)
        return PyBytes_FromStringAndSize(<char*>out.data, out.size), place
    finally:
        free(out.data)


def decode_writes(bytes data not None, int64_t offset, int64_t count, int32_t[::1] versions):
    """Read the answer to a multi of ``count`` operations. Return (-1, 0), or (place, result) of the failed one.

    ``versions``: int32[count], filled with the versions that SetData made, and 0 for others. Raises ValueError
    for an answer of another form.
    """
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef int64_t size = PyBytes_GET_SIZE(data), place
    cdef int32_t kind, code, length
    if versions.shape[0] != count:
        raise ValueError(f"{versions.shape[0]} versions for {count} operations")
    for place in range(count):
        if offset + HEADER > size:
            raise ValueError("the answer of a multi is too short")
        kind = get_i32(p + offset)
        offset += HEADER
        versions[place] = 0
        if kind == SET_DATA:
            if offset + STAT > size:
                raise ValueError("the answer of a multi is too short")
            versions[place] = get_i32(p + offset + STAT_VERSION)
            offset += STAT
        elif kind == CREATE or kind == ERROR:
            if offset + 4 > size:
                raise ValueError("the answer of a multi is too short")
            code = get_i32(p + offset)
            offset += 4
            if kind == ERROR:
                if code != 0:
                    return place, code
            elif code > 0:
                offset += code
        elif kind != CHECK and kind != 2:
            raise ValueError(f"the answer of a multi has type {kind}")
    return -1, 0


cdef class Lists:
    """Lists of broker ids: starts, lengths, values."""

    cdef const int32_t[::1] starts, lengths, values

    def __init__(self, given, int64_t n):
        self.starts, self.lengths, self.values = given
        if not self.starts.shape[0] == self.lengths.shape[0] == n:
            raise ValueError(f"{self.starts.shape[0]} lists for {n} partitions")

    cdef int put(self, Out* out, const int32_t[::1] partition, int64_t begin, int64_t end,
                 bint empty_too) except -1:
        """Write ``{"0":[1,2]}`` of these rows."""
        cdef int64_t row
        cdef int32_t i
        cdef bint first = True
        reserve(out, 1)
        put_bytes(out, b"{", 1)
        for row in range(begin, end):
            if not self.lengths[row] and not empty_too:
                continue
            if (
                self.starts[row] < 0 or self.lengths[row] < 0
                or <int64_t>self.starts[row] + self.lengths[row] > self.values.shape[0]
            ):
                raise IndexError(f"row {row}: a list points outside its values")
            reserve(out, <int64_t>NUMBER * (self.lengths[row] + 1) + 8)
            put_bytes(out, b'"' if first else b',"', 1 if first else 2)
            first = False
            put_digits(out, partition[row])
            put_bytes(out, b'":[', 3)
            for i in range(self.lengths[row]):
                if i:
                    put_bytes(out, b",", 1)
                put_digits(out, self.values[self.starts[row] + i])
            put_bytes(out, b"]", 1)
        reserve(out, FIXED)
        put_bytes(out, b"}", 1)
        return 0


def encode_topic(bytes topic_id not None, const int32_t[::1] partition, replicas, adding, removing,
                 int64_t begin, int64_t end):
    """Return the data of a topic's node, of the rows ``begin`` to ``end - 1``. Source: ``nodes.encode_topic``.

    ``topic_id``: the text, b"" for none. The lists: (starts, lengths, values) each.
    """
    cdef Out out
    cdef Text id_text = text_of(topic_id)
    cdef int64_t n = partition.shape[0]
    cdef Lists all_replicas = Lists(replicas, n), all_adding = Lists(adding, n), all_removing = Lists(removing, n)
    if not 0 <= begin <= end <= n:
        raise IndexError(f"rows {begin} to {end} of {n}")
    out.data, out.size, out.capacity = NULL, 0, 0
    try:
        reserve(&out, FIXED)
        put_bytes(&out, b'{"version":3,"partitions":', 26)
        all_replicas.put(&out, partition, begin, end, True)
        put_bytes(&out, b',"adding_replicas":', 19)
        all_adding.put(&out, partition, begin, end, False)
        put_bytes(&out, b',"removing_replicas":', 21)
        all_removing.put(&out, partition, begin, end, False)
        if id_text.size:
            reserve(&out, FIXED + id_text.size)
            put_bytes(&out, b',"topic_id":"', 13)
            put_bytes(&out, id_text.data, id_text.size)
            put_bytes(&out, b'"', 1)
        put_bytes(&out, b"}", 1)
        return PyBytes_FromStringAndSize(<char*>out.data, out.size)
    finally:
        free(out.data)


# -- bytes that are read


cdef struct Numbers:
    int32_t* values
    int64_t size
    int64_t capacity


cdef int append(Numbers* numbers, int32_t value) noexcept nogil:
    """Add a value. Return 0 when there is no memory."""
    cdef int64_t capacity
    cdef int32_t* values
    if numbers.size == numbers.capacity:
        capacity = max(1024, 2 * numbers.capacity)
        values = <int32_t*>realloc(numbers.values, capacity * sizeof(int32_t))
        if values == NULL:
            return 0
        numbers.values, numbers.capacity = values, capacity
    numbers.values[numbers.size] = value
    numbers.size += 1
    return 1


cdef class Int32Vector:
    """int32 values that are appended one by one."""

    cdef Numbers c

    def __dealloc__(self):
        free(self.c.values)

    cdef object array(self):
        """Return a copy as an array."""
        result = np.empty(self.c.size, np.int32)
        cdef int32_t[::1] view = result
        if self.c.size:
            memcpy(&view[0], self.c.values, self.c.size * sizeof(int32_t))
        return result


cdef struct Cursor:
    const uint8_t* p
    const uint8_t* end


cdef inline bint skip(Cursor* at, uint8_t expected) noexcept nogil:
    if at.p < at.end and at.p[0] == expected:
        at.p += 1
        return True
    return False


cdef bint read_number(Cursor* at, int32_t* number) noexcept nogil:
    """Read an integer as JSON has it. Return False for another text, and beyond int32."""
    cdef bint negative = skip(at, 45)
    cdef int64_t value = 0
    cdef const uint8_t* begin = at.p
    while at.p < at.end and 48 <= at.p[0] <= 57:
        if at.p - begin == 10:
            return False
        value = 10 * value + (at.p[0] - 48)
        at.p += 1
    if at.p == begin or (begin[0] == 48 and (at.p - begin > 1 or negative)):
        return False
    if negative:
        value = -value
    if value > 0x7FFFFFFF or value < -0x80000000LL:
        return False
    number[0] = <int32_t>value
    return True


cdef bint read_list(Cursor* at, Numbers* numbers) noexcept nogil:
    """Append the broker ids of ``[1,2,3]``."""
    cdef int32_t value
    if not skip(at, 91):
        return False
    if skip(at, 93):
        return True
    while True:
        if not read_number(at, &value) or value < 0 or not append(numbers, value):
            return False
        if skip(at, 93):
            return True
        if not skip(at, 44):
            return False


cdef bint read_text(Cursor* at, Text* text) noexcept nogil:
    """Read ``"text"``, of printable ASCII without escapes."""
    if not skip(at, 34):
        return False
    text.data = <const char*>at.p
    while at.p < at.end and at.p[0] != 34:
        if at.p[0] < 32 or at.p[0] > 126 or at.p[0] == 92:
            return False
        at.p += 1
    text.size = <const char*>at.p - text.data
    return skip(at, 34)


cdef bint read_name(Cursor* at, Text* name) noexcept nogil:
    """Read ``"name":``, of printable ASCII without escapes."""
    return read_text(at, name) and skip(at, 58)


cdef inline bint equals(Text* text, const char* other, int64_t size) noexcept nogil:
    return text.size == size and memcmp(text.data, other, size) == 0


cdef enum:
    HAS_LEADER = 1
    HAS_LEADER_EPOCH = 2
    HAS_CONTROLLER_EPOCH = 4
    HAS_ISR = 8
    HAS_ALL = 15
    HAS_RECOVERY_STATE = 16
    HAS_VERSION = 32


cdef bint read_state(Cursor* at, StateRow* state, Numbers* isr) noexcept nogil:
    """Read the data of a state node. Return False for another form or a value that no column holds."""
    cdef int has = 0, one
    cdef int32_t number = 0
    cdef Text name
    state.leader = state.leader_epoch = state.controller_epoch = -1
    state.recovery_state = 0
    if not skip(at, 123):
        return False
    while True:
        if not read_name(at, &name):
            return False
        if equals(&name, b"isr", 3):
            if has & HAS_ISR or not read_list(at, isr):
                return False
            has |= HAS_ISR
        else:
            if not read_number(at, &number):
                return False
            if equals(&name, b"leader", 6):
                one, state.leader = HAS_LEADER, number
            elif equals(&name, b"leader_epoch", 12):
                one, state.leader_epoch = HAS_LEADER_EPOCH, number
            elif equals(&name, b"controller_epoch", 16):
                one, state.controller_epoch = HAS_CONTROLLER_EPOCH, number
            elif equals(&name, b"leader_recovery_state", 21):
                one, state.recovery_state = HAS_RECOVERY_STATE, number
            elif equals(&name, b"version", 7):
                one = HAS_VERSION
            else:
                return False
            if has & one:
                return False
            has |= one
        if skip(at, 125):
            break
        if not skip(at, 44):
            return False
    return (
        at.p == at.end
        and has & HAS_ALL == HAS_ALL
        and state.leader >= -2
        and state.leader_epoch >= -1
        and state.controller_epoch >= -1
        and 0 <= state.recovery_state <= 1
    )


cdef class StateColumns:
    """Columns of n state nodes, filled by ``decode``.

    ``leader``, ``leader_epoch``, ``controller_epoch``, ``recovery_state``, ``version``, ``starts``, ``lengths``:
    int32[n]. Rows that were not decoded have -1 everywhere, recovery state 0 and an empty ISR.
    """

    cdef readonly object leader, leader_epoch, controller_epoch, recovery_state, version, starts, lengths
    cdef int32_t[::1] c_leader, c_leader_epoch, c_controller_epoch, c_recovery_state, c_version
    cdef int32_t[::1] c_starts, c_lengths
    cdef Int32Vector isr

    def __init__(self, int64_t n):
        self.c_leader = self.leader = np.full(n, -1, np.int32)
        self.c_leader_epoch = self.leader_epoch = np.full(n, -1, np.int32)
        self.c_controller_epoch = self.controller_epoch = np.full(n, -1, np.int32)
        self.c_recovery_state = self.recovery_state = np.zeros(n, np.int32)
        self.c_version = self.version = np.full(n, -1, np.int32)
        self.c_starts = self.starts = np.zeros(n, np.int32)
        self.c_lengths = self.lengths = np.zeros(n, np.int32)
        self.isr = Int32Vector()

    def values(self):
        """Return the broker ids of all ISRs, int32."""
        return self.isr.array()

    def decode(self, bytes data not None, int64_t offset, int64_t first, int64_t count):
        """Decode the answer to a multiRead of the rows ``first`` to ``first + count - 1``.

        Return (row, bytes of the node) for nodes of another form, and (row, result code) for nodes that could
        not be read; rows without a node are left as they are. Raises ValueError for a truncated answer.
        """
        cdef const uint8_t* begin = <const uint8_t*>PyBytes_AS_STRING(data)
        cdef const uint8_t* p = begin + offset
        cdef const uint8_t* end = begin + PyBytes_GET_SIZE(data)
        cdef int64_t row
        cdef int32_t length, code
        cdef StateRow state
        cdef Cursor at
        cdef int64_t isr_begin
        cdef list unusual = []
        if not 0 <= first <= first + count <= self.c_leader.shape[0] or not 0 <= offset <= len(data):
            raise IndexError(f"rows {first} to {first + count} of {self.c_leader.shape[0]}")
        with nogil:
            for row in range(first, first + count):
                if end - p < HEADER + 4:
                    with gil:
                        raise ValueError("the answer of a multiRead is too short")
                code = get_i32(p)
                p += HEADER
                length = get_i32(p)
                p += 4
                if code == ERROR:
                    if length != -101:
                        with gil:
                            unusual.append((row, length))
                    continue
                if length < 0:
                    length = 0
                if end - p < <int64_t>length + STAT:
                    with gil:
                        raise ValueError("the answer of a multiRead is too short")
                self.c_version[row] = get_i32(p + length + STAT_VERSION)
                at.p, at.end = p, p + length
                isr_begin = self.isr.c.size
                if read_state(&at, &state, &self.isr.c) and self.isr.c.size <= 0x7FFFFFFF:
                    self.c_leader[row], self.c_leader_epoch[row] = state.leader, state.leader_epoch
                    self.c_controller_epoch[row] = state.controller_epoch
                    self.c_recovery_state[row] = state.recovery_state
                    self.c_starts[row] = <int32_t>isr_begin
                    self.c_lengths[row] = <int32_t>(self.isr.c.size - isr_begin)
                else:
                    self.isr.c.size = isr_begin
                    with gil:
                        unusual.append((row, PyBytes_FromStringAndSize(<const char*>p, length)))
                p += length + STAT
        return unusual

    def put(self, int64_t row, int32_t leader, int32_t leader_epoch, int32_t controller_epoch,
            int32_t recovery_state, isr):
        """Fill a row from a node of another form."""
        self.c_leader[row], self.c_leader_epoch[row] = leader, leader_epoch
        self.c_controller_epoch[row], self.c_recovery_state[row] = controller_epoch, recovery_state
        self.c_starts[row], self.c_lengths[row] = <int32_t>self.isr.c.size, <int32_t>len(isr)
        for broker_id in isr:
            if not append(&self.isr.c, broker_id):
                raise MemoryError()


cdef class AssignmentColumns:
    """The partitions of topics and their replicas, in the order of their nodes, filled by ``decode``."""

    cdef Int32Vector topic_row, partition, starts, lengths, replicas

    def __init__(self):
        self.topic_row, self.partition = Int32Vector(), Int32Vector()
        self.starts, self.lengths, self.replicas = Int32Vector(), Int32Vector(), Int32Vector()

    def columns(self):
        """Return (topic_row, partition, starts, lengths, values of the replicas), int32."""
        return (
            self.topic_row.array(), self.partition.array(), self.starts.array(), self.lengths.array(),
            self.replicas.array(),
        )

    def __len__(self):
        return self.partition.c.size

    def decode(self, bytes data not None, int32_t topic_row):
        """Add the partitions of a topic's node, and return the text of its topic id, b"" without one.

        Return None, and add nothing, for a node of another form, and for one with reassignments.
        """
        cdef Cursor at
        cdef Text topic_id
        cdef int64_t rows = self.partition.c.size, values = self.replicas.c.size
        cdef bint fits
        at.p = <const uint8_t*>PyBytes_AS_STRING(data)
        at.end = at.p + PyBytes_GET_SIZE(data)
        topic_id.data, topic_id.size = NULL, 0
        with nogil:
            fits = self.read_topic(&at, topic_row, &topic_id) and self.replicas.c.size <= 0x7FFFFFFF
        if fits:
            return PyBytes_FromStringAndSize(topic_id.data, topic_id.size)
        self.topic_row.c.size = self.partition.c.size = self.starts.c.size = self.lengths.c.size = rows
        self.replicas.c.size = values
        return None

    def put(self, int32_t topic_row, int32_t partition, replicas):
        """Add a partition from a node of another form."""
        cdef int64_t begin = self.replicas.c.size
        for broker_id in replicas:
            if not append(&self.replicas.c, broker_id):
                raise MemoryError()
        if not self.add(topic_row, partition, begin):
            raise MemoryError()

    cdef bint add(self, int32_t topic_row, int32_t partition, int64_t begin) noexcept nogil:
        return (
            append(&self.topic_row.c, topic_row)
            and append(&self.partition.c, partition)
            and append(&self.starts.c, <int32_t>begin)
            and append(&self.lengths.c, <int32_t>(self.replicas.c.size - begin))
        )

    cdef bint read_topic(self, Cursor* at, int32_t topic_row, Text* topic_id) noexcept nogil:
        cdef Text name
        cdef int has = 0, one
        cdef int32_t number
        if not skip(at, 123):
            return False
        while True:
            if not read_name(at, &name):
                return False
            if equals(&name, b"partitions", 10):
                one = 1
                if not self.read_partitions(at, topic_row):
                    return False
            elif equals(&name, b"adding_replicas", 15) or equals(&name, b"removing_replicas", 17):
                one = 2 if name.data[0] == 97 else 4
                if not (skip(at, 123) and skip(at, 125)):
                    return False
            elif equals(&name, b"version", 7):
                one = 8
                if not read_number(at, &number):
                    return False
            elif equals(&name, b"topic_id", 8):
                one = 16
                if not read_text(at, topic_id) or topic_id.size != 22:
                    return False
            else:
                return False
            if has & one:
                return False
            has |= one
            if skip(at, 125):
                return at.p == at.end and has & 1 == 1
            if not skip(at, 44):
                return False

    cdef bint read_partitions(self, Cursor* at, int32_t topic_row) noexcept nogil:
        cdef int32_t partition
        cdef int64_t begin
        if not skip(at, 123):
            return False
        if skip(at, 125):
            return True
        while True:
            begin = self.replicas.c.size
            if not (skip(at, 34) and read_number(at, &partition) and partition >= 0 and skip(at, 34)):
                return False
            if not (skip(at, 58) and read_list(at, &self.replicas.c)):
                return False
            if not self.add(topic_row, partition, begin):
                return False
            if skip(at, 125):
                return True
            if not skip(at, 44):
                return False
