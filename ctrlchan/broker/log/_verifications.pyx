"""The producers whose transaction the coordinator is asked for before its first batch is appended (KIP-890).

The guard of a verification is a number that is given once. A verification ends with a transactional batch or a marker of
its producer; so a batch that comes with the guard after the transaction was ended is refused. A verification that failed
stays until it expires: it keeps the lowest sequence number, and batches behind that one are refused until it has come.

A coordinator in this broker begins the verification itself when it adds the partition to a transaction, and confirms it
when the record of that is replicated. The first batch then asks nobody. No transaction is left open that way:

1. The verification begins before the record is appended. If the transaction has ended when the coordinator confirms (a
   slow thread; another broker coordinates by now), its marker has ended the verification, and nothing is confirmed.
2. Once confirmed, the record is in the log of the coordinators: each of them writes a marker to this partition. The marker
   comes after the batch and ends its transaction, or before it and ends the verification. Batch and marker are appended
   under the mutex of the log, and the guard of a batch is compared there.
3. A marker that this replica lost with an unclean election was of an earlier leader epoch: the confirmation does not count
   any more.

The coordinator withdraws the confirmation before it decides the end of a transaction, so later batches get its errors.
All functions require the mutex of the log. Source: ``VerificationStateEntry``, ``ProducerStateManager``.
"""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from ctrlchan._c.atomics cimport add_and_get

cdef enum:
    LEAST_CAPACITY = 8

# The last guard that was given, of all logs of the process
cdef int64_t last_guard = 0


@cython.overflowcheck(False)
cdef inline Verification** bucket_of(const Verifications* self, int64_t producer_id) noexcept nogil:
    # Ids are given in blocks; the multiplication spreads them.
    cdef uint64_t hashed = (<uint64_t>producer_id * <uint64_t>0x9E3779B97F4A7C15) >> 32
    return &self.buckets[hashed & <uint64_t>(self.capacity - 1)]


cdef Verification* find_verification(const Verifications* self, int64_t producer_id) noexcept nogil:
    """Return the verification of a producer, or NULL."""
    cdef Verification* one = NULL
    if self.count:
        one = bucket_of(self, producer_id)[0]
    while one != NULL and one.producer_id != producer_id:
        one = one.next_of_bucket
    return one


cdef bint reserve(Verifications* self) noexcept nogil:
    """Make room for one more verification; return whether there is memory for it."""
    cdef Verification** old = self.buckets
    cdef Verification** place
    cdef Verification* one
    cdef Verification* following
    cdef int64_t i, before = self.capacity
    if self.count < self.capacity:
        return True
    self.capacity = max(LEAST_CAPACITY, 2 * before)
    self.buckets = <Verification**>calloc(self.capacity, sizeof(Verification*))
    if self.buckets == NULL:
        self.buckets, self.capacity = old, before
        return False
    for i in range(before):
        one = old[i]
        while one != NULL:
            following = one.next_of_bucket
            place = bucket_of(self, one.producer_id)
            one.next_of_bucket = place[0]
            place[0] = one
            one = following
    free(old)
    return True


cdef void unconfirm(Verification* one) noexcept nogil:
    free(one.confirmed_id)
    one.confirmed_id = NULL


cdef Verification* begin_verification(
    Verifications* self, int64_t producer_id, int16_t epoch, int32_t sequence, int64_t now_ms
) noexcept nogil:
    """A higher epoch begins with its own sequence numbers (maybeUpdateLowestSequenceAndEpoch)."""
    cdef Verification* one = find_verification(self, producer_id)
    cdef Verification** place
    if one == NULL:
        one = <Verification*>malloc(sizeof(Verification)) if reserve(self) else NULL
        if one == NULL:
            return NULL
        one.producer_id, one.guard, one.begun_ms = producer_id, add_and_get(&last_guard, 1), now_ms
        one.lowest_sequence, one.epoch = sequence, epoch
        one.confirmed_id = NULL
        place = bucket_of(self, producer_id)
        one.next_of_bucket = place[0]
        place[0] = one
        self.count += 1
    elif epoch > one.epoch:
        one.lowest_sequence, one.epoch = sequence, epoch
        unconfirm(one)
    elif epoch == one.epoch and sequence < one.lowest_sequence:
        one.lowest_sequence = sequence
    return one


cdef void remove(Verifications* self, Verification** place) noexcept nogil:
    cdef Verification* one = place[0]
    place[0] = one.next_of_bucket
    unconfirm(one)
    free(one)
    self.count -= 1


cdef void confirm_verification(
    Verifications* self, int64_t producer_id, int16_t epoch, int64_t guard, const uint8_t* transactional_id, int64_t size,
    int32_t leader_epoch
) noexcept nogil:
    """Without memory the verification is not confirmed: the first batch asks the coordinator."""
    cdef Verification* one = find_verification(self, producer_id)
    if one == NULL or one.guard != guard or one.epoch != epoch:
        return
    unconfirm(one)
    one.confirmed_id = <uint8_t*>malloc(max(1, size))
    if one.confirmed_id != NULL:
        memcpy(one.confirmed_id, transactional_id, size)
        one.confirmed_id_size, one.confirmed_in = size, leader_epoch


cdef void withdraw_confirmation(Verifications* self, int64_t producer_id) noexcept nogil:
    """Have the first batch of a producer ask the coordinator."""
    cdef Verification* one = find_verification(self, producer_id)
    if one != NULL:
        unconfirm(one)


cdef int64_t confirmed_guard(
    Verifications* self, const TransactionOfBatch* batch, int32_t leader_epoch
) noexcept nogil:
    """The verification notes the sequence number, as for a batch that asks."""
    cdef Verification* one = find_verification(self, batch.producer_id)
    if (
        one == NULL
        or one.confirmed_id == NULL
        or one.confirmed_in != leader_epoch
        or one.epoch != batch.epoch
        or one.confirmed_id_size != batch.transactional_id_size
        or memcmp(one.confirmed_id, batch.transactional_id, batch.transactional_id_size)
    ):
        return 0
    one.lowest_sequence = min(one.lowest_sequence, batch.sequence)
    return one.guard


cdef void end_verification(Verifications* self, int64_t producer_id) noexcept nogil:
    """Forget the verification of a producer, if there is one."""
    cdef Verification** place
    if self.count == 0:
        return
    place = bucket_of(self, producer_id)
    while place[0] != NULL:
        if place[0].producer_id == producer_id:
            remove(self, place)
            return
        place = &place[0].next_of_bucket


@cython.overflowcheck(False)
cdef void expire_verifications(Verifications* self, int64_t now_ms, int64_t expiration_ms) noexcept nogil:
    """Forget the verifications that began ``expiration_ms`` ago or earlier."""
    cdef Verification** place
    cdef int64_t i
    for i in range(self.capacity if self.count else 0):
        place = &self.buckets[i]
        while place[0] != NULL:
            if <int64_t>(<uint64_t>now_ms - <uint64_t>place[0].begun_ms) >= expiration_ms:
                remove(self, place)
            else:
                place = &place[0].next_of_bucket


cdef void free_verifications(Verifications* self) noexcept nogil:
    """Free all memory."""
    cdef Verification* one
    cdef int64_t i
    for i in range(self.capacity):
        while self.buckets[i] != NULL:
            one = self.buckets[i]
            self.buckets[i] = one.next_of_bucket
            unconfirm(one)
            free(one)
    free(self.buckets)
    self.buckets, self.capacity, self.count = NULL, 0, 0
