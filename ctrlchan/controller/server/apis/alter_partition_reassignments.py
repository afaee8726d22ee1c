"""AlterPartitionReassignments (45): starts, replaces and cancels reassignments.

``KafkaApis.handleAlterPartitionReassignmentsRequest`` of Kafka 3.9; KIP-455.
"""

from __future__ import annotations

from concurrent.futures import Future

from ctrlchan.authorizer.acls import Operation
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.handlers.reassignment import Answer, Partition, alter
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.errors import KafkaError
from ctrlchan.server.access import needs_cluster
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages
from ctrlchan.server.result_fields import answer_fields, by_topic, error_fields

__all__ = ["API"]


def _handle(core: ServerCore, request: Request) -> Future[Reply]:
    messages = ClientMessages("alter_partition_reassignments", request.version)
    body = messages.decode(request)
    asked: dict[Partition, list[int] | None] = {
        (topic.name, one.partition_index): None if one.replicas is None else list(one.replicas)
        for topic in body.topics
        for one in topic.partitions
    }

    def reassign(controller: ControllerCore) -> dict[Partition, Answer]:
        return alter(controller, asked)

    def reply(results: dict[Partition, Answer] | KafkaError) -> Reply:
        if isinstance(results, KafkaError):
            return Reply(messages.response(**error_fields(results), responses=()), error_code=results.code)
        return Reply(
            messages.response(
                # Not null: the field's default.
                **error_fields(None) | {"error_message": ""},
                responses=tuple(
                    messages.part(
                        "ReassignableTopicResponse",
                        name=topic,
                        partitions=tuple(
                            messages.part(
                                "ReassignablePartitionResponse",
                                partition_index=partition,
                                **answer_fields(answer),
                            )
                            for partition, answer in partitions
                        ),
                    )
                    for topic, partitions in by_topic(results)
                ),
            ),
            rows=len(asked),
        )

    return core.call(
        ControllerState.ALTER_PARTITION_REASSIGNMENT, "ApiPartitionReassignment", reassign, reply
    )


API: Api[ServerCore] = Api(
    key=45,
    name="AlterPartitionReassignments",
    lowest=0,
    highest=0,
    flexible_from=0,
    handle=_handle,
    needs=needs_cluster(Operation.ALTER),
)
