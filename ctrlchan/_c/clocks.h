/* The clocks of code without the GIL. */
#ifndef CTRLCHAN_CLOCKS_H
#define CTRLCHAN_CLOCKS_H

#include <stdint.h>
#include <time.h>

/* The clock of Python's time.monotonic_ns: their times can be compared. */
static inline int64_t monotonic_ns(void) {
#ifdef __APPLE__
    return (int64_t)clock_gettime_nsec_np(CLOCK_UPTIME_RAW);
#else
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
#endif
}

/* Milliseconds since 1970. */
static inline int64_t wall_clock_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

static inline struct timespec timespec_of(int64_t ns) {
    struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    return time;
}

#endif
