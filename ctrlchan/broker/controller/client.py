"""ControllerClient: what a broker asks the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar

from kio.static.primitive import i32Timedelta

from ctrlchan.broker.controller.connection import Address, ControllerConnections, OutgoingRequest
from ctrlchan.broker.controller.isr_changes import AlteredPartition, IsrChanges
from ctrlchan.broker.controller.messages import decode_answer, encode_request, part
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.errors import KafkaError
from ctrlchan.state import Endpoint
from ctrlchan.state.brokers import parse_host_port

__all__ = ["ControlledBroker", "ControllerClient", "NewTopic"]

_T = TypeVar("_T")

_TIMEOUT: Final = 30.0  # seconds: ``request.timeout.ms``
_CREATE_TOPICS: Final = 19, 7
_CONTROLLED_SHUTDOWN: Final = 7, 3
_ALLOCATE_PRODUCER_IDS: Final = 67, 0


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that the broker creates by itself."""

    name: str
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)


class ControlledBroker(Protocol):
    """The broker that asks. ``metadata`` is read under ``lock``."""

    @property
    def id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def endpoint(self) -> Endpoint: ...
    @property
    def lock(self) -> AbstractContextManager[object]: ...
    @property
    def metadata(self) -> MetadataCache: ...


class ControllerClient:
    """Sends requests to the controller of the broker's cluster. All methods are thread-safe.

    ``address``: ``HOST:PORT`` of a controller that is not among the live brokers; None: the controller is the
    broker that the metadata names. Futures fail with KafkaError; REQUEST_TIMED_OUT: nobody has answered.
    """

    def __init__(self, core: ControlledBroker, address: str | None = None) -> None:
        self._core = core
        self._address: Address | None = None if address is None else parse_host_port(address)
        # As in Kafka, an ISR does not wait behind a topic whose creation takes long.
        self._connections = ControllerConnections(self._find, f"broker-{core.id}-to-controller")
        self._forwarding = ControllerConnections(self._find, f"broker-{core.id}-forwarding")
        self._isr_changes = IsrChanges(self._connections.send, lambda: (core.id, core.epoch))

    def stop(self) -> None:
        """Close the connections; requests that are not answered fail."""
        self._isr_changes.stop()
        self._connections.stop()
        self._forwarding.stop()

    def forward(
        self, api_key: int, version: int, *, flexible: bool, body: bytes, timeout: float = _TIMEOUT
    ) -> Future[bytes]:
        """Send the body of a client's request; return the body of the answer."""
        return self._forwarding.send(OutgoingRequest(api_key, version, flexible, body), timeout)

    def alter_partition(
        self,
        topic: str,
        topic_id: bytes,
        partition: int,
        leader_epoch: int,
        partition_epoch: int,
        isr: Sequence[int],
    ) -> Future[AlteredPartition]:
        """Ask for another ISR of a partition that this broker leads."""
        return self._isr_changes.submit(topic, topic_id, partition, leader_epoch, partition_epoch, isr)

    def allocate_producer_ids(self) -> Future[tuple[int, int]]:
        """Ask for a block of producer ids: (the first one, how many)."""

        def read(answer: Any) -> tuple[int, int]:
            _check(answer)
            return answer.producer_id_start, answer.producer_id_len

        core = self._core
        return self._ask(
            self._connections,
            "allocate_producer_ids",
            _ALLOCATE_PRODUCER_IDS,
            read,
            {"broker_id": core.id, "broker_epoch": core.epoch},
        )

    def create_topics(self, topics: Sequence[NewTopic]) -> Future[dict[str, int]]:
        """Create topics; return the error code of each."""
        api, (_, version) = "create_topics", _CREATE_TOPICS

        def new_topic(topic: NewTopic) -> Any:
            return part(
                api,
                version,
                "CreatableTopic",
                name=topic.name,
                num_partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                assignments=(),
                configs=tuple(
                    part(api, version, "CreatableTopicConfig", name=name, value=value)
                    for name, value in topic.configs.items()
                ),
            )

        fields = {
            "topics": tuple(map(new_topic, topics)),
            "timeout": i32Timedelta.parse(timedelta(seconds=_TIMEOUT)),
            "validate_only": False,
        }
        return self._ask(
            self._forwarding,
            api,
            _CREATE_TOPICS,
            lambda answer: {one.name: one.error_code.value for one in answer.topics},
            fields,
        )

    def controlled_shutdown(self) -> Future[list[tuple[str, int]]]:
        """Have the leaders of this broker moved; return the partitions that it still leads.

        The request is sent once: how often it is tried is a setting of the broker.
        """

        def read(answer: Any) -> list[tuple[str, int]]:
            _check(answer)
            return [(one.topic_name, one.partition_index) for one in answer.remaining_partitions]

        core = self._core
        fields = {"broker_id": core.id, "broker_epoch": core.epoch}
        return self._ask(
            self._connections, "controlled_shutdown", _CONTROLLED_SHUTDOWN, read, fields, once=True
        )

    def _ask(
        self,
        connections: ControllerConnections,
        api: str,
        key_and_version: tuple[int, int],
        read: Callable[[Any], _T],
        fields: Mapping[str, Any],
        *,
        once: bool = False,
    ) -> Future[_T]:
        key, version = key_and_version
        body = encode_request(api, version, **fields)
        result: Future[_T] = Future()

        def answered(done: Future[bytes]) -> None:
            try:
                result.set_result(read(decode_answer(api, version, done.result())))
            except BaseException as error:  # noqa: BLE001  (the caller gets it)
                result.set_exception(error)

        request = OutgoingRequest(key, version, True, body)
        connections.send(request, _TIMEOUT, once=once).add_done_callback(answered)
        return result

    def _find(self) -> Address | None:
        if self._address is not None:
            return self._address
        with self._core.lock:
            metadata = self._core.metadata
            controller = metadata.state.controller_id
            for node in metadata.nodes(self._core.endpoint.listener):
                if node.id == controller:
                    return node.host, node.port
        return None


def _check(answer: Any) -> None:
    if answer.error_code.value:
        raise KafkaError(answer.error_code.value)
