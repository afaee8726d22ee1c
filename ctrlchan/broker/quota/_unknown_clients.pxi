# Quotas of a user's own class (client.quota.callback.class): which clients share a sensor, and its bound, only Python knows.
#
# Handler threads ask it before they charge a client. Processors cannot: they note the client as unknown, wake the thread that
# asks for it, and keep what they would have charged until it has answered. Meanwhile the client is not throttled.

cdef enum:
    # Clients that wait for an answer, at most; further ones are noted with a later request.
    MOST_UNKNOWN = 10000


cdef struct UnknownClient:
    UnknownClient* next
    int32_t user
    int32_t size
    int quota_type
    # The bytes of the client id follow.


cdef void note_unknown(ClientQuotas self, Client* client, int quota_type) noexcept nogil:
    """Let Python say which sensor a client is charged to. Requires the mutex."""
    cdef UnknownClient* unknown
    require(&self.mutex)
    if client.is_noted[quota_type] or self.unknown_count >= MOST_UNKNOWN:
        return
    unknown = <UnknownClient*>malloc(sizeof(UnknownClient) + client.size)
    if unknown == NULL:
        return
    unknown.user, unknown.size, unknown.quota_type = client.user, client.size, quota_type
    memcpy(unknown + 1, id_of(client), client.size)
    unknown.next = <UnknownClient*>self.unknown
    self.unknown = unknown
    self.unknown_count = self.unknown_count + 1
    client.is_noted[quota_type] = True
    # Where the pipe is full, the thread is awake.
    write(self.wake_fd, b"", 1)


cdef void keep_charge(ClientQuotas self, Client* client, int quota_type, double value) noexcept nogil:
    """Keep what a client is charged with until its sensor is known. Requires the mutex."""
    require(&self.mutex)
    if self.asks_python:
        client.uncharged[quota_type] += value


cdef void assign_client(
    ClientQuotas self, Client* client, int quota_type, const Names* names, double bound, int64_t now
) noexcept nogil:
    """Let a client be charged to the sensor of this name. Requires the mutex."""
    require(&self.mutex)
    cdef Sensor* sensor = sensor_named(self, quota_type, names, now)
    client.is_noted[quota_type] = False
    if sensor == NULL:
        return
    sensor.bound = bound
    sensor.entry.used_ms = now
    # Where sensors were forgotten for the sake of this one's memory, the next request asks again.
    if client.version == self.version:
        client.sensors[quota_type] = sensor
    if client.uncharged[quota_type] != 0:
        record(&sensor.rate, client.uncharged[quota_type], now)
        client.uncharged[quota_type] = 0


cdef void free_unknown(UnknownClient* unknown) noexcept nogil:
    cdef UnknownClient* following
    while unknown != NULL:
        following = unknown.next
        free(unknown)
        unknown = following
