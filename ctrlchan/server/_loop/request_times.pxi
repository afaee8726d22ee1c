# How long requests take, by API and by part, from the arrival of their bytes to the last byte of their answer.
#
# The parts are those of Kafka's RequestMetrics, in this order: a request waits for the one that handles it; it is handled;
# it waits for something else (parked, or a Future of Python); its answer waits for the processor; its answer is sent.
# All that was answered counts when its last byte is sent: the processor keeps the times of the connection that it serves,
# and a connection has memory for them only while its peer does not read.

# The most nanoseconds of each bucket but the last one
cdef int64_t time_bounds[TIME_BUCKETS - 1]

if len(BOUNDS_MS) != TIME_BUCKETS - 1 or len(TIME_PARTS) != PARTS:
    raise ImportError(f"{len(BOUNDS_MS)} bounds and {len(TIME_PARTS)} parts of times")
for _place, _ms in enumerate(BOUNDS_MS):
    time_bounds[_place] = round(_ms * 1000000)


cdef RequestTimes* times_of(Network* network, int16_t key) noexcept nogil:
    """Return the times of an API; NULL without memory, and for a key that is none."""
    cdef RequestTimes* times
    if key < 0 or key >= API_KEYS:
        return NULL
    times = <RequestTimes*>load_pointer(<const void**>&network.times[key])
    if times == NULL:
        lock(&network.events.mutex)
        times = network.times[key]
        if times == NULL:
            times = <RequestTimes*>calloc(1, sizeof(RequestTimes))
            store_pointer(<const void**>&network.times[key], times)
        unlock(&network.events.mutex)
    return times


cdef void count_part(RequestTimes* times, int part, int64_t took_ns) noexcept nogil:
    """Count one part of a request's time. Most parts are in the first bucket."""
    cdef int bucket = 0
    if took_ns <= 0:
        return
    count_shared(&times.sums_ns[part], took_ns)
    while bucket < TIME_BUCKETS - 1 and took_ns > time_bounds[bucket]:
        bucket += 1
    if bucket:
        count_shared(&times.numbers[part][bucket], 1)


cdef void count_answered(Network* network, const Answered* answered, int64_t sent_ns) noexcept nogil:
    cdef RequestTimes* times = times_of(network, answered.key)
    if times == NULL:
        return
    cdef int64_t seen_ns = answered.queue_ns + answered.local_ns
    count_shared(&times.requests, 1)
    count_part(times, QUEUE_TIME, answered.queue_ns)
    count_part(times, LOCAL_TIME, answered.local_ns)
    count_part(times, REMOTE_TIME, answered.ready_ns - answered.arrived_ns - seen_ns)
    count_part(times, RESPONSE_QUEUE_TIME, answered.taken_ns - answered.ready_ns)
    count_part(times, SEND_TIME, sent_ns - answered.taken_ns)
    count_part(times, TOTAL_TIME, sent_ns - answered.arrived_ns)


# -- the request in progress of a connection


cdef inline void begin_times(Connection* c) noexcept nogil:
    """Begin with the request at ``begin``. What a peer sends to authenticate himself does not count."""
    c.key = get_i16(c.data + c.begin + SIZE_BYTES) if c.stage == OPEN and c.request_size >= 2 else -1
    c.queue_ns, c.spent_ns = -1, 0


cdef inline void end_queue_time(Connection* c, int64_t now) noexcept nogil:
    """Somebody handles the request from now on."""
    if c.queue_ns < 0:
        c.queue_ns = now - c.arrived_ns - c.spent_ns


cdef void begin_local_time(Connection* c) noexcept nogil:
    """A handler thread has taken the request."""
    c.taken_ns, c.is_returned = monotonic_ns_of(c.processor.network.clock), False
    end_queue_time(c, c.taken_ns)


cdef void end_local_time(Connection* c, int64_t now) noexcept nogil:
    """The handler thread is done with the request, or answers it."""
    if not c.is_returned:
        c.is_returned = True
        c.spent_ns += now - c.taken_ns


cdef inline void describe_answered(Connection* c, int64_t ready_ns, int64_t taken_ns, Answered* answered) noexcept nogil:
    answered.key, answered.arrived_ns, answered.queue_ns, answered.local_ns = c.key, c.arrived_ns, c.queue_ns, c.spent_ns
    answered.ready_ns, answered.taken_ns = ready_ns, taken_ns


cdef void count_request(Connection* c, int64_t ready_ns, int64_t sent_ns) noexcept nogil:
    """Count the request, whose answer is sent, or that has none."""
    cdef Answered answered
    describe_answered(c, ready_ns, ready_ns, &answered)
    count_answered(c.processor.network, &answered, sent_ns)


# -- answers that are not sent yet


cdef void put_aside(Processor* p) noexcept nogil:
    """Give the connection that the processor leaves memory for its answers. Without any they do not count."""
    cdef Connection* c = p.answering
    cdef UnsentAnswers* unsent
    cdef int count
    if c == NULL:
        return
    unsent = c.unsent
    count = unsent.count if unsent != NULL else 0
    if unsent == NULL or unsent.capacity < count + p.answered_count:
        unsent = <UnsentAnswers*>realloc(unsent, sizeof(UnsentAnswers) + 2 * (count + p.answered_count) * sizeof(Answered))
        if unsent != NULL:
            unsent.capacity, unsent.count = 2 * (count + p.answered_count), count
            c.unsent = unsent
    if unsent != NULL:
        memcpy(unsent.answers + count, p.answered, p.answered_count * sizeof(Answered))
        unsent.count += p.answered_count
    p.answering, p.answered_count = NULL, 0


cdef void note_answer(Connection* c, int64_t ready_ns, int64_t taken_ns) noexcept nogil:
    """Keep the times of a request until the last byte of its answer is sent."""
    cdef Processor* p = c.processor
    if p.answering != c or p.answered_count == REQUESTS_PER_TURN:
        put_aside(p)
        p.answering = c
    describe_answered(c, ready_ns, taken_ns, &p.answered[p.answered_count])
    p.answered_count += 1


cdef void count_sent(Connection* c) noexcept nogil:
    """Count the requests of all answers of the connection: they are sent."""
    cdef Processor* p = c.processor
    cdef int64_t now
    cdef int i
    if p.answering != c and c.unsent == NULL:
        return
    now = monotonic_ns_of(p.network.clock)
    if c.unsent != NULL:
        for i in range(c.unsent.count):
            count_answered(p.network, &c.unsent.answers[i], now)
    if p.answering == c:
        for i in range(p.answered_count):
            count_answered(p.network, &p.answered[i], now)
    forget_answers(c)


cdef void forget_answers(Connection* c) noexcept nogil:
    cdef Processor* p = c.processor
    if p.answering == c:
        p.answering, p.answered_count = NULL, 0
    free(c.unsent)
    c.unsent = NULL


# -- for Python


cdef object times_as_objects(const RequestTimes* times):
    """Return how many requests there were, and the numbers of all buckets and the nanoseconds of each part."""
    cdef int64_t requests = counted(&times.requests)
    cdef int part, i
    parts = []
    for part in range(PARTS):
        numbers = [counted(&times.numbers[part][i]) for i in range(1, TIME_BUCKETS)]
        # Requests that end meanwhile may be counted in one place alone.
        numbers.insert(0, max(0, requests - sum(numbers)))
        parts.append((numbers, counted(&times.sums_ns[part])))
    return requests, parts
