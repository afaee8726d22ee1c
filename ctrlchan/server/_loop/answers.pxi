# Answers that are not sent yet: bytes in one piece of memory, and the file ranges between them.

cdef uint8_t* append_room(Answer* answer, int64_t size) noexcept nogil:
    cdef int64_t capacity
    cdef uint8_t* data
    if answer.failed or size < 0:
        answer.failed = True
        return NULL
    if answer.capacity - answer.size < size:
        capacity = max(2 * answer.capacity, answer.size + size)
        data = <uint8_t*>realloc(answer.data, capacity)
        if data == NULL:
            answer.failed = True
            return NULL
        answer.data, answer.capacity = data, capacity
    answer.size += size
    return answer.data + answer.size - size


cdef void append_bytes(Answer* answer, const void* data, int64_t size) noexcept nogil:
    cdef uint8_t* room = append_room(answer, size)
    if room != NULL and size:
        memcpy(room, data, size)


cdef void append_file_range(
    Answer* answer, int fd, int64_t position, int64_t size, ReleaseFunction release, void* owner
) noexcept nogil:
    cdef int32_t capacity
    cdef FileRange* ranges
    cdef FileRange* last
    if answer.range_count == answer.range_capacity and not answer.failed:
        capacity = max(4, 2 * answer.range_capacity)
        ranges = <FileRange*>realloc(answer.ranges, capacity * sizeof(FileRange))
        if ranges == NULL:
            answer.failed = True
        else:
            answer.ranges, answer.range_capacity = ranges, capacity
    if answer.failed or size < 0 or position < 0:
        answer.failed = True
        if release != NULL:
            release(owner)
        return
    last = &answer.ranges[answer.range_count]
    last.at, last.fd, last.position, last.size = answer.size, fd, position, size
    last.release, last.owner = release, owner
    answer.range_count += 1
    answer.range_bytes += size


cdef void release_ranges(Answer* answer, int32_t first) noexcept nogil:
    """Release the ranges from ``first`` on, and forget them."""
    cdef int32_t i
    for i in range(first, answer.range_count):
        answer.range_bytes -= answer.ranges[i].size
        if answer.ranges[i].release != NULL:
            answer.ranges[i].release(answer.ranges[i].owner)
    answer.range_count = first


cdef void cut_answer(Answer* answer, int64_t size, int32_t range_count) noexcept nogil:
    release_ranges(answer, range_count)
    answer.size = min(size, answer.size)


cdef void free_answer(Answer* answer) noexcept nogil:
    """Release all that the answer has: its ranges, then its memory."""
    release_ranges(answer, 0)
    free(answer.ranges)
    free(answer.data)
    memset(answer, 0, sizeof(Answer))


cdef bint finish_answer(Answer* answer, int64_t begin, int64_t range_bytes) noexcept nogil:
    """Write the size of the answer that begins at ``begin``. Return False when the answer cannot be sent.

    ``range_bytes``: the answer's sum of ranges before it began.
    """
    cdef int64_t size = answer.size - begin - SIZE_BYTES + answer.range_bytes - range_bytes
    if answer.failed or size > INT32_MAX:
        return False
    put_i32(answer.data + begin, <int32_t>size)
    return True


cdef void join_answers(Answer* answer, Answer* more) noexcept nogil:
    """Append all of ``more``, which is empty afterwards."""
    cdef int32_t i
    cdef FileRange* moved
    cdef int64_t before = answer.size
    append_bytes(answer, more.data, more.size)
    for i in range(more.range_count):
        moved = &more.ranges[i]
        append_file_range(answer, moved.fd, moved.position, moved.size, moved.release, moved.owner)
        if not answer.failed:
            answer.ranges[answer.range_count - 1].at = before + moved.at
    more.range_count = 0
    free_answer(more)
