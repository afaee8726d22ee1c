"""The controller mutation quota (KIP-599): how many partitions a client may create and delete in a second.

The broker that forwards a request takes the mutations of its topics from the bucket of the client. From a
version on, a topic that comes when the bucket is below zero is refused; before it, and otherwise, the client
waits. A topic that the controller refuses costs nothing. ``ControllerMutationQuotaManager`` and
``ZkAdminManager`` of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import replace
from time import monotonic_ns
from typing import Any, Final, NamedTuple

from ctrlchan.broker.quota._client_quotas import ClientQuotas, QuotaType
from ctrlchan.broker.quota.callback import number_of
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.server.api import Request
from ctrlchan.server.apis.lookups import MetadataLookups
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["Mutations", "charge_creations", "take_mutations"]

_EXCEEDED: Final = KioError.throttling_quota_exceeded
_TEXT: Final = "The throttling quota has been exceeded."
_MS: Final = 1_000_000
_UNKNOWN_SIZE: Final = -1


class _Kind(NamedTuple):
    """How the requests of one API name topics, and which mutations a topic costs."""

    #: Of the request, which it may have under another name in older versions; of the response.
    topics: str
    older_topics: str
    results: str
    #: From this version on a topic may be refused.
    strict_from: int
    cost_of: Callable[[StoringCore, Any], int]
    key_of: Callable[[Any], Hashable]
    result_of: Callable[[ClientMessages, Any], Any]


class Mutations:
    """A request whose mutations have been taken. ``body``: what is left of it, None if nothing is.

    ``refused``: a request that tells whether the topics that the quota refuses are valid: their own errors
    come first. None for none. ``throttle_time_ms``: for how long the client shall wait, as of now.
    """

    def __init__(
        self, quotas: ClientQuotas, kind: _Kind, messages: ClientMessages, user: int, request: Request
    ) -> None:
        self.body: Any | None = None
        self.refused: Any | None = None
        self._quotas = quotas
        self._kind = kind
        self._messages = messages
        self._user = user
        self._client_id = request.client_id or b""
        self._is_strict = request.version >= kind.strict_from
        self._costs: dict[Hashable, int] = {}
        self._denied: list[Any] = []
        self._places: dict[Hashable, int] = {}
        self._ends_ns = 0

    def take(self, core: StoringCore, body: Any) -> None:
        """Take the mutations of each topic, and leave out those that are refused."""
        field = self._kind.topics if hasattr(body, self._kind.topics) else self._kind.older_topics
        kept = []
        for place, topic in enumerate(getattr(body, field)):
            key = self._kind.key_of(topic)
            self._places.setdefault(key, place)
            cost = self._kind.cost_of(core, topic)
            ms = self._mutate(cost) if cost > 0 else 0
            if ms and self._is_strict:
                self._denied.append(topic)
            else:
                kept.append(topic)
                self._costs[key] = self._costs.get(key, 0) + cost
        if kept:
            self.body = replace(body, **{field: tuple(kept)})
        if self._denied and hasattr(body, "validate_only"):
            self.refused = replace(body, **{field: tuple(self._denied)}, validate_only=True)

    def _mutate(self, cost: int) -> int:
        ms = self._quotas.mutate(self._user, self._client_id, cost, is_strict=self._is_strict)
        if ms:
            self._ends_ns = monotonic_ns() + ms * _MS
        return ms

    def response(self, answer: Any | None, checked: Any | None) -> bytes:
        """Return the response with the results of all topics, and give back what failed.

        ``answer``, ``checked``: kio's objects of the controller's answers to ``body`` and to ``refused``.
        """
        done = () if answer is None else getattr(answer, self._kind.results)
        failed = sum(
            self._costs.get(self._kind.key_of(one), 0) for one in done if one.error_code is not KioError.none
        )
        self.give_back(failed)
        invalid = {
            self._kind.key_of(one): one
            for one in (() if checked is None else getattr(checked, self._kind.results))
            if one.error_code is not KioError.none
        }
        refused = [
            invalid.get(self._kind.key_of(topic)) or self._kind.result_of(self._messages, topic)
            for topic in self._denied
        ]
        results = sorted(
            [*done, *refused], key=lambda one: self._places.get(self._kind.key_of(one), len(self._places))
        )
        return self._messages.response(**{self._kind.results: tuple(results)})

    def give_back(self, mutations: int | None = None) -> None:
        """Give back mutations that were not made; None: all of them."""
        count = sum(self._costs.values()) if mutations is None else mutations
        if count:
            self._quotas.mutate(self._user, self._client_id, -count, is_strict=False)

    @property
    def throttle_time_ms(self) -> int:
        return max(0, -(-(self._ends_ns - monotonic_ns()) // _MS)) if self._ends_ns else 0

    def note_throttling(self, ms: int) -> None:
        """Count a throttle time of this request for the metrics."""
        if ms:
            self._quotas.note_throttling(QuotaType.CONTROLLER_MUTATION, self._user, self._client_id, ms)


def take_mutations(
    core: StoringCore, request: Request, api_key: int, messages: ClientMessages, body: Any
) -> Mutations | None:
    """Take the mutations of a request that is to be forwarded; None where no quota holds for it."""
    kind = _KINDS.get(api_key)
    if kind is None or not core.quotas.are_enabled or getattr(body, "validate_only", False):
        return None
    user = number_of(core.quotas, core.asked_quotas, request.context.principal)
    mutations = Mutations(core.quotas, kind, messages, user, request)
    mutations.take(core, body)
    return mutations


def charge_creations(core: StoringCore, request: Request, names: Collection[str]) -> None:
    """Take the mutations of topics that are created because a client asks for them; it does not wait."""
    if core.quotas.are_enabled:
        user = number_of(core.quotas, core.asked_quotas, request.context.principal)
        count = len(names) * core.settings.new_topics.num_partitions
        if count:
            core.quotas.mutate(user, request.client_id or b"", count, is_strict=False)


def _cost_of_creation(core: StoringCore, topic: Any) -> int:
    if topic.assignments:
        return len(topic.assignments)
    count = int(topic.num_partitions)
    return core.settings.new_topics.num_partitions if count == _UNKNOWN_SIZE else max(0, count)


def _cost_of_deletion(core: StoringCore, topic: Any) -> int:
    topic_id = getattr(topic, "topic_id", None)
    name = topic if isinstance(topic, str) else topic.name
    with core.metadata.state.lock:
        if topic_id is not None:
            name = core.metadata.topic_name(topic_id.bytes)
        return 0 if name is None else _partitions(core.metadata, name)


def _cost_of_growth(core: StoringCore, topic: Any) -> int:
    with core.metadata.state.lock:
        now = _partitions(core.metadata, topic.name)
    # Where the topic is unknown, the controller says so.
    return max(0, int(topic.count) - now) if now else 0


def _partitions(metadata: MetadataLookups, name: str) -> int:
    """Return the number of partitions of a topic, 0 if it is unknown."""
    if metadata.row_of(name) is None:
        return 0
    rows = metadata.state.rows_of_topic(name)
    return int(rows.stop - rows.start)


def _creation(messages: ClientMessages, topic: Any) -> Any:
    return messages.part(
        "CreatableTopicResult",
        name=topic.name,
        error_code=_EXCEEDED,
        error_message=_TEXT,
        num_partitions=_UNKNOWN_SIZE,
        replication_factor=_UNKNOWN_SIZE,
        topic_id=None,
        configs=(),
    )


def _deletion(messages: ClientMessages, topic: Any) -> Any:
    is_name = isinstance(topic, str)
    return messages.part(
        "DeletableTopicResult",
        name=topic if is_name else topic.name,
        topic_id=None if is_name else topic.topic_id,
        error_code=_EXCEEDED,
        error_message=_TEXT,
    )


def _growth(messages: ClientMessages, topic: Any) -> Any:
    return messages.part(
        "CreatePartitionsTopicResult", name=topic.name, error_code=_EXCEEDED, error_message=_TEXT
    )


def _deleted_key(topic: Any) -> Hashable:
    return topic if isinstance(topic, str) else getattr(topic, "topic_id", None) or topic.name


def _name(topic: Any) -> Hashable:
    name: str = topic.name
    return name


_KINDS: Final[Mapping[int, _Kind]] = {
    19: _Kind("topics", "topics", "topics", 6, _cost_of_creation, _name, _creation),
    20: _Kind("topics", "topic_names", "responses", 5, _cost_of_deletion, _deleted_key, _deletion),
    37: _Kind("topics", "topics", "results", 3, _cost_of_growth, _name, _growth),
}
