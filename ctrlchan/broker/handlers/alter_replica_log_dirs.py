"""AlterReplicaLogDirs (34): move replicas to other log directories of the broker (KIP-113).

``KafkaApis.handleAlterReplicaLogDirsRequest``, ``ReplicaManager.alterReplicaLogDirs``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ctrlchan.authorizer.acls import Operation
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode
from ctrlchan.server.access import ALTER_CLUSTER, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]

_DENIED: Final = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _handle(core: StoringCore, request: Request) -> Reply:
    messages = ClientMessages("alter_replica_log_dirs", request.version)
    body = messages.decode(request)
    if not request.access.allows_cluster(Operation.ALTER):
        denied = [
            (topic.name, [(number, _DENIED) for number in topic.partitions])
            for directory in body.dirs
            for topic in directory.topics
        ]
        return _reply(messages, denied)
    # The last directory of a partition counts.
    wanted = {
        (topic.name, number): directory.path
        for directory in body.dirs
        for topic in directory.topics
        for number in topic.partitions
    }
    found: dict[str, list[tuple[int, int]]] = {}
    for (topic, number), path in wanted.items():
        is_known = core.metadata.snapshot.has_partition(topic, number)
        error = core.replica_manager.move(topic, number, path, is_known=is_known)
        found.setdefault(topic, []).append((number, error))
    return _reply(messages, found.items())


def _reply(messages: ClientMessages, topics: Iterable[tuple[str, list[tuple[int, int]]]]) -> Reply:
    results: list[Any] = []
    errors = rows = 0
    for name, partitions in topics:
        rows += len(partitions)
        errors += sum(1 for _, error in partitions if error)
        parts = tuple(
            messages.part(
                "AlterReplicaLogDirPartitionResult", partition_index=number, error_code=KioError(error)
            )
            for number, error in partitions
        )
        results.append(messages.part("AlterReplicaLogDirTopicResult", topic_name=name, partitions=parts))
    return Reply(messages.response(results=tuple(results)), partition_errors=errors, rows=rows)


API = Api(
    key=34,
    name="AlterReplicaLogDirs",
    lowest=0,
    highest=2,
    flexible_from=2,
    handle=_handle,
    needs=asks(ALTER_CLUSTER),
)
