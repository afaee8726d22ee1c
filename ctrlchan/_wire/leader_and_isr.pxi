# LeaderAndIsr (api key 4, versions 0-7): sizes, writes and reads.
#
#   head  controller_id int32, [v7 is_kraft_controller], controller_epoch int32, [v2+ broker_epoch int64],
#         [v5+ type int8]
#   shared body  v0-1  [partition state, each with its topic's name]
#         v2+   [topic: name, [v5+ id], [partition state]]
#         [live leader: id int32, host, port int32]
#   partition state: partition, controller epoch, leader, leader epoch int32, isr [int32],
#                    partition epoch int32, replicas [int32], [v3+ adding, removing [int32]],
#                    [v1+ is_new bool], [v6+ leader recovery state int8]
#
# Source: LeaderAndIsrRequest.json.


def leader_and_isr_body(
    int version, Topics topics not None, Partitions partitions not None, LiveLeaders live_leaders not None,
    rows=None, *, is_new=None, topic_starts=None,
):
    """Size a LeaderAndIsr shared body; see ``_codec.pyi``."""
    cdef SharedBody shared_body = new_shared_body(API_LEADER_AND_ISR, version, topics)
    cdef Fault fault
    cdef int64_t flags = 0
    shared_body._partitions = partitions
    shared_body._leaders = live_leaders
    plan_rows(shared_body, partitions.c.topic_row, partitions.n, rows, topic_starts)
    if is_new is not None:
        shared_body._is_new = uint8_column(is_new, "is_new", &shared_body.plan.source.is_new, &flags)
        if flags != shared_body.plan.n:
            raise ValueError(f"{flags} is_new flags for {shared_body.plan.n} rows")
    fault.reason = R_NONE
    with nogil:
        shared_body.size = leader_and_isr_size(shared_body, &fault)
    if fault.reason == R_NEEDS_NEWER:
        raise UnsupportedVersionError(
            f"a non-default value (row {fault.at}) needs version 6", api="LeaderAndIsrRequest",
            version=version, field="leaderRecoveryState",
        )
    if fault.reason != R_NONE:
        raise_encode_fault(&fault, "LeaderAndIsrRequest", version)
    return shared_body


cdef int64_t leader_and_isr_size(SharedBody shared_body, Fault* fault) noexcept nogil:
    cdef int version = shared_body.version
    cdef bint flexible = version >= 4
    cdef int64_t n = shared_body.plan.n
    cdef PartitionColumns* c = &shared_body._partitions.c
    cdef int64_t i, row, groups, isr, replicas, leaders, adding = 0, removing = 0, stretches = 0
    shared_body.plan.source.columns = c
    groups = groups_size(shared_body, version >= 2, flexible, version >= 5, F_TOPIC_NAME, fault)
    if flexible:
        plan_stretches(&shared_body.plan, LEADER_AND_ISR_6_ROWS if version >= 6 else LEADER_AND_ISR_4_ROWS)
        stretches = stretches_size(&shared_body.plan, 4)
    isr = column_size(&shared_body.plan, &c.isr, flexible, F_ISR, fault)
    replicas = column_size(&shared_body.plan, &c.replicas, flexible, F_REPLICAS, fault)
    if version >= 3:
        adding = column_size(&shared_body.plan, &c.adding, flexible, F_ADDING_REPLICAS, fault)
        removing = column_size(&shared_body.plan, &c.removing, flexible, F_REMOVING_REPLICAS, fault)
    leaders = live_leaders_size(shared_body._leaders, flexible, fault)
    if groups < 0 or isr < 0 or replicas < 0 or adding < 0 or removing < 0 or leaders < 0:
        return -1
    if version < 6:
        # The schema does not let this field be ignored: an older broker could not see that a partition is in recovery.
        for i in range(n):
            row = row_at(&shared_body.plan.source, i)
            if row >= 0 and c.recovery_state[row] != 0:
                return fail(fault, R_NEEDS_NEWER, F_LEADER_RECOVERY_STATE, row)
    # Fixed fields: partition, controller epoch, leader, leader epoch, partition epoch; then one byte each.
    cdef int64_t fixed = 20 + (1 if version >= 1 else 0) + (1 if version >= 6 else 0) + (1 if flexible else 0)
    return groups + n * fixed + stretches + isr + replicas + adding + removing + leaders + (1 if flexible else 0)


cdef inline uint8_t* put_leader_and_isr_rows(SharedBody shared_body, RowSource* source, uint8_t* p, const uint8_t* end, int64_t g, int version, bint flexible, bint named, Fault* fault) noexcept nogil:
    """Write the partition states of group ``g``."""
    cdef const PartitionColumns* c = source.columns
    cdef int64_t stop = shared_body.plan.groups[g].stop
    cdef int64_t i = group_start(&shared_body.plan, g)
    cdef int64_t row
    while True:
        if flexible:
            p = put_rows(p, end, source, &i, stop, LEADER_AND_ISR_6_ROWS if version >= 6 else LEADER_AND_ISR_4_ROWS)
        if i >= stop:
            return p
        row = row_at(source, i)
        if row < 0:
            fail(fault, R_ROW_RANGE, F_PARTITION_INDEX, source.rows[i])
            return NULL
        if named:
            p = put_string(p, end, &shared_body._topics.names.c, shared_body.plan.groups[g].topic, False, False, F_TOPIC_NAME, fault)
            if p == NULL:
                return NULL
        if end - p < 20:
            fail(fault, R_CHANGED, F_PARTITION_INDEX, row)
            return NULL
        put_i32(p, c.partition[row])
        put_i32(p + 4, c.controller_epoch[row])
        put_i32(p + 8, c.leader[row])
        put_i32(p + 12, c.leader_epoch[row])
        p = put_list(p + 16, end, &c.isr, row, flexible)
        if p == NULL or end - p < 4:
            list_fault(&c.isr, row, F_ISR, fault)
            fail(fault, R_CHANGED, F_ISR, row)
            return NULL
        put_i32(p, c.partition_epoch[row])
        p = put_list(p + 4, end, &c.replicas, row, flexible)
        if p == NULL:
            list_fault(&c.replicas, row, F_REPLICAS, fault)
            fail(fault, R_CHANGED, F_REPLICAS, row)
            return NULL
        if version >= 3:
            p = put_list(p, end, &c.adding, row, flexible)
            if p == NULL:
                list_fault(&c.adding, row, F_ADDING_REPLICAS, fault)
                fail(fault, R_CHANGED, F_ADDING_REPLICAS, row)
                return NULL
            p = put_list(p, end, &c.removing, row, flexible)
            if p == NULL:
                list_fault(&c.removing, row, F_REMOVING_REPLICAS, fault)
                fail(fault, R_CHANGED, F_REMOVING_REPLICAS, row)
                return NULL
        if end - p < (1 if version >= 1 else 0) + (1 if version >= 6 else 0) + (1 if flexible else 0):
            fail(fault, R_CHANGED, F_IS_NEW, row)
            return NULL
        if version >= 1:
            p[0] = source.is_new != NULL and source.is_new[i] != 0
            p += 1
        if version >= 6:
            if c.recovery_state[row] != <int8_t>c.recovery_state[row]:
                fail(fault, R_INT8, F_LEADER_RECOVERY_STATE, row)
                return NULL
            p[0] = <uint8_t><int8_t>c.recovery_state[row]
            p += 1
        if flexible:
            p[0] = 0
            p += 1
        i += 1


cdef uint8_t* put_leader_and_isr(SharedBody shared_body, uint8_t* p, const uint8_t* end, Fault* fault) noexcept nogil:
    cdef int version = shared_body.version
    cdef RowSource source = shared_body.plan.source
    cdef int64_t g
    if version >= 2:
        p = put_count(p, shared_body.plan.n_groups, version >= 4)
    else:
        p = put_count(p, shared_body.plan.n, False)
    for g in range(shared_body.plan.n_groups):
        if version >= 2:
            p = put_topic(shared_body, p, end, g, version >= 4, version >= 5, F_TOPIC_NAME, fault)
        if p == NULL:
            return NULL
        if version >= 6:
            p = put_leader_and_isr_rows(shared_body, &source, p, end, g, 6, True, False, fault)
        elif version >= 4:
            p = put_leader_and_isr_rows(shared_body, &source, p, end, g, 4, True, False, fault)
        elif version >= 2:
            p = put_leader_and_isr_rows(shared_body, &source, p, end, g, version, False, False, fault)
        else:
            p = put_leader_and_isr_rows(shared_body, &source, p, end, g, version, False, True, fault)
        if p == NULL:
            return NULL
        if version >= 4:
            if end - p < 1:
                fail(fault, R_CHANGED, F_TAGGED_FIELDS, -1)
                return NULL
            p[0] = 0
            p += 1
    p = put_live_leaders(shared_body._leaders, p, end, version >= 4, fault)
    if p != NULL and version >= 4:
        if end - p < 1:
            fail(fault, R_CHANGED, F_TAGGED_FIELDS, -1)
            return NULL
        p[0] = 0
        p += 1
    return p


cdef int64_t live_leaders_size(LiveLeaders leaders, bint flexible, Fault* fault) noexcept nogil:
    cdef int64_t i, one
    cdef int64_t size = count_size(leaders.n, flexible)
    for i in range(leaders.n):
        one = string_size(&leaders.hosts.c, i, flexible, False, F_HOST_NAME, fault)
        if one < 0:
            return -1
        size += 8 + one + (1 if flexible else 0)
    return size


cdef uint8_t* put_live_leaders(LiveLeaders leaders, uint8_t* p, const uint8_t* end, bint flexible, Fault* fault) noexcept nogil:
    cdef int64_t i
    if end - p < count_size(leaders.n, flexible):
        fail(fault, R_CHANGED, F_LIVE_LEADERS, -1)
        return NULL
    p = put_count(p, leaders.n, flexible)
    for i in range(leaders.n):
        if end - p < 4:
            fail(fault, R_CHANGED, F_LIVE_LEADERS, i)
            return NULL
        put_i32(p, leaders.c_ids[i])
        p = put_string(p + 4, end, &leaders.hosts.c, i, flexible, False, F_HOST_NAME, fault)
        if p == NULL or end - p < (5 if flexible else 4):
            fail(fault, R_CHANGED, F_LIVE_LEADERS, i)
            return NULL
        put_i32(p, leaders.c_ports[i])
        p += 4
        if flexible:
            p[0] = 0
            p += 1
    return p


# ---------------------------------------------------------------------------------------------- reading


class LeaderAndIsrRequest:
    """A whole LeaderAndIsr body as columns; see ``_codec.pyi``."""

    __slots__ = (
        "broker_epoch", "controller_epoch", "controller_id", "is_kraft_controller", "is_new", "live_leaders",
        "partitions", "request_type", "topic_starts", "topics", "unknown_tagged_fields", "version",
    )

    def __init__(
        self, *, version, controller_id, controller_epoch, topics, topic_starts, partitions, live_leaders,
        is_new=None, broker_epoch=-1, is_kraft_controller=False, request_type=0, unknown_tagged_fields=0,
    ):
        self.version = version
        self.controller_id = controller_id
        self.is_kraft_controller = is_kraft_controller
        self.controller_epoch = controller_epoch
        self.broker_epoch = broker_epoch
        self.request_type = request_type
        self.topics = topics
        self.topic_starts = topic_starts
        self.partitions = partitions
        self.is_new = np.zeros(len(partitions), np.uint8) if is_new is None else is_new
        self.live_leaders = live_leaders
        self.unknown_tagged_fields = unknown_tagged_fields

    def encode(self):
        """Return the body as bytes. Unknown tagged fields are not kept."""
        head = encode_head(
            API_LEADER_AND_ISR, self.version, self.controller_id, self.controller_epoch, self.broker_epoch,
            is_kraft_controller=self.is_kraft_controller, request_type=self.request_type,
        )
        return head + leader_and_isr_body(
            self.version, self.topics, self.partitions, self.live_leaders,
            is_new=self.is_new, topic_starts=self.topic_starts,
        ).to_bytes()

    def __repr__(self):
        return (
            f"<LeaderAndIsrRequest v{self.version}: {len(self.topics)} topics, {len(self.partitions)} partitions>"
        )


cdef object read_leader_and_isr(Reader* r, int version):
    cdef bint flexible = version >= 4
    cdef bint is_kraft_controller = False
    cdef int64_t broker_epoch = -1
    cdef int request_type = 0
    cdef int32_t controller_id = read_i32(r, F_CONTROLLER_ID)
    if version >= 7:
        is_kraft_controller = read_u8(r, F_IS_KRAFT_CONTROLLER) != 0
    cdef int32_t controller_epoch = read_i32(r, F_CONTROLLER_EPOCH)
    if version >= 2:
        broker_epoch = read_i64(r, F_BROKER_EPOCH)
    if version >= 5:
        request_type = <int8_t>read_u8(r, F_TYPE)
    cdef PartitionFiller filler
    topics, topic_starts, filler = read_grouped(r, API_LEADER_AND_ISR, version)
    live_leaders = read_live_leaders(r, flexible)
    if flexible:
        read_tags(r)
    check_end(r)
    if r.fault.reason != R_NONE:
        return None
    return LeaderAndIsrRequest(
        version=version, controller_id=controller_id, is_kraft_controller=bool(is_kraft_controller),
        controller_epoch=controller_epoch, broker_epoch=broker_epoch, request_type=request_type, topics=topics,
        topic_starts=topic_starts, partitions=filler.partitions(), is_new=filler.flags(),
        live_leaders=live_leaders, unknown_tagged_fields=r.unknown_tags,
    )


cdef int64_t least_leader_and_isr_row(int version) noexcept nogil:
    """Return the bytes of the smallest partition state: fixed fields, empty lists, flags, tags, an empty name."""
    if version >= 4:
        return 20 + 4 + 1 + (1 if version >= 6 else 0) + 1
    return 20 + (16 if version >= 3 else 8) + (1 if version >= 1 else 0) + (2 if version <= 1 else 0)


cdef inline int read_leader_and_isr_rows(Reader* r, PartitionFiller filler, int32_t topic, int64_t left, int version, bint flexible) noexcept nogil:
    """Read ``left`` partition states into rows that there is room for. A local cursor is faster than ``r.p``."""
    cdef PartitionFill* c = &filler.c
    cdef const uint8_t* p = r.p
    cdef const uint8_t* end = r.end
    cdef const uint8_t* at
    cdef int64_t row
    while True:
        if flexible:
            p = get_rows(p, end, c, topic, &left, LEADER_AND_ISR_6_ROWS if version >= 6 else LEADER_AND_ISR_4_ROWS)
        if left == 0:
            r.p = p
            return 0
        at = p
        if end - p < 20:
            return name_leader_and_isr_fault(r, at, version, flexible)
        row = c.n
        c.topic_row[row] = topic
        c.partition[row] = get_i32(p)
        c.controller_epoch[row] = get_i32(p + 4)
        c.leader[row] = get_i32(p + 8)
        c.leader_epoch[row] = get_i32(p + 12)
        p = get_list(p + 16, end, filler, &c.isr, flexible)
        if p == NULL or end - p < 4:
            return name_leader_and_isr_fault(r, at, version, flexible)
        c.partition_epoch[row] = get_i32(p)
        p = get_list(p + 4, end, filler, &c.replicas, flexible)
        if p != NULL and version >= 3:
            p = get_list(p, end, filler, &c.adding, flexible)
        if p != NULL and version >= 3:
            p = get_list(p, end, filler, &c.removing, flexible)
        if p == NULL or end - p < (1 if version >= 1 else 0) + (1 if version >= 6 else 0):
            return name_leader_and_isr_fault(r, at, version, flexible)
        c.flags[row] = 0
        if version >= 1:
            c.flags[row] = p[0] != 0
            p += 1
        c.recovery_state[row] = 0
        if version >= 6:
            c.recovery_state[row] = <int8_t>p[0]
            p += 1
        if flexible:
            r.p = p
            if read_tags(r) < 0 or r.fault.reason != R_NONE:
                return -1
            p = r.p
        c.n += 1
        left -= 1


cdef int name_leader_and_isr_fault(Reader* r, const uint8_t* at, int version, bint flexible) noexcept nogil:
    """Read the row at ``at`` again, field by field, to find the field that is wrong."""
    r.p = at
    read_i32(r, F_PARTITION_INDEX)
    read_i32(r, F_CONTROLLER_EPOCH)
    read_i32(r, F_LEADER)
    read_i32(r, F_LEADER_EPOCH)
    skip_list(r, flexible, F_ISR)
    read_i32(r, F_PARTITION_EPOCH)
    skip_list(r, flexible, F_REPLICAS)
    if version >= 3:
        skip_list(r, flexible, F_ADDING_REPLICAS)
        skip_list(r, flexible, F_REMOVING_REPLICAS)
    if version >= 1:
        read_u8(r, F_IS_NEW)
    if version >= 6:
        read_u8(r, F_LEADER_RECOVERY_STATE)
    # The bytes were wrong at the first read. If they are right now, another thread is writing to them.
    return stop(r, R_CHANGED, F_PARTITION_STATES, r.p)


cdef object read_live_leaders(Reader* r, bint flexible):
    cdef int64_t i, count = read_count(r, flexible, 10, F_LIVE_LEADERS)
    cdef StringFiller hosts = StringFiller(count)
    ids, ports = np.empty(count, np.int32), np.empty(count, np.int32)
    cdef int32_t* c_ids = writable_int32(ids)
    cdef int32_t* c_ports = writable_int32(ports)
    for i in range(count):
        c_ids[i] = read_i32(r, F_BROKER_ID)
        read_text(r, flexible, False, hosts, F_HOST_NAME)
        c_ports[i] = read_i32(r, F_PORT)
        if flexible:
            read_tags(r)
        if r.fault.reason != R_NONE:
            return None
    return LiveLeaders(ids, hosts.column(), ports)
