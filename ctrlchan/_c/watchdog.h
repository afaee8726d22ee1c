/* A thread without the GIL that watches whether other threads can get it, and whether the parent process lives. */
#ifndef CTRLCHAN_WATCHDOG_H
#define CTRLCHAN_WATCHDOG_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <Python.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "atomics.h"
#include "clocks.h"
#include "thread_signals.h"

#if defined(__linux__) && defined(__GLIBC__)
#include <execinfo.h>
#include <semaphore.h>
#include <sys/syscall.h>
#define WRITES_NATIVE_STACKS 1
#else
#define WRITES_NATIVE_STACKS 0
#endif

enum { MOST_FRAMES = 64 };

static struct {
    int64_t tick_ns;
    /* Ticks without the GIL until the stacks are written, and, without a parent, until the process is ended. */
    int still_ticks;
    /* Ticks without a parent until the process is ended, whatever Python does. */
    int orphan_ticks;
    pid_t parent;
    int python_signal;
    /* Counts how often the prober has got the GIL. */
    int64_t beats;
    /* Not 0: Python is about to end. Whoever asks for the GIL behind that finds no interpreter. */
    int64_t stopped;
} watchdog;

static void sleep_ns(int64_t ns) {
    struct timespec time = timespec_of(ns);
    nanosleep(&time, NULL);
}

/* Held while the prober asks for the GIL, and while ``stopped`` is set. */
static pthread_mutex_t probing = PTHREAD_MUTEX_INITIALIZER;

static void *run_prober(void *unused) {
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&probing);
        if (counted(&watchdog.stopped)) break;
        PyGILState_STATE state = PyGILState_Ensure();
        count(&watchdog.beats, 1);
        PyGILState_Release(state);
        pthread_mutex_unlock(&probing);
        sleep_ns(watchdog.tick_ns);
    }
    pthread_mutex_unlock(&probing);
    return NULL;
}

/* Returns when nobody asks for the GIL any more. The caller must not have it. */
static void stop_prober(void) {
    pthread_mutex_lock(&probing);
    count(&watchdog.stopped, 1);
    pthread_mutex_unlock(&probing);
}

#if WRITES_NATIVE_STACKS
static sem_t stack_written;

/* Runs on the thread whose stack is written. Uses nothing that takes a lock, but what backtrace itself does. */
static void write_stack(int number) {
    void *frames[MOST_FRAMES];
    char name[16] = "", line[64];
    int before = errno, size;
    (void)number;
    pthread_getname_np(pthread_self(), name, sizeof name);
    size = snprintf(line, sizeof line, "thread %ld (%s):\n", (long)syscall(SYS_gettid), name);
    if (write(STDERR_FILENO, line, size) == size) backtrace_symbols_fd(frames, backtrace(frames, MOST_FRAMES), STDERR_FILENO);
    errno = before;
    sem_post(&stack_written);
}

static void write_native_stacks(void) {
    struct timespec until;
    struct dirent *entry;
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL) return;
    while ((entry = readdir(tasks)) != NULL) {
        long thread = strtol(entry->d_name, NULL, 10);
        if (thread <= 0 || thread == syscall(SYS_gettid)) continue;
        if (syscall(SYS_tgkill, getpid(), thread, STACK_SIGNAL) != 0) continue;
        /* A thread that the kernel does not let run writes nothing. */
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 1;
        sem_timedwait(&stack_written, &until);
    }
    closedir(tasks);
}

static void prepare_native_stacks(void) {
    void *frames[1];
    struct sigaction action = {.sa_handler = write_stack, .sa_flags = SA_RESTART | SA_ONSTACK};
    sem_init(&stack_written, 0, 0);
    sigemptyset(&action.sa_mask);
    sigaction(STACK_SIGNAL, &action, NULL);
    /* Its first call loads a library. */
    backtrace(frames, 1);
}
#else
static void write_native_stacks(void) {}
static void prepare_native_stacks(void) {}
#endif

static void write_stacks(void) {
    dprintf(
        STDERR_FILENO,
        "ctrlchan: process %ld: no thread could get the GIL for %.1f seconds; the stacks of all threads follow\n",
        (long)getpid(), watchdog.tick_ns * watchdog.still_ticks / 1e9);
    write_native_stacks();
    /* faulthandler writes the stacks of Python, without the GIL. */
    if (watchdog.python_signal > 0) kill(getpid(), watchdog.python_signal);
}

static void *run_watchdog(void *unused) {
    /* Ticks are counted, not times: a process that was stopped for a while has not had them. */
    int64_t beats = 0;
    int still = 0, orphan = 0;
    (void)unused;
    for (;;) {
        int64_t now = counted(&watchdog.beats);
        still = now == beats ? still + 1 : 0;
        beats = now;
        if (still == watchdog.still_ticks && !counted(&watchdog.stopped)) write_stacks();
        orphan = watchdog.parent > 0 && getppid() != watchdog.parent ? orphan + 1 : 0;
        /* Python ends the process in order when the parent is gone, unless it cannot. */
        if (orphan && (still >= watchdog.still_ticks || orphan >= watchdog.orphan_ticks)) {
            dprintf(STDERR_FILENO, "ctrlchan: process %ld: killed, as its parent is gone\n", (long)getpid());
            kill(getpid(), SIGKILL);
        }
        sleep_ns(watchdog.tick_ns);
    }
    return NULL;
}

/* Returns 0 or an error number. */
static int start_watchdog(int64_t tick_ns, int still_ticks, int orphan_ticks, long parent, int python_signal) {
    pthread_t prober, thread;
    int error;
    watchdog.tick_ns = tick_ns;
    watchdog.still_ticks = still_ticks;
    watchdog.orphan_ticks = orphan_ticks;
    watchdog.parent = parent;
    watchdog.python_signal = python_signal;
    prepare_native_stacks();
    error = start_thread(&prober, run_prober, NULL);
    if (error) return error;
    pthread_detach(prober);
    error = start_thread(&thread, run_watchdog, NULL);
    if (!error) pthread_detach(thread);
    return error;
}

#endif
