"""The topics in a consumer's subscription, which a member sends as the metadata of its protocol."""

from __future__ import annotations

from ctrlchan.broker.coordinator.common.wire import Reader
from ctrlchan.errors import DecodeError

__all__ = ["CONSUMER_PROTOCOL_TYPE", "subscribed_topics"]

#: The protocol type of groups of consumers (``ConsumerProtocol.PROTOCOL_TYPE``).
CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a ConsumerProtocolSubscription of any version, or None if the bytes are none.

    Version 0 begins every later version, so only its fields (version, topics, user data) are read.
    """
    reader = Reader(metadata)
    try:
        reader.integer("h")
        topics = frozenset(reader.string() for _ in range(reader.count()))
        reader.nullable_bytes()
    except DecodeError:
        return None
    return topics
