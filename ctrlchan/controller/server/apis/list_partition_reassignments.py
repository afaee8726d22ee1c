"""ListPartitionReassignments (46): the reassignments in progress.

``KafkaApis.handleListPartitionReassignmentsRequest`` of Kafka 3.9; KIP-455.
"""

from __future__ import annotations

from concurrent.futures import Future

from ctrlchan.authorizer.acls import Operation
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.handlers.reassignment import Partition, list_
from ctrlchan.controller.handlers.replica_assignment import ReplicaAssignment
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.errors import KafkaError
from ctrlchan.server.access import needs_cluster
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages
from ctrlchan.server.result_fields import by_topic, error_fields

__all__ = ["API"]


def _handle(core: ServerCore, request: Request) -> Future[Reply]:
    messages = ClientMessages("list_partition_reassignments", request.version)
    body = messages.decode(request)
    asked: dict[str, set[int]] | None = None
    if body.topics is not None:
        asked = {}
        for topic in body.topics:
            asked.setdefault(topic.name, set()).update(topic.partition_indexes)

    def find(controller: ControllerCore) -> dict[Partition, ReplicaAssignment]:
        return list_(controller, asked)

    def reply(found: dict[Partition, ReplicaAssignment] | KafkaError) -> Reply:
        if isinstance(found, KafkaError):
            return Reply(messages.response(**error_fields(found), topics=()), error_code=found.code)
        return Reply(
            messages.response(
                # Not null: the field's default.
                **error_fields(None) | {"error_message": ""},
                topics=tuple(
                    messages.part(
                        "OngoingTopicReassignment",
                        name=topic,
                        partitions=tuple(
                            messages.part(
                                "OngoingPartitionReassignment",
                                partition_index=partition,
                                replicas=tuple(assignment.replicas),
                                adding_replicas=tuple(assignment.adding),
                                removing_replicas=tuple(assignment.removing),
                            )
                            for partition, assignment in partitions
                        ),
                    )
                    for topic, partitions in by_topic(found)
                ),
            )
        )

    return core.call(ControllerState.LIST_PARTITION_REASSIGNMENT, "ListPartitionReassignments", find, reply)


API: Api[ServerCore] = Api(
    key=46,
    name="ListPartitionReassignments",
    lowest=0,
    highest=0,
    flexible_from=0,
    handle=_handle,
    needs=needs_cluster(Operation.DESCRIBE),
)
