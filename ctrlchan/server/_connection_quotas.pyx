"""ConnectionQuotas: how many connections a server may have, and how many may come in a second.

An acceptor takes a connection, and has it recorded in the rates of the server and of its listener. If one of them is above
its limit, the connection waits for the throttle time; then it waits until there are fewer connections than the limits say.
Then it is recorded in the rate of its address: if that is above its limit, the connection is taken out of all rates again,
and is closed after the throttle time. The last check is the number of connections of its address.

The limits of the server do not hold for a protected listener, the one of brokers where there are others. So there may be
more connections than the limit; then processors of other listeners close theirs, the least recently used first.

All of it is under one mutex, which is held for some additions. An address that has no limit of its rate has no sensor; one
that was not used for an hour is forgotten. The memory of sensors has a limit: further addresses are not limited.

Source: ConnectionQuotas in kafka.network.SocketServer (Kafka 3.9), with the samples of server/_rates.pxd.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from ctrlchan._c.atomics cimport counted, store_number
from ctrlchan._c.clock_functions cimport Clock, monotonic_ns_of
from ctrlchan._c.hashing cimport mix
from ctrlchan._c.locks cimport CONNECTION_QUOTAS, close_mutex, lock, open_mutex, require, unlock
from ctrlchan.server._idle_entries cimport Entry, add_entry, first_entry, forget_idle, open_entries
from ctrlchan.server._rates cimport Rate, average_of, open_rate, rate_bytes, rate_of, record, throttle_ms_of

import os

from ctrlchan._c.clock_functions import SYSTEM_CLOCK

cdef enum:
    # An address whose rate was not used for so long is forgotten (Kafka: ConnectionQuotaEntity.ipQuotaEntity).
    IDLE_MS = 3600000
    # How often sensors are looked at for that.
    SWEEP_MS = 30000
    # Where no memory is left, sensors that were not used for all their windows are forgotten, and no more often.
    HURRIED_MS = 1000
    # Of the sensors of addresses
    MOST_BYTES = 16777216


cdef struct IpSensor:
    Entry entry
    uint8_t ip[16]
    Rate rate
    # The samples follow.


cdef inline int64_t now_ms(const Quotas* quotas) noexcept nogil:
    return monotonic_ns_of(quotas.clock) // 1000000


cdef int64_t limit_of(const IpLimits* limits, const uint8_t* ip) noexcept nogil:
    """Return the limit of an address."""
    cdef int64_t low = 0, high = limits.count, middle
    cdef int order
    while low < high:
        middle = (low + high) // 2
        order = memcmp(limits.rows[middle].ip, ip, 16)
        if order == 0:
            return limits.rows[middle].limit
        if order < 0:
            low = middle + 1
        else:
            high = middle
    return limits.others


# -- rates


cdef int32_t throttle_of(Quotas* quotas, Rate* rate, int64_t max_rate, int64_t now) noexcept nogil:
    """Return for how long a rate is above its limit, one window at most; 0: it is not."""
    cdef int64_t span_ms
    cdef double measured = rate_of(rate, now, &span_ms)
    if measured <= max_rate:
        return 0
    return throttle_ms_of(measured, <double>max_rate, span_ms, quotas.window_ms)


cdef int64_t record_arrival(Quotas* quotas, int listener) noexcept nogil:
    cdef ConnectionLimits* own = &quotas.listeners[listener]
    cdef int64_t now = now_ms(quotas), ms = 0
    lock(&quotas.mutex)
    if listener != quotas.protected:
        record(&quotas.server.rate, 1.0, now)
        ms = throttle_of(quotas, &quotas.server.rate, quotas.server.max_rate, now)
    record(&own.rate, 1.0, now)
    ms = max(ms, <int64_t>throttle_of(quotas, &own.rate, own.max_rate, now))
    if ms > 0:
        record(&own.throttled, ms, now)
    unlock(&quotas.mutex)
    return ms


cdef IpSensor* sensor_of(Quotas* quotas, const uint8_t* ip, int64_t now) noexcept nogil:
    """Return the sensor of an address, a new one if there is none, or NULL without memory. Requires the mutex."""
    cdef uint32_t hash = mix(quotas.seed, ip, 16)
    cdef int64_t bytes = <int64_t>sizeof(IpSensor) + rate_bytes(quotas.kept)
    cdef IpSensor* sensor = <IpSensor*>first_entry(&quotas.ip_sensors, hash)
    require(&quotas.mutex)
    while sensor != NULL:
        if sensor.entry.hash == hash and memcmp(sensor.ip, ip, 16) == 0:
            sensor.entry.used_ms = now
            return sensor
        sensor = <IpSensor*>sensor.entry.next
    forget_old_sensors(quotas, bytes, now)
    if quotas.bytes_used + bytes > quotas.most_bytes:
        return NULL
    sensor = <IpSensor*>calloc(1, bytes)
    if sensor == NULL:
        return NULL
    sensor.entry.hash, sensor.entry.bytes, sensor.entry.used_ms = hash, bytes, now
    memcpy(sensor.ip, ip, 16)
    open_rate(&sensor.rate, quotas.kept, quotas.window_ms, sensor + 1)
    add_entry(&quotas.ip_sensors, &sensor.entry)
    quotas.bytes_used += bytes
    return sensor


cdef void forget_old_sensors(Quotas* quotas, int64_t bytes, int64_t now) noexcept nogil:
    """Forget idle sensors if it is time, or if so many bytes more are too many. Requires the mutex."""
    cdef bint is_short = quotas.bytes_used + bytes > quotas.most_bytes
    require(&quotas.mutex)
    if now - quotas.swept_ms < (HURRIED_MS if is_short else SWEEP_MS):
        return
    quotas.swept_ms = now
    quotas.bytes_used -= forget_idle(
        &quotas.ip_sensors, now, (quotas.kept + 1) * quotas.window_ms if is_short else <int64_t>IDLE_MS
    )


cdef int64_t throttle_ip(Quotas* quotas, int listener, const uint8_t* ip) noexcept nogil:
    """Record a connection of an address. Return 0, or after how long it is closed: no rate has it then. Requires the mutex."""
    cdef int64_t max_rate = limit_of(&quotas.ip_rates, ip)
    cdef int64_t now, ms
    cdef IpSensor* sensor
    require(&quotas.mutex)
    if max_rate == INT32_MAX:
        return 0
    now = now_ms(quotas)
    sensor = sensor_of(quotas, ip, now)
    if sensor == NULL:
        return 0
    record(&sensor.rate, 1.0, now)
    ms = throttle_of(quotas, &sensor.rate, max_rate, now)
    if ms > 0:
        record(&sensor.rate, -1.0, now)
        if listener != quotas.protected:
            record(&quotas.server.rate, -1.0, now)
        record(&quotas.listeners[listener].ip_throttled, ms, now)
        record(&quotas.listeners[listener].rate, -1.0, now)
    return ms


# -- numbers


cdef void find_excess(Quotas* quotas) noexcept nogil:
    """Requires the mutex."""
    cdef int64_t more = quotas.server.open - quotas.claimed - quotas.server.max_connections
    require(&quotas.mutex)
    store_number(&quotas.excess, max(<int64_t>0, more))


cdef bint has_slot(Quotas* quotas, int listener) noexcept nogil:
    """Return whether one more connection may come in. Requires the mutex."""
    cdef const ConnectionLimits* own = &quotas.listeners[listener]
    require(&quotas.mutex)
    if own.open >= own.max_connections:
        return False
    return listener == quotas.protected or quotas.server.open < quotas.server.max_connections


cdef IpCount** place_of(Quotas* quotas, const uint8_t* ip) noexcept nogil:
    """Return where the entry of an address stands, or where it would be appended. Requires the mutex."""
    cdef IpCount** place = &quotas.buckets[mix(quotas.seed, ip, 16) % IP_BUCKETS]
    require(&quotas.mutex)
    while place[0] != NULL and memcmp(place[0].ip, ip, 16) != 0:
        place = &place[0].next
    return place


cdef Admission admit_locked(Quotas* quotas, int listener, const uint8_t* ip, int64_t* value) noexcept nogil:
    """Requires the mutex."""
    cdef IpCount** place
    require(&quotas.mutex)
    if not has_slot(quotas, listener):
        quotas.acceptors_wait = True
        return NO_SLOT
    value[0] = throttle_ip(quotas, listener, ip)
    if value[0] > 0:
        return IP_THROTTLED
    place = place_of(quotas, ip)
    value[0] = limit_of(&quotas.per_ip, ip)
    if (place[0].count if place[0] != NULL else 0) >= value[0]:
        return TOO_MANY_OF_IP
    if place[0] == NULL:
        place[0] = <IpCount*>calloc(1, sizeof(IpCount))
        if place[0] != NULL:
            memcpy(place[0].ip, ip, 16)
    # Without memory for its entry the connection counts for the server alone.
    if place[0] != NULL:
        place[0].count += 1
    quotas.server.open += 1
    quotas.listeners[listener].open += 1
    find_excess(quotas)
    return ADMITTED


cdef Admission admit(Quotas* quotas, int listener, const uint8_t* ip, int64_t* value) noexcept nogil:
    cdef Admission admission
    lock(&quotas.mutex)
    admission = admit_locked(quotas, listener, ip, value)
    unlock(&quotas.mutex)
    return admission


cdef bint give_back_slot(Quotas* quotas, int listener, const uint8_t* ip) noexcept nogil:
    cdef IpCount** place
    cdef IpCount* entry
    cdef bint wake
    lock(&quotas.mutex)
    quotas.server.open -= 1
    quotas.listeners[listener].open -= 1
    place = place_of(quotas, ip)
    entry = place[0]
    if entry != NULL:
        entry.count -= 1
        if entry.count == 0:
            place[0] = entry.next
            free(entry)
    find_excess(quotas)
    wake = quotas.acceptors_wait
    quotas.acceptors_wait = False
    unlock(&quotas.mutex)
    return wake


cdef bint claim_excess(Quotas* quotas, int listener) noexcept nogil:
    cdef bint is_claimed
    if listener == quotas.protected or counted(&quotas.excess) == 0:
        return False
    lock(&quotas.mutex)
    is_claimed = quotas.excess > 0
    if is_claimed:
        quotas.claimed += 1
        find_excess(quotas)
    unlock(&quotas.mutex)
    return is_claimed


cdef void end_claim(Quotas* quotas) noexcept nogil:
    lock(&quotas.mutex)
    quotas.claimed -= 1
    find_excess(quotas)
    unlock(&quotas.mutex)


# -- what Python sees


cdef int replace_limits(IpLimits* limits, Mutex* mutex, list rows, int64_t others) except -1:
    """Replace the limits of addresses: packed IPv6 addresses (IPv4 as mapped ones) with their limits."""
    cdef int64_t count = len(rows), i
    cdef IpLimit* replaced
    cdef IpLimit* new = <IpLimit*>malloc(max(<int64_t>1, count) * sizeof(IpLimit))
    cdef bytes packed
    if new == NULL:
        raise MemoryError()
    try:
        for i, (address, limit) in enumerate(sorted(rows)):
            packed = address
            if len(packed) != 16:
                raise ValueError(f"an address of {len(packed)} bytes")
            memcpy(new[i].ip, PyBytes_AS_STRING(packed), 16)
            new[i].limit = limit
    except BaseException:
        free(new)
        raise
    with nogil:
        lock(mutex)
        replaced = limits.rows
        limits.rows, limits.count, limits.others = new, count, others
        unlock(mutex)
        free(replaced)
    return 0


cdef class ConnectionQuotas:
    """The limits of connections of one server. Listeners have numbers from 0. All methods may be called by any thread.

    ``protected``: the listener that the limits of the server do not hold for; it counts only beside others. ``samples``,
    ``window_seconds``: quota.window.num, quota.window.size.seconds. ``clock``: None for the operating system's. Nothing is
    limited until ``limit`` and ``limit_ip_rates``.
    """

    def __cinit__(
        self,
        int listeners,
        *,
        int protected=-1,
        int32_t samples=11,
        int64_t window_seconds=1,
        int32_t metrics_samples=2,
        int64_t metrics_window_ms=30000,
        Clock clock=None,
    ):
        cdef Quotas* quotas
        cdef uint8_t* memory
        cdef int i
        if listeners < 1 or not -1 <= protected < listeners:
            raise ValueError(f"{listeners} listeners, of which {protected} is protected")
        if min(samples, metrics_samples) < 1 or min(window_seconds, metrics_window_ms) < 1:
            raise ValueError("a rate has one sample of one millisecond at least")
        quotas = self.quotas = <Quotas*>calloc(1, sizeof(Quotas))
        if quotas == NULL:
            raise MemoryError()
        open_mutex(&quotas.mutex, CONNECTION_QUOTAS)
        self.clock = clock or SYSTEM_CLOCK
        quotas.clock = self.clock.functions
        quotas.kept, quotas.window_ms = samples, 1000 * window_seconds
        quotas.metrics_kept, quotas.metrics_window_ms = metrics_samples, metrics_window_ms
        quotas.protected = protected if listeners > 1 else -1
        quotas.seed = int.from_bytes(os.urandom(4))
        quotas.most_bytes, quotas.swept_ms = MOST_BYTES, now_ms(quotas)
        quotas.per_ip.others = quotas.ip_rates.others = INT32_MAX
        quotas.listeners = <ConnectionLimits*>calloc(listeners, sizeof(ConnectionLimits))
        self.samples = calloc(
            1, (listeners + 1) * rate_bytes(samples) + 2 * listeners * rate_bytes(metrics_samples)
        )
        if quotas.listeners == NULL or self.samples == NULL or not open_entries(&quotas.ip_sensors):
            raise MemoryError()
        quotas.listener_count = listeners
        memory = <uint8_t*>self.samples
        open_rate(&quotas.server.rate, samples, quotas.window_ms, memory)
        memory += rate_bytes(samples)
        quotas.server.max_connections = quotas.server.max_rate = INT32_MAX
        for i in range(listeners):
            quotas.listeners[i].max_connections = quotas.listeners[i].max_rate = INT32_MAX
            open_rate(&quotas.listeners[i].rate, samples, quotas.window_ms, memory)
            memory += rate_bytes(samples)
            open_rate(&quotas.listeners[i].throttled, metrics_samples, metrics_window_ms, memory)
            memory += rate_bytes(metrics_samples)
            open_rate(&quotas.listeners[i].ip_throttled, metrics_samples, metrics_window_ms, memory)
            memory += rate_bytes(metrics_samples)

    def __dealloc__(self):
        cdef Quotas* quotas = self.quotas
        cdef IpCount* entry
        cdef int i
        if quotas == NULL:
            return
        for i in range(IP_BUCKETS):
            while quotas.buckets[i] != NULL:
                entry = quotas.buckets[i]
                quotas.buckets[i] = entry.next
                free(entry)
        if quotas.ip_sensors.buckets != NULL:
            forget_idle(&quotas.ip_sensors, INT64_MAX, -1)
        free(quotas.ip_sensors.buckets)
        free(quotas.per_ip.rows)
        free(quotas.ip_rates.rows)
        free(quotas.listeners)
        free(self.samples)
        close_mutex(&quotas.mutex)
        free(quotas)

    @property
    def listener_count(self):
        """How many listeners there are."""
        return self.quotas.listener_count

    def limit(self, int64_t max_connections, int64_t max_rate, list listeners not None):
        """Replace the limits of the server and of its listeners: of each (connections, connections in a second).

        Acceptors that wait must be woken, and processors, where there are too many connections now.
        """
        cdef Quotas* quotas = self.quotas
        cdef ConnectionLimits* own
        cdef int64_t connections, rate
        if len(listeners) != quotas.listener_count:
            raise ValueError(f"limits of {len(listeners)} listeners for {quotas.listener_count}")
        for i, (connections, rate) in enumerate(listeners):
            own = &quotas.listeners[<int>i]
            with nogil:
                lock(&quotas.mutex)
                own.max_connections, own.max_rate = connections, rate
                unlock(&quotas.mutex)
        with nogil:
            lock(&quotas.mutex)
            quotas.server.max_connections, quotas.server.max_rate = max_connections, max_rate
            quotas.acceptors_wait = False
            find_excess(quotas)
            unlock(&quotas.mutex)

    def limit_ips(self, int64_t others, list rows not None):
        """Replace how many connections an address may have: packed IPv6 addresses with their limits, and all others."""
        replace_limits(&self.quotas.per_ip, &self.quotas.mutex, rows, others)

    def limit_ip_rates(self, int64_t others, list rows not None):
        """Replace how many connections of an address may come in a second, in the same way. 2**31 - 1: any number."""
        replace_limits(&self.quotas.ip_rates, &self.quotas.mutex, rows, others)

    # -- what acceptors and processors do, for tests

    def arrive(self, int listener):
        """Record a connection that has come. Return for how many milliseconds it waits."""
        cdef int64_t ms
        self._check(listener)
        with nogil:
            ms = record_arrival(self.quotas, listener)
        return ms

    def admit(self, int listener, bytes ip not None):
        """Let in a connection whose wait has ended. Return the Admission, and what belongs to it."""
        cdef const uint8_t* address = <const uint8_t*>PyBytes_AS_STRING(ip)
        cdef int64_t value = 0
        cdef Admission admission
        self._check(listener, ip)
        with nogil:
            admission = admit(self.quotas, listener, address, &value)
        return Admission(admission), value

    def release(self, int listener, bytes ip not None):
        """Count the end of a connection that was admitted. Return whether acceptors wait for it."""
        cdef const uint8_t* address = <const uint8_t*>PyBytes_AS_STRING(ip)
        cdef bint wake
        if self.open_of_ip(ip) == 0:
            raise ValueError("the address has no connection")
        self._check(listener)
        with nogil:
            wake = give_back_slot(self.quotas, listener, address)
        return wake

    def _check(self, int listener, bytes ip=None):
        if not 0 <= listener < self.quotas.listener_count:
            raise ValueError(f"listener {listener}: there is none")
        if ip is not None and len(ip) != 16:
            raise ValueError(f"an address of {len(ip)} bytes")

    # -- numbers

    @property
    def excess(self):
        """By how many the open connections exceed the limit of the server."""
        return counted(&self.quotas.excess)

    def open_of_ip(self, bytes ip not None):
        """Return how many open connections an address has."""
        cdef const uint8_t* address = <const uint8_t*>PyBytes_AS_STRING(ip)
        cdef IpCount* entry
        cdef int64_t number
        self._check(0, ip)
        with nogil:
            lock(&self.quotas.mutex)
            entry = place_of(self.quotas, address)[0]
            number = entry.count if entry != NULL else 0
            unlock(&self.quotas.mutex)
        return number

    def rates_now(self):
        """Return the connections in a second of the server, then of each listener: the same number, and the averages of
        the throttle times of connections that waited and of those that were closed for their address (not a number where
        there were none).
        """
        cdef Quotas* quotas = self.quotas
        cdef double of_server, of_listener, throttled, ip_throttled
        cdef int64_t now, span_ms
        cdef int i
        with nogil:
            lock(&quotas.mutex)
            now = now_ms(quotas)
            of_server = rate_of(&quotas.server.rate, now, &span_ms)
            unlock(&quotas.mutex)
        rows = []
        for i in range(quotas.listener_count):
            with nogil:
                lock(&quotas.mutex)
                of_listener = rate_of(&quotas.listeners[i].rate, now, &span_ms)
                throttled = average_of(&quotas.listeners[i].throttled, now)
                ip_throttled = average_of(&quotas.listeners[i].ip_throttled, now)
                unlock(&quotas.mutex)
            rows.append((of_listener, throttled, ip_throttled))
        return of_server, rows

    def ip_rates_now(self):
        """Return the connections in a second of each address that has had a limit: packed IPv6 addresses with their rates."""
        cdef Quotas* quotas = self.quotas
        cdef ShownIp* shown
        cdef IpSensor* sensor
        cdef int64_t count = 0, now, span_ms, i
        with nogil:
            lock(&quotas.mutex)
            now = now_ms(quotas)
            forget_old_sensors(quotas, 0, now)
            shown = <ShownIp*>malloc(max(<int64_t>1, quotas.ip_sensors.count) * sizeof(ShownIp))
            for i in range(quotas.ip_sensors.bucket_count if shown != NULL else 0):
                sensor = <IpSensor*>quotas.ip_sensors.buckets[i]
                while sensor != NULL:
                    memcpy(shown[count].ip, sensor.ip, 16)
                    shown[count].rate = rate_of(&sensor.rate, now, &span_ms)
                    count += 1
                    sensor = <IpSensor*>sensor.entry.next
            unlock(&quotas.mutex)
        if shown == NULL:
            raise MemoryError()
        try:
            return [((<char*>shown[i].ip)[:16], shown[i].rate) for i in range(count)]
        finally:
            free(shown)


cdef struct ShownIp:
    uint8_t ip[16]
    double rate
