"""One request to a broker and its answer, as a client sends it: no client library is needed."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.peers.connection import Address
from ctrlchan.peers.controller_connections import ControllerConnections
from ctrlchan.peers.messages import decode_answer, encode_request, part
from ctrlchan.peers.requests import OutgoingRequest
from ctrlchan.state.brokers import format_host_port

__all__ = ["ask", "check", "topic_metadata"]

#: Seconds until an answer; a broker may be busy, or a fault may delay it.
_SECONDS: Final = 10.0
#: API key and version; the highest whose headers have no tagged fields.
_METADATA: Final = 3, 8


def ask(address: Address, api: str, key_and_version: tuple[int, int], **fields: Any) -> Any:
    """Return a broker's answer to one request, sent once. `api`: kio's name, such as "create_topics".

    Raises KafkaError, REQUEST_TIMED_OUT when the broker does not answer.
    """
    key, version = key_and_version
    connections = ControllerConnections(lambda: address, "ctrlchan-cluster")
    try:
        request = OutgoingRequest(
            key, range(version, version + 1), version + 1, partial(encode_request, api, **fields)
        )
        # Once: the broker may be dead, and another one in the metadata soon.
        return decode_answer(api, *connections.send(request, _SECONDS, once=True).result())
    except KafkaError as error:
        if error.code != ErrorCode.REQUEST_TIMED_OUT:
            raise
        raise KafkaError(error.code, f"no answer of the broker at {format_host_port(*address)}") from None
    finally:
        connections.stop()


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
