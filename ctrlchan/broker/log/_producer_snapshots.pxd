from libc.stdint cimport int64_t, uint8_t

from ctrlchan.broker.log._producers cimport ProducerStates


# Write the snapshot file of ``end_offset``, if it is after the last one. Returns 0 or an errno.
cdef int take_snapshot(ProducerStates states, const char* folder, bint sync) noexcept nogil
# Add the producers of a snapshot that is valid. Returns 0 or ENOMEM.
cdef int add_snapshot(ProducerStates states, const uint8_t* data, int64_t now_ms) noexcept nogil
# Return the newest snapshot between the offsets: its offset, and its bytes if it ``is_read``; -1 without one.
cdef tuple choose_snapshot(folder, int64_t start_offset, int64_t end_offset, bint is_read)
