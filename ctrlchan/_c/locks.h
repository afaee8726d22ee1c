/* The memory of a mutex and of a condition. Only locks.pyx and locks.pxd use what is in this file. */
#ifndef CTRLCHAN_LOCKS_H
#define CTRLCHAN_LOCKS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <Python.h>
#include <pthread.h>
#include <stdint.h>

#include "atomics.h"
#include "clocks.h"

/* 1: each lock is checked. setup.py defines it for debug builds. The memory is the same in both builds. */
#ifndef CTRLCHAN_CHECKS_LOCKS
#define CTRLCHAN_CHECKS_LOCKS 0
#endif

typedef struct {
    pthread_mutex_t native;
    /* The other fields are written in debug builds alone. owner is valid while is_held is 1. */
    pthread_t owner;
    int64_t is_held;
    int rank;
} Mutex;

typedef struct {
    pthread_cond_t native;
} Condition;

/* Whether this thread holds the GIL. A thread that Python has never seen has no state. */
static inline int holds_gil(void) {
    PyThreadState *state = PyGILState_GetThisThreadState();
#if PY_VERSION_HEX >= 0x030d0000
    return state != NULL && state == PyThreadState_GetUnchecked();
#else
    return state != NULL && state == _PyThreadState_UncheckedGet();
#endif
}

static inline int try_native(Mutex *mutex) { return pthread_mutex_trylock(&mutex->native) == 0; }
static inline void lock_native(Mutex *mutex) { pthread_mutex_lock(&mutex->native); }
static inline void unlock_native(Mutex *mutex) { pthread_mutex_unlock(&mutex->native); }
static inline void signal_native(Condition *condition) { pthread_cond_signal(&condition->native); }
static inline void broadcast_native(Condition *condition) { pthread_cond_broadcast(&condition->native); }

static inline void open_native(Mutex *mutex, int rank) {
    pthread_mutex_init(&mutex->native, NULL);
    mutex->is_held = 0;
    mutex->rank = rank;
}

static inline void close_native(Mutex *mutex) { pthread_mutex_destroy(&mutex->native); }
static inline void close_native_condition(Condition *condition) { pthread_cond_destroy(&condition->native); }

static inline void open_native_condition(Condition *condition) {
#ifdef __linux__
    /* Timed waits do not depend on the clock of the wall. */
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&condition->native, &attributes);
    pthread_condattr_destroy(&attributes);
#else
    pthread_cond_init(&condition->native, NULL);
#endif
}

static inline void wait_native(Condition *condition, Mutex *mutex, int64_t ns) {
#ifdef __linux__
    struct timespec time = timespec_of(monotonic_ns() + ns);
    pthread_cond_timedwait(&condition->native, &mutex->native, &time);
#else
    struct timespec time = timespec_of(ns);
    pthread_cond_timedwait_relative_np(&condition->native, &mutex->native, &time);
#endif
}

#endif
