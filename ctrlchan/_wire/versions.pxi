# Which versions exist and which of them are flexible (KIP-482). Source: Kafka 3.9's common/message/*.json.

cdef enum Api:
    API_LEADER_AND_ISR = 4
    API_STOP_REPLICA = 5
    API_UPDATE_METADATA = 6

LEADER_AND_ISR = <int>API_LEADER_AND_ISR
STOP_REPLICA = <int>API_STOP_REPLICA
UPDATE_METADATA = <int>API_UPDATE_METADATA

HIGHEST_VERSION = {LEADER_AND_ISR: 7, STOP_REPLICA: 4, UPDATE_METADATA: 8}

cdef dict API_NAMES = {LEADER_AND_ISR: "LeaderAndIsr", STOP_REPLICA: "StopReplica", UPDATE_METADATA: "UpdateMetadata"}


cdef str request_name(int api_key):
    return API_NAMES[api_key] + "Request"


cdef str response_name(int api_key):
    return API_NAMES[api_key] + "Response"


cdef inline bint is_flexible(int api_key, int version) noexcept nogil:
    if api_key == API_LEADER_AND_ISR:
        return version >= 4
    if api_key == API_STOP_REPLICA:
        return version >= 2
    if api_key == API_UPDATE_METADATA:
        return version >= 6
    return False


cdef int check_version(api_key, version, bint response=False) except -1:
    """Raise UnsupportedVersionError unless (api key, version) is one of the 22 that exist."""
    if api_key not in HIGHEST_VERSION:
        raise UnsupportedVersionError(
            f"api key {api_key} is not a control request (4 LeaderAndIsr, 5 StopReplica, 6 UpdateMetadata)"
        )
    if not 0 <= version <= HIGHEST_VERSION[api_key]:
        raise UnsupportedVersionError(
            f"version {version} does not exist (0 to {HIGHEST_VERSION[api_key]})",
            api=response_name(api_key) if response else request_name(api_key),
        )
    return 0


def request_header_version(int api_key, int version):
    """Return 2 for flexible versions, else 1."""
    check_version(api_key, version)
    return 2 if is_flexible(api_key, version) else 1


def response_header_version(int api_key, int version):
    """Return 1 for flexible versions, else 0."""
    check_version(api_key, version, True)
    return 1 if is_flexible(api_key, version) else 0
