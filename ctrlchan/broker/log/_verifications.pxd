# The producers whose transaction the coordinator is asked for, in one partition (KIP-890).

from libc.stdint cimport int16_t, int32_t, int64_t


# Source: VerificationStateEntry.
cdef struct Verification:
    int64_t producer_id
    # No other verification of this process has it.
    int64_t guard
    int64_t begun_ms
    # The lowest first sequence number of the batches that have asked
    int32_t lowest_sequence
    int16_t epoch
    Verification* next_of_bucket


# A hash table of lists
cdef struct Verifications:
    Verification** buckets
    # A power of two, or 0
    int64_t capacity
    int64_t count


cdef Verification* find_verification(const Verifications* verifications, int64_t producer_id) noexcept nogil
# Return the verification of a producer, which is begun if there is none; NULL without memory.
cdef Verification* begin_verification(
    Verifications* verifications, int64_t producer_id, int16_t epoch, int32_t sequence, int64_t now_ms
) noexcept nogil
cdef void end_verification(Verifications* verifications, int64_t producer_id) noexcept nogil
cdef void expire_verifications(Verifications* verifications, int64_t now_ms, int64_t expiration_ms) noexcept nogil
cdef void free_verifications(Verifications* verifications) noexcept nogil
