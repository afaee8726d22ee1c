# UpdateMetadata (api key 6, versions 0-8): sizes, writes and reads.
#
#   head  controller_id int32, [v8 is_kraft_controller], controller_epoch int32, [v5+ broker_epoch int64]
#   shared body  v0-4  [partition state, each with its topic's name]
#         v5+   [topic: name, [v7+ id], [partition state]]
#         [live broker]
#         v6+   tagged fields; from v8 tag 0 is `type`
#   partition state: partition, controller epoch, leader, leader epoch int32, isr [int32], zk version int32,
#                    replicas [int32], [v4+ offline replicas [int32]]
#   live broker: id int32, v0 host and port, v1+ [endpoint], [v2+ rack]
#   endpoint: port int32, host, [v3+ listener], security protocol int16
#
# Source: UpdateMetadataRequest.json.


def update_metadata_body(
    int version, Topics topics not None, Partitions partitions not None, Brokers live_brokers not None,
    rows=None, *, topic_starts=None, int request_type=0,
):
    """Size an UpdateMetadata shared body; see ``_codec.pyi``."""
    cdef SharedBody shared_body = new_shared_body(API_UPDATE_METADATA, version, topics)
    cdef Fault fault
    cdef bint flexible = version >= 6
    shared_body._partitions = partitions
    shared_body._brokers = live_brokers
    shared_body._request_type = request_type
    if request_type != 0 and version < 8:
        raise UnsupportedVersionError(
            f"a non-default value ({request_type}) needs version 8", api="UpdateMetadataRequest",
            version=version, field="type",
        )
    if not -128 <= request_type <= 127:
        raise EncodeError("value does not fit int8", api="UpdateMetadataRequest", version=version, field="type")
    plan_rows(shared_body, partitions.c.topic_row, partitions.n, rows, topic_starts)
    check_endpoints(live_brokers, version)
    fault.reason = R_NONE
    with nogil:
        shared_body.size = update_metadata_size(shared_body, flexible, &fault)
    if fault.reason != R_NONE:
        raise_encode_fault(&fault, "UpdateMetadataRequest", version)
    return shared_body


cdef dict PROTOCOL_NAMES = {0: b"PLAINTEXT", 1: b"SSL", 2: b"SASL_PLAINTEXT", 3: b"SASL_SSL"}


cdef int check_endpoints(Brokers brokers, int version) except -1:
    """Refuse brokers that an older version cannot carry (Kafka: UpdateMetadataRequest.Builder.build).

    v0 carries one host and port, always PLAINTEXT; v1-2 carry no listener name, so only the name that the
    security protocol implies.
    """
    if version >= 3:
        return 0
    cdef int64_t i, j, start, length
    for i in range(brokers.n):
        start = brokers.c_endpoint_starts[i]
        length = brokers.c_endpoint_lengths[i]
        if start < 0 or length < 0 or start + length > brokers.n_endpoints:
            raise EncodeError(
                f"{REASONS[R_LIST_RANGE]} (row {i})", api="UpdateMetadataRequest", version=version, field="endpoints"
            )
        if version == 0:
            if length != 1:
                raise UnsupportedVersionError(
                    f"broker {brokers.ids[i]} has {length} endpoints, version 0 carries one",
                    api="UpdateMetadataRequest", version=version, field="endpoints",
                )
            if brokers.c_security_protocols[start] != 0:
                raise UnsupportedVersionError(
                    f"broker {brokers.ids[i]}: version 0 carries only PLAINTEXT endpoints",
                    api="UpdateMetadataRequest", version=version, field="endpoints",
                )
            continue
        for j in range(start, start + length):
            name = brokers.listeners[j]
            if name and name != PROTOCOL_NAMES.get(brokers.security_protocols[j]):
                raise UnsupportedVersionError(
                    f"broker {brokers.ids[i]}: listener {name.decode(errors='replace')!r} needs version 3",
                    api="UpdateMetadataRequest", version=version, field="listener",
                )
    return 0


cdef int64_t update_metadata_size(SharedBody shared_body, bint flexible, Fault* fault) noexcept nogil:
    cdef int version = shared_body.version
    cdef int64_t n = shared_body.plan.n
    cdef PartitionColumns* c = &shared_body._partitions.c
    cdef int64_t groups, isr, replicas, brokers, offline = 0, stretches = 0
    shared_body.plan.source.columns = c
    groups = groups_size(shared_body, version >= 5, flexible, version >= 7, F_TOPIC_NAME, fault)
    if flexible:
        plan_stretches(&shared_body.plan, UPDATE_METADATA_ROWS)
        stretches = stretches_size(&shared_body.plan, 3)
    isr = column_size(&shared_body.plan, &c.isr, flexible, F_ISR, fault)
    replicas = column_size(&shared_body.plan, &c.replicas, flexible, F_REPLICAS, fault)
    if version >= 4:
        offline = column_size(&shared_body.plan, &c.offline, flexible, F_OFFLINE_REPLICAS, fault)
    brokers = live_brokers_size(shared_body._brokers, version, flexible, fault)
    if groups < 0 or isr < 0 or replicas < 0 or offline < 0 or brokers < 0:
        return -1
    # Fixed fields: partition, controller epoch, leader, leader epoch, partition epoch; one tag byte a row.
    cdef int64_t fixed = 21 if flexible else 20
    # Tagged fields at the end: the count alone, or count, tag 0, size 1, type.
    cdef int64_t tags = 0 if not flexible else 1 if shared_body._request_type == 0 else 4
    return groups + n * fixed + stretches + isr + replicas + offline + brokers + tags


cdef inline uint8_t* put_update_metadata_rows(SharedBody shared_body, RowSource* source, uint8_t* p, const uint8_t* end, int64_t g, bint flexible, bint named, bint has_offline, Fault* fault) noexcept nogil:
    """Write the partition states of group ``g``."""
    cdef const PartitionColumns* c = source.columns
    cdef int64_t stop = shared_body.plan.groups[g].stop
    cdef int32_t topic = shared_body.plan.groups[g].topic
    cdef bint deleting = shared_body._topics.c_deleting != NULL and shared_body._topics.c_deleting[topic] != 0
    cdef int64_t i = group_start(&shared_body.plan, g)
    cdef int64_t row
    cdef uint8_t* start
    while True:
        if flexible and not deleting:
            p = put_rows(p, end, source, &i, stop, UPDATE_METADATA_ROWS)
        if i >= stop:
            return p
        row = row_at(source, i)
        if row < 0:
            fail(fault, R_ROW_RANGE, F_PARTITION_INDEX, source.rows[i])
            return NULL
        if named:
            p = put_string(p, end, &shared_body._topics.names.c, topic, False, False, F_TOPIC_NAME, fault)
            if p == NULL:
                return NULL
        if end - p < 20:
            fail(fault, R_CHANGED, F_PARTITION_INDEX, row)
            return NULL
        start = p
        put_i32(p, c.partition[row])
        put_i32(p + 4, c.controller_epoch[row])
        put_i32(p + 8, c.leader[row])
        put_i32(p + 12, c.leader_epoch[row])
        p = put_list(p + 16, end, &c.isr, row, flexible)
        if p == NULL or end - p < 5:
            list_fault(&c.isr, row, F_ISR, fault)
            fail(fault, R_CHANGED, F_ISR, row)
            return NULL
        put_i32(p, c.partition_epoch[row])
        if deleting:
            # As Kafka's LeaderAndIsr.duringDelete: leader -2, leader epoch and partition epoch 0.
            put_i32(start + 8, -2)
            put_i32(start + 12, 0)
            put_i32(p, 0)
        p = put_list(p + 4, end, &c.replicas, row, flexible)
        if p == NULL:
            list_fault(&c.replicas, row, F_REPLICAS, fault)
            fail(fault, R_CHANGED, F_REPLICAS, row)
            return NULL
        if has_offline:
            p = put_list(p, end, &c.offline, row, flexible)
            if p == NULL:
                list_fault(&c.offline, row, F_OFFLINE_REPLICAS, fault)
                fail(fault, R_CHANGED, F_OFFLINE_REPLICAS, row)
                return NULL
        if flexible:
            if end - p < 1:
                fail(fault, R_CHANGED, F_TAGGED_FIELDS, row)
                return NULL
            p[0] = 0
            p += 1
        i += 1


cdef uint8_t* put_update_metadata(SharedBody shared_body, uint8_t* p, const uint8_t* end, Fault* fault) noexcept nogil:
    cdef int version = shared_body.version
    cdef RowSource source = shared_body.plan.source
    cdef int64_t g
    if version >= 5:
        p = put_count(p, shared_body.plan.n_groups, version >= 6)
    else:
        p = put_count(p, shared_body.plan.n, False)
    for g in range(shared_body.plan.n_groups):
        if version >= 7:
            p = put_topic(shared_body, p, end, g, True, True, F_TOPIC_NAME, fault)
        elif version >= 5:
            p = put_topic(shared_body, p, end, g, version == 6, False, F_TOPIC_NAME, fault)
        if p == NULL:
            return NULL
        if version >= 6:
            p = put_update_metadata_rows(shared_body, &source, p, end, g, True, False, True, fault)
        elif version == 5:
            p = put_update_metadata_rows(shared_body, &source, p, end, g, False, False, True, fault)
        elif version == 4:
            p = put_update_metadata_rows(shared_body, &source, p, end, g, False, True, True, fault)
        else:
            p = put_update_metadata_rows(shared_body, &source, p, end, g, False, True, False, fault)
        if p == NULL:
            return NULL
        if version >= 6:
            if end - p < 1:
                fail(fault, R_CHANGED, F_TAGGED_FIELDS, -1)
                return NULL
            p[0] = 0
            p += 1
    p = put_live_brokers(shared_body._brokers, p, end, version, fault)
    if p == NULL:
        return NULL
    if version >= 6:
        if end - p < (1 if shared_body._request_type == 0 else 4):
            fail(fault, R_CHANGED, F_TAGGED_FIELDS, -1)
            return NULL
        if shared_body._request_type == 0:
            p[0] = 0
            p += 1
        else:
            p[0] = 1
            p[1] = 0
            p[2] = 1
            p[3] = <uint8_t><int8_t>shared_body._request_type
            p += 4
    return p


cdef int64_t live_brokers_size(Brokers brokers, int version, bint flexible, Fault* fault) noexcept nogil:
    cdef int64_t i, j, start, length, one
    cdef int64_t size = count_size(brokers.n, flexible)
    for i in range(brokers.n):
        start = brokers.c_endpoint_starts[i]
        length = brokers.c_endpoint_lengths[i]
        if start < 0 or length < 0 or start + length > brokers.n_endpoints:
            return fail(fault, R_LIST_RANGE, F_ENDPOINTS, i)
        size += 4
        if version == 0:
            one = string_size(&brokers.hosts.c, start, False, False, F_V0_HOST, fault)
            if one < 0:
                return -1
            size += one + 4
            continue
        size += count_size(length, flexible)
        for j in range(start, start + length):
            one = string_size(&brokers.hosts.c, j, flexible, False, F_HOST, fault)
            if one < 0:
                return -1
            size += 4 + one + 2
            if version >= 3:
                one = string_size(&brokers.listeners.c, j, flexible, False, F_LISTENER, fault)
                if one < 0:
                    return -1
                size += one
            if brokers.c_security_protocols[j] != <int16_t>brokers.c_security_protocols[j]:
                return fail(fault, R_INT16, F_SECURITY_PROTOCOL, i)
            if flexible:
                size += 1
        if version >= 2:
            one = string_size(&brokers.racks.c, i, flexible, True, F_RACK, fault)
            if one < 0:
                return -1
            size += one
        if flexible:
            size += 1
    return size


cdef uint8_t* put_live_brokers(Brokers brokers, uint8_t* p, const uint8_t* end, int version, Fault* fault) noexcept nogil:
    cdef bint flexible = version >= 6
    cdef int64_t i, j, start, length
    cdef uint8_t* none = NULL
    if end - p < count_size(brokers.n, flexible):
        fail(fault, R_CHANGED, F_LIVE_BROKERS, -1)
        return none
    p = put_count(p, brokers.n, flexible)
    for i in range(brokers.n):
        start = brokers.c_endpoint_starts[i]
        length = brokers.c_endpoint_lengths[i]
        if start < 0 or length < 0 or start + length > brokers.n_endpoints or (version == 0 and length != 1):
            fail(fault, R_LIST_RANGE, F_ENDPOINTS, i)
            return none
        if end - p < 4 + (0 if version == 0 else count_size(length, flexible)):
            fail(fault, R_CHANGED, F_LIVE_BROKERS, i)
            return none
        put_i32(p, brokers.c_ids[i])
        p += 4
        if version == 0:
            p = put_string(p, end, &brokers.hosts.c, start, False, False, F_V0_HOST, fault)
            if p == none or end - p < 4:
                fail(fault, R_CHANGED, F_V0_PORT, i)
                return none
            put_i32(p, brokers.c_ports[start])
            p += 4
            continue
        p = put_count(p, length, flexible)
        for j in range(start, start + length):
            if end - p < 4:
                fail(fault, R_CHANGED, F_PORT, i)
                return none
            put_i32(p, brokers.c_ports[j])
            p = put_string(p + 4, end, &brokers.hosts.c, j, flexible, False, F_HOST, fault)
            if p != none and version >= 3:
                p = put_string(p, end, &brokers.listeners.c, j, flexible, False, F_LISTENER, fault)
            if p == none or end - p < (3 if flexible else 2):
                fail(fault, R_CHANGED, F_ENDPOINTS, i)
                return none
            put_i16(p, <int16_t>brokers.c_security_protocols[j])
            p += 2
            if flexible:
                p[0] = 0
                p += 1
        if version >= 2:
            p = put_string(p, end, &brokers.racks.c, i, flexible, True, F_RACK, fault)
            if p == none:
                return none
        if flexible:
            if end - p < 1:
                fail(fault, R_CHANGED, F_TAGGED_FIELDS, i)
                return none
            p[0] = 0
            p += 1
    return p


# ---------------------------------------------------------------------------------------------- reading


class UpdateMetadataRequest:
    """A whole UpdateMetadata body as columns; see ``_codec.pyi``."""

    __slots__ = (
        "broker_epoch", "controller_epoch", "controller_id", "is_kraft_controller", "live_brokers", "partitions",
        "request_type", "topic_starts", "topics", "unknown_tagged_fields", "version",
    )

    def __init__(
        self, *, version, controller_id, controller_epoch, topics, topic_starts, partitions, live_brokers,
        broker_epoch=-1, is_kraft_controller=False, request_type=0, unknown_tagged_fields=0,
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
        self.live_brokers = live_brokers
        self.unknown_tagged_fields = unknown_tagged_fields

    def encode(self):
        """Return the body as bytes. Unknown tagged fields are not kept."""
        head = encode_head(
            API_UPDATE_METADATA, self.version, self.controller_id, self.controller_epoch, self.broker_epoch,
            is_kraft_controller=self.is_kraft_controller,
        )
        return head + update_metadata_body(
            self.version, self.topics, self.partitions, self.live_brokers,
            topic_starts=self.topic_starts, request_type=self.request_type,
        ).to_bytes()

    def __repr__(self):
        return (
            f"<UpdateMetadataRequest v{self.version}: {len(self.topics)} topics, {len(self.partitions)} "
            f"partitions, {len(self.live_brokers)} brokers>"
        )


cdef object read_update_metadata(Reader* r, int version):
    cdef bint flexible = version >= 6
    cdef const uint8_t* type_byte = NULL
    cdef bint is_kraft_controller = False
    cdef int64_t broker_epoch = -1
    cdef int32_t controller_id = read_i32(r, F_CONTROLLER_ID)
    if version >= 8:
        is_kraft_controller = read_u8(r, F_IS_KRAFT_CONTROLLER) != 0
    cdef int32_t controller_epoch = read_i32(r, F_CONTROLLER_EPOCH)
    if version >= 5:
        broker_epoch = read_i64(r, F_BROKER_EPOCH)
    cdef PartitionFiller filler
    topics, topic_starts, filler = read_grouped(r, API_UPDATE_METADATA, version)
    live_brokers = read_live_brokers(r, version)
    if flexible:
        skip_tags(r, 0 if version >= 8 else -1, &type_byte)
    check_end(r)
    if r.fault.reason != R_NONE:
        return None
    return UpdateMetadataRequest(
        version=version, controller_id=controller_id, is_kraft_controller=bool(is_kraft_controller),
        controller_epoch=controller_epoch, broker_epoch=broker_epoch,
        request_type=0 if type_byte == NULL else <int8_t>type_byte[0], topics=topics, topic_starts=topic_starts,
        partitions=filler.partitions(), live_brokers=live_brokers, unknown_tagged_fields=r.unknown_tags,
    )


cdef int64_t least_update_metadata_row(int version) noexcept nogil:
    """Return the bytes of the smallest partition state: fixed fields, empty lists, tags, an empty name."""
    if version >= 6:
        return 20 + 3 + 1
    return 20 + (12 if version >= 4 else 8) + (2 if version <= 4 else 0)


cdef inline int read_update_metadata_rows(Reader* r, PartitionFiller filler, int32_t topic, int64_t left, bint flexible, bint has_offline) noexcept nogil:
    """Read ``left`` partition states into rows that there is room for. A local cursor is faster than ``r.p``."""
    cdef PartitionFill* c = &filler.c
    cdef const uint8_t* p = r.p
    cdef const uint8_t* end = r.end
    cdef const uint8_t* at
    cdef int64_t row
    while True:
        if flexible:
            p = get_rows(p, end, c, topic, &left, UPDATE_METADATA_ROWS)
        if left == 0:
            r.p = p
            return 0
        at = p
        if end - p < 20:
            return name_update_metadata_fault(r, at, flexible, has_offline)
        row = c.n
        c.topic_row[row] = topic
        c.partition[row] = get_i32(p)
        c.controller_epoch[row] = get_i32(p + 4)
        c.leader[row] = get_i32(p + 8)
        c.leader_epoch[row] = get_i32(p + 12)
        p = get_list(p + 16, end, filler, &c.isr, flexible)
        if p == NULL or end - p < 4:
            return name_update_metadata_fault(r, at, flexible, has_offline)
        c.partition_epoch[row] = get_i32(p)
        p = get_list(p + 4, end, filler, &c.replicas, flexible)
        if p != NULL and has_offline:
            p = get_list(p, end, filler, &c.offline, flexible)
        if p == NULL:
            return name_update_metadata_fault(r, at, flexible, has_offline)
        if flexible:
            r.p = p
            if read_tags(r) < 0 or r.fault.reason != R_NONE:
                return -1
            p = r.p
        c.n += 1
        left -= 1


cdef int name_update_metadata_fault(Reader* r, const uint8_t* at, bint flexible, bint has_offline) noexcept nogil:
    """Read the row at ``at`` again, field by field, to find the field that is wrong."""
    r.p = at
    read_i32(r, F_PARTITION_INDEX)
    read_i32(r, F_CONTROLLER_EPOCH)
    read_i32(r, F_LEADER)
    read_i32(r, F_LEADER_EPOCH)
    skip_list(r, flexible, F_ISR)
    read_i32(r, F_ZK_VERSION)
    skip_list(r, flexible, F_REPLICAS)
    if has_offline:
        skip_list(r, flexible, F_OFFLINE_REPLICAS)
    # The bytes were wrong at the first read. If they are right now, another thread is writing to them.
    return stop(r, R_CHANGED, F_PARTITION_STATES, r.p)


cdef object read_live_brokers(Reader* r, int version):
    cdef bint flexible = version >= 6
    # The smallest broker: id and no endpoint (v0: an empty host and a port).
    cdef int64_t count = read_count(r, flexible, 7 if flexible else 10 if version != 1 else 8, F_LIVE_BROKERS)
    cdef int64_t i, j, endpoints, n = 0
    cdef int64_t least = 9 if flexible else 10 if version >= 3 else 8
    cdef int64_t most = count if version == 0 or count == 0 else (r.end - r.p) // least
    cdef StringFiller racks = StringFiller(count), hosts = StringFiller(most), listeners = StringFiller(most)
    ids, starts, lengths = np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.int32)
    ports, protocols = np.empty(most, np.int32), np.empty(most, np.int32)
    cdef int32_t* c_ids = writable_int32(ids)
    cdef int32_t* c_starts = writable_int32(starts)
    cdef int32_t* c_lengths = writable_int32(lengths)
    cdef int32_t* c_ports = writable_int32(ports)
    cdef int32_t* c_protocols = writable_int32(protocols)
    for i in range(count):
        c_ids[i] = read_i32(r, F_ID)
        endpoints = 1 if version == 0 else read_count(r, flexible, least, F_ENDPOINTS)
        c_starts[i] = <int32_t>n
        c_lengths[i] = <int32_t>endpoints
        for j in range(n, n + endpoints):
            c_protocols[j] = 0
            if version == 0:
                read_text(r, False, False, hosts, F_V0_HOST)
                c_ports[j] = read_i32(r, F_V0_PORT)
            else:
                c_ports[j] = read_i32(r, F_PORT)
                read_text(r, flexible, False, hosts, F_HOST)
            if version >= 3:
                read_text(r, flexible, False, listeners, F_LISTENER)
            else:
                add_text(listeners, NULL, 0)
            if version > 0:
                c_protocols[j] = read_i16(r, F_SECURITY_PROTOCOL)
            if flexible:
                read_tags(r)
            if r.fault.reason != R_NONE:
                return None
        n += endpoints
        if version >= 2:
            read_text(r, flexible, True, racks, F_RACK)
        else:
            add_text(racks, NULL, -1)
        if flexible:
            read_tags(r)
        if r.fault.reason != R_NONE:
            return None
    return Brokers(
        ids, None, racks.column(), starts, lengths, trim(ports, n), hosts.column(), listeners.column(),
        trim(protocols, n),
    )
