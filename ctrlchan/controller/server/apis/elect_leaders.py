"""ElectLeaders (43): elects preferred leaders, or any live replica where there is no leader.

``KafkaApis.handleElectLeaders`` and ``DelayedElectLeader`` of Kafka 3.9; KIP-183,
KIP-460. The leaders are elected when the event loop has processed the request. When the time limit is over
then, the answer is that they are late.
"""

from __future__ import annotations

from concurrent.futures import Future
from time import monotonic

from ctrlchan.authorizer.acls import Operation
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.handlers.elections import Answer, ElectionType, Partition, elect_leaders
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.access import needs_cluster
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError
from ctrlchan.server.result_fields import answer_fields, by_topic, seconds

__all__ = ["API"]


def _handle(core: ServerCore, request: Request) -> Reply | Future[Reply]:
    messages = ClientMessages("elect_leaders", request.version)
    body = messages.decode(request)
    deadline = monotonic() + seconds(body.timeout)
    asked: list[Partition] | None = None
    if body.topic_partitions is not None:
        asked = [(one.topic, partition) for one in body.topic_partitions for partition in one.partitions]
    # Version 0 elects preferred leaders only.
    code = getattr(body, "election_type", ElectionType.PREFERRED)
    if code not in tuple(ElectionType):
        return _reply(messages, asked, KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {code}"))

    def elect(controller: ControllerCore) -> dict[Partition, Answer]:
        return elect_leaders(controller, asked, ElectionType(code))

    def reply(answers: dict[Partition, Answer] | KafkaError) -> Reply:
        if not isinstance(answers, KafkaError) and monotonic() >= deadline:
            late: Answer = (ErrorCode.REQUEST_TIMED_OUT, None)
            answers = {
                partition: late if answer[0] == ErrorCode.NONE else answer
                for partition, answer in answers.items()
            }
        return _reply(messages, asked, answers)

    return core.call(ControllerState.MANUAL_LEADER_BALANCE, "ReplicaLeaderElection", elect, reply)


API: Api[ServerCore] = Api(
    key=43,
    name="ElectLeaders",
    lowest=0,
    highest=2,
    flexible_from=2,
    handle=_handle,
    needs=needs_cluster(Operation.ALTER, None),
)


def _reply(
    messages: ClientMessages, asked: list[Partition] | None, results: dict[Partition, Answer] | KafkaError
) -> Reply:
    error = KioError.none
    if isinstance(results, KafkaError):
        if asked is None:
            # There is no partition to give the error to.
            error = KioError(results.code)
        results = dict.fromkeys(asked or (), (results.code, results.message or None))
    return Reply(
        messages.response(
            error_code=error,
            replica_election_results=tuple(
                messages.part(
                    "ReplicaElectionResult",
                    topic=topic,
                    partition_result=tuple(
                        messages.part("PartitionResult", partition_id=partition, **answer_fields(answer))
                        for partition, answer in partitions
                    ),
                )
                for topic, partitions in by_topic(results)
            ),
        ),
        error_code=error.value,
    )
