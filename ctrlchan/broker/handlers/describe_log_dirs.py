"""DescribeLogDirs (35): the log directories of a broker, and the size of each replica in them.

``KafkaApis.handleDescribeLogDirsRequest``, ``ReplicaManager.describeLogDirs``.
"""

from __future__ import annotations

from typing import Any, Protocol

from ctrlchan.authorizer.acls import Operation
from ctrlchan.broker.log.manager import LogDirSizes, LogManager
from ctrlchan.server.access import DESCRIBE_CLUSTER, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API", "LogsCore"]


class LogsCore(Protocol):
    """What the API needs of a broker."""

    @property
    def logs(self) -> LogManager | None: ...


def _handle(core: LogsCore, request: Request) -> Reply:
    messages = ClientMessages("describe_log_dirs", request.version)
    topics = messages.decode(request).topics
    if not request.access.allows_cluster(Operation.DESCRIBE):
        error = KioError.cluster_authorization_failed
        return Reply(messages.response(error_code=error, results=()), error_code=error.value)
    wanted = None if topics is None else {(one.topic, index) for one in topics for index in one.partitions}
    directories = [] if core.logs is None else core.logs.folder_sizes()
    results = tuple(_result(messages, directory, wanted) for directory in directories)
    return Reply(messages.response(error_code=KioError.none, results=results))


# The sizes of many replicas, and the disk's free space, take their time.
API: Api[LogsCore] = Api(
    key=35,
    name="DescribeLogDirs",
    lowest=0,
    highest=4,
    flexible_from=2,
    handle=_handle,
    locks_core=False,
    needs=asks(DESCRIBE_CLUSTER),
)


def _result(messages: ClientMessages, directory: LogDirSizes, wanted: set[tuple[str, int]] | None) -> Any:
    """Return the result of one directory; ``wanted``: the requested replicas, None for all."""
    topics: dict[str, list[Any]] = {}
    for topic, partition, size, lag, is_future in directory.replicas:
        if wanted is None or (topic, partition) in wanted:
            part = messages.part(
                "DescribeLogDirsPartition",
                partition_index=partition,
                partition_size=size,
                offset_lag=lag,
                is_future_key=is_future,
            )
            topics.setdefault(topic, []).append(part)
    return messages.part(
        "DescribeLogDirsResult",
        error_code=KioError.none if directory.failure is None else KioError.kafka_storage_error,
        log_dir=str(directory.path),
        topics=tuple(
            messages.part("DescribeLogDirsTopic", name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )
