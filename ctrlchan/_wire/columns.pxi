# Columns: NumPy arrays in Python, raw pointers in the loops.
#
# Each class holds references to its arrays, so their memory stays while the nogil code has pointers to it.
# Arrays may be read-only. Lengths are compared here. Row numbers and list starts in a column are checked on
# each use, because the owner may change a column between two requests.

cdef object _ndarray = np.ndarray
cdef object _np_int32 = np.dtype(np.int32)
cdef object _np_int64 = np.dtype(np.int64)
cdef object _np_uint8 = np.dtype(np.uint8)


cdef object as_column(values, dtype, str what):
    """Return a C-contiguous array of ``dtype``; a conversion that would change a value raises."""
    array = np.asarray(values)
    if array.dtype != dtype:
        if array.size == 0:
            array = array.astype(dtype)
        elif array.dtype.kind not in "iub":
            raise TypeError(f"{what}: expected {dtype}, got {array.dtype}")
        else:
            converted = array.astype(dtype)
            if not np.array_equal(converted, array):
                raise EncodeError(f"a value does not fit {dtype}", field=what)
            array = converted
    return np.require(array, requirements=["C", "A"])


cdef object column_of(values, dtype, str what, const void** p, int64_t* n):
    """Return ``values`` as an array of one dimension; sets its memory (NULL when it is empty) and its length.

    The array itself where it is one of ``dtype`` already: a message has dozens of columns and may have one row,
    so this asks the array for its memory once and for nothing else.
    """
    cdef Py_buffer view
    cdef bint plain = type(values) is _ndarray and values.dtype is dtype
    array = values if plain else as_column(values, dtype, what)
    try:
        PyObject_GetBuffer(array, &view, PyBUF_ND)
    except ValueError:
        # Not contiguous.
        array = as_column(values, dtype, what)
        PyObject_GetBuffer(array, &view, PyBUF_ND)
    p[0] = view.buf if view.len > 0 else NULL
    n[0] = view.len // view.itemsize
    cdef int dimensions = view.ndim
    PyBuffer_Release(&view)
    if dimensions != 1:
        raise ValueError(f"{what}: expected one dimension, got {dimensions}")
    return array


cdef inline object int32_column(values, str what, const int32_t** p, int64_t* n):
    return column_of(values, _np_int32, what, <const void**>p, n)


cdef inline object int64_column(values, str what, const int64_t** p, int64_t* n):
    return column_of(values, _np_int64, what, <const void**>p, n)


cdef inline object uint8_column(values, str what, const uint8_t** p, int64_t* n):
    return column_of(values, _np_uint8, what, <const void**>p, n)


cdef int same_rows(str columns, str first, int64_t n, str name, int64_t rows) except -1:
    if rows != n:
        raise ValueError(f"{columns}: {name} has {rows} rows, {first} {n}")
    return 0


cdef struct Strings:
    int64_t n
    const int32_t* starts
    const int32_t* lengths
    const uint8_t* data
    int64_t data_size


cdef class StringColumn:
    """``n`` byte strings in one buffer: int32 ``starts``, int32 ``lengths`` (-1 is null), uint8 ``data``."""

    cdef readonly object starts, lengths, data
    cdef Strings c

    def __init__(self, starts, lengths, data):
        cdef int64_t n_lengths = 0
        self.starts = int32_column(starts, "starts", &self.c.starts, &self.c.n)
        self.lengths = int32_column(lengths, "lengths", &self.c.lengths, &n_lengths)
        self.data = uint8_column(data, "data", &self.c.data, &self.c.data_size)
        if self.c.n != n_lengths:
            raise ValueError(f"StringColumn: {self.c.n} starts but {n_lengths} lengths")

    @staticmethod
    def from_strings(strings):
        """Make columns from an iterable of str (as UTF-8), bytes or None."""
        try:
            encoded = [s.encode() if isinstance(s, str) else s for s in strings]
        except UnicodeEncodeError as error:
            raise EncodeError(f"{error.object!r} cannot be put in UTF-8") from None
        lengths = np.array([-1 if s is None else len(s) for s in encoded], dtype=np.int32)
        ends = np.cumsum(np.maximum(lengths, 0), dtype=np.int64)
        if len(ends) and ends[len(ends) - 1] > 0x7FFFFFFF:
            raise EncodeError("strings of one column take more than 2 GiB")
        starts = (ends - np.maximum(lengths, 0)).astype(np.int32)
        return StringColumn(starts, lengths, np.frombuffer(b"".join(s or b"" for s in encoded), dtype=np.uint8))

    def __len__(self):
        return self.c.n

    def __getitem__(self, index):
        cdef int64_t i = operator.index(index)
        if i < 0:
            i += self.c.n
        if not 0 <= i < self.c.n:
            raise IndexError(index)
        if self.c.lengths[i] < 0:
            return None
        if not string_in_bounds(&self.c, i):
            raise EncodeError("string points outside its data")
        return PyBytes_FromStringAndSize(<const char*>self.c.data + self.c.starts[i], self.c.lengths[i])

    def to_list(self):
        """Return the strings as ``str`` (or None). Bytes that are not UTF-8 become U+FFFD."""
        return [None if (s := self[i]) is None else s.decode(errors="replace") for i in range(self.c.n)]

    def __repr__(self):
        return f"StringColumn(n={self.c.n})"


cdef inline bint string_in_bounds(const Strings* s, int64_t i) noexcept nogil:
    return s.starts[i] >= 0 and <int64_t>s.starts[i] + s.lengths[i] <= s.data_size


cdef class ListColumn:
    """``n`` lists of int32 in one buffer: int32 ``starts``, int32 ``lengths``, int32 ``values``."""

    cdef readonly object starts, lengths, values
    cdef Lists c

    def __init__(self, starts, lengths, values):
        cdef int64_t n_lengths = 0
        self.starts = int32_column(starts, "starts", &self.c.starts, &self.c.n)
        self.lengths = int32_column(lengths, "lengths", &self.c.lengths, &n_lengths)
        self.values = int32_column(values, "values", &self.c.values, &self.c.n_values)
        if self.c.n != n_lengths:
            raise ValueError(f"ListColumn: {self.c.n} starts but {n_lengths} lengths")

    @staticmethod
    def from_lists(lists):
        """Make columns from an iterable of int sequences."""
        lists = [np.asarray(one, dtype=np.int64) for one in lists]
        lengths = np.array([len(one) for one in lists], dtype=np.int32)
        ends = np.cumsum(lengths, dtype=np.int64)
        values = as_column(np.concatenate(lists) if lists else np.empty(0, np.int32), _np_int32, "values")
        return ListColumn(as_column(ends - lengths, _np_int32, "starts"), lengths, values)

    def __len__(self):
        return self.c.n

    def __getitem__(self, index):
        cdef int64_t i = operator.index(index)
        if i < 0:
            i += self.c.n
        if not 0 <= i < self.c.n:
            raise IndexError(index)
        if not list_in_bounds(&self.c, i):
            raise EncodeError("list points outside its values")
        start = self.c.starts[i]
        return self.values[start : start + self.c.lengths[i]]

    def to_lists(self):
        """Return the lists as Python lists of ints."""
        return [self[i].tolist() for i in range(self.c.n)]

    def __repr__(self):
        return f"ListColumn(n={self.c.n}, values={self.c.n_values})"


cdef inline bint list_in_bounds(const Lists* lists, int64_t i) noexcept nogil:
    return (
        lists.starts[i] >= 0
        and lists.lengths[i] >= 0
        and <int64_t>lists.starts[i] + lists.lengths[i] <= lists.n_values
    )


cdef class Topics:
    """Topic rows: ``names``, ``ids`` uint8[n, 16] (all zero: unknown), ``deleting`` uint8[n] or None."""

    cdef readonly StringColumn names
    cdef readonly object ids, deleting
    cdef const uint8_t* c_ids
    cdef const uint8_t* c_deleting

    def __init__(self, StringColumn names not None, ids=None, deleting=None):
        cdef int64_t n = names.c.n, size = 0
        self.names = names
        self.ids = np.zeros((n, 16), np.uint8) if ids is None else as_column(ids, _np_uint8, "ids")
        if self.ids.shape != (n, 16):
            raise ValueError(f"Topics: ids has shape {self.ids.shape}, expected {(n, 16)}")
        uint8_column(self.ids.reshape(-1), "ids", &self.c_ids, &size)
        self.deleting = None
        if deleting is not None:
            self.deleting = uint8_column(deleting, "deleting", &self.c_deleting, &size)
            if size != n:
                raise ValueError(f"Topics: {size} deleting flags for {n} topics")

    def __len__(self):
        return self.names.c.n

    def __repr__(self):
        return f"Topics(n={self.names.c.n})"


cdef class Partitions:
    """Partition rows: seven int32[n] columns and five list columns of n lists (None: all empty)."""

    cdef readonly object topic_row, partition, controller_epoch, leader, leader_epoch, partition_epoch
    cdef readonly object recovery_state
    cdef readonly ListColumn isr, replicas, adding, removing, offline
    cdef int64_t n
    cdef PartitionColumns c

    def __init__(
        self, topic_row, partition, controller_epoch, leader, leader_epoch, partition_epoch, recovery_state,
        ListColumn isr not None, ListColumn replicas not None,
        ListColumn adding=None, ListColumn removing=None, ListColumn offline=None,
    ):
        self.topic_row = int32_column(topic_row, "topic_row", &self.c.topic_row, &self.n)
        self.partition = self.column(partition, "partition", &self.c.partition)
        self.controller_epoch = self.column(controller_epoch, "controller_epoch", &self.c.controller_epoch)
        self.leader = self.column(leader, "leader", &self.c.leader)
        self.leader_epoch = self.column(leader_epoch, "leader_epoch", &self.c.leader_epoch)
        self.partition_epoch = self.column(partition_epoch, "partition_epoch", &self.c.partition_epoch)
        self.recovery_state = self.column(recovery_state, "recovery_state", &self.c.recovery_state)
        self.isr = self.lists(isr, "isr", &self.c.isr)
        self.replicas = self.lists(replicas, "replicas", &self.c.replicas)
        self.adding = self.lists(adding, "adding", &self.c.adding)
        self.removing = self.lists(removing, "removing", &self.c.removing)
        self.offline = self.lists(offline, "offline", &self.c.offline)

    cdef object column(self, values, str name, const int32_t** p):
        cdef int64_t rows = 0
        array = int32_column(values, name, p, &rows)
        same_rows("Partitions", "topic_row", self.n, name, rows)
        return array

    cdef ListColumn lists(self, ListColumn column, str name, Lists* lists):
        if column is not None:
            same_rows("Partitions", "topic_row", self.n, name, column.c.n)
            lists[0] = column.c
        return column

    def __len__(self):
        return self.n

    def __repr__(self):
        return f"Partitions(n={self.n})"


cdef class Brokers:
    """Broker rows and their endpoints; see ``_codec.pyi``."""

    cdef readonly object ids, epochs, endpoint_starts, endpoint_lengths, ports, security_protocols
    cdef readonly StringColumn racks, hosts, listeners
    cdef const int32_t* c_ids
    cdef const int32_t* c_endpoint_starts
    cdef const int32_t* c_endpoint_lengths
    cdef const int32_t* c_ports
    cdef const int32_t* c_security_protocols
    cdef int64_t n, n_endpoints

    def __init__(
        self, ids, epochs, StringColumn racks not None, endpoint_starts, endpoint_lengths, ports,
        StringColumn hosts not None, StringColumn listeners not None, security_protocols,
    ):
        cdef int64_t n_starts = 0, n_lengths = 0, n_protocols = 0
        self.ids = int32_column(ids, "ids", &self.c_ids, &self.n)
        self.epochs = np.full(self.n, -1, np.int64) if epochs is None else as_column(epochs, _np_int64, "epochs")
        self.racks = racks
        self.endpoint_starts = int32_column(endpoint_starts, "endpoint_starts", &self.c_endpoint_starts, &n_starts)
        self.endpoint_lengths = int32_column(
            endpoint_lengths, "endpoint_lengths", &self.c_endpoint_lengths, &n_lengths
        )
        self.ports = int32_column(ports, "ports", &self.c_ports, &self.n_endpoints)
        self.hosts = hosts
        self.listeners = listeners
        self.security_protocols = int32_column(
            security_protocols, "security_protocols", &self.c_security_protocols, &n_protocols
        )
        same_rows("Brokers", "ids", self.n, "epochs", len(self.epochs))
        same_rows("Brokers", "ids", self.n, "racks", racks.c.n)
        same_rows("Brokers", "ids", self.n, "endpoint_starts", n_starts)
        same_rows("Brokers", "ids", self.n, "endpoint_lengths", n_lengths)
        same_rows("Brokers", "ports", self.n_endpoints, "hosts", hosts.c.n)
        same_rows("Brokers", "ports", self.n_endpoints, "listeners", listeners.c.n)
        same_rows("Brokers", "ports", self.n_endpoints, "security_protocols", n_protocols)

    def __len__(self):
        return self.n

    def __repr__(self):
        return f"Brokers(n={self.n})"


cdef class LiveLeaders:
    """Rows of LeaderAndIsr's live leaders: ``ids`` int32[n], ``hosts``, ``ports`` int32[n]."""

    cdef readonly object ids, ports
    cdef readonly StringColumn hosts
    cdef const int32_t* c_ids
    cdef const int32_t* c_ports
    cdef int64_t n

    def __init__(self, ids, StringColumn hosts not None, ports):
        cdef int64_t n_ports = 0
        self.ids = int32_column(ids, "ids", &self.c_ids, &self.n)
        self.ports = int32_column(ports, "ports", &self.c_ports, &n_ports)
        self.hosts = hosts
        if self.n != n_ports or self.n != hosts.c.n:
            raise ValueError(f"LiveLeaders: {self.n} ids, {hosts.c.n} hosts, {n_ports} ports")

    def __len__(self):
        return self.n

    def __repr__(self):
        return f"LiveLeaders(n={self.n})"
