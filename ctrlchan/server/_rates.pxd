# Kafka's Rate over samples, number by number: what has been recorded within the last windows, for each second.
#
# A sample is a window of time in which values are added. There are as many as the settings say, and one more, which the
# window overlaps. ``open_rate`` gets their memory (``rate_bytes``). All times are in milliseconds of one clock.
#
# Sources: SampledStat, WindowedSum, Rate, SimpleRate, Avg (org.apache.kafka.common.metrics.stats), QuotaUtils.

from libc.math cimport NAN, floor, isnan
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t


cdef struct Sample:
    int64_t started_ms
    int64_t last_ms
    double value
    int64_t events


cdef struct Rate:
    # quota.window.num
    int32_t kept
    # quota.window.size.seconds, in milliseconds
    int64_t window_ms
    int32_t current
    int32_t count
    Sample* samples
    # No less than the sum of the samples, of which some may be old
    double most


cdef inline int64_t rate_bytes(int32_t kept) noexcept nogil:
    return (<int64_t>kept + 1) * <int64_t>sizeof(Sample)


cdef inline void open_rate(Rate* rate, int32_t kept, int64_t window_ms, void* memory) noexcept nogil:
    rate.kept, rate.window_ms, rate.current, rate.count = kept, window_ms, 0, 0
    rate.samples, rate.most = <Sample*>memory, 0.0


cdef inline void begin_sample(Sample* sample, int64_t now) noexcept nogil:
    sample.started_ms, sample.last_ms, sample.value, sample.events = now, now, 0.0, 0


cdef inline double sum_of(const Rate* rate) noexcept nogil:
    cdef double total = 0.0
    cdef int32_t i
    for i in range(rate.count):
        total = total + rate.samples[i].value
    return total


cdef inline void record(Rate* rate, double value, int64_t now) noexcept nogil:
    """Add a value, which may be negative, to the window of now."""
    cdef Sample* sample
    if rate.count == 0:
        begin_sample(rate.samples, now)
        rate.count = 1
    sample = &rate.samples[rate.current]
    if now - sample.started_ms >= rate.window_ms:
        rate.current = (rate.current + 1) % (rate.kept + 1)
        rate.count = max(rate.count, rate.current + 1)
        sample = &rate.samples[rate.current]
        begin_sample(sample, now)
        rate.most = sum_of(rate)
    sample.value = sample.value + value
    rate.most = rate.most + value
    sample.events = sample.events + 1
    sample.last_ms = now


cdef inline int64_t forget_old(Rate* rate, int64_t now) noexcept nogil:
    """Empty the samples that end before the window; return when the oldest sample begins."""
    cdef int64_t age = rate.kept * rate.window_ms, oldest = now
    cdef int32_t i
    for i in range(rate.count):
        if now - rate.samples[i].last_ms >= age:
            begin_sample(&rate.samples[i], now)
        if rate.samples[i].started_ms < oldest:
            oldest = rate.samples[i].started_ms
    return oldest


cdef inline int64_t begin_of(Rate* rate, int64_t now) noexcept nogil:
    """Return when the oldest sample begins; the first one begins now, as in Kafka also where nothing is recorded."""
    cdef int64_t oldest = forget_old(rate, now)
    if rate.count == 0:
        begin_sample(rate.samples, now)
        rate.count = 1
    return oldest


cdef inline double rate_of(Rate* rate, int64_t now, int64_t* span_ms) noexcept nogil:
    """Return what was recorded, for each second. ``span_ms``: of which time; never less than all windows but one."""
    cdef int64_t elapsed = now - begin_of(rate, now)
    cdef int64_t full = elapsed // rate.window_ms
    if full < rate.kept - 1:
        elapsed = elapsed + (rate.kept - 1 - full) * rate.window_ms
    span_ms[0] = max(<int64_t>1, elapsed)
    return sum_of(rate) / (span_ms[0] / 1000.0)


cdef inline bint is_surely_below(const Rate* rate, double bound) noexcept nogil:
    """Return whether ``rate_of`` is below a bound, as far as that can be said without a look at the samples.

    Values that are recorded are not negative, but for one that takes the last one back. That old samples stay as they are
    changes no later rate: they are emptied, or overwritten, before the oldest sample that counts now.
    """
    return rate.most < 0.999 * bound * ((rate.kept - 1) * rate.window_ms * 0.001)


cdef inline double simple_rate_of(Rate* rate, int64_t now) noexcept nogil:
    """Return what was recorded, for each second of the time since the oldest sample, which counts one window at least."""
    cdef int64_t elapsed = max(now - begin_of(rate, now), rate.window_ms)
    return sum_of(rate) / (elapsed / 1000.0)


cdef inline double average_of(Rate* rate, int64_t now) noexcept nogil:
    """Return the average of the recorded values; not a number where there are none."""
    cdef int64_t events = 0
    cdef int32_t i
    forget_old(rate, now)
    for i in range(rate.count):
        events = events + rate.samples[i].events
    return sum_of(rate) / events if events else NAN


cdef inline int64_t rounded(double value) noexcept nogil:
    """Return the nearest number (Java: Math.round)."""
    cdef double low = floor(value)
    if isnan(value):
        return 0
    if value >= 9.2e18:
        return INT64_MAX
    return <int64_t>low + (value - low >= 0.5)


cdef inline int32_t throttle_ms_of(double rate, double bound, int64_t span_ms, int64_t most_ms) noexcept nogil:
    """Return after how many milliseconds without records a rate is back at its bound, ``most_ms`` at most.

    With a bound of 0 it never is. Kafka throttles nobody then, unless there is a longest time. A time that does not fit
    into 32 bits is the longest that does (Kafka: the lower 32 bits of it).
    """
    cdef int64_t ms = rounded((rate - bound) / bound * span_ms) if bound > 0 else INT64_MAX
    ms = min(ms, most_ms)
    if ms > INT32_MAX:
        return INT32_MAX if bound > 0 else 0
    return <int32_t>ms
