# A hash table whose entries are forgotten when they were not used for long.
#
# An Entry is the first field of a struct of the table's owner, who makes it with calloc; the table frees it. The mutex of
# the owner guards the table.

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free

cdef enum:
    FIRST_BUCKETS = 64


cdef struct Entry:
    Entry* next
    uint32_t hash
    # Of the struct and of all that follows it: more than 0
    int64_t bytes
    int64_t used_ms


cdef struct Table:
    Entry** buckets
    int64_t bucket_count
    int64_t count


cdef inline bint open_entries(Table* table) noexcept nogil:
    """Return False without memory."""
    table.buckets = <Entry**>calloc(FIRST_BUCKETS, sizeof(Entry*))
    table.bucket_count = FIRST_BUCKETS if table.buckets != NULL else 0
    return table.buckets != NULL


cdef inline Entry* first_entry(const Table* table, uint32_t hash) noexcept nogil:
    """Return the first entry of the bucket of this hash, or NULL."""
    return table.buckets[hash % table.bucket_count]


cdef inline void grow_table(Table* table) noexcept nogil:
    """Give a full table more buckets, if there is memory for them."""
    cdef int64_t i, count = 2 * table.bucket_count
    cdef Entry** buckets
    cdef Entry* entry
    cdef Entry* following
    if table.count < table.bucket_count:
        return
    buckets = <Entry**>calloc(count, sizeof(Entry*))
    if buckets == NULL:
        return
    for i in range(table.bucket_count):
        entry = table.buckets[i]
        while entry != NULL:
            following = entry.next
            entry.next = buckets[entry.hash % count]
            buckets[entry.hash % count] = entry
            entry = following
    free(table.buckets)
    table.buckets, table.bucket_count = buckets, count


cdef inline void add_entry(Table* table, Entry* entry) noexcept nogil:
    grow_table(table)
    entry.next = first_entry(table, entry.hash)
    table.buckets[entry.hash % table.bucket_count] = entry
    table.count += 1


cdef inline int64_t forget_idle(Table* table, int64_t now_ms, int64_t idle_ms) noexcept nogil:
    """Free the entries that were not used for longer than this. Return their bytes: 0 if there were none."""
    cdef int64_t i, freed = 0
    cdef Entry** place
    cdef Entry* entry
    for i in range(table.bucket_count):
        place = &table.buckets[i]
        while place[0] != NULL:
            entry = place[0]
            if now_ms - entry.used_ms > idle_ms:
                place[0] = entry.next
                freed += entry.bytes
                table.count -= 1
                free(entry)
            else:
                place = &entry.next
    return freed
