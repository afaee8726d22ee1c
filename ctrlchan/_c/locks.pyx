"""Mutexes that no thread waits for while it holds the GIL. See locks.pxd."""

from libc.stdint cimport int64_t

cdef extern from "_c/locks.h" nogil:
    ctypedef struct PyThreadState:
        pass
    bint holds_gil()
    PyThreadState* PyEval_SaveThread()
    void PyEval_RestoreThread(PyThreadState*)
    void open_native(Mutex*, int rank)
    void close_native(Mutex*)
    void lock_native(Mutex*)
    void close_native_condition(Condition*)
    void open_native_condition(Condition*)
    void wait_native(Condition*, Mutex*, int64_t ns)

cdef extern from *:
    """
    /* The checks of debug builds. A thread holds few mutexes; their ranks ascend. */
    #include <stdio.h>
    #include <stdlib.h>

    enum { MOST_HELD = 16 };
    static const char *const rank_names[] = {
        "none", "FETCH_SESSION", "FETCH_SESSION_CACHE", "DECISIONS", "END_RIGHTS", "PARTITION", "LOG", "PARTITION_EVENTS",
        "PARTITION_TABLE", "PROCESSOR", "REQUEST_QUEUE", "CONNECTION_QUOTAS", "SERVER_EVENTS",
    };
    static __thread Mutex *held[MOST_HELD];
    static __thread int held_count;

    static void end_process(const char *what, const Mutex *mutex) {
        fprintf(stderr, "ctrlchan: %s: mutex of rank %s", what, rank_names[mutex->rank]);
        for (int i = 0; i < held_count; i++) fprintf(stderr, "%s%s", i ? ", " : "; this thread holds ", rank_names[held[i]->rank]);
        fprintf(stderr, "\\n");
        abort();
    }

    static int is_mine(const Mutex *mutex) {
        return load_number(&mutex->is_held) && pthread_equal(mutex->owner, pthread_self());
    }

    static void check_before_lock(const Mutex *mutex) {
        if (holds_gil()) end_process("locked by a thread that holds the GIL", mutex);
        if (is_mine(mutex)) end_process("locked twice by one thread", mutex);
        if (held_count > 0 && held[held_count - 1]->rank >= mutex->rank) end_process("locked in the wrong order", mutex);
        if (held_count == MOST_HELD) end_process("too many mutexes at a time", mutex);
    }

    static void note_locked(Mutex *mutex) {
        mutex->owner = pthread_self();
        store_number(&mutex->is_held, 1);
        held[held_count++] = mutex;
    }

    static void note_unlocked(Mutex *mutex) {
        int i = held_count - 1;
        if (!is_mine(mutex)) end_process("unlocked by a thread that has not locked it", mutex);
        while (i > 0 && held[i] != mutex) i--;
        for (held_count--; i < held_count; i++) held[i] = held[i + 1];
        store_number(&mutex->is_held, 0);
    }

    static void check_mine(const Mutex *mutex) {
        if (!is_mine(mutex)) end_process("required by a thread that has not locked it", mutex);
    }
    """
    void check_before_lock(const Mutex*) nogil
    void note_locked(Mutex*) nogil
    void note_unlocked(Mutex*) nogil
    void check_mine(const Mutex*) nogil


cdef void open_mutex(Mutex* mutex, Rank rank) noexcept nogil:
    open_native(mutex, rank)


cdef void close_mutex(Mutex* mutex) noexcept nogil:
    close_native(mutex)


cdef void wait_for_mutex(Mutex* mutex) noexcept nogil:
    cdef PyThreadState* state
    if CTRLCHAN_CHECKS_LOCKS:
        check_before_lock(mutex)
    state = PyEval_SaveThread() if holds_gil() else NULL
    lock_native(mutex)
    if CTRLCHAN_CHECKS_LOCKS:
        note_locked(mutex)
    if state != NULL:
        PyEval_RestoreThread(state)


cdef void unlock_checked(Mutex* mutex) noexcept nogil:
    note_unlocked(mutex)
    unlock_native(mutex)


cdef void check_owner(const Mutex* mutex) noexcept nogil:
    check_mine(mutex)


cdef void open_condition(Condition* condition) noexcept nogil:
    open_native_condition(condition)


cdef void close_condition(Condition* condition) noexcept nogil:
    close_native_condition(condition)


cdef void wait(Condition* condition, Mutex* mutex, int64_t ns) noexcept nogil:
    cdef PyThreadState* state = PyEval_SaveThread() if holds_gil() else NULL
    if CTRLCHAN_CHECKS_LOCKS:
        note_unlocked(mutex)
    wait_native(condition, mutex, ns)
    if CTRLCHAN_CHECKS_LOCKS:
        note_locked(mutex)
    if state != NULL:
        PyEval_RestoreThread(state)


#: Whether this build checks each lock.
CHECKS_LOCKS = bool(CTRLCHAN_CHECKS_LOCKS)
