/* A clock that its owner may replace. clocks.h has the operating system's. */
#ifndef CTRLCHAN_CLOCK_FUNCTIONS_H
#define CTRLCHAN_CLOCK_FUNCTIONS_H

#include "_c/clocks.h"

typedef struct ClockFunctions ClockFunctions;
struct ClockFunctions {
    /* Nanoseconds that never go back. */
    int64_t (*monotonic_ns)(const ClockFunctions *self);
    /* Milliseconds since 1970. */
    int64_t (*wall_ms)(const ClockFunctions *self);
};

static int64_t system_monotonic_ns(const ClockFunctions *self) {
    (void)self;
    return monotonic_ns();
}

static int64_t system_wall_ms(const ClockFunctions *self) {
    (void)self;
    return wall_clock_ms();
}

static const ClockFunctions SYSTEM_CLOCK_FUNCTIONS = {system_monotonic_ns, system_wall_ms};

#endif
