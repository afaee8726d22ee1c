"""Formats the channel's lines of responses: for the state-change log, as Kafka's tools read it, and at DEBUG.

Call them only when such a line is written. Kafka prints the whole response; partitions without an error are
left out here, and only the first of the others are named. Source: ``kafka.controller.RequestSendThread``,
``NetworkClient.handleCompletedReceives``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final

import numpy as np

from ctrlchan._codec import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, ControlResponse
from ctrlchan.channel.outcome import Outcome
from ctrlchan.protocol import LEADER_AND_ISR_IDS_SINCE

__all__ = ["received_line", "response_line", "response_text"]

#: Partitions with an error that a line names.
_NAMED: Final = 20

#: API key -> Kafka's constant, its response, its partition's error.
_NAMES: Final = {
    LEADER_AND_ISR: ("LEADER_AND_ISR", "LeaderAndIsrResponseData", "LeaderAndIsrPartitionError"),
    STOP_REPLICA: ("STOP_REPLICA", "StopReplicaResponseData", "StopReplicaPartitionError"),
    UPDATE_METADATA: ("UPDATE_METADATA", "UpdateMetadataResponseData", ""),
}


def response_line(outcome: Outcome, response: ControlResponse, brokers: Mapping[int, str]) -> str:
    """Return the line of one response. ``brokers``: id -> the broker as Kafka prints it, if still known."""
    api, _, _ = _NAMES[response.api_key]
    broker = brokers.get(outcome.broker_id, f"(id: {outcome.broker_id} rack: null)")
    return (
        f"Received response {response_text(response)} for request {api} with correlation id "
        f"{outcome.correlation_id} sent to broker {broker}"
    )


def received_line(outcome: Outcome, response: ControlResponse, client_id: str) -> str:
    """Return what Kafka's client says of one response."""
    api, _, _ = _NAMES[response.api_key]
    return (
        f"Received {api} response from node {outcome.broker_id} for request with header RequestHeader("
        f"apiKey={api}, apiVersion={response.version}, clientId={client_id}, "
        f"correlationId={outcome.correlation_id}): {response_text(response)}"
    )


def response_text(response: ControlResponse) -> str:
    """Return a response as Kafka's prints itself."""
    _, name, _ = _NAMES[response.api_key]
    code = f"errorCode={response.error_code}"
    if response.api_key == UPDATE_METADATA:
        return f"{name}({code})"
    if response.api_key == STOP_REPLICA:
        return f"{name}({code}, partitionErrors=[{_flat(response)}])"
    if response.version >= LEADER_AND_ISR_IDS_SINCE:
        return f"{name}({code}, partitionErrors=[], topics=[{_by_topic(response)}])"
    return f"{name}({code}, partitionErrors=[{_flat(response)}], topics=[])"


def _failed(response: ControlResponse) -> tuple[list[tuple[int, int, int]], str]:
    """Return (topic, partition, error) of the first partitions that failed, and a note on the others."""
    rows = np.flatnonzero(response.partition_error)
    topics = np.searchsorted(response.topic_starts, rows, side="right") - 1
    more = len(rows) - _NAMED
    rows, topics = rows[:_NAMED], topics[:_NAMED]
    failed = zip(
        topics.tolist(),
        response.partition[rows].tolist(),
        response.partition_error[rows].tolist(),
        strict=True,
    )
    return list(failed), f", and {more} more" if more > 0 else ""


def _flat(response: ControlResponse) -> str:
    name = _NAMES[response.api_key][2]
    failed, more = _failed(response)
    return (
        ", ".join(
            f"{name}(topicName='{_topic(response, topic)}', partitionIndex={partition}, errorCode={error})"
            for topic, partition, error in failed
        )
        + more
    )


def _by_topic(response: ControlResponse) -> str:
    name = _NAMES[response.api_key][2]
    failed, more = _failed(response)
    topics: dict[int, list[str]] = {}
    for topic, partition, error in failed:
        topics.setdefault(topic, []).append(
            f"{name}(topicName='', partitionIndex={partition}, errorCode={error})"
        )
    return (
        ", ".join(
            f"LeaderAndIsrTopicError(topicId={_id(response, topic)}, partitionErrors=[{', '.join(errors)}])"
            for topic, errors in topics.items()
        )
        + more
    )


def _topic(response: ControlResponse, topic: int) -> str:
    name = response.topics.names[topic]
    return "" if name is None else name.decode(errors="replace")


def _id(response: ControlResponse, topic: int) -> str:
    """Return the topic id as Kafka's Uuid prints itself."""
    return base64.urlsafe_b64encode(bytes(response.topics.ids[topic])).rstrip(b"=").decode()
