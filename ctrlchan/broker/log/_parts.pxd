# What the parts of a log share: the results of their functions, and the rule for the mutex.
#
# ``Log`` has the mutex: its methods alone lock and unlock it. A part (``LocalLog``, ``Segments``, ``LeaderEpochs``,
# ``ProducerStates``) never does: it is used in between, and knows the mutex only to check that. While a log is loaded, no
# other thread has it, and there is no mutex to hold.

from ctrlchan._c.locks cimport Mutex, require


# Results of functions without the GIL that are no errno, which is positive.
cdef enum:
    DONE = 0
    # The end of the file, or a batch that is longer than what is left of it.
    NOT_FOUND = -1
    # A batch whose header cannot be true.
    CORRUPT = -2
    # An offset that is not within 2^31 of the segment's first one.
    OVERFLOW = -3
    # Recovery: an offset that is not above an earlier one.
    OUT_OF_ORDER = -4
    NO_MEMORY = -5
    # The log was closed, or an earlier error has taken it offline.
    OFFLINE = -6
    # A reader's offset that the log does not have.
    OUT_OF_RANGE = -7


cdef inline void require_mutex(const Mutex* mutex) noexcept nogil:
    """State that this thread has locked the mutex of the log. NULL: no other thread has the log yet."""
    if mutex != NULL:
        require(mutex)


# Return the text of a result.
cdef str why(int result)
# Return Kafka's error code of a result that is not DONE; KAFKA_STORAGE_ERROR: the disk is at fault.
cdef int error_code(int result) noexcept nogil
# Raise KafkaError for a result that is not DONE.
cdef int check_result(int result, folder) except -1
