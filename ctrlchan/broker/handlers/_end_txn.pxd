from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from ctrlchan._c.locks cimport Condition, Mutex
from ctrlchan.broker._decisions cimport Decisions
from ctrlchan.broker.handlers._hot cimport HotApi
from ctrlchan.broker.replica._partitions cimport PartitionTable


# The right to end one transaction.
cdef struct Right:
    GateState* gate
    # The EndRight, with a reference of the table's or of the gate's list
    void* owner
    const uint8_t* transactional_id
    int64_t transactional_id_size
    int64_t producer_id
    int16_t epoch
    int64_t first_connection
    # The batch that commits, and where the value of its record is
    const uint8_t* batch
    int64_t batch_size
    int64_t value_at
    # What was decided
    bint commits
    int64_t decided_ms
    # Of a bucket of the table, or of the gate's list
    Right* following


cdef struct GateState:
    int32_t number
    int32_t epoch
    # Whether a thread of Python is in the gate; only such threads write it.
    int64_t is_entered
    # Processors that are deciding; changes under the table's mutex
    int64_t deciding
    # Rights that are used, the first one first. Processors append under the table's mutex; a thread in the gate, which
    # keeps them out, takes them without it.
    Right* first_decided
    Right* last_decided
    int64_t decided


cdef class EndTxnApi(HotApi):
    cdef PartitionTable table
    # What clients may write; without an authorizer ``is_restricted`` is False
    cdef Decisions decisions
    cdef bint is_restricted
    # Of partitions of __transaction_state, by number. Guarded by the GIL
    cdef dict gates

    cdef Mutex mutex
    # A processor has decided while a thread waits in the gate.
    cdef Condition changed
    # Guarded by the mutex: a hash table of lists
    cdef Right** buckets
    cdef int64_t capacity
    cdef int64_t count
    cdef uint32_t seed

    cdef bint reserve(self) noexcept nogil
    cdef bint unlink(self, Right* right) noexcept nogil
    cdef void link(self, Right* right) noexcept nogil


cdef class EndRight:
    cdef Gate gate
    cdef Right right
    cdef object transaction
    # What the right points into
    cdef bytes transactional_id
    cdef bytes batch


cdef class Gate:
    cdef EndTxnApi api
    cdef GateState state
    cdef object settle
