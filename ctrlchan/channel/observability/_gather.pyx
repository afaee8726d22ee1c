"""Turns outcomes into rows (``ctrlchan.journal.rows``), without a Python object for each field of a row.

A hundred thousand requests may end in a second, and journal and metrics together may cost a tenth of that
second's work, so this loop is C. Values that are the same as in the row before (of a request to thirty
brokers, of the result that nearly all have) are copied from that row.
"""

from cpython.buffer cimport PyBUF_ND, PyBuffer_Release, PyObject_GetBuffer
from cpython.ref cimport PyObject
from cpython.dict cimport PyDict_GetItem
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from ctrlchan.channel.queues._entries cimport Outcome, Sent

import numpy as np

from ctrlchan.journal.rows import NO_NUMBER, NO_TEXT, ROW

cdef packed struct Row:
    int64_t broker_epoch
    int64_t state_version
    int64_t from_version
    int64_t frame
    int64_t bytes
    int64_t rows
    int64_t encoding
    int64_t encoded
    int64_t enqueued
    int64_t first_byte
    int64_t last_byte
    int64_t response
    int64_t ended
    int64_t callback
    int32_t broker
    int32_t controller_epoch
    int32_t correlation_id
    int32_t attempts
    int32_t merged
    int32_t api
    int32_t version
    int32_t error_code
    int32_t kind
    int32_t detail
    int32_t generation
    int32_t state_id
    int32_t partitions
    int32_t dataset

assert sizeof(Row) == ROW.itemsize

cdef int64_t UNKNOWN = NO_NUMBER
cdef int32_t WITHOUT_TEXT = NO_TEXT


cdef class Gatherer:
    """Rows being filled, and the texts that they index. Not thread-safe: the owner has a lock.

    ``epochs``: slot of a broker's generation -> its broker epoch; the owner changes it.
    """

    cdef object _array
    cdef Row* _rows
    cdef dict _epochs
    cdef list _texts
    cdef dict _codes
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t count

    def __init__(self, Py_ssize_t capacity, dict epochs not None):
        self.capacity = capacity
        self._epochs = epochs
        self._begin()

    cdef _begin(self):
        cdef Py_buffer view
        self._array = np.empty(self.capacity, dtype=ROW)
        # `_array` keeps the memory.
        PyObject_GetBuffer(self._array, &view, PyBUF_ND)
        self._rows = <Row*>view.buf
        PyBuffer_Release(&view)
        self._texts = []
        self._codes = {}
        self.count = 0

    def take(self):
        """Return (rows, texts) gathered so far, and begin new ones."""
        rows, texts = self._array[: self.count], self._texts
        self._begin()
        return rows, texts

    cdef int32_t _code_of(self, object text) except -1:
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = len(self._texts)
            self._texts.append(text)
        return code

    def extend(self, list ended not None, Py_ssize_t position, list called):
        """Add rows for ``ended[position:]`` as far as there is room, and return the position behind them.

        ``called``: monotonic nanoseconds when the callback of each returned, or None if they have no callbacks.
        """
        cdef Py_ssize_t end = min(len(ended), position + self.capacity - self.count)
        cdef Row* row
        cdef Row* last = NULL
        cdef PyObject* request = NULL
        cdef PyObject* result = NULL
        cdef PyObject* epoch
        cdef Outcome outcome
        cdef object its_request, its_result, version, coverage, origin
        while position < end:
            outcome = (<Sent?>ended[position]).outcome
            its_request = outcome.request
            its_result = outcome.result
            row = &self._rows[self.count]
            row.broker = outcome.broker_id
            row.enqueued = outcome.enqueued_ns
            row.ended = outcome.completed_ns
            row.callback = 0 if called is None else called[position]
            row.bytes = outcome.bytes
            row.version = outcome.version
            row.attempts = outcome.attempts
            row.merged = outcome.merged
            row.correlation_id = outcome.correlation_id
            row.first_byte = outcome.first_byte_ns
            row.last_byte = outcome.last_byte_ns
            row.response = outcome.response_ns
            row.generation = outcome.slot
            epoch = PyDict_GetItem(self._epochs, outcome.slot)
            row.broker_epoch = UNKNOWN if epoch == NULL else <object>epoch
            if <PyObject*>its_request == request:
                row.api = last.api
                row.controller_epoch = last.controller_epoch
                row.rows = last.rows
                row.encoding = last.encoding
                row.encoded = last.encoded
                row.state_version = last.state_version
                row.from_version = last.from_version
                row.state_id = last.state_id
                row.partitions = last.partitions
                row.frame = last.frame
                row.dataset = last.dataset
            else:
                request = <PyObject*>its_request
                row.api = its_request.api_key
                row.controller_epoch = its_request.controller_epoch
                row.rows = its_request.rows
                row.encoding = its_request.encoding_ns
                row.encoded = its_request.encoded_ns
                version = its_request.state_version
                row.state_version = UNKNOWN if version is None else version
                coverage = its_request.coverage
                if coverage is None:
                    row.from_version = UNKNOWN
                    row.state_id = row.partitions = WITHOUT_TEXT
                else:
                    state_id, version, partitions = coverage
                    row.state_id = self._code_of(state_id)
                    row.from_version = UNKNOWN if version is None else version
                    row.partitions = WITHOUT_TEXT if partitions is None else self._code_of(partitions)
                origin = its_request.origin
                if origin is None:
                    row.frame, row.dataset = UNKNOWN, WITHOUT_TEXT
                else:
                    dataset, row.frame = origin
                    row.dataset = self._code_of(dataset)
            if <PyObject*>its_result == result:
                row.kind = last.kind
                row.detail = last.detail
                row.error_code = last.error_code
            else:
                result = <PyObject*>its_result
                row.kind = self._code_of(its_result.kind.value)
                row.detail = self._code_of(its_result.detail)
                row.error_code = its_result.error_code
            last = row
            self.count += 1
            position += 1
        return position
