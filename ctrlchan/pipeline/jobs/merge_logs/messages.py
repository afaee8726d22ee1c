"""Recognises the messages that Kafka's controllers and brokers write to a state-change log.

A message stands here as it is printed, with placeholders in braces:

=====================  ================================================================================
``{tp}``               ``orders-0``: topic and partition. A topic may contain ``-`` and ``.``
``{controller}``       controller id; ``{epoch}``: controller epoch
``{correlation}``      correlation id of the request
``{to}``               the broker a request was sent to; ``{tos}``: several, ``HashSet(1, 2)``
``{state}``            ``Name(field=value, ...)`` or ``(Leader:1,ISR:1,2,...)``: see ``values.py``
``{count}``            number of partitions in the request
``{leader}`` ...       the column of that name: a number, or a list of numbers
``{word}``             one word without a column; ``{any}``: any text
=====================  ================================================================================

Sources, Kafka 3.9: ``kafka.controller`` (KafkaController, PartitionStateMachine, ReplicaStateMachine,
AbstractControllerBrokerRequestBatch, RequestSendThread), ``kafka.server.ReplicaManager``,
``kafka.server.metadata.ZkMetadataCache``, ``kafka.cluster.Partition``. Since Kafka 1.1 the wording has stayed
and new messages were added; an unknown message becomes an entry with the event "other".
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["Message", "message_of"]

_NUMBER: Final = r"-?\d+"
_NUMBERS: Final = r"[\d, \-]*"
#: Placeholder -> regular expression.
_PLACEHOLDERS: Final = {
    # Greedy: the last "-" before a number separates topic and partition.
    "tp": r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)",
    "controller": rf"(?P<controller_id>{_NUMBER})",
    "epoch": rf"(?P<controller_epoch>{_NUMBER})",
    "correlation": rf"(?P<correlation_id>{_NUMBER})",
    "count": r"(?P<count>\d+)",
    "to": rf"(?P<to>{_NUMBER})",
    "tos": rf"\w*\((?P<to>{_NUMBERS})\)",
    "state": r"(?P<state>\w*\(.*\))",
    "answer": r"(?P<answer>\w+\(.*\))",
    "isr": rf"\[(?P<isr>{_NUMBERS})\]",
    "replicas": rf"(?P<replicas>{_NUMBERS})",
    "topic_id": r"(?:Some\()?(?P<topic_id>[\w-]{22})\)?",
    "maybe_topic_id": r"(?:Some\((?P<topic_id>[\w-]{22})\)|None)",
    "from": r"(?P<from_state>\w+)",
    "target": r"(?P<to_state>\w+)",
    "api": r"(?P<api>[A-Z_]+)",
    "error": r"(?P<error>.*)",
    "offline": r"(?P<partitions>\S*)",
    "word": r"\S+",
    "any": r".*",
} | {
    name: rf"(?P<{name}>{_NUMBER})"
    for name in ("leader", "leader_epoch", "partition_epoch", "replica", "known_epoch", "error_code")
}


class Message(NamedTuple):
    """A kind of message. ``api``: its control request, None if it has none or the text names it."""

    event: str
    api: str | None
    pattern: re.Pattern[str]


#: Event, API ("-": none) and text of each message; of those with the same first word frequent ones first.
_TABLE: Final = """
# Decisions of the controller.
partition_state        -               Changed partition {tp} state from {from} to {target} with assigned replicas {replicas}
partition_state        -               Changed partition {tp} from {from} to {target} with state {state}
partition_state        -               Changed partition {tp} state from {from} to {target}
replica_state          -               Changed state of replica {replica} for partition {tp} from {from} to {target}
partition_state_failed -               Controller {controller} epoch {epoch} failed to change state for partition {tp} from {from} to {target}
replica_state_failed   -               Controller {controller} epoch {epoch} initiated state change of replica {replica} for partition {tp} from {from} to {target} failed
isr_shrunk             -               Partition {tp} state changed to {state} after removing replica {replica} from the ISR as part of transition to {target}
reassigned             LEADER_AND_ISR  Sent LeaderAndIsr request {state} with new replica assignment ReplicaAssignment(replicas={replicas}, {any}) to leader {to} for partition being reassigned {tp}
reassignment_failed    LEADER_AND_ISR  Failed to send LeaderAndIsr request with new replica assignment {any} to leader for partition being reassigned {tp}
replicas_offline       -               Mark replicas {offline} on broker {replica} as offline
# Requests and responses of the controller.
send_become_leader     LEADER_AND_ISR  Sending become-leader LeaderAndIsr request {state} to broker {to} for partition {tp}
send_become_follower   LEADER_AND_ISR  Sending become-follower LeaderAndIsr request {state} to broker {to} for partition {tp}
send_stop_replica      STOP_REPLICA    Sending StopReplica request {state} to broker {to} for partition {tp}
# Before Kafka 2.5.
send_update_metadata   UPDATE_METADATA Sending UpdateMetadata request {state} to brokers {tos} for partition {tp}
request_sent           LEADER_AND_ISR  Sending LeaderAndIsr request to broker {to} with {count} become-leader and {any} partitions
request_sent           UPDATE_METADATA Sending UpdateMetadata request to brokers {tos} for {count} partitions
request_sent           STOP_REPLICA    Sending StopReplica request for {count} replicas to broker {to}
request_sent           STOP_REPLICA    Sending StopReplica request (delete = {word}) for {count} replicas to broker {to}
response               -               Received response {answer} for request {api} with correlation id {correlation} sent to broker {word} (id: {to} rack: {any})
# The broker is no longer registered.
response               -               Received response {answer} for request {api} with correlation id {correlation} sent to broker (id: {to} rack: {any})
error_response         UPDATE_METADATA Received error {error} in UpdateMetadata response {answer} from broker {to}
error_response         LEADER_AND_ISR  Received error {error} in LeaderAndIsr response {answer} from broker {to}
# A broker receives a request,
request_received       LEADER_AND_ISR  Handling LeaderAndIsr request correlationId {correlation} from controller {controller} for {count} partitions
request_received       STOP_REPLICA    Handling StopReplica request correlationId {correlation} from controller {controller} for {count} partitions
receive_leader_and_isr LEADER_AND_ISR  Received LeaderAndIsr request {state} correlation id {correlation} from controller {controller} epoch {epoch}
# (before Kafka 2.4 the state did not name its partition)
receive_leader_and_isr LEADER_AND_ISR  Received LeaderAndIsr request {state} correlation id {correlation} from controller {controller} epoch {epoch} for partition {tp}
receive_stop_replica   STOP_REPLICA    Received StopReplica request {state} correlation id {correlation} from controller {controller} epoch {epoch} for partition {tp}
# refuses it,
stale_controller       LEADER_AND_ISR  Ignoring LeaderAndIsr request from controller {controller} with correlation id {correlation} since its controller epoch {epoch} is old. Latest known controller epoch is {known_epoch}
stale_controller       STOP_REPLICA    Ignoring StopReplica request from controller {controller} with correlation id {correlation} since its controller epoch {epoch} is old. Latest known controller epoch is {known_epoch}
stale_controller       UPDATE_METADATA Received update metadata request with correlation id {correlation} from an old controller {controller} with epoch {epoch}. Latest known controller epoch is {known_epoch}
already_known          LEADER_AND_ISR  Ignoring LeaderAndIsr request from controller {controller} with correlation id {correlation} epoch {epoch} for partition {tp} since its associated leader epoch {leader_epoch} matches the current leader epoch
stale_leader_epoch     LEADER_AND_ISR  Ignoring LeaderAndIsr request from controller {controller} with correlation id {correlation} epoch {epoch} for partition {tp} since its associated leader epoch {leader_epoch} is smaller than the current leader epoch {known_epoch}
stale_leader_epoch     STOP_REPLICA    Ignoring StopReplica request (delete={word}) from controller {controller} with correlation id {correlation} epoch {epoch} for partition {tp} since its associated leader epoch {leader_epoch} is smaller than the current leader epoch {known_epoch}
refused                LEADER_AND_ISR  Ignoring LeaderAndIsr request from controller {controller} with correlation id {correlation} epoch {epoch} for partition {tp} as {error}
refused                STOP_REPLICA    Ignoring StopReplica request (delete={word}) from controller {controller} with correlation id {correlation} epoch {epoch} for partition {tp} as {error}
refused                STOP_REPLICA    Ignoring StopReplica request (delete={word}) from controller {controller} with correlation id {correlation} epoch {epoch} for partition {tp} due to {error}
refused                LEADER_AND_ISR  Topic ID in memory: {word} does not match the topic ID for partition {tp} received: {topic_id}.
refused                LEADER_AND_ISR  Received LeaderAndIsrRequest with correlation id {correlation} from controller {controller} epoch {epoch} for partition {tp} (last update controller epoch {word}) but {error}
# or carries it out.
create_partition       LEADER_AND_ISR  Creating new partition {tp} with topic id {topic_id}.{any}
create_partition       LEADER_AND_ISR  Creating new partition {tp} with topic id {any}
become_leader_begun    LEADER_AND_ISR  Handling LeaderAndIsr request correlationId {correlation} from controller {controller} epoch {epoch} starting the become-leader transition for partition {tp}
become_follower_begun  LEADER_AND_ISR  Handling LeaderAndIsr request correlationId {correlation} from controller {controller} epoch {epoch} starting the become-follower transition for partition {tp} with leader {leader}
became_leader          LEADER_AND_ISR  Leader {tp} with topic id {maybe_topic_id} starts at leader epoch {leader_epoch} from offset {word} with partition epoch {partition_epoch}, high watermark {word}, ISR {isr}, {any}
became_follower        LEADER_AND_ISR  Follower {tp} starts at leader epoch {leader_epoch} from offset {word} with partition epoch {partition_epoch} and high watermark {word}. Current leader is {leader}. {any}
become_leader_done     LEADER_AND_ISR  Completed LeaderAndIsr request correlationId {correlation} from controller {controller} epoch {epoch} for the become-leader transition for partition {tp}
become_follower_done   LEADER_AND_ISR  Completed LeaderAndIsr request correlationId {correlation} from controller {controller} epoch {epoch} for the become-follower transition for partition {tp} with leader {leader}
still_leader           LEADER_AND_ISR  Skipped the become-leader state change for {tp} with topic id {maybe_topic_id} and partition state {state} since it is already the leader with leader epoch {known_epoch}. {any}
still_follower         LEADER_AND_ISR  Skipped the become-follower state change for {tp} with topic id {maybe_topic_id} and partition state {state} since it is already a follower with leader epoch {known_epoch}.
skipped                LEADER_AND_ISR  Skipped the {word} state change for {tp} with topic id {maybe_topic_id} and partition state {state} since {error}
failed                 LEADER_AND_ISR  Skipped the {word} state change with correlation id {correlation} from controller {controller} epoch {epoch} for partition {tp} (last update controller epoch {word}) {error}
skipped                LEADER_AND_ISR  Skipped the adding-fetcher step of the become-follower state change with correlation id {correlation} from controller {controller} epoch {epoch} for partition {tp} with leader {leader} since {error}
failed                 LEADER_AND_ISR  Error while processing LeaderAndIsr request correlationId {correlation} received from controller {controller} epoch {epoch} for partition {tp}
request_failed         LEADER_AND_ISR  Error while processing LeaderAndIsr request with correlationId {correlation} received from controller {controller} epoch {epoch}{any}
failed                 LEADER_AND_ISR  A ZooKeeper client exception has occurred{any} skipping the state change for the partition {tp} with leader epoch: {word}
topic_id_assigned      LEADER_AND_ISR  Updating log for {tp} to assign topic ID {topic_id} from LeaderAndIsr request from controller {controller} with correlation id {correlation} epoch {epoch}
topic_id_removed       LEADER_AND_ISR  Updating PartitionFetchState for {tp} to remove log topic ID {topic_id} since LeaderAndIsr request from controller {controller} with correlation id {correlation} epoch {epoch} {any}
recovered              LEADER_AND_ISR  The topic partition {tp} was marked as RECOVERING. {any}
fetchers_stopped       LEADER_AND_ISR  Stopped fetchers as part of LeaderAndIsr request correlationId {correlation} from controller {controller} epoch {epoch} as part of the become-leader transition for {count} partitions
fetchers_stopped       LEADER_AND_ISR  Stopped fetchers as part of become-follower request from controller {controller} epoch {epoch} with correlation id {correlation} for {count} partitions
request_done           LEADER_AND_ISR  Finished LeaderAndIsr request in {word} correlationId {correlation} from controller {controller} for {count} partitions
metadata_cached        UPDATE_METADATA Cached leader info {state} for partition {tp} in response to UpdateMetadata request sent by controller {controller} epoch {epoch} with correlation id {correlation}
metadata_deleted       UPDATE_METADATA Deleted partition {tp} from metadata cache in response to UpdateMetadata request sent by controller {controller} epoch {epoch} with correlation id {correlation}
request_done           UPDATE_METADATA Add {count} partitions and deleted {word} partitions from metadata cache in response to UpdateMetadata request sent by controller {controller} epoch {epoch} with correlation id {correlation}
"""


def _pattern(text: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", text)
    pattern = "".join(_PLACEHOLDERS[part] if at % 2 else re.escape(part) for at, part in enumerate(parts))
    return re.compile(pattern, re.DOTALL | re.ASCII)


#: (event, API, text) of each line of the table.
_MESSAGES: Final = [line.split(maxsplit=2) for line in _TABLE.splitlines() if line and line[0] != "#"]
_BY_FIRST_WORD: Final[dict[str, list[Message]]] = {}
for _event, _api, _text in _MESSAGES:
    _BY_FIRST_WORD.setdefault(_text.split(" ", 1)[0], []).append(
        Message(_event, None if _api == "-" else _api, _pattern(_text))
    )


def message_of(text: str) -> tuple[Message, re.Match[str]] | None:
    """Return the kind of a message and the match with its values; None for an unknown message.

    ``text``: without the prefix ``[Broker id=1] ``.
    """
    for message in _BY_FIRST_WORD.get(text.split(" ", 1)[0], ()):
        match = message.pattern.fullmatch(text)
        if match is not None:
            return message, match
    return None
