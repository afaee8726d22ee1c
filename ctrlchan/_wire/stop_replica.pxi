# StopReplica (api key 5, versions 0-4): sizes, writes and reads.
#
#   head  controller_id int32, [v4 is_kraft_controller], controller_epoch int32, [v1+ broker_epoch int64],
#         [v0-2 delete_partitions bool]
#   shared body  v0    [topic name, partition int32]
#         v1-2  [topic: name, [partition int32]]
#         v3+   [topic: name, [partition int32, leader epoch int32, delete bool]]
#
# Source: StopReplicaRequest.json.


def stop_replica_body(
    int version, Topics topics not None, topic_row, partition, leader_epoch=None, delete=None, *,
    topic_starts=None,
):
    """Size a StopReplica shared body; see ``_codec.pyi``."""
    cdef SharedBody shared_body = new_shared_body(API_STOP_REPLICA, version, topics)
    cdef Fault fault
    cdef int64_t groups
    cdef bint flexible = version >= 2
    shared_body._stop = StopColumns(topic_row, partition, leader_epoch, delete)
    shared_body.stops = shared_body._stop.c
    plan_rows(shared_body, shared_body.stops.topic_row, shared_body.stops.n, None, topic_starts)
    fault.reason = R_NONE
    with nogil:
        groups = groups_size(
            shared_body, version >= 1, flexible, False, F_NAME if 1 <= version <= 2 else F_TOPIC_NAME, &fault
        )
    if fault.reason != R_NONE:
        raise_encode_fault(&fault, "StopReplicaRequest", version)
    # A partition: the index alone; from v3 index, leader epoch, delete flag and tags.
    shared_body.size = groups + shared_body.plan.n * (10 if version >= 3 else 4) + (1 if flexible else 0)
    return shared_body


cdef uint8_t* put_stop_replica(SharedBody shared_body, uint8_t* p, const uint8_t* end, Fault* fault) noexcept nogil:
    cdef int version = shared_body.version
    cdef bint flexible = version >= 2
    cdef int name_field = F_NAME if 1 <= version <= 2 else F_TOPIC_NAME
    cdef Stops* stops = &shared_body.stops
    cdef int64_t g, i
    if version >= 1:
        p = put_count(p, shared_body.plan.n_groups, flexible)
    else:
        p = put_count(p, shared_body.plan.n, False)
    for g in range(shared_body.plan.n_groups):
        if version >= 1:
            p = put_topic(shared_body, p, end, g, flexible, False, name_field, fault)
            if p == NULL:
                return NULL
        for i in range(group_start(&shared_body.plan, g), shared_body.plan.groups[g].stop):
            if version == 0:
                p = put_string(p, end, &shared_body._topics.names.c, shared_body.plan.groups[g].topic, False, False, name_field, fault)
                if p == NULL:
                    return NULL
            if end - p < (10 if version >= 3 else 4):
                fail(fault, R_CHANGED, F_PARTITION_INDEX, i)
                return NULL
            put_i32(p, stops.partition[i])
            p += 4
            if version >= 3:
                put_i32(p, stops.leader_epoch[i] if stops.leader_epoch != NULL else -1)
                p[4] = stops.delete != NULL and stops.delete[i] != 0
                p[5] = 0
                p += 6
        if flexible:
            if end - p < 1:
                fail(fault, R_CHANGED, F_TAGGED_FIELDS, -1)
                return NULL
            p[0] = 0
            p += 1
    if flexible:
        if end - p < 1:
            fail(fault, R_CHANGED, F_TAGGED_FIELDS, -1)
            return NULL
        p[0] = 0
        p += 1
    return p


# ---------------------------------------------------------------------------------------------- reading


class StopReplicaRequest:
    """A whole StopReplica body as columns; see ``_codec.pyi``."""

    __slots__ = (
        "broker_epoch", "controller_epoch", "controller_id", "delete", "delete_partitions", "is_kraft_controller",
        "leader_epoch", "partition", "topic_row", "topic_starts", "topics", "unknown_tagged_fields", "version",
    )

    def __init__(
        self, *, version, controller_id, controller_epoch, topics, topic_starts, topic_row, partition,
        leader_epoch=None, delete=None, delete_partitions=False, broker_epoch=-1, is_kraft_controller=False,
        unknown_tagged_fields=0,
    ):
        self.version = version
        self.controller_id = controller_id
        self.is_kraft_controller = is_kraft_controller
        self.controller_epoch = controller_epoch
        self.broker_epoch = broker_epoch
        self.delete_partitions = delete_partitions
        self.topics = topics
        self.topic_starts = topic_starts
        self.topic_row = topic_row
        self.partition = partition
        self.leader_epoch = np.full(len(partition), -1, np.int32) if leader_epoch is None else leader_epoch
        self.delete = np.full(len(partition), delete_partitions, np.uint8) if delete is None else delete
        self.unknown_tagged_fields = unknown_tagged_fields

    def encode(self):
        """Return the body as bytes. Unknown tagged fields are not kept."""
        head = encode_head(
            API_STOP_REPLICA, self.version, self.controller_id, self.controller_epoch, self.broker_epoch,
            is_kraft_controller=self.is_kraft_controller, delete_partitions=self.delete_partitions,
        )
        return head + stop_replica_body(
            self.version, self.topics, self.topic_row, self.partition, self.leader_epoch, self.delete,
            topic_starts=self.topic_starts,
        ).to_bytes()

    def __repr__(self):
        return (
            f"<StopReplicaRequest v{self.version}: {len(self.topics)} topics, {len(self.partition)} partitions>"
        )


cdef object read_stop_replica(Reader* r, int version):
    cdef bint flexible = version >= 2
    cdef bint is_kraft_controller = False
    cdef bint delete_partitions = False
    cdef int64_t broker_epoch = -1
    cdef int32_t controller_id = read_i32(r, F_CONTROLLER_ID)
    if version >= 4:
        is_kraft_controller = read_u8(r, F_IS_KRAFT_CONTROLLER) != 0
    cdef int32_t controller_epoch = read_i32(r, F_CONTROLLER_EPOCH)
    if version >= 1:
        broker_epoch = read_i64(r, F_BROKER_EPOCH)
    if version <= 2:
        delete_partitions = read_u8(r, F_DELETE_PARTITIONS) != 0
    cdef PartitionFiller filler
    topics, topic_starts, filler = read_grouped(r, API_STOP_REPLICA, version)
    if flexible:
        read_tags(r)
    check_end(r)
    if r.fault.reason != R_NONE:
        return None
    return StopReplicaRequest(
        version=version, controller_id=controller_id, is_kraft_controller=bool(is_kraft_controller),
        controller_epoch=controller_epoch, broker_epoch=broker_epoch, delete_partitions=bool(delete_partitions),
        topics=topics, topic_starts=topic_starts, topic_row=filler.column(filler.c.topic_row),
        partition=filler.column(filler.c.partition),
        leader_epoch=filler.column(filler.c.leader_epoch) if version >= 3 else None,
        delete=filler.flags() if version >= 3 else None,
        unknown_tagged_fields=r.unknown_tags,
    )


cdef int64_t least_stop_replica_row(int version) noexcept nogil:
    """Return the bytes of the smallest entry: an index; v0: an empty name, too; v3+: leader epoch, flag, tags."""
    return 6 if version == 0 else 4 if version <= 2 else 10


cdef inline int read_stop_replica_rows(Reader* r, PartitionFiller filler, int32_t topic, int64_t count, int version) noexcept nogil:
    """Read ``count`` entries into rows that there is room for; the delete flag goes to the byte column."""
    cdef PartitionFill* c = &filler.c
    cdef int64_t row
    for row in range(c.n, c.n + count):
        c.topic_row[row] = topic
        c.partition[row] = read_i32(r, F_PARTITION_INDEX if version != 1 and version != 2 else F_PARTITION_INDEXES)
        if version >= 3:
            c.leader_epoch[row] = read_i32(r, F_LEADER_EPOCH)
            c.flags[row] = read_u8(r, F_DELETE_PARTITION) != 0
            read_tags(r)
        if r.fault.reason != R_NONE:
            return -1
    c.n += count
    return 0
