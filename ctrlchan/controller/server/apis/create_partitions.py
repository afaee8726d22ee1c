"""CreatePartitions (37): adds partitions to topics, and answers when they have leaders.

``KafkaApis.handleCreatePartitionsRequest`` and ``DelayedCreatePartitions`` of Kafka 3.9, without
quotas.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from functools import partial
from time import monotonic

from ctrlchan.controller.admin.topics import NewPartitions, create_partitions
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.controller.server.leaders import when_led
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.access import ALTER_TOPIC, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages
from ctrlchan.server.result_fields import error_fields, seconds

__all__ = ["API"]


def _handle(core: ServerCore, request: Request) -> Reply | Future[Reply]:
    messages = ClientMessages("create_partitions", request.version)
    body = messages.decode(request)
    deadline = monotonic() + seconds(body.timeout)
    counts = Counter(topic.name for topic in body.topics)
    topics = [
        NewPartitions(
            name=topic.name,
            count=topic.count,
            assignments=(
                None
                if topic.assignments is None
                else [assignment.broker_ids for assignment in topic.assignments]
            ),
        )
        for topic in body.topics
        if counts[topic.name] == 1
    ]

    def led(created: dict[str, int | KafkaError] | KafkaError) -> Reply | Future[Reply]:
        results: dict[str, int | KafkaError]
        if isinstance(created, KafkaError):
            results = dict.fromkeys(counts, created)
        else:
            denied = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The topic authorization is failed.")
            repeated = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
            results = {name: repeated if counts[name] > 1 else created.get(name, denied) for name in counts}
        if body.validate_only:
            return reply(results, set())
        changed = {name: result for name, result in results.items() if isinstance(result, int)}
        return when_led(core, changed, deadline, partial(reply, results))

    def reply(results: dict[str, int | KafkaError], missing: set[str]) -> Reply:
        parts = []
        for name, result in results.items():
            error = result if isinstance(result, KafkaError) else None
            if name in missing:
                error = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            parts.append(messages.part("CreatePartitionsTopicResult", name=name, **error_fields(error)))
        return Reply(messages.response(results=tuple(parts)))

    if not core.is_active:
        return led(KafkaError(ErrorCode.NOT_CONTROLLER))
    alterable = request.access.allowed(*ALTER_TOPIC, [topic.name for topic in topics])
    allowed = [topic for topic in topics if topic.name in alterable]

    def create(controller: ControllerCore) -> dict[str, int | KafkaError]:
        return create_partitions(controller, allowed, validate_only=body.validate_only)

    return core.call(ControllerState.TOPIC_CHANGE, "CreatePartitions", create, led)


API: Api[ServerCore] = Api(
    key=37,
    name="CreatePartitions",
    lowest=0,
    highest=3,
    flexible_from=2,
    handle=_handle,
    needs=asks(ALTER_TOPIC),
)
