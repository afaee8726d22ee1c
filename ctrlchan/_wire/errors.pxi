# The protocol's exceptions, and how a fault in C becomes one of them.
#
# The nogil readers and writers never raise: they put (reason, field, offset) into a `Fault` and return -1;
# `raise_decode_fault` and `raise_encode_fault` turn it into an exception once the GIL is held again.


class CtrlchanError(Exception):
    """The root of every error this package raises on purpose."""

    __module__ = "ctrlchan.errors"


class ProtocolError(CtrlchanError, ValueError):
    """Bytes or columns that the protocol does not allow: api, version, field, byte offset, reason."""

    __module__ = "ctrlchan.errors"

    def __init__(self, reason, *, api="", version=-1, field="", offset=None):
        self.reason = reason
        self.api = api
        self.version = version
        self.field = field
        self.offset = offset
        where = []
        if api:
            where.append(f"{api} v{version}" if version >= 0 else api)
        if field:
            where.append(f"field {field}")
        if offset is not None:
            where.append(f"byte {offset}")
        super().__init__(f"{', '.join(where)}: {reason}" if where else reason)

    def __reduce__(self):
        return _rebuild_protocol_error, (
            type(self), self.reason, self.api, self.version, self.field, self.offset,
        )


def _rebuild_protocol_error(cls, reason, api, version, field, offset):
    return cls(reason, api=api, version=version, field=field, offset=offset)


class DecodeError(ProtocolError):
    """Bytes that are not a message of this api and version."""

    __module__ = "ctrlchan.errors"


class EncodeError(ProtocolError):
    """Columns that cannot be put on the wire."""

    __module__ = "ctrlchan.errors"


class UnsupportedVersionError(ProtocolError):
    """A version that does not exist, or a value that the chosen version cannot carry."""

    __module__ = "ctrlchan.errors"


cdef enum Reason:
    R_NONE
    # reading
    R_CUT
    R_NEGATIVE_COUNT
    R_NULL
    R_COUNT_TOO_LARGE
    R_LENGTH_TOO_LARGE
    R_STRING_TOO_LONG
    R_VARINT
    R_UTF8
    R_TRAILING
    R_TAG_ORDER
    R_TAG_SIZE
    R_TOO_MANY_VALUES
    # writing
    R_ROW_RANGE
    R_TOPIC_RANGE
    R_LIST_RANGE
    R_NEGATIVE_LENGTH
    R_STRING_RANGE
    R_CHANGED
    R_INT8
    R_INT16
    R_NEEDS_NEWER


cdef dict REASONS = {
    R_CUT: "the data ends within this field",
    R_NEGATIVE_COUNT: "negative count",
    R_NULL: "null is not allowed here",
    R_COUNT_TOO_LARGE: "count is larger than the rest of the data could hold",
    R_LENGTH_TOO_LARGE: "length is larger than the rest of the data",
    R_STRING_TOO_LONG: "string is longer than 32767 bytes",
    R_VARINT: "varint is longer than 5 bytes or overflows 32 bits",
    R_UTF8: "not valid UTF-8",
    R_TRAILING: "unread bytes after the message",
    R_TAG_ORDER: "tags are not in ascending order",
    R_TAG_SIZE: "tagged field's size does not fit its content",
    R_TOO_MANY_VALUES: "more values than an int32 column can index",
    R_ROW_RANGE: "row is outside the partition columns",
    R_TOPIC_RANGE: "topic row is outside the topic columns",
    R_LIST_RANGE: "list points outside its values",
    R_NEGATIVE_LENGTH: "negative length",
    R_STRING_RANGE: "string points outside its data",
    R_CHANGED: "the columns changed after the message was sized",
    R_INT8: "value does not fit int8",
    R_INT16: "value does not fit int16",
    R_NEEDS_NEWER: "a non-default value that this version cannot carry",
}


cdef struct Fault:
    int reason
    int field
    # Reading: byte offset from the start of the given buffer. Writing: the wrong row, or -1.
    int64_t at


cdef inline int fail(Fault* fault, int reason, int field, int64_t at) noexcept nogil:
    """Record the first fault; always returns -1, so that a caller can `return fail(...)`."""
    if fault.reason == R_NONE:
        fault.reason = reason
        fault.field = field
        fault.at = at
    return -1


cdef int raise_decode_fault(Fault* fault, str api, int version) except -1:
    raise DecodeError(
        REASONS[fault.reason], api=api, version=version, field=FIELD_NAMES[fault.field], offset=fault.at
    )


cdef int raise_encode_fault(Fault* fault, str api, int version) except -1:
    reason = REASONS[fault.reason]
    if fault.at >= 0:
        reason = f"{reason} (row {fault.at})"
    raise EncodeError(reason, api=api, version=version, field=FIELD_NAMES[fault.field])
