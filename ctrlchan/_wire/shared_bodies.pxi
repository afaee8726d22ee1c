# Shared bodies: the part of a request body that is the same for every broker of a version and a selection.
#
#   UpdateMetadata  topic states (or ungrouped partition states before v5), live brokers, tagged fields
#   LeaderAndIsr    topic states (or ungrouped partition states before v2), live leaders, tagged fields
#   StopReplica     topic states (topics in v1-2, ungrouped partitions in v0), tagged fields
#
# A shared body is planned (rows grouped by topic, exact size) when it is made and written once. Loops are
# specialised by constant arguments of inlined functions, so that row loops contain no version tests.


cdef struct Group:
    # A topic's rows end before position `stop` and begin where the group before ends.
    int32_t topic
    int64_t stop


cdef struct Plan:
    RowSource source
    int64_t n
    # Owned by the SharedBody, as are the stretches of `source`.
    Group* groups
    int64_t n_groups


cdef struct Stops:
    int64_t n
    const int32_t* topic_row
    const int32_t* partition
    # NULL: absent, -1 for every entry
    const int32_t* leader_epoch
    # NULL: absent, false for every entry
    const uint8_t* delete


cdef class StopColumns:
    """The entries of a StopReplica shared body: equally long columns, of which two may be absent."""

    cdef object topic_row, partition, leader_epoch, delete
    cdef Stops c

    def __init__(self, topic_row, partition, leader_epoch, delete):
        cdef int64_t n_partitions = 0, n_epochs = 0, n_flags = 0
        self.topic_row = int32_column(topic_row, "topic_row", &self.c.topic_row, &self.c.n)
        self.partition = int32_column(partition, "partition", &self.c.partition, &n_partitions)
        if leader_epoch is not None:
            self.leader_epoch = int32_column(leader_epoch, "leader_epoch", &self.c.leader_epoch, &n_epochs)
        if delete is not None:
            self.delete = uint8_column(delete, "delete", &self.c.delete, &n_flags)
        if (
            n_partitions != self.c.n
            or (leader_epoch is not None and n_epochs != self.c.n)
            or (delete is not None and n_flags != self.c.n)
        ):
            raise ValueError("stop_replica_body: the columns differ in length")


cdef class SharedBody:
    """The shared part of a request body, sized and ready to be written. It references its columns."""

    cdef readonly int api_key, version
    cdef readonly int64_t size, rows
    cdef Topics _topics
    cdef Partitions _partitions
    cdef Brokers _brokers
    cdef LiveLeaders _leaders
    cdef StopColumns _stop
    cdef Stops stops
    cdef object _rows, _is_new
    cdef int _request_type
    cdef Plan plan

    def __dealloc__(self):
        free(self.plan.groups)
        free(self.plan.source.stretches)

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
        """Return the shared body as new bytes."""
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
        return f"<SharedBody {request_name(self.api_key)} v{self.version}: {self.rows} rows, {self.size} bytes>"


# ---------------------------------------------------------------------------------------------- planning


cdef int plan_rows(SharedBody shared_body, const int32_t* topic_row, int64_t n_columns, rows, topic_starts) except -1:
    """Fill ``shared_body.plan``: the selected rows in order, and where each topic's rows end."""
    cdef Plan* plan = &shared_body.plan
    cdef Fault fault
    cdef int64_t i, stop, n_starts = 0, n_topics = shared_body._topics.names.c.n
    cdef const int64_t* starts = NULL
    plan.source.n_columns = n_columns
    plan.n = n_columns
    if rows is not None:
        shared_body._rows = int64_column(rows, "rows", &plan.source.rows, &plan.n)
        if plan.n == 0:
            # NULL would mean "every row".
            plan.source.rows = &plan.n
    if plan.n >= 0x7FFFFFFF:
        raise EncodeError(f"{plan.n} rows are more than one request can count")
    shared_body.rows = plan.n
    if topic_starts is None:
        fault.reason = R_NONE
        with nogil:
            i = find_groups(plan, topic_row, n_topics, &fault)
        if fault.reason != R_NONE:
            raise_encode_fault(&fault, request_name(shared_body.api_key), shared_body.version)
        if i < 0:
            raise MemoryError()
        return 0
    # Kept until this function returns.
    array = int64_column(topic_starts, "topic_starts", &starts, &n_starts)
    if n_starts != n_topics + 1 or starts[0] != 0 or starts[n_topics] != plan.n:
        raise ValueError(f"topic_starts must run from 0 to {plan.n} in {n_topics + 1} steps")
    if not reserve_groups(plan, n_topics):
        raise MemoryError()
    for i in range(n_topics):
        stop = once_i64(starts + i + 1)
        if stop < group_start(plan, i) or stop > plan.n:
            raise ValueError(f"topic_starts goes backwards at topic {i}")
        plan.groups[i].topic = <int32_t>i
        plan.groups[i].stop = stop
        plan.n_groups = i + 1
    return 0


cdef bint reserve_groups(Plan* plan, int64_t room) noexcept nogil:
    cdef Group* groups = <Group*>realloc(plan.groups, (room + 1) * sizeof(Group))
    if groups != NULL:
        plan.groups = groups
    return groups != NULL


cdef inline int64_t group_start(const Plan* plan, int64_t g) noexcept nogil:
    return plan.groups[g - 1].stop if g > 0 else 0


cdef int find_groups(Plan* plan, const int32_t* topic_row, int64_t n_topics, Fault* fault) noexcept nogil:
    """Make one group for each run of equal topic rows; -1 after a fault or without memory."""
    # Sorted rows, the usual case, have no more runs than there are topics.
    cdef int64_t room = plan.n if plan.n < n_topics else n_topics
    cdef int64_t i = 0, start
    cdef int32_t topic = 0
    if not reserve_groups(plan, room):
        return -1
    while i < plan.n:
        start = i
        i = topic_run(topic_row, &plan.source, start, plan.n, &topic)
        if i < 0:
            return fail(fault, R_ROW_RANGE, F_MESSAGE, plan.source.rows[start])
        if topic < 0 or topic >= n_topics:
            return fail(fault, R_TOPIC_RANGE, F_TOPIC_NAME, row_at(&plan.source, start))
        if plan.n_groups == room:
            room = 2 * room + 1
            if not reserve_groups(plan, room):
                return -1
        plan.groups[plan.n_groups].topic = topic
        plan.groups[plan.n_groups].stop = i
        plan.n_groups += 1
    return 0


cdef void plan_stretches(Plan* plan, RowLayout layout) noexcept nogil:
    """Find stretches of even rows, whose lists need no look-up when the message is sized and written."""
    cdef Stretch* stretches = NULL
    plan.source.n_stretches = find_stretches(&plan.source, plan.n, layout, &stretches)
    plan.source.stretches = stretches


cdef int64_t column_size(const Plan* plan, const Lists* lists, bint flexible, int field, Fault* fault) noexcept nogil:
    """Return the bytes of the selected rows' lists with their counts, without stretches; -1 after a fault."""
    cdef int64_t k, one, stop, start = 0, wrong = 0, size = 0
    for k in range(plan.source.n_stretches + 1):
        stop = plan.source.stretches[k].position if k < plan.source.n_stretches else plan.n
        one = lists_size(lists, &plan.source, start, stop, flexible, &wrong)
        if one < 0:
            if row_at(&plan.source, wrong) < 0:
                return fail(fault, R_ROW_RANGE, F_MESSAGE, plan.source.rows[wrong])
            return fail(fault, R_NEGATIVE_LENGTH, field, row_at(&plan.source, wrong))
        size += one
        if k < plan.source.n_stretches:
            start = plan.source.stretches[k].stop
    return size


cdef int64_t stretches_size(const Plan* plan, int n_lists) noexcept nogil:
    """Return the bytes of the lists of all stretches: two lists have values, and each list has one count byte."""
    cdef int64_t k, size = 0
    cdef const Stretch* s
    for k in range(plan.source.n_stretches):
        s = &plan.source.stretches[k]
        size += (s.stop - s.position) * (n_lists + 4 * (s.isr + s.replicas))
    return size


cdef int64_t groups_size(SharedBody shared_body, bint grouped, bint flexible, bint has_id, int name_field, Fault* fault) noexcept nogil:
    """Return the bytes of the topics' names, ids, counts and tags (not grouped: of the name before each row)."""
    cdef Plan* plan = &shared_body.plan
    cdef const Strings* names = &shared_body._topics.names.c
    cdef int64_t g, rows, name
    cdef int64_t size = count_size(plan.n_groups, flexible) if grouped else 4
    for g in range(plan.n_groups):
        name = string_size(names, plan.groups[g].topic, flexible, False, name_field, fault)
        if name < 0:
            return -1
        rows = plan.groups[g].stop - group_start(plan, g)
        if grouped:
            size += name + count_size(rows, flexible) + (16 if has_id else 0) + (1 if flexible else 0)
        else:
            size += name * rows
    return size


cdef inline uint8_t* put_topic(SharedBody shared_body, uint8_t* p, const uint8_t* end, int64_t g, bint flexible, bint has_id, int name_field, Fault* fault) noexcept nogil:
    """Write name, id and partition count of group ``g``."""
    cdef int32_t topic = shared_body.plan.groups[g].topic
    cdef int64_t rows = shared_body.plan.groups[g].stop - group_start(&shared_body.plan, g)
    p = put_string(p, end, &shared_body._topics.names.c, topic, flexible, False, name_field, fault)
    if p == NULL:
        return NULL
    if end - p < (16 if has_id else 0) + count_size(rows, flexible):
        fail(fault, R_CHANGED, name_field, -1)
        return NULL
    if has_id:
        memcpy(p, shared_body._topics.c_ids + 16 * <int64_t>topic, 16)
        p += 16
    return put_count(p, rows, flexible)


cdef SharedBody new_shared_body(int api_key, int version, Topics topics):
    check_version(api_key, version)
    cdef SharedBody shared_body = SharedBody.__new__(SharedBody)
    shared_body.api_key = api_key
    shared_body.version = version
    shared_body._topics = topics
    return shared_body
