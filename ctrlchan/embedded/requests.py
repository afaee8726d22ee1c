"""One request to a broker and its answer, as a client sends it: no client library is needed."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from ctrlchan.errors import DecodeError, ErrorCode, KafkaError
from ctrlchan.peers.connection import Address, PeerConnection
from ctrlchan.peers.messages import decode_answer, encode_request, part
from ctrlchan.server.api_names import api_name
from ctrlchan.state.brokers import format_host_port

__all__ = ["ask", "check", "topic_metadata"]

_CLIENT_ID: Final = b"ctrlchan-cluster"
#: Seconds until an answer; a broker may be busy, or a fault may delay it.
_SECONDS: Final = 15.0
#: API key and version; the highest whose headers have no tagged fields.
_METADATA: Final = 3, 8


def ask(
    address: Address,
    api: str,
    key_and_version: tuple[int, int],
    *,
    flexible: bool = False,
    read: Callable[[bytes], Any] | None = None,
    **fields: Any,
) -> Any:
    """Return a broker's answer to one request, sent once. `api`: kio's name, such as "create_topics".

    `flexible`: the version has headers with tagged fields. `read`: decodes the body in place of kio.

    Raises KafkaError: NETWORK_EXCEPTION when it was not sent, as to a broker that was killed;
    REQUEST_TIMED_OUT when it was and there is no answer; UNSUPPORTED_VERSION if the broker does not serve it.
    """
    key, version = key_and_version
    where = format_host_port(*address)
    deadline = monotonic() + _SECONDS
    connection = None
    try:
        code, what = ErrorCode.NETWORK_EXCEPTION, f"no connection to the broker at {where}"
        connection = PeerConnection(address, _CLIENT_ID)
        connection.ask_versions(deadline)
        lowest, highest = connection.versions.get(key, (0, -1))
        if not lowest <= version <= highest:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"the broker at {where} does not serve {api_name(key)}"
            )
        code, what = ErrorCode.REQUEST_TIMED_OUT, f"no answer of the broker at {where}"
        body = encode_request(api, version, **fields)
        answer, offset = connection.exchange(key, version, flexible, body, deadline)
        return decode_answer(api, version, answer, offset) if read is None else read(answer[offset:])
    except (OSError, DecodeError) as error:
        problem = error
    finally:
        if connection is not None:
            connection.close()
    raise KafkaError(code, f"{what}: {getattr(problem, 'strerror', None) or problem}")


def topic_metadata(address: Address, topic: str, *, create: bool = False) -> Any:
    """Return (the addresses of brokers by id, kio's metadata of a topic) from the broker at `address`.

    `create`: let the broker create the topic, as for a producer. Raises KafkaError for no such topic, and
    when a partition has no leader.
    """
    metadata = ask(
        address,
        "metadata",
        _METADATA,
        topics=(part("metadata", _METADATA[1], "MetadataRequestTopic", name=topic),),
        allow_auto_topic_creation=create,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    (found,) = metadata.topics
    check(found.error_code.value, topic)
    for partition in found.partitions:
        check(partition.error_code.value, f"{topic}-{partition.partition_index}")
    return {one.node_id: (one.host, one.port) for one in metadata.brokers}, found


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise KafkaError for an error code. `what`: begins the message."""
    if code:
        name = ErrorCode.name_of(code)
        raise KafkaError(code, f"{what}: {name}{f': {message}' if message else ''}")
