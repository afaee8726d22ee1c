# The metadata of one moment, for threads that never wait for those who change them.
#
# A ``Snapshot`` never changes. Its columns are memory of the MetadataSnapshot, a Python object, in which it lies. Code
# without the GIL reads the current one between ``take_snapshot`` and ``release_snapshot``; neither waits.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from ctrlchan._c.atomics cimport add_and_get, load_pointer

# Rows of a StringColumn; a length below 0 is null.
cdef struct Strings:
    const int32_t* starts
    const int32_t* lengths
    const uint8_t* data
    int64_t data_size


# Topic rows by name or by id: open addressing, -1: free. A row may stand where an earlier id has put it, so a reader
# compares the row that it finds.
cdef struct RowTable:
    const int32_t* places
    # A power of two
    int64_t size


cdef struct Snapshot:
    int64_t topics
    Strings names
    # 16 bytes each; zero: the id is not known
    const uint8_t* ids
    RowTable by_name
    RowTable by_id
    # Sorted by topic row and partition
    int64_t partitions
    const int32_t* topic_row
    const int32_t* partition
    const int32_t* leader
    const int32_t* leader_epoch
    # The live brokers, ids ascending. Endpoints of broker i: ``endpoint_lengths[i]`` rows from ``endpoint_starts[i]``
    int64_t brokers
    const int32_t* broker_ids
    Strings racks
    const int32_t* endpoint_starts
    const int32_t* endpoint_lengths
    int64_t endpoints
    const int32_t* ports
    Strings hosts
    Strings listeners


cdef enum:
    NO_ROW = -1

# The row of a topic, NO_ROW: it is not known. ``topic_id``: 16 bytes, of which zeros are no id.
cdef int64_t find_topic(const Snapshot* snapshot, const uint8_t* name, int64_t size) noexcept nogil
cdef int64_t find_topic_by_id(const Snapshot* snapshot, const uint8_t* topic_id) noexcept nogil
# The row of a partition, NO_ROW: the topic, which may be NO_ROW, has no such partition.
cdef int64_t find_partition_row(const Snapshot* snapshot, int64_t topic, int32_t partition) noexcept nogil
# The bytes of the field ``NodeEndpoints`` with those of the brokers that live and have the listener: memory that the caller
# frees. NULL: no such broker, or no memory is left.
cdef uint8_t* encode_endpoints(
    const Snapshot* snapshot, const uint8_t* listener, int64_t listener_size, const int32_t* ids, int64_t count,
    int64_t* size
) noexcept nogil

# Whether a live broker has the listener and is in the rack, whose name is not empty.
cdef bint is_in_rack(
    const Snapshot* snapshot, const uint8_t* listener, int64_t listener_size, int32_t broker_id, const uint8_t* rack,
    int64_t rack_size
) noexcept nogil


cdef class MetadataSnapshot:
    cdef Snapshot fields
    # What ``fields`` points to
    cdef tuple columns
    cdef object ids, by_name, by_id, partition
    # Entries of the tables
    cdef int64_t names_used, ids_used

    cdef _take_topics(self, topics, MetadataSnapshot earlier)
    cdef _make_name_table(self, MetadataSnapshot earlier)
    cdef _make_id_table(self, MetadataSnapshot earlier)
    cdef _rows_with_id(self, const Snapshot* earlier)
    cdef _take_partitions(self, partitions)
    cdef _take_brokers(self, brokers)
    cdef int64_t _topic(self, topic) except? -1


cdef class CurrentMetadata:
    cdef readonly MetadataSnapshot snapshot
    cdef const void* current
    cdef int64_t readers
    # Those that a reader may still read
    cdef list earlier


# Return the current snapshot, which lives at least until ``release_snapshot``.
cdef inline const Snapshot* take_snapshot(CurrentMetadata metadata) noexcept nogil:
    add_and_get(&metadata.readers, 1)
    return <const Snapshot*>load_pointer(&metadata.current)


cdef inline void release_snapshot(CurrentMetadata metadata) noexcept nogil:
    add_and_get(&metadata.readers, -1)
