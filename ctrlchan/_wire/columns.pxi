# Columns: NumPy arrays for people, raw pointers for the loops.
#
# Each class keeps its arrays (who made them may free them only after these objects), a typed memoryview of
# each (which pins the buffer) and hands C pointers to the nogil code. Arrays may be read-only. Lengths
# are compared here; what the numbers in a column point at is checked where they are used, on each use,
# because the owner may change a column between two requests.

cdef object _np_int32 = np.dtype(np.int32)
cdef object _np_int64 = np.dtype(np.int64)
cdef object _np_uint8 = np.dtype(np.uint8)


cdef object as_column(values, dtype, str what):
    """A C-contiguous array of ``dtype``; a conversion that would change a value is refused."""
    array = np.asarray(values)
    if array.dtype is not dtype and array.dtype != dtype:
        if array.size == 0:
            array = array.astype(dtype)
        elif array.dtype.kind not in "iub":
            raise TypeError(f"{what}: expected {dtype}, got {array.dtype}")
        else:
            converted = array.astype(dtype)
            if not np.array_equal(converted, array):
                raise EncodeError(f"a value does not fit {dtype}", field=what)
            array = converted
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return array


cdef inline const int32_t* int32_pointer(const int32_t[::1] view) noexcept:
    return &view[0] if view.shape[0] > 0 else NULL


cdef inline const uint8_t* uint8_pointer(const uint8_t[::1] view) noexcept:
    return &view[0] if view.shape[0] > 0 else NULL


cdef struct Strings:
    int64_t n
    const int32_t* starts
    const int32_t* lengths
    const uint8_t* data
    int64_t data_size


cdef class StringColumn:
    """``n`` byte strings in one buffer: int32 ``starts``, int32 ``lengths`` (-1 is null), uint8 ``data``."""

    cdef readonly object starts, lengths, data
    cdef const int32_t[::1] _starts
    cdef const int32_t[::1] _lengths
    cdef const uint8_t[::1] _data
    cdef Strings c

    def __init__(self, starts, lengths, data):
        self.starts = as_column(starts, _np_int32, "starts")
        self.lengths = as_column(lengths, _np_int32, "lengths")
        self.data = as_column(data, _np_uint8, "data")
        self._starts = self.starts
        self._lengths = self.lengths
        self._data = self.data
        if self._starts.shape[0] != self._lengths.shape[0]:
            raise ValueError(
                f"StringColumn: {self._starts.shape[0]} starts but {self._lengths.shape[0]} lengths"
            )
        self.c.n = self._starts.shape[0]
        self.c.starts = int32_pointer(self._starts)
        self.c.lengths = int32_pointer(self._lengths)
        self.c.data = uint8_pointer(self._data)
        self.c.data_size = self._data.shape[0]

    @staticmethod
    def from_strings(strings):
        """Columns of an iterable of str (as UTF-8), bytes or None."""
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
        """The strings as ``str`` (or None). Bytes that are not UTF-8 show as U+FFFD."""
        return [None if (s := self[i]) is None else s.decode(errors="replace") for i in range(self.c.n)]

    def __repr__(self):
        return f"StringColumn(n={self.c.n})"


cdef inline bint string_in_bounds(const Strings* s, int64_t i) noexcept nogil:
    return s.starts[i] >= 0 and <int64_t>s.starts[i] + s.lengths[i] <= s.data_size


cdef class ListColumn:
    """``n`` lists of int32 in one buffer: int32 ``starts``, int32 ``lengths``, int32 ``values``."""

    cdef readonly object starts, lengths, values
    cdef const int32_t[::1] _starts
    cdef const int32_t[::1] _lengths
    cdef const int32_t[::1] _values
    cdef Lists c

    def __init__(self, starts, lengths, values):
        self.starts = as_column(starts, _np_int32, "starts")
        self.lengths = as_column(lengths, _np_int32, "lengths")
        self.values = as_column(values, _np_int32, "values")
        self._starts = self.starts
        self._lengths = self.lengths
        self._values = self.values
        if self._starts.shape[0] != self._lengths.shape[0]:
            raise ValueError(f"ListColumn: {self._starts.shape[0]} starts but {self._lengths.shape[0]} lengths")
        self.c.n = self._starts.shape[0]
        self.c.starts = int32_pointer(self._starts)
        self.c.lengths = int32_pointer(self._lengths)
        self.c.values = int32_pointer(self._values)
        self.c.n_values = self._values.shape[0]

    @staticmethod
    def from_lists(lists):
        """Columns of an iterable of int sequences."""
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
        """The lists as Python lists of ints."""
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
    cdef const uint8_t[:, ::1] _ids
    cdef const uint8_t[::1] _deleting
    cdef const uint8_t* c_ids
    cdef const uint8_t* c_deleting

    def __init__(self, StringColumn names not None, ids=None, deleting=None):
        cdef int64_t n = names.c.n
        self.names = names
        self.ids = np.zeros((n, 16), np.uint8) if ids is None else as_column(ids, _np_uint8, "ids")
        if self.ids.shape != (n, 16):
            raise ValueError(f"Topics: ids has shape {self.ids.shape}, expected {(n, 16)}")
        self._ids = self.ids
        self.c_ids = &self._ids[0, 0] if n > 0 else NULL
        self.deleting = None if deleting is None else as_column(deleting, _np_uint8, "deleting")
        self.c_deleting = NULL
        if self.deleting is not None:
            self._deleting = self.deleting
            if self._deleting.shape[0] != n:
                raise ValueError(f"Topics: {self._deleting.shape[0]} deleting flags for {n} topics")
            self.c_deleting = uint8_pointer(self._deleting)

    def __len__(self):
        return self.names.c.n

    def __repr__(self):
        return f"Topics(n={self.names.c.n})"


cdef class Partitions:
    """Partition rows: seven int32[n] columns and five list columns of n lists (None: all empty)."""

    cdef readonly object topic_row, partition, controller_epoch, leader, leader_epoch, partition_epoch
    cdef readonly object recovery_state
    cdef readonly ListColumn isr, replicas, adding, removing, offline
    cdef const int32_t[::1] _topic_row
    cdef const int32_t[::1] _partition
    cdef const int32_t[::1] _controller_epoch
    cdef const int32_t[::1] _leader
    cdef const int32_t[::1] _leader_epoch
    cdef const int32_t[::1] _partition_epoch
    cdef const int32_t[::1] _recovery_state
    cdef int64_t n
    cdef PartitionColumns c

    def __init__(
        self, topic_row, partition, controller_epoch, leader, leader_epoch, partition_epoch, recovery_state,
        ListColumn isr not None, ListColumn replicas not None,
        ListColumn adding=None, ListColumn removing=None, ListColumn offline=None,
    ):
        self._topic_row = self.topic_row = as_column(topic_row, _np_int32, "topic_row")
        self._partition = self.partition = as_column(partition, _np_int32, "partition")
        self._controller_epoch = self.controller_epoch = as_column(
            controller_epoch, _np_int32, "controller_epoch"
        )
        self._leader = self.leader = as_column(leader, _np_int32, "leader")
        self._leader_epoch = self.leader_epoch = as_column(leader_epoch, _np_int32, "leader_epoch")
        self._partition_epoch = self.partition_epoch = as_column(
            partition_epoch, _np_int32, "partition_epoch"
        )
        self._recovery_state = self.recovery_state = as_column(recovery_state, _np_int32, "recovery_state")
        self.n = self._topic_row.shape[0]
        for name in (
            "partition", "controller_epoch", "leader", "leader_epoch", "partition_epoch", "recovery_state",
        ):
            if len(getattr(self, name)) != self.n:
                raise ValueError(f"Partitions: {name} has {len(getattr(self, name))} rows, topic_row {self.n}")
        self.isr = isr
        self.replicas = replicas
        self.adding = adding
        self.removing = removing
        self.offline = offline
        for name in ("isr", "replicas", "adding", "removing", "offline"):
            column = getattr(self, name)
            if column is not None and len(column) != self.n:
                raise ValueError(f"Partitions: {name} has {len(column)} rows, topic_row {self.n}")
        self.c.topic_row = int32_pointer(self._topic_row)
        self.c.partition = int32_pointer(self._partition)
        self.c.controller_epoch = int32_pointer(self._controller_epoch)
        self.c.leader = int32_pointer(self._leader)
        self.c.leader_epoch = int32_pointer(self._leader_epoch)
        self.c.partition_epoch = int32_pointer(self._partition_epoch)
        self.c.recovery_state = int32_pointer(self._recovery_state)
        self.c.isr = isr.c
        self.c.replicas = replicas.c
        self.c.adding = lists_or_empty(adding)
        self.c.removing = lists_or_empty(removing)
        self.c.offline = lists_or_empty(offline)

    def __len__(self):
        return self.n

    def __repr__(self):
        return f"Partitions(n={self.n})"


cdef Lists lists_or_empty(ListColumn column):
    cdef Lists none
    if column is not None:
        return column.c
    none.n = 0
    none.starts = NULL
    none.lengths = NULL
    none.values = NULL
    none.n_values = 0
    return none


cdef class Brokers:
    """Broker rows and their endpoints; see ``_codec.pyi``."""

    cdef readonly object ids, epochs, endpoint_starts, endpoint_lengths, ports, security_protocols
    cdef readonly StringColumn racks, hosts, listeners
    cdef const int32_t[::1] _ids
    cdef const int32_t[::1] _endpoint_starts
    cdef const int32_t[::1] _endpoint_lengths
    cdef const int32_t[::1] _ports
    cdef const int32_t[::1] _security_protocols
    cdef int64_t n, n_endpoints

    def __init__(
        self, ids, epochs, StringColumn racks not None, endpoint_starts, endpoint_lengths, ports,
        StringColumn hosts not None, StringColumn listeners not None, security_protocols,
    ):
        self._ids = self.ids = as_column(ids, _np_int32, "ids")
        self.n = self._ids.shape[0]
        self.epochs = np.full(self.n, -1, np.int64) if epochs is None else as_column(epochs, _np_int64, "epochs")
        self.racks = racks
        self._endpoint_starts = self.endpoint_starts = as_column(endpoint_starts, _np_int32, "endpoint_starts")
        self._endpoint_lengths = self.endpoint_lengths = as_column(
            endpoint_lengths, _np_int32, "endpoint_lengths"
        )
        self._ports = self.ports = as_column(ports, _np_int32, "ports")
        self.n_endpoints = self._ports.shape[0]
        self.hosts = hosts
        self.listeners = listeners
        self._security_protocols = self.security_protocols = as_column(
            security_protocols, _np_int32, "security_protocols"
        )
        for name in ("epochs", "racks", "endpoint_starts", "endpoint_lengths"):
            if len(getattr(self, name)) != self.n:
                raise ValueError(f"Brokers: {name} has {len(getattr(self, name))} rows, ids {self.n}")
        for name in ("hosts", "listeners", "security_protocols"):
            if len(getattr(self, name)) != self.n_endpoints:
                raise ValueError(f"Brokers: {name} has {len(getattr(self, name))} rows, ports {self.n_endpoints}")

    def __len__(self):
        return self.n

    def __repr__(self):
        return f"Brokers(n={self.n})"


cdef class LiveLeaders:
    """Rows of LeaderAndIsr's live leaders: ``ids`` int32[n], ``hosts``, ``ports`` int32[n]."""

    cdef readonly object ids, ports
    cdef readonly StringColumn hosts
    cdef const int32_t[::1] _ids
    cdef const int32_t[::1] _ports
    cdef int64_t n

    def __init__(self, ids, StringColumn hosts not None, ports):
        self._ids = self.ids = as_column(ids, _np_int32, "ids")
        self._ports = self.ports = as_column(ports, _np_int32, "ports")
        self.hosts = hosts
        self.n = self._ids.shape[0]
        if self.n != self._ports.shape[0] or self.n != hosts.c.n:
            raise ValueError(f"LiveLeaders: {self.n} ids, {hosts.c.n} hosts, {self._ports.shape[0]} ports")

    def __len__(self):
        return self.n

    def __repr__(self):
        return f"LiveLeaders(n={self.n})"
