"""The APIs that only the controller can answer, each forwarded to it as it came.

In Kafka's ZooKeeper mode a client sends them to the controller, and another broker refuses them
(NOT_CONTROLLER). Here any broker answers, as in KRaft: the controller may be one that clients cannot see.
``kafka.server.ForwardingManager`` of Kafka 3.9.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Final

from ctrlchan.broker.apis.api import Api, Reply, Request
from ctrlchan.broker.apis.client_messages import ClientMessages

__all__ = ["APIS"]

#: Seconds that a request may take which has no timeout of its own.
_TIMEOUT: Final = 30.0


def _forwarded(key: int, name: str, message: str, highest: int, flexible_from: int) -> Api[Any]:
    def handle(core: Any, request: Request) -> Future[Reply]:
        assert core.controller is not None
        # Decoded for its timeout, and because no malformed bytes go to the controller.
        body = ClientMessages(message, request.version).decode(request)
        timeout = getattr(body, "timeout", None)
        answer = core.controller.forward(
            key,
            request.version,
            flexible=request.version >= flexible_from,
            body=bytes(request.frame[request.offset :]),
            timeout=_TIMEOUT if timeout is None else timeout.total_seconds(),
        )
        return _reply_with(answer)

    return Api(
        key=key,
        name=name,
        lowest=0,
        highest=highest,
        flexible_from=flexible_from,
        handle=handle,
        locks_core=False,
    )


APIS: Final[tuple[Api[Any], ...]] = (
    _forwarded(19, "CreateTopics", "create_topics", 7, 5),
    _forwarded(20, "DeleteTopics", "delete_topics", 6, 4),
    _forwarded(37, "CreatePartitions", "create_partitions", 3, 2),
    _forwarded(43, "ElectLeaders", "elect_leaders", 2, 2),
    _forwarded(45, "AlterPartitionReassignments", "alter_partition_reassignments", 0, 0),
    _forwarded(46, "ListPartitionReassignments", "list_partition_reassignments", 0, 0),
)


def _reply_with(answer: Future[bytes]) -> Future[Reply]:
    """Return the reply of a forwarded request."""
    reply: Future[Reply] = Future()

    def answered(done: Future[bytes]) -> None:
        try:
            reply.set_result(Reply(done.result()))
        except BaseException as error:  # noqa: BLE001  (the connection is closed, and the client tries again)
            reply.set_exception(error)

    answer.add_done_callback(answered)
    return reply
