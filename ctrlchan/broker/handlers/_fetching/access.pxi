# Which partitions of a Fetch the client may read. Source: KafkaApis.handleFetchRequest.


cdef bint is_decided(FetchApi self, Fetch* fetch, const HotRequest* hot) noexcept nogil:
    """Note which partitions are refused; return False where a handler thread must ask the authorizer first.

    Requires the mutex of the session. A request that waits is not looked at again, as in Kafka.
    """
    require(&fetch.session.mutex)
    cdef FetchSession* session = fetch.session
    cdef CachedPartition* cached
    cdef Topic* topic = NULL
    cdef int32_t number = session.first
    cdef int subject = TOPIC_ID if session.uses_ids else TOPIC_NAME
    cdef int bits = 0
    cdef bint follows = fetch.request.replica_id >= 0, all_allowed = True, is_current
    if not self.is_restricted or hot.reason != ARRIVED and hot.reason != ASKED:
        return True
    lock(&self.decisions.mutex)
    is_current = hot.reason != ASKED or hot.answer == self.decisions.current
    if session.allowed_version != self.decisions.current or session.allowed_identity != hot.identity:
        if follows and self.decisions.find(hot.identity, CLUSTER, NULL, 0) & MAY_ACT:
            bits = MAY_READ
        while number != NO_PARTITION:
            cached = &session.partitions[number]
            if not follows and cached.topic != topic:
                topic = cached.topic
                bits = self.decisions.find(hot.identity, subject, topic.bytes, topic.size)
            cached.refusal = NONE
            if not bits & MAY_READ:
                all_allowed = False
                cached.refusal = UNKNOWN_TOPIC_ID if bits & IS_UNKNOWN else TOPIC_AUTHORIZATION_FAILED
            number = cached.later
        if all_allowed:
            session.allowed_version, session.allowed_identity = self.decisions.current, hot.identity
    unlock(&self.decisions.mutex)
    # What was not allowed to a request that has asked is denied, if the decisions are those that it got.
    return all_allowed or hot.reason == ASKED and is_current
