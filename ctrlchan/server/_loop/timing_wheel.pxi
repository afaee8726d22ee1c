# A hierarchical timing wheel (Kafka: TimingWheel): adding and removing a timer takes constant time.
#
# Level n has 64 slots of 64**n milliseconds. A timer stands in the level of the highest six bits in which its
# deadline differs from the wheel's time; it moves to lower levels as time passes, and expires from level 0.

cdef enum:
    WHEEL_LEVELS = 8
    # The greatest distance between two deadlines, in bits of a millisecond.
    WHEEL_BITS = 48


cdef struct Timer:
    # The list of a slot, or of expired timers. NULL: the timer stands in no list.
    Timer* next
    Timer* previous
    int64_t deadline
    int slot


cdef struct TimingWheel:
    # Milliseconds. All timers up to this time have expired.
    int64_t now
    uint64_t used[WHEEL_LEVELS]
    # Heads of circular lists.
    Timer slots[WHEEL_LEVELS * 64]
    int64_t count


cdef extern from *:
    """
    static inline int highest_bit(uint64_t v) { return 63 - __builtin_clzll(v); }
    static inline int lowest_bit(uint64_t v) { return __builtin_ctzll(v); }
    """
    int highest_bit(uint64_t v) nogil
    int lowest_bit(uint64_t v) nogil


cdef void open_wheel(TimingWheel* wheel, int64_t now) noexcept nogil:
    cdef int i
    memset(wheel, 0, sizeof(TimingWheel))
    wheel.now = now
    for i in range(WHEEL_LEVELS * 64):
        wheel.slots[i].next = wheel.slots[i].previous = &wheel.slots[i]


cdef void insert_timer(TimingWheel* wheel, Timer* timer) noexcept nogil:
    cdef int level = highest_bit(<uint64_t>(timer.deadline ^ wheel.now) | 1) // 6
    cdef int slot = <int>((timer.deadline >> (6 * level)) & 63)
    cdef Timer* head = &wheel.slots[level * 64 + slot]
    timer.slot = level * 64 + slot
    timer.next, timer.previous = head, head.previous
    head.previous.next = timer
    head.previous = timer
    wheel.used[level] |= <uint64_t>1 << slot


cdef void start_timer(TimingWheel* wheel, Timer* timer, int64_t deadline) noexcept nogil:
    """Add a timer that stands in no list. A deadline that is not after the wheel's time expires 1 ms later."""
    timer.deadline = min(max(deadline, wheel.now + 1), wheel.now + (<int64_t>1 << (WHEEL_BITS - 1)))
    wheel.count += 1
    insert_timer(wheel, timer)


cdef bint stop_timer(TimingWheel* wheel, Timer* timer) noexcept nogil:
    """Remove a timer. Return whether it stood in the wheel."""
    cdef Timer* head
    if timer.next == NULL:
        return False
    timer.next.previous = timer.previous
    timer.previous.next = timer.next
    head = &wheel.slots[timer.slot]
    if head.next == head:
        wheel.used[timer.slot // 64] &= ~(<uint64_t>1 << (timer.slot % 64))
    timer.next = timer.previous = NULL
    wheel.count -= 1
    return True


cdef int64_t next_slot(const TimingWheel* wheel, int* slot) noexcept nogil:
    """Return the time when the earliest used slot begins, and the slot. -1: no timer."""
    cdef int level, bit
    cdef int64_t start
    for level in range(WHEEL_LEVELS):
        if wheel.used[level]:
            # All used slots of a level are after the one of the wheel's time, or (level 0) at it.
            bit = lowest_bit(wheel.used[level])
            slot[0] = level * 64 + bit
            start = (wheel.now >> (6 * (level + 1))) << (6 * (level + 1))
            return max(start + (<int64_t>bit << (6 * level)), wheel.now)
    return -1


cdef Timer* expired_timer(TimingWheel* wheel, int64_t now) noexcept nogil:
    """Remove and return one timer whose deadline is not after ``now``; NULL when there is none.

    Timers come in the order of their deadlines, those of one millisecond in the order in which they were added
    to its slot.
    """
    cdef int slot = 0
    cdef int64_t start
    cdef Timer* head
    cdef Timer* timer
    while True:
        start = next_slot(wheel, &slot)
        if start < 0 or start > now:
            wheel.now = max(wheel.now, now)
            return NULL
        wheel.now = start
        head = &wheel.slots[slot]
        timer = head.next
        if slot < 64:
            stop_timer(wheel, timer)
            return timer
        # The slot begins: its timers move to lower levels.
        while head.next != head:
            timer = head.next
            stop_timer(wheel, timer)
            wheel.count += 1
            insert_timer(wheel, timer)
