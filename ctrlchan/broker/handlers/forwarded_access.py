"""Which topics of a request for the controller a client may create, delete or change.

The broker authorizes, and forwards what is left: a JVM controller takes the request for one of the broker's.
The answer has all topics in the order of the request. ``KafkaApis.handleCreateTopicsRequest``,
``handleDeleteTopicsRequest`` and ``handleCreatePartitionsRequest`` of Kafka 3.9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ctrlchan.authorizer.acls import Operation
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.server.access import (
    ALL_NAMES,
    ALTER_TOPIC,
    CREATE_TOPIC,
    DELETE_TOPIC,
    DESCRIBE_CONFIGS_TOPIC,
    DESCRIBE_TOPIC,
    Access,
)
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["Split", "creations", "deletions", "growths"]

_DENIED: Final = KioError.topic_authorization_failed
_UNKNOWN_SIZE: Final = -1


class Split:
    """A request without the topics that the client may not touch.

    ``body``: kio's object of what is left, None if nothing is. ``field``: of the response, with its topics.
    ``denied``: the results of the others. ``places``: of each topic in the request, by the key of its result.
    """

    def __init__(
        self,
        messages: ClientMessages,
        body: Any | None,
        field: str,
        denied: Sequence[Any],
        places: Mapping[Hashable, int],
        key_of: Callable[[Any], Hashable],
        changed: Callable[[Any], Any] = lambda result: result,
    ) -> None:
        self.body = body
        self._messages = messages
        self._field = field
        self._denied = denied
        self._places = places
        self._key_of = key_of
        self._changed = changed

    def response(self, answer: Any | None) -> bytes:
        """Return the body of the response to the client; ``answer``: kio's object of the controller's."""
        results = [] if answer is None else [self._changed(one) for one in getattr(answer, self._field)]
        # Stable: what the controller repeats, and what it answers beside that, stays in its order.
        results = sorted(
            [*results, *self._denied],
            key=lambda one: self._places.get(self._key_of(one), len(self._places)),
        )
        return self._messages.response(**{self._field: tuple(results)})


def creations(_core: StoringCore, messages: ClientMessages, access: Access, body: Any) -> Split:
    """Split a CreateTopics request: Create on the cluster, or on the topic."""
    names = [topic.name for topic in body.topics]
    counts = Counter(names)
    creatable: Container[str] = ALL_NAMES
    if not access.allows_cluster(Operation.CREATE, logs=False):
        creatable = access.allowed(*CREATE_TOPIC, names)
    described = access.allowed(*DESCRIBE_CONFIGS_TOPIC, names, logs=False)
    # A topic that comes twice is refused by the controller, whoever names it.
    refused = {name for name, count in counts.items() if count == 1 and name not in creatable}
    kept = tuple(topic for topic in body.topics if topic.name not in refused)
    denied = [
        messages.part(
            "CreatableTopicResult",
            name=topic.name,
            error_code=_DENIED,
            error_message="Authorization failed.",
            num_partitions=_UNKNOWN_SIZE,
            replication_factor=_UNKNOWN_SIZE,
            topic_id=None,
            configs=(),
        )
        for topic in body.topics
        if topic.name in refused
    ]
    return Split(
        messages,
        replace(body, topics=kept) if kept else None,
        "topics",
        [_without_configs(one, described, was_tried=False) for one in denied],
        _places(names),
        lambda result: result.name,
        lambda result: _without_configs(result, described, was_tried=counts[result.name] == 1),
    )


def _without_configs(result: Any, described: Container[str], *, was_tried: bool) -> Any:
    """Return the result of a new topic without its configs, for a client that may not describe them.

    ``was_tried``: the controller has tried to create it; an error of that stands alone.
    """
    if result.name in described or not hasattr(result, "topic_config_error_code"):
        return result
    failed = was_tried and result.error_code is not KioError.none
    hidden: dict[str, Any] = {
        "topic_config_error_code": KioError.none if failed else _DENIED,
        "num_partitions": _UNKNOWN_SIZE,
        "replication_factor": _UNKNOWN_SIZE,
        "configs": (),
    }
    if hasattr(result, "topic_id"):
        hidden["topic_id"] = None
    return replace(result, **hidden)


def deletions(core: StoringCore, messages: ClientMessages, access: Access, body: Any) -> Split:
    """Split a DeleteTopics request: Delete on the topic; only who may describe it gets its name."""
    by_ids = not hasattr(body, "topic_names")
    asked = (
        [(one.name, one.topic_id, one) for one in body.topics]
        if by_ids
        else [(name, None, name) for name in body.topic_names]
    )
    if any(name is not None and topic_id is not None for name, topic_id, _ in asked):
        # The controller refuses such a request as a whole.
        return Split(messages, body, "responses", (), {}, _key_of_deleted)
    with core.metadata.state.lock:
        named = [
            (core.metadata.topic_name(topic_id.bytes) if topic_id is not None else name, topic_id, one)
            for name, topic_id, one in asked
        ]
    names = [name for name, _, _ in named if name is not None]
    described, deletable = access.allowed(*DESCRIBE_TOPIC, names), access.allowed(*DELETE_TOPIC, names)
    kept, denied = [], []
    for name, topic_id, one in named:
        error, shown = _DENIED, name
        if name is None:
            # Unknown here: nobody can say whether the client may delete it.
            error = KioError.unknown_topic_id
        elif topic_id is not None and name not in described:
            shown = None
        elif name in deletable:
            kept.append(one)
            continue
        denied.append(
            messages.part(
                "DeletableTopicResult", name=shown, topic_id=topic_id, error_code=error, error_message=None
            )
        )
    rest = None
    if kept:
        rest = replace(body, **{"topics" if by_ids else "topic_names": tuple(kept)})
    places = _places([topic_id or name for name, topic_id, _ in asked])
    return Split(messages, rest, "responses", denied, places, _key_of_deleted)


def _key_of_deleted(result: Any) -> Hashable:
    topic_id: Hashable = getattr(result, "topic_id", None)
    return topic_id or result.name


def growths(_core: StoringCore, messages: ClientMessages, access: Access, body: Any) -> Split:
    """Split a CreatePartitions request: Alter on the topic."""
    names = [topic.name for topic in body.topics]
    counts = Counter(names)
    alterable = access.allowed(*ALTER_TOPIC, [name for name in names if counts[name] == 1])
    refused = {name for name, count in counts.items() if count == 1 and name not in alterable}
    kept = tuple(topic for topic in body.topics if topic.name not in refused)
    denied = [
        messages.part(
            "CreatePartitionsTopicResult",
            name=topic.name,
            error_code=_DENIED,
            error_message="The topic authorization is failed.",
        )
        for topic in body.topics
        if topic.name in refused
    ]
    rest = replace(body, topics=kept) if kept else None
    return Split(messages, rest, "results", denied, _places(names), lambda result: result.name)


def _places(keys: Sequence[Hashable]) -> dict[Hashable, int]:
    """Return the first place of each key."""
    places: dict[Hashable, int] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, place)
    return places
