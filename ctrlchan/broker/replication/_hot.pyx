"""Requests that processors answer without the GIL: reads the request header and calls the function of the API.

Everything else (other keys, versions out of range, broken headers) goes to the request queue, where Python answers it or
closes the connection.
"""

from libc.stdint cimport int16_t, int32_t, uint8_t

from ctrlchan.broker.network._processor cimport (
    QUEUE,
    Answer,
    HotHandler,
    HotRequest,
    NetworkThreads,
    Result,
    append_room,
)
from ctrlchan.broker.replication._cursor cimport Cursor, read_i16, read_i32, skip_tags, take

cdef extern from "_wire/bytes.h":
    void put_i32(uint8_t* p, int32_t v) nogil


cdef bint read_header(const Entry* entry, Cursor* c, RequestHeader* header) noexcept nogil:
    """Read what follows key and version; return whether it is whole. Source: RequestHeader.json."""
    header.flexible = header.version >= entry.flexible_from
    header.correlation_id = read_i32(c)
    # Never compact.
    header.client_id_size = read_i16(c)
    header.client_id = NULL
    if header.client_id_size >= 0:
        header.client_id = take(c, header.client_id_size)
    c.flexible = header.flexible
    skip_tags(c)
    header.body, header.end = c.at, c.end
    return not c.failed


cdef Result handle_request(void* context, HotRequest* request, Answer* answer) noexcept nogil:
    """Answer a request, or leave it to the request queue."""
    cdef RequestHeader header
    cdef const Entry* entry
    cdef Cursor c
    cdef int i
    c.at, c.end, c.failed, c.flexible = request.data, request.data + request.size, False, False
    header.key, header.version = read_i16(&c), read_i16(&c)
    if c.failed:
        return QUEUE
    for i in range((<BrokerHandler>context).count):
        entry = &(<BrokerHandler>context).entries[i]
        if entry.key == header.key and entry.lowest <= header.version <= entry.highest:
            if not read_header(entry, &c, &header):
                return QUEUE
            return entry.function(entry.context, request, &header, answer)
    return QUEUE


cdef void append_header(Answer* answer, const RequestHeader* header) noexcept nogil:
    """Write the correlation id, and no tagged fields where the version has them."""
    cdef uint8_t* room = append_room(answer, 5 if header.flexible else 4)
    if room != NULL:
        put_i32(room, header.correlation_id)
        if header.flexible:
            room[4] = 0


cdef class HotApi:
    """An API that processors answer. See the .pxd."""

    @property
    def key(self):
        return self.entry.key

    @property
    def versions(self):
        """The lowest and the highest version that is answered here."""
        return self.entry.lowest, self.entry.highest


cdef class BrokerHandler(HotHandler):
    """The hot handler of a storing broker, with the given APIs. ``attach`` is called before the server starts."""

    def __init__(self, apis):
        cdef HotApi api
        self.apis = tuple(apis)
        if len(self.apis) > MOST_APIS:
            raise ValueError(f"{len(self.apis)} APIs, at most {MOST_APIS}")
        for api in self.apis:
            self.entries[self.count] = api.entry
            self.count += 1
        self.function, self.context = handle_request, <void*>self

    def attach(self, NetworkThreads threads not None):
        """Tell the APIs where parked requests wait. The threads keep this object, not the reverse."""
        cdef HotApi api
        for api in self.apis:
            api.network = threads.network
