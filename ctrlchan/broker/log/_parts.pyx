"""The results of the functions of a log's parts, as texts and as Kafka's errors."""

from ctrlchan._c.error_codes cimport CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR, OFFSET_OUT_OF_RANGE

import os

from ctrlchan.errors import KafkaError


cdef str why(int result):
    if result > 0:
        return os.strerror(result)
    return {
        CORRUPT: "a batch whose header cannot be true",
        OVERFLOW: "an offset that is too far from the first one of its segment",
        OUT_OF_ORDER: "an offset that is not above the one before it",
        NO_MEMORY: "out of memory",
        OFFLINE: "closed",
    }.get(result, f"result {result}")


cdef int error_code(int result) noexcept nogil:
    if result == CORRUPT or result == NOT_FOUND:
        return CORRUPT_MESSAGE
    return OFFSET_OUT_OF_RANGE if result == OUT_OF_RANGE else KAFKA_STORAGE_ERROR


cdef int check_result(int result, folder) except -1:
    if result != DONE:
        raise KafkaError(error_code(result), f"{folder}: {why(result)}")
    return 0
