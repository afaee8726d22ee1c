# What connections may fetch and produce, as processors ask. See the .pyx.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from ctrlchan._c.locks cimport Mutex


# What a decision is about.
cpdef enum Subject:
    TOPIC_NAME = 0
    # The 16 bytes of a topic id
    TOPIC_ID = 1
    TRANSACTIONAL_ID = 2
    # Without a name
    CLUSTER = 3


# What is allowed: bits.
cpdef enum Allowed:
    MAY_READ = 1
    MAY_WRITE = 2
    # ClusterAction: a broker that follows
    MAY_ACT = 4
    # Nothing is allowed: no topic had this id when it was asked for. Only the request that asked counts it.
    IS_UNKNOWN = 8


cdef struct Decision


cdef class Decisions:
    cdef Mutex mutex
    # All guarded by the mutex. ``version``: rises when decisions may have become others; they are forgotten then.
    cdef int64_t current
    cdef Decision** buckets
    cdef int64_t bucket_count
    cdef int64_t count
    cdef int64_t most
    cdef uint32_t seed
    # Numbers of principals with their hosts; guarded by the GIL
    cdef dict identities
    cdef int32_t last_identity
    cdef int most_identities
    #: Returns the topics of a fetch session: names or ids, and whether they are ids. Set by the broker.
    cdef public object session_topics

    # Return the bits of a decision, 0 for none. Requires the mutex.
    cdef int find(self, int32_t identity, int subject, const uint8_t* name, int64_t size) noexcept nogil
    # As ``find`` with the mutex: whether all these bits are there.
    cdef bint allows(self, int32_t identity, int subject, const uint8_t* name, int64_t size, int bits) noexcept nogil
    cdef bint add(self, int32_t identity, int subject, const uint8_t* name, int64_t size, int bits) noexcept nogil
    cdef void clear(self) noexcept nogil
