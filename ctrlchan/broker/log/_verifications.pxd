# The producers whose transaction the coordinator is asked for, in one partition (KIP-890).

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t


# Source: VerificationStateEntry.
cdef struct Verification:
    int64_t producer_id
    # No other verification of this process has it.
    int64_t guard
    int64_t begun_ms
    # The lowest first sequence number of the batches that have asked
    int32_t lowest_sequence
    int16_t epoch
    # The transactional id whose coordinator, in this broker, has confirmed the verification before a batch has asked; NULL
    uint8_t* confirmed_id
    int64_t confirmed_id_size
    # ... and the leader epoch of the partition then
    int32_t confirmed_in
    Verification* next_of_bucket


# What a transactional batch says of its transaction. ``transactional_id``: of the request
cdef struct TransactionOfBatch:
    int64_t producer_id
    int16_t epoch
    int32_t sequence
    const uint8_t* transactional_id
    int64_t transactional_id_size


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
# Confirm the verification that has this guard, if it has not ended and is of this epoch. Copies the id.
cdef void confirm_verification(
    Verifications* verifications, int64_t producer_id, int16_t epoch, int64_t guard, const uint8_t* transactional_id,
    int64_t size, int32_t leader_epoch
) noexcept nogil
cdef void withdraw_confirmation(Verifications* verifications, int64_t producer_id) noexcept nogil
# Return the guard of the confirmed verification of a batch, or 0.
cdef int64_t confirmed_guard(
    Verifications* verifications, const TransactionOfBatch* batch, int32_t leader_epoch
) noexcept nogil
cdef void end_verification(Verifications* verifications, int64_t producer_id) noexcept nogil
cdef void expire_verifications(Verifications* verifications, int64_t now_ms, int64_t expiration_ms) noexcept nogil
cdef void free_verifications(Verifications* verifications) noexcept nogil
