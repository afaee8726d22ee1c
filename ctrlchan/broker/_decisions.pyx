"""Decisions: what the authorizer has allowed to Produce and Fetch, for processors, which never ask Python.

Only what is allowed is kept, by the number of the principal and host (identity), and by the name or id of the topic. A
processor that finds no decision leaves the request to a handler thread, which asks the authorizer and adds what it
allows (``handlers/fetch.py``, ``handlers/produce.py``). When decisions may have become others, all are forgotten, and
the version rises: a decision that was made for another version is not added.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

cimport cython

from ctrlchan._c.hashing cimport mix
from ctrlchan._c.locks cimport DECISIONS, close_mutex, lock, open_mutex, require, unlock

import os

cdef enum:
    FIRST_BUCKETS = 64


cdef struct Decision:
    Decision* next
    uint32_t hash
    int32_t identity
    int32_t size
    uint8_t subject
    uint8_t bits
    # ``size`` bytes of the name follow.


cdef inline uint8_t* name_of(Decision* decision) noexcept nogil:
    return <uint8_t*>(decision + 1)


@cython.overflowcheck(False)
cdef uint32_t hash_of(uint32_t seed, int32_t identity, int subject, const uint8_t* name, int64_t size) noexcept nogil:
    return mix((seed ^ <uint32_t>identity) * <uint32_t>2654435769 ^ <uint32_t>subject, name, size)


cdef class Decisions:
    """Decisions by identity. All methods may be called by any thread.

    ``most``: so many are kept; then all are forgotten. ``most_identities``: the same of principals with hosts.
    """

    def __cinit__(self, *, int64_t most=1_000_000, int most_identities=100_000):
        open_mutex(&self.mutex, DECISIONS)
        self.most, self.most_identities = most, most_identities
        self.seed = int.from_bytes(os.urandom(4))
        self.identities = {}
        self.current = 1
        self.buckets = <Decision**>calloc(FIRST_BUCKETS, sizeof(Decision*))
        if self.buckets == NULL:
            raise MemoryError()
        self.bucket_count = FIRST_BUCKETS

    def __dealloc__(self):
        if self.buckets != NULL:
            with nogil:
                lock(&self.mutex)
                self.clear()
                unlock(&self.mutex)
            free(self.buckets)
        close_mutex(&self.mutex)

    @property
    def version(self):
        """The version for which decisions can be added."""
        cdef int64_t current
        with nogil:
            lock(&self.mutex)
            current = self.current
            unlock(&self.mutex)
        return current

    def __len__(self):
        cdef int64_t count
        with nogil:
            lock(&self.mutex)
            count = self.count
            unlock(&self.mutex)
        return count

    def identity_of(self, str principal, str host):
        """Return the number of a principal on a host: positive, and never used for another one."""
        key = principal, host
        number = self.identities.get(key)
        if number is None:
            if len(self.identities) >= self.most_identities:
                # Decisions of former numbers are found by nobody.
                self.identities = {}
            self.last_identity += 1
            number = self.identities.setdefault(key, self.last_identity)
        return number

    def forget(self):
        """Forget all decisions: they may have become others."""
        with nogil:
            lock(&self.mutex)
            self.clear()
            self.current = self.current + 1
            unlock(&self.mutex)

    def grant(self, int32_t identity, int64_t version, list decisions):
        """Add decisions: lists of (subject, name as bytes, bits). Return False if they were made for another version."""
        cdef bint is_current, ok = True
        cdef int subject, bits
        cdef bytes name
        cdef const uint8_t* data
        cdef int64_t size
        for subject, name, bits in decisions:
            data, size = <const uint8_t*>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)
            with nogil:
                lock(&self.mutex)
                if self.count >= self.most and self.find(identity, subject, data, size) == 0:
                    self.clear()
                    self.current = self.current + 1
                is_current = self.current == version
                if is_current:
                    ok = self.add(identity, subject, data, size, bits)
                unlock(&self.mutex)
            if not ok:
                raise MemoryError()
            if not is_current:
                return False
        return version == self.version

    cdef int find(self, int32_t identity, int subject, const uint8_t* name, int64_t size) noexcept nogil:
        require(&self.mutex)
        cdef uint32_t hash = hash_of(self.seed, identity, subject, name, size)
        cdef Decision* one = self.buckets[hash & <uint32_t>(self.bucket_count - 1)]
        while one != NULL:
            if (
                one.hash == hash and one.identity == identity and one.subject == subject and one.size == size
                and (size == 0 or memcmp(name_of(one), name, size) == 0)
            ):
                return one.bits
            one = one.next
        return 0

    cdef bint allows(self, int32_t identity, int subject, const uint8_t* name, int64_t size, int bits) noexcept nogil:
        cdef int found
        lock(&self.mutex)
        found = self.find(identity, subject, name, size)
        unlock(&self.mutex)
        return found & bits == bits

    cdef bint add(self, int32_t identity, int subject, const uint8_t* name, int64_t size, int bits) noexcept nogil:
        """Add bits of a decision. Return False without memory. Requires the mutex."""
        require(&self.mutex)
        cdef uint32_t hash = hash_of(self.seed, identity, subject, name, size)
        cdef Decision* one = self.buckets[hash & <uint32_t>(self.bucket_count - 1)]
        cdef Decision** buckets
        cdef Decision* later
        cdef int64_t i
        while one != NULL:
            if (
                one.hash == hash and one.identity == identity and one.subject == subject and one.size == size
                and (size == 0 or memcmp(name_of(one), name, size) == 0)
            ):
                one.bits |= <uint8_t>bits
                return True
            one = one.next
        if self.count >= self.bucket_count:
            buckets = <Decision**>calloc(2 * self.bucket_count, sizeof(Decision*))
            if buckets == NULL:
                return False
            for i in range(self.bucket_count):
                one = self.buckets[i]
                while one != NULL:
                    later = one.next
                    one.next = buckets[one.hash & <uint32_t>(2 * self.bucket_count - 1)]
                    buckets[one.hash & <uint32_t>(2 * self.bucket_count - 1)] = one
                    one = later
            free(self.buckets)
            self.buckets, self.bucket_count = buckets, 2 * self.bucket_count
        one = <Decision*>malloc(sizeof(Decision) + size)
        if one == NULL:
            return False
        one.hash, one.identity, one.size = hash, identity, <int32_t>size
        one.subject, one.bits = <uint8_t>subject, <uint8_t>bits
        if size:
            memcpy(name_of(one), name, size)
        one.next = self.buckets[hash & <uint32_t>(self.bucket_count - 1)]
        self.buckets[hash & <uint32_t>(self.bucket_count - 1)] = one
        self.count = self.count + 1
        return True

    cdef void clear(self) noexcept nogil:
        """Free all decisions. Requires the mutex."""
        require(&self.mutex)
        cdef int64_t i
        cdef Decision* one
        for i in range(self.bucket_count):
            while self.buckets[i] != NULL:
                one = self.buckets[i]
                self.buckets[i] = one.next
                free(one)
        self.count = 0
