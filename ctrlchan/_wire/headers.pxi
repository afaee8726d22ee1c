# Heads (the part of a body that belongs to one broker), request and response headers, frame prefixes.
#
#   request header   api key int16, api version int16, correlation id int32, [v1+ client id: int16-length
#                    string, null allowed, even in v2], [v2 tagged fields]
#   response header  correlation id int32, [v1 tagged fields]
#
# Source: RequestHeader.json, ResponseHeader.json. Each request's file begins with the layout of its head.


cdef int32_t as_int32(value, str api, int version, str field) except? -1:
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise EncodeError(f"{value} does not fit int32", api=api, version=version, field=field)
    return value


cdef int64_t as_int64(value, str api, int version, str field) except? -1:
    if not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        raise EncodeError(f"{value} does not fit int64", api=api, version=version, field=field)
    return value


def encode_head(
    int api_key, int version, controller_id, controller_epoch, broker_epoch=-1, *,
    is_kraft_controller=False, request_type=0, delete_partitions=False,
):
    """Return the part of a request body that belongs to one broker; see ``_codec.pyi``."""
    cdef uint8_t out[24]
    cdef uint8_t* p = out
    cdef int highest
    cdef str api
    check_version(api_key, version)
    api = request_name(api_key)
    highest = HIGHEST_VERSION[api_key]
    put_i32(p, as_int32(controller_id, api, version, "controllerId"))
    p += 4
    # isKRaftController came with the last version of each of the three (KIP-866).
    if version == highest:
        p[0] = 1 if is_kraft_controller else 0
        p += 1
    elif is_kraft_controller:
        raise UnsupportedVersionError(
            f"true needs version {highest}", api=api, version=version, field="isKRaftController"
        )
    put_i32(p, as_int32(controller_epoch, api, version, "controllerEpoch"))
    p += 4
    if version >= (2 if api_key == API_LEADER_AND_ISR else 1 if api_key == API_STOP_REPLICA else 5):
        put_i64(p, as_int64(broker_epoch, api, version, "brokerEpoch"))
        p += 8
    if api_key == API_LEADER_AND_ISR and version >= 5:
        if not -128 <= request_type <= 127:
            raise EncodeError(f"{request_type} does not fit int8", api=api, version=version, field="type")
        p[0] = <uint8_t><int8_t>request_type
        p += 1
    elif request_type != 0:
        raise UnsupportedVersionError(
            f"a non-default value ({request_type}) is not part of this head", api=api, version=version, field="type"
        )
    if api_key == API_STOP_REPLICA and version <= 2:
        p[0] = 1 if delete_partitions else 0
        p += 1
    elif delete_partitions:
        raise UnsupportedVersionError(
            "true cannot be said in this head", api=api, version=version, field="deletePartitions"
        )
    return PyBytes_FromStringAndSize(<char*>out, p - out)


cdef int64_t client_id_size(client_id) except -1:
    if client_id is None:
        return 2
    if len(client_id) > MAX_STRING:
        raise EncodeError("string is longer than 32767 bytes", api="RequestHeader", field="clientId")
    if not utf8_valid(<const uint8_t*>PyBytes_AS_STRING(client_id), len(client_id)):
        raise EncodeError(REASONS[R_UTF8], api="RequestHeader", field="clientId")
    return 2 + len(client_id)


cdef uint8_t* put_request_header(uint8_t* p, int header_version, int16_t api_key, int16_t api_version, int32_t correlation_id, bytes client_id) noexcept:
    cdef int64_t length
    put_i16(p, api_key)
    put_i16(p + 2, api_version)
    put_i32(p + 4, correlation_id)
    p += 8
    if header_version >= 1:
        length = -1 if client_id is None else len(client_id)
        put_i16(p, <int16_t>length)
        p += 2
        if length > 0:
            memcpy(p, PyBytes_AS_STRING(client_id), length)
            p += length
    if header_version >= 2:
        p[0] = 0
        p += 1
    return p


def encode_frame_prefix(
    int api_key, int version, int32_t correlation_id, bytes client_id, bytes head not None, int64_t shared_body_size
):
    """Return everything before a shared body on the wire: 4-byte size, request header and head."""
    cdef int header_version = request_header_version(api_key, version)
    cdef int64_t head_size = len(head)
    cdef int64_t size = 8 + client_id_size(client_id) + (1 if header_version == 2 else 0) + head_size
    if shared_body_size < 0 or size + shared_body_size > 0x7FFFFFFF:
        raise EncodeError(
            f"a frame of {size + shared_body_size} bytes does not fit its 4-byte size",
            api=request_name(api_key), version=version,
        )
    out = PyBytes_FromStringAndSize(NULL, 4 + size)
    cdef uint8_t* p = <uint8_t*>PyBytes_AS_STRING(out)
    put_i32(p, <int32_t>(size + shared_body_size))
    p = put_request_header(p + 4, header_version, api_key, version, correlation_id, client_id)
    memcpy(p, PyBytes_AS_STRING(head), head_size)
    return out


def encode_request_header(int header_version, int api_key, int api_version, correlation_id, bytes client_id):
    """Return a request header of version 0, 1 or 2."""
    if not 0 <= header_version <= 2:
        raise UnsupportedVersionError(f"version {header_version} does not exist (0 to 2)", api="RequestHeader")
    for name, value in (("requestApiKey", api_key), ("requestApiVersion", api_version)):
        if not -0x8000 <= value <= 0x7FFF:
            raise EncodeError(f"{value} does not fit int16", api="RequestHeader", version=header_version, field=name)
    cdef int64_t size = 8 + (client_id_size(client_id) if header_version >= 1 else 0) + (1 if header_version == 2 else 0)
    out = PyBytes_FromStringAndSize(NULL, size)
    put_request_header(
        <uint8_t*>PyBytes_AS_STRING(out), header_version, api_key, api_version,
        as_int32(correlation_id, "RequestHeader", header_version, "correlationId"), client_id,
    )
    return out


def encode_response_header(int header_version, correlation_id):
    """Return a response header of version 0 or 1."""
    if not 0 <= header_version <= 1:
        raise UnsupportedVersionError(f"version {header_version} does not exist (0 to 1)", api="ResponseHeader")
    cdef uint8_t out[5]
    put_i32(out, as_int32(correlation_id, "ResponseHeader", header_version, "correlationId"))
    out[4] = 0
    return PyBytes_FromStringAndSize(<char*>out, 5 if header_version else 4)


class RequestHeader:
    """A decoded request header; ``size`` is its number of bytes, which is the body's offset."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id", "size", "unknown_tagged_fields")

    def __init__(self, api_key, api_version, correlation_id, client_id, size, unknown_tagged_fields):
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.size = size
        self.unknown_tagged_fields = unknown_tagged_fields

    def __repr__(self):
        return (
            f"RequestHeader(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r})"
        )


def decode_request_header(data, header_version=None):
    """Read the header at the front of ``data``; see ``_codec.pyi``."""
    cdef Reader r
    cdef Fault fault
    cdef int version
    held = open_reader(&r, &fault, data, 0)
    api_key = read_i16(&r, F_API_KEY)
    api_version = read_i16(&r, F_API_VERSION)
    correlation_id = read_i32(&r, F_CORRELATION_ID)
    if header_version is not None:
        version = header_version
        if not 0 <= version <= 2:
            raise UnsupportedVersionError(f"version {version} does not exist (0 to 2)", api="RequestHeader")
    else:
        version = 2 if is_flexible(api_key, api_version) else 1
    client_id = None
    if version >= 1:
        client_id = read_string(&r, False, True, F_CLIENT_ID)
    if version >= 2:
        read_tags(&r)
    if fault.reason != R_NONE:
        raise_decode_fault(&fault, "RequestHeader", version)
    return RequestHeader(api_key, api_version, correlation_id, client_id, r.p - r.start, r.unknown_tags)


def decode_response_header(data, int header_version):
    """Read the header at the front of ``data``: (correlation_id, size in bytes, unknown tagged fields)."""
    cdef Reader r
    cdef Fault fault
    if not 0 <= header_version <= 1:
        raise UnsupportedVersionError(f"version {header_version} does not exist (0 to 1)", api="ResponseHeader")
    held = open_reader(&r, &fault, data, 0)
    correlation_id = read_i32(&r, F_CORRELATION_ID)
    if header_version >= 1:
        read_tags(&r)
    if fault.reason != R_NONE:
        raise_decode_fault(&fault, "ResponseHeader", header_version)
    return correlation_id, r.p - r.start, r.unknown_tags
