# Mutexes and conditions of code that runs without the GIL. No other file uses those of pthread.
#
# A thread that holds the GIL never waits for a mutex: its owner may be waiting for the GIL, and both would wait for ever.
# So ``lock`` gives the GIL back before it waits. That is the safety net; the rule for code is stricter: a mutex is locked
# and unlocked within code that does not hold the GIL, so that nobody waits for Python. Debug builds (CTRLCHAN_DEBUG=1)
# check at each lock that the GIL is not held, that the thread holds no mutex of the same or a higher rank, and at
# ``require`` that the thread holds the mutex; a violation ends the process with a message. ``tests/unit/locks``
# finds calls in the sources that break the rule.

from libc.stdint cimport int64_t

cdef extern from "_c/locks.h" nogil:
    ctypedef struct Mutex:
        pass
    ctypedef struct Condition:
        pass
    const bint CTRLCHAN_CHECKS_LOCKS
    bint try_native(Mutex*)
    void unlock_native(Mutex*)
    void signal_native(Condition*)
    void broadcast_native(Condition*)


# The order in which one thread may lock: from a lower rank to a higher one, never two of the same rank.
cdef enum Rank:
    FETCH_SESSION = 1
    FETCH_SESSION_CACHE
    DECISIONS
    END_RIGHTS
    PARTITION
    LOG
    PARTITION_EVENTS
    PARTITION_TABLE
    # The mailbox of a processor
    PROCESSOR
    REQUEST_QUEUE
    CONNECTION_QUOTAS
    SERVER_EVENTS


cdef void open_mutex(Mutex* mutex, Rank rank) noexcept nogil
cdef void close_mutex(Mutex* mutex) noexcept nogil
# What ``lock`` and ``unlock`` do where the mutex is not free, or is checked.
cdef void wait_for_mutex(Mutex* mutex) noexcept nogil
cdef void unlock_checked(Mutex* mutex) noexcept nogil
cdef void check_owner(const Mutex* mutex) noexcept nogil


cdef inline void lock(Mutex* mutex) noexcept nogil:
    """Lock the mutex. Gives the GIL back while it waits, if the thread holds it."""
    if CTRLCHAN_CHECKS_LOCKS or not try_native(mutex):
        wait_for_mutex(mutex)


cdef inline void unlock(Mutex* mutex) noexcept nogil:
    if CTRLCHAN_CHECKS_LOCKS:
        unlock_checked(mutex)
    else:
        unlock_native(mutex)


cdef inline void require(const Mutex* mutex) noexcept nogil:
    """State that this thread has locked the mutex; debug builds check it."""
    if CTRLCHAN_CHECKS_LOCKS:
        check_owner(mutex)


cdef void open_condition(Condition* condition) noexcept nogil
cdef void close_condition(Condition* condition) noexcept nogil
# Unlock the mutex, wait for a signal for at most ``ns`` nanoseconds, lock it again. May return without a signal.
cdef void wait(Condition* condition, Mutex* mutex, int64_t ns) noexcept nogil


cdef inline void signal(Condition* condition) noexcept nogil:
    """Wake one thread that waits."""
    signal_native(condition)


cdef inline void broadcast(Condition* condition) noexcept nogil:
    """Wake all threads that wait."""
    broadcast_native(condition)

