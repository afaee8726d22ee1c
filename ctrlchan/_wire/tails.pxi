# Tails: the part of a request body that is the same for every broker of a version and a selection.
#
#   UpdateMetadata  topic states (or ungrouped partition states before v5), live brokers, tagged fields
#   LeaderAndIsr    topic states (or ungrouped partition states before v2), live leaders, tagged fields
#   StopReplica     topic states (topics in v1-2, ungrouped partitions in v0), tagged fields
#
# A tail is planned (rows grouped by topic, exact size) when it is made and written once. Loops are
# specialised by constant arguments of inlined functions, so that no version test stands in a row loop.


cdef struct Plan:
    # The selected rows in order: position i is row rows[i], or row i when rows is NULL.
    const int64_t* rows
    int64_t n
    int64_t n_columns
    # Group g is topic group_topic[g] and ends before position group_end[g]. Owned by the Tail.
    int64_t n_groups
    int32_t* group_topic
    int64_t* group_end


cdef struct Stops:
    int64_t n
    const int32_t* topic_row
    const int32_t* partition
    # NULL: absent, -1 for every entry
    const int32_t* leader_epoch
    # NULL: absent, false for every entry
    const uint8_t* delete


cdef class StopColumns:
    """The entries of a StopReplica tail: equally long columns, of which two may be absent."""

    cdef const int32_t[::1] topic_row
    cdef const int32_t[::1] partition
    cdef const int32_t[::1] leader_epoch
    cdef const uint8_t[::1] delete
    cdef Stops c

    def __init__(self, topic_row, partition, leader_epoch, delete):
        self.topic_row = as_column(topic_row, _np_int32, "topic_row")
        self.partition = as_column(partition, _np_int32, "partition")
        self.c.n = self.topic_row.shape[0]
        self.c.topic_row = int32_pointer(self.topic_row)
        self.c.partition = int32_pointer(self.partition)
        self.c.leader_epoch = NULL
        self.c.delete = NULL
        if leader_epoch is not None:
            self.leader_epoch = as_column(leader_epoch, _np_int32, "leader_epoch")
            self.c.leader_epoch = int32_pointer(self.leader_epoch)
        if delete is not None:
            self.delete = as_column(delete, _np_uint8, "delete")
            self.c.delete = uint8_pointer(self.delete)
        if (
            self.partition.shape[0] != self.c.n
            or (leader_epoch is not None and self.leader_epoch.shape[0] != self.c.n)
            or (delete is not None and self.delete.shape[0] != self.c.n)
        ):
            raise ValueError("stop_replica_tail: the columns differ in length")


cdef class Tail:
    """The shared part of a request body, sized and ready to be written. References its columns."""

    cdef readonly int api_key, version
    cdef readonly int64_t size, rows
    cdef Topics _topics
    cdef Partitions _partitions
    cdef Brokers _brokers
    cdef LiveLeaders _leaders
    cdef StopColumns _stop
    cdef Stops stops
    cdef const int64_t[::1] _rows
    cdef const uint8_t[::1] _is_new
    cdef const uint8_t* c_is_new
    cdef int _request_type
    cdef Plan plan

    def __cinit__(self):
        self.plan.group_topic = NULL
        self.plan.group_end = NULL

    def __dealloc__(self):
        free(self.plan.group_topic)
        free(self.plan.group_end)

    def write_into(self, out, int64_t offset=0):
        """Write exactly ``size`` bytes at ``out[offset:]``; returns ``size``. See ``_codec.pyi``."""
        cdef Py_buffer view
        cdef Fault fault
        cdef uint8_t* p
        PyObject_GetBuffer(out, &view, PyBUF_WRITABLE)
        try:
            if offset < 0 or view.len - offset < self.size:
                raise ValueError(f"need {self.size} bytes at offset {offset}, the buffer has {view.len}")
            p = <uint8_t*>view.buf + offset
            fault.reason = R_NONE
            with nogil:
                self.write(p, p + self.size, &fault)
            if fault.reason != R_NONE:
                raise_encode_fault(&fault, request_name(self.api_key), self.version)
        finally:
            PyBuffer_Release(&view)
        return self.size

    def to_bytes(self):
        """The tail as new bytes."""
        out = PyBytes_FromStringAndSize(NULL, self.size)
        cdef uint8_t* p = <uint8_t*>PyBytes_AS_STRING(out)
        cdef Fault fault
        fault.reason = R_NONE
        with nogil:
            self.write(p, p + self.size, &fault)
        if fault.reason != R_NONE:
            raise_encode_fault(&fault, request_name(self.api_key), self.version)
        return out

    cdef void write(self, uint8_t* p, const uint8_t* end, Fault* fault) noexcept nogil:
        # There is always room for the first count: the size contains it.
        if self.api_key == API_UPDATE_METADATA:
            p = put_update_metadata(self, p, end, fault)
        elif self.api_key == API_LEADER_AND_ISR:
            p = put_leader_and_isr(self, p, end, fault)
        else:
            p = put_stop_replica(self, p, end, fault)
        if p != end:
            fail(fault, R_CHANGED, F_MESSAGE, -1)

    def __repr__(self):
        return f"<Tail {request_name(self.api_key)} v{self.version}: {self.rows} rows, {self.size} bytes>"


# ---------------------------------------------------------------------------------------------- planning


cdef int plan_rows(Tail tail, const int32_t* topic_row, int64_t n_columns, rows, topic_starts) except -1:
    """Fill ``tail.plan``: the selected rows in order, and where each topic's rows end."""
    cdef Plan* plan = &tail.plan
    cdef Fault fault
    cdef int64_t i, n_topics = len(tail._topics)
    cdef const int64_t[::1] starts
    fault.reason = R_NONE
    plan.n_columns = n_columns
    plan.rows = NULL
    plan.n = n_columns
    if rows is not None:
        tail._rows = as_column(rows, _np_int64, "rows")
        plan.n = tail._rows.shape[0]
        # An empty selection needs a pointer that is not NULL, which would mean "every row".
        plan.rows = &tail._rows[0] if plan.n > 0 else <const int64_t*>&plan.n
    if plan.n >= 0x7FFFFFFF:
        raise EncodeError(f"{plan.n} rows are more than one request can count")
    tail.rows = plan.n
    if topic_starts is not None:
        starts = as_column(topic_starts, _np_int64, "topic_starts")
        if starts.shape[0] != n_topics + 1 or starts[0] != 0 or starts[n_topics] != plan.n:
            raise ValueError(f"topic_starts must run from 0 to {plan.n} in {n_topics + 1} steps")
        allocate_groups(plan, n_topics)
        for i in range(n_topics):
            if starts[i + 1] < starts[i]:
                raise ValueError(f"topic_starts goes backwards at topic {i}")
            plan.group_topic[i] = <int32_t>i
            plan.group_end[i] = starts[i + 1]
        with nogil:
            check_rows(plan, &fault)
    else:
        with nogil:
            plan.n_groups = count_groups(plan, topic_row, &fault)
        if fault.reason == R_NONE:
            allocate_groups(plan, plan.n_groups)
            with nogil:
                fill_groups(plan, topic_row, n_topics, &fault)
    if fault.reason != R_NONE:
        raise_encode_fault(&fault, request_name(tail.api_key), tail.version)
    return 0


cdef int allocate_groups(Plan* plan, int64_t n) except -1:
    plan.n_groups = n
    plan.group_topic = <int32_t*>malloc((n + 1) * sizeof(int32_t))
    plan.group_end = <int64_t*>malloc((n + 1) * sizeof(int64_t))
    if plan.group_topic == NULL or plan.group_end == NULL:
        raise MemoryError()
    return 0


cdef int check_rows(Plan* plan, Fault* fault) noexcept nogil:
    """A fault when a selected row is outside the columns."""
    cdef int64_t i
    if plan.rows != NULL:
        for i in range(plan.n):
            if plan.rows[i] < 0 or plan.rows[i] >= plan.n_columns:
                return fail(fault, R_ROW_RANGE, F_MESSAGE, plan.rows[i])
    return 0


cdef int64_t count_groups(Plan* plan, const int32_t* topic_row, Fault* fault) noexcept nogil:
    """Number of runs of equal topic rows in the selection; -1 when a row number is out of range."""
    cdef int64_t i, groups = 1
    if plan.n == 0:
        return 0
    if plan.rows == NULL:
        for i in range(1, plan.n):
            groups += topic_row[i] != topic_row[i - 1]
        return groups
    for i in range(plan.n):
        if plan.rows[i] < 0 or plan.rows[i] >= plan.n_columns:
            return fail(fault, R_ROW_RANGE, F_MESSAGE, plan.rows[i])
        if i > 0:
            groups += topic_row[plan.rows[i]] != topic_row[plan.rows[i - 1]]
    return groups


cdef int fill_groups(Plan* plan, const int32_t* topic_row, int64_t n_topics, Fault* fault) noexcept nogil:
    cdef int64_t i, g = -1
    cdef int32_t topic = 0, last = 0
    for i in range(plan.n):
        topic = topic_row[i if plan.rows == NULL else plan.rows[i]]
        if g < 0 or topic != last:
            # More runs than were counted can only mean that the columns are being changed.
            if topic < 0 or topic >= n_topics or g + 1 >= plan.n_groups:
                return fail(fault, R_TOPIC_RANGE, F_TOPIC_NAME, i if plan.rows == NULL else plan.rows[i])
            g += 1
            plan.group_topic[g] = topic
            last = topic
        plan.group_end[g] = i + 1
    plan.n_groups = g + 1
    return 0


cdef int64_t groups_size(Tail tail, bint grouped, bint flexible, bint has_id, int name_field, Fault* fault) noexcept nogil:
    """Bytes of the topics' names, ids, counts and tags (or of the names before each row when not grouped)."""
    cdef Plan* plan = &tail.plan
    cdef const Strings* names = &tail._topics.names.c
    cdef int64_t g, rows, name, start = 0
    cdef int64_t size = count_size(plan.n_groups, flexible) if grouped else 4
    for g in range(plan.n_groups):
        name = string_size(names, plan.group_topic[g], flexible, False, name_field, fault)
        if name < 0:
            return -1
        rows = plan.group_end[g] - start
        start = plan.group_end[g]
        if grouped:
            size += name + count_size(rows, flexible) + (16 if has_id else 0) + (1 if flexible else 0)
        else:
            size += name * rows
    return size


cdef inline uint8_t* put_topic(Tail tail, uint8_t* p, const uint8_t* end, int64_t g, bint flexible, bint has_id, int name_field, Fault* fault) noexcept nogil:
    """Name, id and partition count of group ``g``."""
    cdef int32_t topic = tail.plan.group_topic[g]
    cdef int64_t rows = tail.plan.group_end[g] - (tail.plan.group_end[g - 1] if g > 0 else 0)
    p = put_string(p, end, &tail._topics.names.c, topic, flexible, False, name_field, fault)
    if p == NULL:
        return NULL
    if end - p < (16 if has_id else 0) + count_size(rows, flexible):
        fail(fault, R_CHANGED, name_field, -1)
        return NULL
    if has_id:
        memcpy(p, tail._topics.c_ids + 16 * <int64_t>topic, 16)
        p += 16
    return put_count(p, rows, flexible)


cdef Tail new_tail(int api_key, int version, Topics topics):
    check_version(api_key, version)
    cdef Tail tail = Tail.__new__(Tail)
    tail.api_key = api_key
    tail.version = version
    tail._topics = topics
    return tail
