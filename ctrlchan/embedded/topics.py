"""Creates and deletes topics of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ctrlchan.embedded.requests import ask, check, topic_metadata
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.peers.connection import Address
from ctrlchan.peers.messages import duration, part

__all__ = ["create_topic", "delete_topics", "has_topic"]

_CREATE_TOPICS: Final = 19, 4
_DELETE_TOPICS: Final = 20, 3
#: The number that the brokers' settings have (KIP-464).
_DEFAULT: Final = -1
#: A topic that is not there for clients yet, or no more.
_ABSENT: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)


def create_topic(
    broker: Address,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: Mapping[str, str],
    timeout: float,
) -> None:
    """Create a topic. For numbers that are None the brokers' settings count. Raises KafkaError."""
    api, version = "create_topics", _CREATE_TOPICS[1]
    given = tuple(
        part(api, version, "CreatableTopicConfig", name=name, value=value) for name, value in configs.items()
    )
    wanted = part(
        api,
        version,
        "CreatableTopic",
        name=topic,
        num_partitions=_DEFAULT if partitions is None else partitions,
        replication_factor=_DEFAULT if replication_factor is None else replication_factor,
        assignments=(),
        configs=given,
    )
    answer = ask(broker, api, _CREATE_TOPICS, topics=(wanted,), timeout=duration(timeout))
    _check_results(answer.topics)


def delete_topics(broker: Address, topics: Sequence[str], timeout: float) -> None:
    """Delete topics. Raises KafkaError for the first one that cannot be deleted."""
    answer = ask(
        broker, "delete_topics", _DELETE_TOPICS, topic_names=tuple(topics), timeout=duration(timeout)
    )
    _check_results(answer.responses)


def has_topic(broker: Address, topic: str) -> bool:
    """Return whether the topic is in a broker's metadata, with a leader of each partition."""
    try:
        topic_metadata(broker, topic)
    except KafkaError as error:
        if error.code not in _ABSENT:
            raise
        return False
    return True


def _check_results(results: Sequence[Any]) -> None:
    for one in results:
        check(one.error_code.value, one.name, getattr(one, "error_message", None))
