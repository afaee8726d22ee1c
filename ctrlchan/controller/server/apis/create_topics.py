"""CreateTopics (19): creates topics, and answers when all their partitions have leaders.

``KafkaApis.handleCreateTopicsRequest`` and ``DelayedCreatePartitions`` of Kafka 3.9, without quotas.
A broker creates topics by itself, too (Kafka's write them to ZooKeeper): ClusterAction is enough for that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from time import monotonic
from typing import Any, Final, NamedTuple

from ctrlchan.authorizer.acls import Operation
from ctrlchan.config.described import Configs, ConfigSource, broker_names, effective_configs
from ctrlchan.controller.admin.names import INTERNAL_METADATA_TOPIC
from ctrlchan.controller.admin.topics import CreatedTopic, NewTopic, create_topics
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.controller.server.leaders import when_led
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.access import (
    ALL_NAMES,
    CLUSTER_ACTION_CLUSTER,
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DESCRIBE_CONFIGS_TOPIC,
    asks,
)
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError
from ctrlchan.server.result_fields import compact_count, error_fields, seconds, topic_uuid

__all__ = ["API"]

_UNKNOWN_SIZE: Final = -1
_CONFIGS_SINCE: Final = 5
_EMPTY_ARRAY: Final = b"\1"
_NO_TAGS: Final = b"\0"

_Result = CreatedTopic | KafkaError


class _Permitted(NamedTuple):
    """The names of the topics that the client may create, and whose configs he may see."""

    created: Container[str]
    described: Container[str]


def _handle(core: ServerCore, request: Request) -> Reply | Future[Reply]:
    messages = ClientMessages("create_topics", request.version)
    body = messages.decode(request)
    deadline = monotonic() + seconds(body.timeout)
    validate_only = getattr(body, "validate_only", False)
    counts = Counter(topic.name for topic in body.topics)
    # Of KRaft's topic everybody is answered that nobody may create it.
    names = dict.fromkeys((name for name in counts if name != INTERNAL_METADATA_TOPIC), 1)
    permitted = _Permitted(ALL_NAMES, ALL_NAMES)

    def led(created: dict[str, _Result] | KafkaError) -> Reply | Future[Reply]:
        results: dict[str, _Result]
        if isinstance(created, KafkaError):
            results = dict.fromkeys(counts, created)
        else:
            repeated = KafkaError(ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")
            denied = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
            results = {name: repeated if counts[name] > 1 else created.get(name, denied) for name in counts}
        if validate_only:
            return reply(results, set())
        made = {name: len(one.assignment) for name, one in results.items() if isinstance(one, CreatedTopic)}
        return when_led(core, made, deadline, partial(reply, results))

    def reply(results: dict[str, _Result], missing: set[str]) -> Reply:
        late = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        answers = _Answers(messages, core.config.topic_defaults)
        for topic in body.topics:
            result = results[topic.name]
            was_tried = counts[topic.name] == 1 and topic.name in permitted.created
            # Of a topic that could not be created there is nothing to hide.
            hides = topic.name in names and topic.name not in permitted.described
            hides = hides and not (was_tried and isinstance(result, KafkaError))
            answers.add(topic.name, result, late if topic.name in missing else None, hides_configs=hides)
        return Reply(answers.response())

    if not core.is_active:
        return led(KafkaError(ErrorCode.NOT_CONTROLLER))
    described = request.access.allowed(*DESCRIBE_CONFIGS_TOPIC, names, logs=False)
    permitted = _Permitted(_creatable(core, request, names), described)
    topics = [
        _new_topic(topic)
        for topic in body.topics
        if counts[topic.name] == 1 and (topic.name in permitted.created or topic.name not in names)
    ]

    def create(controller: ControllerCore) -> dict[str, _Result]:
        return create_topics(controller, topics, validate_only=validate_only)

    return core.call(ControllerState.TOPIC_CHANGE, "CreateTopics", create, led)


API: Api[ServerCore] = Api(
    key=19,
    name="CreateTopics",
    lowest=0,
    highest=7,
    flexible_from=5,
    handle=_handle,
    needs=asks(CREATE_CLUSTER, CLUSTER_ACTION_CLUSTER, CREATE_TOPIC, DESCRIBE_CONFIGS_TOPIC),
)


def _creatable(core: ServerCore, request: Request, names: Iterable[str]) -> Container[str]:
    """Return the topics that the peer may create."""
    access = request.access
    if access.allows_cluster(Operation.CREATE, logs=False):
        return ALL_NAMES
    is_from_broker = core.is_for_brokers and not request.context.is_forwarded
    if is_from_broker and access.allows_cluster(Operation.CLUSTER_ACTION, logs=False):
        return ALL_NAMES
    return access.allowed(*CREATE_TOPIC, names)


def _new_topic(topic: Any) -> NewTopic:
    return NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment={one.partition_index: one.broker_ids for one in topic.assignments},
        configs=[(config.name, config.value) for config in topic.configs],
    )


class _Answers:
    """Encodes the answers of a request, topic by topic.

    A topic's answer has all of its configs, three dozen, and those of most topics are alike: their bytes are
    made once. The answers of 1,000 topics would take kio more than a second.
    """

    def __init__(self, messages: ClientMessages, defaults: Mapping[str, str]) -> None:
        self._messages = messages
        self._defaults = Configs(broker_names(defaults), ConfigSource.STATIC_BROKER)
        self._topics: list[Any] = []
        # The array of configs of each topic, None where its part has all, and each array by the configs that
        # are set for the topic.
        self._configs: list[bytes | None] = []
        self._encoded: dict[tuple[tuple[str, str], ...], bytes] = {}

    def add(
        self, name: str, result: _Result, error: KafkaError | None, *, hides_configs: bool = False
    ) -> None:
        """Add the answer for a topic; ``error``: goes before the result.

        ``hides_configs``: an error stands for the configs, and for what else is said of a new topic.
        """
        if isinstance(result, KafkaError):
            error = result
        fields: dict[str, Any] = {
            **error_fields(error),
            "topic_id": None if isinstance(result, KafkaError) else topic_uuid(result.topic_id),
            "num_partitions": _UNKNOWN_SIZE,
            "replication_factor": _UNKNOWN_SIZE,
            "configs": (),
        }
        configs: bytes | None = None
        if hides_configs:
            fields["topic_id"] = None
            if error is None or isinstance(result, KafkaError):
                fields["topic_config_error_code"] = KioError.topic_authorization_failed
        elif error is None and isinstance(result, CreatedTopic):
            fields["num_partitions"] = len(result.assignment)
            fields["replication_factor"] = len(result.assignment[0])
            if self._messages.version >= _CONFIGS_SINCE:
                configs = self._configs_of(result.configs)
        self._topics.append(self._messages.part("CreatableTopicResult", name=name, **fields))
        self._configs.append(configs)

    def response(self) -> bytes:
        """Return the body of the response."""
        if self._messages.version < _CONFIGS_SINCE:
            return self._messages.response(topics=tuple(self._topics))
        # A topic ends with its configs and its tags, the response with its topics and its tags.
        end = _EMPTY_ARRAY + _NO_TAGS
        topics = [
            self._messages.encode(topic)
            if configs is None
            else self._messages.encode(topic).removesuffix(end) + configs + _NO_TAGS
            for topic, configs in zip(self._topics, self._configs, strict=True)
        ]
        head = self._messages.response(topics=()).removesuffix(end)
        return b"".join([head, compact_count(len(topics)), *topics, _NO_TAGS])

    def _configs_of(self, own: Mapping[str, str]) -> bytes:
        key = tuple(sorted(own.items()))
        if key not in self._encoded:
            configs = [
                self._messages.encode(
                    self._messages.part(
                        "CreatableTopicConfigs",
                        name=config.name,
                        value=config.value,
                        read_only=False,
                        config_source=config.source,
                        is_sensitive=False,
                    )
                )
                for config in effective_configs(own, [self._defaults])
            ]
            self._encoded[key] = b"".join([compact_count(len(configs)), *configs])
        return self._encoded[key]
