"""ClientQuotas: what users and client ids have used of a broker, and for how long they must wait for more.

A client is a user with a client id. The quotas that there are decide which of the two, or both, name the sensor that a
client is charged to, and its limit; ``set_limits`` takes them as a whole. A sensor is made for its first request, and is
forgotten when it was not used for an hour. Its arithmetic is Kafka's (``server/_rates.pxd``).

Processors and handler threads charge requests under one mutex, which is held for some additions: nothing is locked, and
no Python is called, while it is held. Until the first quota there is nothing to charge: ``levels`` is 0.

Client ids are what anybody wants them to be. So the memory of sensors has a limit; where idle sensors do not free enough of
it, further clients are not charged. Each new client id has a quota of its own anyhow.

Sources: ClientQuotaManager, ClientRequestQuotaManager, ControllerMutationQuotaManager (kafka.server), TokenBucket.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.math cimport NAN, isnan
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy
from posix.unistd cimport write

from ctrlchan._c.atomics cimport counted, store_number
from ctrlchan._c.clock_functions cimport Clock, monotonic_ns_of
from ctrlchan._c.hashing cimport mix
from ctrlchan._c.locks cimport CONNECTION_QUOTAS, close_mutex, lock, open_mutex, require, unlock
from ctrlchan.server._idle_entries cimport Entry, add_entry, first_entry, forget_idle, open_entries
from ctrlchan.server._rates cimport (
    Rate,
    average_of,
    open_rate,
    rate_bytes,
    is_surely_below,
    rate_of,
    record,
    rounded,
    throttle_ms_of,
)

import os

from ctrlchan._c.clock_functions import SYSTEM_CLOCK

cdef enum:
    # A sensor that was not used for so long is forgotten (Kafka: InactiveSensorExpirationTimeSeconds).
    IDLE_MS = 3600000
    # How often sensors are looked at for that (Kafka: ExpireSensorTask).
    SWEEP_MS = 30000
    # Where no memory is left, sensors that were not used for so long are forgotten, and no more often.
    HURRIED_MS = 1000
    ANONYMOUS = 0

# Kafka's limit where there is no quota: Long.MaxValue
cdef double UNLIMITED = 9223372036854775807.0
# Of a second, for each nanosecond
cdef double PERCENT_OF_NS = 100.0 / 1000000000.0

cdef enum Level:
    OF_CLIENT_ID = 1
    OF_USER = 2
    OF_BOTH = 4
    # Of the user's own class
    OF_CLASS = 8

cdef enum Part:
    # An entity does not have this part, has its default, or has one of this name.
    ABSENT
    DEFAULT
    NAMED


cdef struct Limit:
    Limit* next
    uint32_t hash
    Part user_part
    Part client_part
    int32_t user_size
    int32_t client_size
    # Not a number: no quota
    double bounds[QUOTA_TYPES]
    # The bytes of both names follow.


cdef struct Limits:
    int64_t bucket_count
    Limit** buckets


cdef struct Sensor:
    Entry entry
    int quota_type
    # An absent part has no bytes, as in Kafka's metrics.
    int32_t user_size
    int32_t client_size
    double bound
    # What counts; of mutations for metrics alone
    Rate rate
    # Throttle times
    Rate throttled
    # Of mutations
    double tokens
    int64_t tokens_ms
    # The bytes of both names follow, then the samples.


cdef struct Client:
    Entry entry
    int32_t user
    int32_t size
    int64_t version
    Sensor* sensors[QUOTA_TYPES]
    # Only with the user's own class: what its sensor will be charged with when it is known, and whether that was asked.
    double uncharged[QUOTA_TYPES]
    bint is_noted[QUOTA_TYPES]
    # The bytes of the client id follow.


cdef struct UserName:
    const uint8_t* bytes
    int32_t size


cdef struct Names:
    const uint8_t* user
    int32_t user_size
    const uint8_t* client
    int32_t client_size


# -- hashing


cdef inline int64_t aligned(int64_t size) noexcept nogil:
    return (size + 7) & ~<int64_t>7


# -- limits


cdef uint32_t hash_of_limit(Part user_part, Part client_part, const Names* names) noexcept nogil:
    cdef uint32_t value = mix(<uint32_t>(user_part * 3 + client_part), names.user, names.user_size)
    return mix(value, names.client, names.client_size)


cdef inline uint8_t* names_of_limit(const Limit* limit) noexcept nogil:
    return <uint8_t*>(limit + 1)


cdef double bound_of(
    const Limits* limits, int quota_type, Part user_part, Part client_part, const Names* client
) noexcept nogil:
    """Return the quota of one entity; not a number where it has none. A part that is not NAMED has no name here."""
    cdef Names names
    cdef uint32_t hash
    cdef Limit* limit
    if limits == NULL:
        return NAN
    names.user, names.user_size = client.user, client.user_size if user_part == NAMED else 0
    names.client, names.client_size = client.client, client.client_size if client_part == NAMED else 0
    hash = hash_of_limit(user_part, client_part, &names)
    limit = limits.buckets[hash % limits.bucket_count]
    while limit != NULL:
        if (
            limit.hash == hash
            and limit.user_part == user_part
            and limit.client_part == client_part
            and limit.user_size == names.user_size
            and limit.client_size == names.client_size
            and memcmp(names_of_limit(limit), names.user, names.user_size) == 0
            and memcmp(names_of_limit(limit) + names.user_size, names.client, names.client_size) == 0
        ):
            return limit.bounds[quota_type]
        limit = limit.next
    return NAN


cdef double limit_of(const Limits* limits, int quota_type, const Names* sensor) noexcept nogil:
    """Return the quota of a sensor, by the names that it has. Source: DefaultQuotaCallback.quotaLimit."""
    cdef double bound = NAN
    if sensor.user_size and sensor.client_size:
        bound = bound_of(limits, quota_type, NAMED, NAMED, sensor)
        if isnan(bound):
            bound = bound_of(limits, quota_type, NAMED, DEFAULT, sensor)
        if isnan(bound):
            bound = bound_of(limits, quota_type, DEFAULT, NAMED, sensor)
        if isnan(bound):
            bound = bound_of(limits, quota_type, DEFAULT, DEFAULT, sensor)
    elif sensor.user_size:
        bound = bound_of(limits, quota_type, NAMED, ABSENT, sensor)
        if isnan(bound):
            bound = bound_of(limits, quota_type, DEFAULT, ABSENT, sensor)
    elif sensor.client_size:
        bound = bound_of(limits, quota_type, ABSENT, NAMED, sensor)
        if isnan(bound):
            bound = bound_of(limits, quota_type, ABSENT, DEFAULT, sensor)
    return bound


cdef void choose_names(const Limits* limits, int64_t levels, int quota_type, Names* names) noexcept nogil:
    """Leave those names of a client that name its sensor. Source: DefaultQuotaCallback.quotaMetricTags."""
    if levels == OF_CLIENT_ID:
        names.user_size = 0
    elif levels == OF_USER:
        names.client_size = 0
    elif levels != OF_BOTH:
        if not isnan(bound_of(limits, quota_type, NAMED, NAMED, names)):
            return
        if not isnan(bound_of(limits, quota_type, NAMED, DEFAULT, names)):
            return
        if not isnan(bound_of(limits, quota_type, NAMED, ABSENT, names)):
            names.client_size = 0
        elif not isnan(bound_of(limits, quota_type, DEFAULT, NAMED, names)):
            return
        elif not isnan(bound_of(limits, quota_type, DEFAULT, DEFAULT, names)):
            return
        elif not isnan(bound_of(limits, quota_type, DEFAULT, ABSENT, names)):
            names.client_size = 0
        else:
            names.user_size = 0


cdef void free_limits(const Limits* limits) noexcept nogil:
    cdef int64_t i
    cdef Limit* limit
    cdef Limit* following
    if limits == NULL:
        return
    for i in range(limits.bucket_count):
        limit = limits.buckets[i]
        while limit != NULL:
            following = limit.next
            free(limit)
            limit = following
    free(limits.buckets)
    free(<void*>limits)


cdef Limits* new_limits(int64_t count) noexcept nogil:
    cdef Limits* limits = <Limits*>calloc(1, sizeof(Limits))
    if limits == NULL:
        return NULL
    limits.bucket_count = 2 * count + 1
    limits.buckets = <Limit**>calloc(limits.bucket_count, sizeof(Limit*))
    if limits.buckets == NULL:
        free(limits)
        return NULL
    return limits


cdef bint add_limit(
    Limits* limits, Part user_part, Part client_part, const Names* names, const double* bounds
) noexcept nogil:
    cdef int64_t size = sizeof(Limit) + names.user_size + names.client_size
    cdef Limit* limit = <Limit*>malloc(size)
    cdef int i
    if limit == NULL:
        return False
    limit.hash = hash_of_limit(user_part, client_part, names)
    limit.user_part, limit.client_part = user_part, client_part
    limit.user_size, limit.client_size = names.user_size, names.client_size
    memcpy(names_of_limit(limit), names.user, names.user_size)
    memcpy(names_of_limit(limit) + names.user_size, names.client, names.client_size)
    for i in range(QUOTA_TYPES):
        limit.bounds[i] = bounds[i]
    limit.next = limits.buckets[limit.hash % limits.bucket_count]
    limits.buckets[limit.hash % limits.bucket_count] = limit
    return True


# -- sensors


cdef inline uint8_t* names_of(const Sensor* sensor) noexcept nogil:
    return <uint8_t*>(sensor + 1)


cdef inline void name_sensor(const Sensor* sensor, Names* names) noexcept nogil:
    names.user, names.user_size = names_of(sensor), sensor.user_size
    names.client, names.client_size = names_of(sensor) + sensor.user_size, sensor.client_size


cdef inline uint8_t* id_of(const Client* client) noexcept nogil:
    return <uint8_t*>(client + 1)


cdef double burst_of(ClientQuotas self, const Sensor* sensor) noexcept nogil:
    return self.mutation_kept * (self.mutation_window_ms / 1000.0) * sensor.bound


cdef double tokens_of(ClientQuotas self, Sensor* sensor, int64_t now) noexcept nogil:
    """Fill the bucket of a sensor up to now, and return what is in it."""
    sensor.tokens = min(
        burst_of(self, sensor), sensor.tokens + sensor.bound * ((now - sensor.tokens_ms) / 1000.0)
    )
    sensor.tokens_ms = now
    return sensor.tokens


cdef Sensor* new_sensor(
    ClientQuotas self, int quota_type, const Names* names, uint32_t hash, int64_t now
) noexcept nogil:
    """Return a sensor that has recorded nothing, or NULL. Requires the mutex."""
    cdef bint is_mutation = quota_type == CONTROLLER_MUTATION
    cdef int32_t kept = self.metrics_kept if is_mutation else self.kept
    cdef int64_t at = aligned(sizeof(Sensor) + names.user_size + names.client_size)
    cdef int64_t bytes = at + rate_bytes(kept) + rate_bytes(self.metrics_kept)
    cdef Sensor* sensor
    cdef double bound
    require(&self.mutex)
    if not has_room(self, bytes, now):
        return NULL
    sensor = <Sensor*>calloc(1, bytes)
    if sensor == NULL:
        return NULL
    sensor.entry.hash, sensor.entry.bytes, sensor.entry.used_ms = hash, bytes, now
    sensor.quota_type = quota_type
    sensor.user_size, sensor.client_size = names.user_size, names.client_size
    memcpy(names_of(sensor), names.user, names.user_size)
    memcpy(names_of(sensor) + names.user_size, names.client, names.client_size)
    bound = limit_of(self.limits, quota_type, names)
    sensor.bound = UNLIMITED if isnan(bound) else bound
    open_rate(
        &sensor.rate, kept, self.metrics_window_ms if is_mutation else self.window_ms, <uint8_t*>sensor + at
    )
    open_rate(
        &sensor.throttled, self.metrics_kept, self.metrics_window_ms, <uint8_t*>sensor + at + rate_bytes(kept)
    )
    sensor.tokens, sensor.tokens_ms = burst_of(self, sensor), now
    self.bytes_used = self.bytes_used + bytes
    return sensor


cdef Sensor* sensor_named(ClientQuotas self, int quota_type, const Names* names, int64_t now) noexcept nogil:
    """Return the sensor of these names, a new one if there is none, or NULL. Requires the mutex."""
    cdef uint32_t hash = mix(mix(self.seed ^ <uint32_t>quota_type, names.user, names.user_size), names.client, names.client_size)
    cdef Sensor* sensor = <Sensor*>first_entry(&self.sensors, hash)
    require(&self.mutex)
    while sensor != NULL:
        if (
            sensor.entry.hash == hash
            and sensor.quota_type == quota_type
            and sensor.user_size == names.user_size
            and sensor.client_size == names.client_size
            and memcmp(names_of(sensor), names.user, names.user_size) == 0
            and memcmp(names_of(sensor) + names.user_size, names.client, names.client_size) == 0
        ):
            return sensor
        sensor = <Sensor*>sensor.entry.next
    sensor = new_sensor(self, quota_type, names, hash, now)
    if sensor != NULL:
        add_entry(&self.sensors, &sensor.entry)
    return sensor


cdef Client* client_of(
    ClientQuotas self, int32_t user, const uint8_t* client_id, int64_t size, int64_t now
) noexcept nogil:
    """Return what is known of a client, or NULL without memory. Requires the mutex."""
    cdef uint32_t hash = mix(self.seed ^ <uint32_t>user, client_id, size)
    cdef Client* client = <Client*>first_entry(&self.clients, hash)
    cdef int64_t bytes = <int64_t>sizeof(Client) + size
    cdef int i
    require(&self.mutex)
    while client != NULL:
        if (
            client.entry.hash == hash
            and client.user == user
            and client.size == size
            and memcmp(id_of(client), client_id, size) == 0
        ):
            break
        client = <Client*>client.entry.next
    if client == NULL:
        if not has_room(self, bytes, now):
            return NULL
        client = <Client*>calloc(1, bytes)
        if client == NULL:
            return NULL
        client.entry.hash, client.entry.bytes = hash, bytes
        client.user, client.size, client.version = user, <int32_t>size, self.version
        memcpy(id_of(client), client_id, size)
        add_entry(&self.clients, &client.entry)
        self.bytes_used = self.bytes_used + bytes
    elif client.version != self.version:
        client.version = self.version
        for i in range(QUOTA_TYPES):
            client.sensors[i] = NULL
    client.entry.used_ms = now
    return client


include "_unknown_clients.pxi"


cdef Sensor* sensor_of(ClientQuotas self, Client* client, int quota_type, int64_t now) noexcept nogil:
    """Return the sensor that a client is charged to; NULL without memory, or where it is not known yet. Requires the mutex."""
    cdef Names names
    cdef Sensor* sensor = client.sensors[quota_type]
    require(&self.mutex)
    if sensor == NULL and self.asks_python:
        note_unknown(self, client, quota_type)
    elif sensor == NULL:
        names.user, names.user_size = self.users[client.user].bytes, self.users[client.user].size
        names.client, names.client_size = id_of(client), client.size
        choose_names(self.limits, self.levels, quota_type, &names)
        sensor = sensor_named(self, quota_type, &names, now)
        # The client may have been forgotten for the sake of its sensor's memory: then it is found anew.
        if sensor != NULL and client.version == self.version:
            client.sensors[quota_type] = sensor
    if sensor != NULL:
        sensor.entry.used_ms = now
    return sensor


cdef Sensor* sensor_of_request(
    ClientQuotas self, int32_t user, const uint8_t* client_id, int64_t size, int quota_type, int64_t now
) noexcept nogil:
    """Return the sensor that a request is charged to, or NULL without memory. Requires the mutex."""
    require(&self.mutex)
    cdef Client* client = client_of(self, user, client_id, size, now)
    return NULL if client == NULL else sensor_of(self, client, quota_type, now)


cdef bint has_room(ClientQuotas self, int64_t bytes, int64_t now) noexcept nogil:
    """Forget idle sensors and clients if it is time, or if memory is short. Return whether there is room. Needs the mutex.

    Nothing is forgotten that was used in this millisecond: the caller may be at work on it.
    """
    require(&self.mutex)
    if now - self.swept_ms >= SWEEP_MS:
        sweep(self, now, IDLE_MS)
    if self.bytes_used + bytes > self.most_bytes and now - self.swept_ms >= HURRIED_MS:
        sweep(self, now, max(<int64_t>1, self.kept * self.window_ms))
    return self.bytes_used + bytes <= self.most_bytes


cdef void sweep(ClientQuotas self, int64_t now, int64_t idle_ms) noexcept nogil:
    """Forget sensors and clients that were not used for longer than this. Requires the mutex."""
    cdef int64_t freed
    require(&self.mutex)
    self.swept_ms = now
    freed = forget_idle(&self.sensors, now, idle_ms)
    if freed:
        # A client that is used may still point to a sensor that is not: of another kind of quota.
        self.version = self.version + 1
    self.bytes_used = self.bytes_used - freed - forget_idle(&self.clients, now, idle_ms)


cdef int32_t throttle_of(ClientQuotas self, Sensor* sensor, int64_t now) noexcept nogil:
    """Return for how long what a sensor has recorded is too much; 0: it is not."""
    cdef int64_t span_ms, most_ms = INT64_MAX
    cdef double rate
    if is_surely_below(&sensor.rate, sensor.bound):
        return 0
    rate = rate_of(&sensor.rate, now, &span_ms)
    if rate <= sensor.bound:
        return 0
    if sensor.quota_type == REQUEST:
        most_ms = self.window_ms
    return throttle_ms_of(rate, sensor.bound, span_ms, most_ms)


cdef inline int64_t now_ms(ClientQuotas self) noexcept nogil:
    return monotonic_ns_of(self.time) // 1000000


cdef int32_t charge_client(ClientQuotas self, Client* client, const Charge* request, int64_t now) noexcept nogil:
    """Charge the sensors of a client. Requires the mutex."""
    cdef Sensor* of_time = NULL
    cdef Sensor* of_bytes = NULL
    cdef Sensor* named
    cdef int32_t time_ms = 0, bytes_ms = 0, ms
    require(&self.mutex)
    if not request.is_exempt:
        of_time = sensor_of(self, client, REQUEST, now)
    if of_time != NULL:
        if request.network_ns:
            record(&of_time.rate, request.network_ns * PERCENT_OF_NS, now)
        record(&of_time.rate, request.spent_ns * PERCENT_OF_NS, now)
        time_ms = throttle_of(self, of_time, now)
    elif not request.is_exempt:
        keep_charge(self, client, REQUEST, (request.network_ns + request.spent_ns) * PERCENT_OF_NS)
    if request.quota_type >= 0:
        of_bytes = sensor_of(self, client, request.quota_type, now)
    if of_bytes != NULL:
        record(&of_bytes.rate, <double>request.size, now)
        bytes_ms = throttle_of(self, of_bytes, now)
    elif request.quota_type >= 0:
        keep_charge(self, client, request.quota_type, <double>request.size)
    ms = max(time_ms, bytes_ms)
    if ms > 0:
        if of_bytes != NULL and request.quota_type == FETCH:
            # Its answer is empty.
            record(&of_bytes.rate, -<double>request.size, now)
        # It is the one that has made the throttle time, so it is there.
        named = of_bytes if bytes_ms > time_ms else of_time
        record(&named.throttled, ms, now)
    return ms


cdef class ClientQuotas:
    """The quotas of users and client ids of one broker. All methods may be called by any thread.

    ``samples``, ``window_seconds``: quota.window.num, quota.window.size.seconds; ``mutation_…``: those of
    controller.quota.window. ``most_bytes``: of memory for sensors. ``clock``: None for the operating system's.
    """

    def __cinit__(
        self,
        *,
        int32_t samples=11,
        int64_t window_seconds=1,
        int32_t mutation_samples=11,
        int64_t mutation_window_seconds=1,
        int32_t metrics_samples=2,
        int64_t metrics_window_ms=30000,
        int64_t most_bytes=67108864,
        Clock clock=None,
    ):
        if min(samples, mutation_samples, metrics_samples) < 1:
            raise ValueError("a rate has one sample at least")
        if min(window_seconds, mutation_window_seconds, metrics_window_ms) < 1:
            raise ValueError("a sample has one millisecond at least")
        self.clock = clock or SYSTEM_CLOCK
        self.time = self.clock.functions
        self.kept, self.window_ms = samples, 1000 * window_seconds
        self.mutation_kept, self.mutation_window_ms = mutation_samples, 1000 * mutation_window_seconds
        self.metrics_kept, self.metrics_window_ms = metrics_samples, metrics_window_ms
        self.most_bytes, self.version = most_bytes, 1
        self.seed = int.from_bytes(os.urandom(4))
        open_mutex(&self.mutex, CONNECTION_QUOTAS)
        self.exempt_samples = calloc(1, rate_bytes(metrics_samples))
        if not open_entries(&self.sensors) or not open_entries(&self.clients) or self.exempt_samples == NULL:
            raise MemoryError()
        open_rate(&self.exempt, metrics_samples, metrics_window_ms, self.exempt_samples)
        self.swept_ms = now_ms(self)
        self.user_numbers, self.user_names = {}, []
        self.user_number("ANONYMOUS")

    def __dealloc__(self):
        if self.clients.buckets != NULL:
            with nogil:
                lock(&self.mutex)
                sweep(self, INT64_MAX, -1)
                free_limits(self.limits)
                unlock(&self.mutex)
        free(self.sensors.buckets)
        free(self.clients.buckets)
        free(self.exempt_samples)
        free(self.users)
        free_unknown(<UnknownClient*>self.unknown)
        close_mutex(&self.mutex)

    # -- of processors

    cdef int32_t charge(self, const Charge* request) noexcept nogil:
        cdef int64_t now = request.now_ns // 1000000
        cdef Client* client
        cdef int32_t ms = 0
        lock(&self.mutex)
        if request.is_exempt:
            record(&self.exempt, (request.spent_ns + request.network_ns) * PERCENT_OF_NS, now)
        if not request.is_exempt or request.quota_type >= 0:
            client = client_of(self, request.user, request.client_id, request.client_id_size, now)
            if client != NULL:
                ms = charge_client(self, client, request, now)
        unlock(&self.mutex)
        return ms

    cdef int64_t most_fetched(self, int32_t user, const uint8_t* client_id, int64_t size) noexcept nogil:
        cdef int64_t now = now_ms(self)
        cdef Sensor* sensor
        cdef double most = UNLIMITED
        lock(&self.mutex)
        sensor = sensor_of_request(self, user, client_id, size, FETCH, now)
        if sensor != NULL and sensor.bound < UNLIMITED:
            most = sensor.bound * (self.kept - 1) * (self.window_ms / 1000)
        unlock(&self.mutex)
        return <int64_t>min(most, <double>INT32_MAX)

    # -- of handler threads

    @property
    def are_enabled(self):
        """Whether there has been a quota since the start."""
        return counted(&self.levels) != 0

    def user_number(self, str name):
        """Return the number of a user: it is never another one's. ANONYMOUS has 0."""
        number = self.user_numbers.get(name)
        if number is not None:
            return number
        cdef bytes text = name.encode(errors="replace")
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(text)
        cdef int32_t size = <int32_t>PyBytes_GET_SIZE(text), count
        cdef UserName* users
        cdef bint ok = True
        # The names stay where they are as long as this object.
        self.user_names.append(text)
        with nogil:
            lock(&self.mutex)
            if self.user_count == self.user_room:
                users = <UserName*>realloc(self.users, (2 * self.user_room + 4) * sizeof(UserName))
                ok = users != NULL
                if ok:
                    self.users, self.user_room = users, 2 * self.user_room + 4
            if ok:
                count = self.user_count
                self.users[count].bytes, self.users[count].size = data, size
                self.user_count = count + 1
            unlock(&self.mutex)
        if not ok:
            raise MemoryError()
        # Two threads may have come here with one name: both numbers mean the same.
        return self.user_numbers.setdefault(name, count)

    def set_limits(self, list entities):
        """Replace all quotas: lists of (user, client id, the bounds of all QuotaType).

        A name is None where the entity does not have this part, and "" for the default of it; a bound is None for none.
        Sensors go on with what they have recorded.
        """
        cdef Limits* limits = new_limits(len(entities))
        cdef const Limits* former
        cdef Names names
        cdef Part parts[2]
        cdef double bounds[QUOTA_TYPES]
        cdef int64_t levels = 0
        cdef bytes user_text, client_text
        cdef int i
        if limits == NULL:
            raise MemoryError()
        try:
            for user, client, values in entities:
                parts[0] = ABSENT if user is None else NAMED if user else DEFAULT
                parts[1] = ABSENT if client is None else NAMED if client else DEFAULT
                user_text, client_text = (user or "").encode(errors="replace"), (client or "").encode(errors="replace")
                names.user, names.user_size = <const uint8_t*>PyBytes_AS_STRING(user_text), <int32_t>len(user_text)
                names.client, names.client_size = <const uint8_t*>PyBytes_AS_STRING(client_text), <int32_t>len(client_text)
                for i in range(QUOTA_TYPES):
                    bounds[i] = NAN if values[i] is None else values[i]
                if any(value is not None for value in values):
                    levels |= OF_BOTH if parts[0] and parts[1] else OF_USER if parts[0] else OF_CLIENT_ID
                if not add_limit(limits, parts[0], parts[1], &names, bounds):
                    raise MemoryError()
        except BaseException:
            free_limits(limits)
            raise
        with nogil:
            lock(&self.mutex)
            former, self.limits = self.limits, limits
            # As Kafka's: a level that has had a quota counts until the broker ends.
            store_number(&self.levels, self.levels | levels)
            self.version = self.version + 1
            self.limit_sensors()
            unlock(&self.mutex)
            free_limits(former)

    cdef void limit_sensors(self) noexcept nogil:
        """Give all sensors the bounds of the present quotas. Requires the mutex."""
        cdef int64_t i
        cdef Sensor* sensor
        cdef Names names
        cdef double bound
        require(&self.mutex)
        for i in range(self.sensors.bucket_count):
            sensor = <Sensor*>self.sensors.buckets[i]
            while sensor != NULL:
                name_sensor(sensor, &names)
                bound = limit_of(self.limits, sensor.quota_type, &names)
                sensor.bound = UNLIMITED if isnan(bound) else bound
                sensor = <Sensor*>sensor.entry.next

    def charge_request(self, int32_t user, bytes client_id, int64_t spent_ns, *, bint is_exempt=False,
                       int quota_type=-1, int64_t size=0):
        """Charge a request that a handler thread answers. Return its throttle time in milliseconds.

        ``spent_ns``: of the thread. ``quota_type``, ``size``: the bytes that count, PRODUCE or FETCH.
        """
        cdef Charge request
        cdef int32_t ms
        if not 0 <= user < self.user_count or not -1 <= quota_type <= FETCH:
            raise ValueError(f"user {user}, quota {quota_type}")
        if not counted(&self.levels):
            return 0
        if not is_exempt:
            self.ask_for(user, client_id, REQUEST)
        if quota_type >= 0:
            self.ask_for(user, client_id, quota_type)
        request.user, request.client_id = user, <const uint8_t*>PyBytes_AS_STRING(client_id)
        request.client_id_size = PyBytes_GET_SIZE(client_id)
        request.quota_type, request.size, request.is_exempt = quota_type, size, is_exempt
        request.spent_ns, request.network_ns, request.now_ns = spent_ns, 0, monotonic_ns_of(self.time)
        with nogil:
            ms = self.charge(&request)
        return ms

    def fetch_limit(self, int32_t user, bytes client_id):
        """Return how many bytes a Fetch of this client may be answered with."""
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(client_id)
        cdef int64_t size = PyBytes_GET_SIZE(client_id), most
        if not 0 <= user < self.user_count:
            raise ValueError(f"user {user}")
        if not counted(&self.levels):
            return INT32_MAX
        self.ask_for(user, client_id, FETCH)
        with nogil:
            most = self.most_fetched(user, data, size)
        return most

    def mutate(self, int32_t user, bytes client_id, double mutations, *, bint is_strict):
        """Take tokens for changes of partitions. Return for how long the client must wait, in milliseconds; 0: not.

        Strict: nothing is taken where the bucket is below zero. Else they are taken in any case. A negative number gives
        tokens back.
        """
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(client_id)
        cdef int64_t size = PyBytes_GET_SIZE(client_id), now
        cdef int32_t ms = 0
        cdef Sensor* sensor
        if not 0 <= user < self.user_count:
            raise ValueError(f"user {user}")
        if not counted(&self.levels):
            return 0
        self.ask_for(user, client_id, CONTROLLER_MUTATION)
        with nogil:
            now = now_ms(self)
            lock(&self.mutex)
            sensor = sensor_of_request(self, user, data, size, CONTROLLER_MUTATION, now)
            if sensor != NULL:
                ms = take_tokens(self, sensor, mutations, is_strict, now)
            unlock(&self.mutex)
        return ms

    def note_throttling(self, int quota_type, int32_t user, bytes client_id, int32_t ms):
        """Count a throttle time that another part has decided on, for the metrics."""
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(client_id)
        cdef int64_t size = PyBytes_GET_SIZE(client_id), now
        cdef Sensor* sensor
        if not 0 <= user < self.user_count or not 0 <= quota_type < QUOTA_TYPES:
            raise ValueError(f"user {user}, quota {quota_type}")
        with nogil:
            now = now_ms(self)
            lock(&self.mutex)
            sensor = sensor_of_request(self, user, data, size, quota_type, now)
            if sensor != NULL:
                record(&sensor.throttled, ms, now)
            unlock(&self.mutex)

    # -- of the user's own class

    def ask_python(self, assign, int wake_fd):
        """Let a user's own class say which sensor a client is charged to, in the place of ``set_limits``.

        ``assign(user number, client id, QuotaType)`` calls ``assign`` before it returns; threads that have the GIL call it.
        Other threads write a byte to ``wake_fd``, a pipe that does not block, when ``take_unknown`` has clients.
        """
        self.assign_in_python, self.wake_fd = assign, wake_fd
        with nogil:
            lock(&self.mutex)
            self.asks_python = True
            store_number(&self.levels, OF_CLASS)
            unlock(&self.mutex)

    cdef ask_for(self, int32_t user, bytes client_id, int quota_type):
        """Let the sensor of a client be known, where the user's own class says which it is."""
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(client_id)
        cdef int64_t size = PyBytes_GET_SIZE(client_id)
        cdef Client* client
        cdef bint is_known
        if not self.asks_python:
            return
        with nogil:
            lock(&self.mutex)
            client = client_of(self, user, data, size, now_ms(self))
            is_known = client == NULL or client.sensors[quota_type] != NULL
            unlock(&self.mutex)
        if not is_known:
            self.assign_in_python(user, client_id, quota_type)

    def take_unknown(self):
        """Return what processors want to know: user number, client id and QuotaType of clients."""
        cdef UnknownClient* unknown
        cdef UnknownClient* one
        with nogil:
            lock(&self.mutex)
            unknown = <UnknownClient*>self.unknown
            self.unknown, self.unknown_count = NULL, 0
            unlock(&self.mutex)
        found = []
        try:
            one = unknown
            while one != NULL:
                found.append((one.user, (<const char*>(one + 1))[:one.size], one.quota_type))
                one = one.next
        finally:
            free_unknown(unknown)
        return found

    def assign(self, int32_t user, bytes client_id, int quota_type, str name, bound):
        """Charge a client to the sensor of this name from now on. ``bound``: that of the sensor, None for none."""
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(client_id)
        cdef int64_t size = PyBytes_GET_SIZE(client_id), now
        cdef bytes text = name.encode(errors="replace")
        cdef double limit = UNLIMITED if bound is None else bound
        cdef Names names
        cdef Client* client
        if not 0 <= user < self.user_count or not 0 <= quota_type < QUOTA_TYPES:
            raise ValueError(f"user {user}, quota {quota_type}")
        names.user, names.user_size = <const uint8_t*>PyBytes_AS_STRING(text), <int32_t>len(text)
        names.client, names.client_size = names.user, 0
        with nogil:
            now = now_ms(self)
            lock(&self.mutex)
            client = client_of(self, user, data, size, now)
            if client != NULL:
                assign_client(self, client, quota_type, &names, limit, now)
            unlock(&self.mutex)

    def set_bounds(self, dict bounds):
        """Give sensors other bounds: (QuotaType, name) -> bound, None for none. Further ones that are named are made."""
        cdef bytes text
        cdef Names names
        cdef Sensor* sensor
        cdef double limit
        cdef int kind
        for (quota_type, name), bound in bounds.items():
            kind, text, limit = quota_type, name.encode(errors="replace"), UNLIMITED if bound is None else bound
            names.user, names.user_size = <const uint8_t*>PyBytes_AS_STRING(text), <int32_t>len(text)
            names.client, names.client_size = names.user, 0
            with nogil:
                lock(&self.mutex)
                sensor = sensor_named(self, kind, &names, now_ms(self))
                if sensor != NULL:
                    sensor.bound = limit
                unlock(&self.mutex)

    def ask_again(self):
        """Ask again which sensors all clients are charged to, with their next requests."""
        with nogil:
            lock(&self.mutex)
            self.version = self.version + 1
            unlock(&self.mutex)

    # -- metrics

    def sensors_now(self):
        """Return for each sensor: its QuotaType, user and client id ("" for neither), the rate, the average throttle time
        (not a number where nobody was throttled), and the tokens of a bucket.
        """
        cdef Shown* shown
        cdef int64_t i, count = 0, room, now
        cdef bint ok
        with nogil:
            lock(&self.mutex)
            now = now_ms(self)
            if now - self.swept_ms >= SWEEP_MS:
                sweep(self, now, IDLE_MS)
            room = self.sensors.count
            shown = <Shown*>malloc(max(<int64_t>1, room) * sizeof(Shown))
            ok = shown != NULL
            if ok:
                ok = show_sensors(self, shown, &count, now)
            unlock(&self.mutex)
        try:
            if not ok:
                raise MemoryError()
            return [
                (
                    shown[i].quota_type,
                    shown[i].names[:shown[i].user_size].decode(errors="replace"),
                    shown[i].names[shown[i].user_size:shown[i].user_size + shown[i].client_size].decode(
                        errors="replace"
                    ),
                    shown[i].rate,
                    shown[i].throttled,
                    shown[i].tokens,
                )
                for i in range(count)
            ]
        finally:
            for i in range(count):
                free(shown[i].names)
            free(shown)

    @property
    def exempt_percent(self):
        """Percent of the time of a thread that requests have taken which the request quota does not hold for."""
        cdef double rate
        cdef int64_t span_ms
        with nogil:
            lock(&self.mutex)
            rate = rate_of(&self.exempt, now_ms(self), &span_ms)
            unlock(&self.mutex)
        return rate


cdef struct Shown:
    int quota_type
    int32_t user_size
    int32_t client_size
    double rate
    double throttled
    double tokens
    char* names


cdef bint show_sensors(ClientQuotas self, Shown* shown, int64_t* count, int64_t now) noexcept nogil:
    """Copy what metrics show of all sensors; return False without memory. Requires the mutex."""
    cdef int64_t i, span_ms
    cdef Sensor* sensor
    cdef Shown* one
    require(&self.mutex)
    for i in range(self.sensors.bucket_count):
        sensor = <Sensor*>self.sensors.buckets[i]
        while sensor != NULL:
            one = &shown[count[0]]
            one.names = <char*>malloc(max(1, sensor.user_size + sensor.client_size))
            if one.names == NULL:
                return False
            count[0] = count[0] + 1
            one.quota_type, one.user_size, one.client_size = sensor.quota_type, sensor.user_size, sensor.client_size
            memcpy(one.names, names_of(sensor), sensor.user_size + sensor.client_size)
            one.rate = rate_of(&sensor.rate, now, &span_ms)
            one.throttled = average_of(&sensor.throttled, now)
            one.tokens = tokens_of(self, sensor, now) if sensor.quota_type == CONTROLLER_MUTATION else 0.0
            sensor = <Sensor*>sensor.entry.next
    return True


cdef int32_t take_tokens(
    ClientQuotas self, Sensor* sensor, double mutations, bint is_strict, int64_t now
) noexcept nogil:
    """Take tokens from the bucket of a sensor; return for how long to wait. Requires the mutex."""
    cdef double tokens = tokens_of(self, sensor, now)
    require(&self.mutex)
    if mutations >= 0 and is_strict and tokens < 0:
        return wait_for_tokens(sensor)
    record(&sensor.rate, mutations, now)
    sensor.tokens = min(burst_of(self, sensor), tokens - mutations)
    return 0 if is_strict or mutations < 0 or sensor.tokens >= 0 else wait_for_tokens(sensor)


cdef int32_t wait_for_tokens(const Sensor* sensor) noexcept nogil:
    """Return when a bucket that is below zero is at zero. Source: ControllerMutationQuotaManager.throttleTimeMs."""
    cdef int64_t ms = rounded(-sensor.tokens / sensor.bound * 1000) if sensor.bound > 0 else INT64_MAX
    return <int32_t>min(ms, <int64_t>INT32_MAX)
