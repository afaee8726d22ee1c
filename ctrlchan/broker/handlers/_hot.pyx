"""Requests that processors answer without the GIL: reads the request header and calls the function of the API.

Everything else (other keys, versions out of range, broken headers) goes to the request queue, where Python answers it or
closes the connection.
"""

import logging

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc

from ctrlchan._c.atomics cimport count_shared, counted
from ctrlchan._c.bytes cimport put_i32
from ctrlchan._c.clock_functions cimport Clock, monotonic_ns_of
from ctrlchan.broker.metadata._snapshot cimport Snapshot, encode_endpoints, is_in_rack
from ctrlchan.broker.quota._client_quotas cimport Charge, ClientQuotas
from ctrlchan.server._processor cimport (
    ARRIVED,
    CLOSE,
    DELAYED,
    DELAY_ENDED,
    DONE,
    NO_ANSWER,
    PARKED,
    QUEUE,
    Answer,
    HotHandler,
    HotRequest,
    NetworkThreads,
    Result,
    append_bytes,
    append_room,
    measure_time,
)
from ctrlchan.server._cursor cimport Cursor, read_i16, read_i32, skip_tags, take

from ctrlchan._c.clock_functions import SYSTEM_CLOCK

logger = logging.getLogger("ctrlchan.broker")

cdef enum:
    # The int32 before each frame
    SIZE_BYTES = 4


cdef bint read_header(const Entry* entry, Cursor* c, RequestHeader* header) noexcept nogil:
    """Read what follows key and version; return whether it is whole. Source: RequestHeader.json."""
    header.flexible = header.version >= entry.flexible_from
    header.correlation_id = read_i32(c)
    # Never compact. None at all is one of no bytes, as for Kafka's quotas.
    header.client_id_size = max(<int64_t>0, read_i16(c))
    header.client_id = take(c, header.client_id_size)
    c.flexible = header.flexible
    skip_tags(c)
    header.body, header.end = c.at, c.end
    return not c.failed


cdef Result handle_request(void* context, HotRequest* request, Answer* answer) noexcept nogil:
    """Answer a request, or leave it to the request queue."""
    cdef RequestHeader header
    cdef Entry* entry
    cdef Cursor c
    cdef Result result
    cdef bint goes_on = True
    cdef int i
    c.at, c.end, c.failed, c.flexible = request.data, request.data + request.size, False, False
    header.key, header.version = read_i16(&c), read_i16(&c)
    header.throttle_time_ms, header.has_quotas = request.throttle_time_ms, False
    if c.failed:
        return QUEUE
    for i in range((<BrokerHandler>context).count):
        entry = &(<BrokerHandler>context).entries[i]
        if entry.key == header.key and entry.lowest <= header.version <= entry.highest:
            if not read_header(entry, &c, &header):
                return QUEUE
            if (<BrokerHandler>context).faulty >> i & 1 and request.reason == ARRIVED:
                result = answer_fault(<BrokerHandler>context, &header, request, answer, &goes_on)
                if not goes_on:
                    return result
            if request.reason == DELAY_ENDED:
                request.reason = ARRIVED
            if counted(&(<BrokerHandler>context).quotas.levels):
                header.has_quotas = True
                measure_transfers(<BrokerHandler>context)
            result = entry.function(entry.context, request, &header, answer)
            if result == DONE or result == NO_ANSWER:
                count_shared(&entry.answered, 1)
                count_shared(&entry.bytes_in, request.size + SIZE_BYTES)
                if header.throttle_time_ms > 0:
                    count_shared(&entry.throttled_ms, header.throttle_time_ms)
            return result
    return QUEUE


cdef void measure_transfers(BrokerHandler self) noexcept nogil:
    """Let processors measure the time of receiving and sending: there are quotas."""
    if not self.measures_time and self.network != NULL:
        self.measures_time = True
        measure_time(self.network)


cdef bint charge(
    HotApi api, HotRequest* request, RequestHeader* header, int quota_type, int64_t size, bint is_exempt
) noexcept nogil:
    cdef Charge charged
    cdef int32_t ms
    if not header.has_quotas:
        return False
    charged.user, charged.client_id, charged.client_id_size = request.user, header.client_id, header.client_id_size
    charged.quota_type, charged.size, charged.is_exempt = quota_type, size, is_exempt
    charged.now_ns = monotonic_ns_of(api.quotas.time)
    charged.spent_ns = request.spent_ns + charged.now_ns - request.began_ns
    charged.network_ns, request.network_ns = request.network_ns, 0
    ms = api.quotas.charge(&charged)
    request.mute_ms = ms
    header.throttle_time_ms = max(header.throttle_time_ms, ms)
    return ms > 0


cdef void append_header(Answer* answer, const RequestHeader* header) noexcept nogil:
    """Write the correlation id, and no tagged fields where the version has them."""
    cdef uint8_t* room = append_room(answer, 5 if header.flexible else 4)
    if room != NULL:
        put_i32(room, header.correlation_id)
        if header.flexible:
            room[4] = 0


cdef Result answer_fault(
    BrokerHandler self, const RequestHeader* header, HotRequest* request, Answer* answer, bint* goes_on
) noexcept nogil:
    """Do what a fault does to a request. ``goes_on``: no fault hits it, and the result means nothing."""
    goes_on[0] = False
    with gil:
        try:
            found = self.fault_answer(
                header.key, header.version, PyBytes_FromStringAndSize(<const char*>request.data, request.size)
            )
            if found is True:
                goes_on[0] = True
                return QUEUE
            if found is None:
                return QUEUE
            if found is False:
                return CLOSE
            if isinstance(found, float):
                request.wait_ms = <int32_t>min(found * 1000, INT32_MAX)
                return DELAYED
            append_bytes(answer, PyBytes_AS_STRING(found), len(found))
            return DONE
        except Exception:
            logger.exception("a fault cannot be answered")
            return CLOSE


cdef class HotApi:
    """An API that processors answer. See the .pxd."""

    @property
    def key(self):
        return self.entry.key

    @property
    def versions(self):
        """The lowest and the highest version that is answered here."""
        return self.entry.lowest, self.entry.highest

    def __dealloc__(self):
        free(self.listeners)

    cdef uint8_t* endpoints(
        self, const Snapshot* metadata, int32_t listener, const int32_t* ids, int64_t count, int64_t* size
    ) noexcept nogil:
        return encode_endpoints(
            metadata, self.listeners[listener].bytes, self.listeners[listener].size, ids, count, size
        )

    cdef bint is_in_rack(
        self, const Snapshot* metadata, int32_t listener, int32_t broker_id, const uint8_t* rack, int64_t size
    ) noexcept nogil:
        return is_in_rack(
            metadata, self.listeners[listener].bytes, self.listeners[listener].size, broker_id, rack, size
        )

    cdef set_listeners(self, names):
        cdef int i
        cdef bytes name
        cdef ListenerName* listeners = <ListenerName*>realloc(self.listeners, max(1, len(names)) * sizeof(ListenerName))
        if listeners == NULL:
            raise MemoryError()
        self.listeners, self.listener_names = listeners, tuple(map(str.encode, names))
        for i, name in enumerate(self.listener_names):
            listeners[i].bytes, listeners[i].size = <const uint8_t*>PyBytes_AS_STRING(name), len(name)


cdef class BrokerHandler(HotHandler):
    """The hot handler of a storing broker, with the given APIs. ``attach`` is called before the server starts.

    ``quotas``: of its clients, for all requests that are answered here; None for none.
    """

    def __init__(self, apis, ClientQuotas quotas=None):
        cdef HotApi api
        self.apis, self.quotas = tuple(apis), quotas or ClientQuotas()
        if len(self.apis) > MOST_APIS:
            raise ValueError(f"{len(self.apis)} APIs, at most {MOST_APIS}")
        for api in self.apis:
            api.quotas = self.quotas
            self.entries[self.count] = api.entry
            self.count += 1
        self._set_clock(SYSTEM_CLOCK)
        self.function, self.context = handle_request, <void*>self

    cdef _set_clock(self, Clock clock):
        self.clock, self.time = clock, clock.functions

    def totals(self):
        """Return for each API key: how many requests were answered here, their bytes, and throttle times in milliseconds."""
        cdef int i
        cdef Entry* entry
        cdef dict found = {}
        for i in range(self.count):
            entry = &self.entries[i]
            found[entry.key] = counted(&entry.answered), counted(&entry.bytes_in), counted(&entry.throttled_ms)
        return found

    @property
    def keys(self):
        """The API keys of the requests that are answered here."""
        return frozenset(api.key for api in self.apis)

    def set_faults(self, keys, answer):
        """Ask `answer` before requests of these API keys are answered. It runs on the processors' threads.

        ``answer(key, version, request)``: the response with its header; True: go on; False: close the connection;
        a float: seconds until the request is handled; None: a handler thread answers.
        """
        cdef int i
        cdef uint32_t faulty = 0
        for i in range(self.count):
            if self.entries[i].key in keys:
                faulty |= <uint32_t>1 << i
        self.fault_answer = answer
        self.faulty = faulty

    def attach(self, NetworkThreads threads not None):
        """Give the APIs the processors whose requests they park, and the server's clock. The threads keep this object."""
        cdef HotApi api
        self._set_clock(threads.clock)
        self.network = threads.network
        for api in self.apis:
            api.network = threads.network
            api.set_listeners(threads.listener_names)
