"""ControllerClient: what a broker asks the controller, which may be in the process of this broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from ctrlchan._codec import decode_response_header, encode_request_header
from ctrlchan.broker.config.parts import PeerSettings
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.broker.node import BrokerNode
from ctrlchan.broker.replica.isr_changes import AlteredPartition, IsrChange, IsrChanges
from ctrlchan.errors import KafkaError
from ctrlchan.peers.connection import Address
from ctrlchan.peers.controller_connections import ControllerConnections
from ctrlchan.peers.envelope import envelope
from ctrlchan.peers.messages import decode_answer, duration, encode_request, is_refused, part
from ctrlchan.peers.requests import Answer, OutgoingRequest
from ctrlchan.peers.security import PeerSecurity
from ctrlchan.server.api import Buffers, CannotAnswer
from ctrlchan.server.futures import then
from ctrlchan.server.request_context import RequestContext
from ctrlchan.state.brokers import parse_host_port

__all__ = ["ControllerClient", "LocalController", "NewTopic"]

_T = TypeVar("_T")


class _Api(NamedTuple):
    """An API that the broker asks. ``name``: of kio. ``versions``: those with all fields that are set."""

    key: int
    name: str
    versions: range
    flexible_from: int


_CREATE_TOPICS: Final = _Api(19, "create_topics", range(2, 8), 5)
_CONTROLLED_SHUTDOWN: Final = _Api(7, "controlled_shutdown", range(2, 4), 3)
_ALLOCATE_PRODUCER_IDS: Final = _Api(67, "allocate_producer_ids", range(1), 0)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that the broker creates by itself."""

    name: str
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)


class LocalController(Protocol):
    """A controller in the process of the broker, with the broker's id."""

    @property
    def is_active(self) -> bool:
        """Whether it is the controller of the cluster."""

    def serve(self, frame: bytes | memoryview, context: RequestContext) -> Buffers | Future[Buffers]:
        """Answer a frame. Raises ProtocolError."""

    def serve_own(self, frame: bytes) -> Buffers | Future[Buffers]:
        """Answer a request of the broker itself, which needs no permission for it."""


class ControllerClient:
    """Sends requests to the controller of the broker's cluster. All methods are thread-safe.

    ``node``: the broker that asks. ``address``: ``HOST:PORT`` of a controller that is not among the live
    brokers, or None if the metadata name the controller. ``security``: of the connections; None for
    PLAINTEXT. ``settings``: the time limits, None for the defaults. Futures fail with KafkaError, and with
    REQUEST_TIMED_OUT when no answer comes.
    """

    def __init__(
        self,
        node: BrokerNode,
        metadata: MetadataCache,
        address: str | None = None,
        security: PeerSecurity | None = None,
        settings: PeerSettings | None = None,
    ) -> None:
        settings = settings or PeerSettings()
        self._timeout = settings.request_ms / 1000
        self._shutdown_timeout = settings.controller_ms / 1000
        self._node = node
        self._metadata = metadata
        self._address: Address | None = None if address is None else parse_host_port(address)
        #: Set before the broker serves; None: there is no controller in this process.
        self.local: LocalController | None = None
        # As in Kafka, an ISR does not wait behind a topic whose creation takes long.
        self._connections = ControllerConnections(
            self._find, f"broker-{node.id}-to-controller", security, settings.setup_time()
        )
        self._forwarding = ControllerConnections(
            self._find, f"broker-{node.id}-forwarding", security, settings.setup_time()
        )
        self._isr_changes = IsrChanges(self._connections.send, lambda: (node.id, node.epoch))

    def stop(self) -> None:
        """Close the connections; requests that are not answered fail."""
        self._isr_changes.stop()
        self._connections.stop()
        self._forwarding.stop()

    def forward(
        self,
        api_key: int,
        version: int,
        *,
        flexible: bool,
        body: bytes,
        client_id: bytes | None,
        context: RequestContext,
        timeout: float | None = None,
    ) -> Future[Answer]:
        """Send the body of a client's request; return the answer, which has the same version.

        It is sent in an Envelope with the client's principal and address. A controller that is a broker takes
        none, and gets the request as one of this broker. A controller in this process needs none.
        """
        request = OutgoingRequest(
            api_key, range(version, version + 1), version if flexible else version + 1, lambda _: body
        )
        seconds = self._timeout if timeout is None else timeout

        def send() -> Future[Answer]:
            return self._forwarding.send(request, seconds, envelope=envelope(request, client_id, context))

        header = encode_request_header(2 if flexible else 1, api_key, version, 0, client_id)
        context = replace(context, is_forwarded=True)
        local = self.ask_local(header + body, context, version, flexible=flexible)
        if local is None:
            return send()

        def answered(answer: Answer | None) -> Answer | Future[Answer]:
            # It may have resigned meanwhile.
            return send() if answer is None or is_refused(api_key, *answer) else answer

        return then(local, answered)

    def ask_local(
        self, frame: bytes | memoryview, context: RequestContext, version: int, *, flexible: bool
    ) -> Future[Answer | None] | None:
        """Return the answer of the controller in this process, None if there is none or it is not active.

        The answer is None if the controller has resigned meanwhile. ``version``, ``flexible``: of the request
        in the frame.
        """
        if self.local is None or not self.local.is_active:
            return None
        return _served(partial(self.local.serve, frame, context), version, flexible=flexible)

    def alter_partition(self, change: IsrChange) -> Future[AlteredPartition]:
        """Ask for another ISR of a partition that this broker leads."""
        return self._isr_changes.submit(change)

    def allocate_producer_ids(self) -> Future[tuple[int, int]]:
        """Ask for a block of producer ids: (the first one, how many)."""

        def read(answer: Any) -> tuple[int, int]:
            _check(answer)
            return answer.producer_id_start, answer.producer_id_len

        return self._ask(self._connections, _ALLOCATE_PRODUCER_IDS, self._encode_identity, read)

    def create_topics(
        self, topics: Sequence[NewTopic], timeout: float | None = None
    ) -> Future[dict[str, int]]:
        """Create topics; return the error code of each.

        ``timeout``: how many seconds the controller waits for their leaders, None: ``request.timeout.ms``.
        With 0 it answers at once, and its answer for a topic that it has created is REQUEST_TIMED_OUT.
        """

        def encode(api: str, version: int) -> bytes:
            made = partial(part, api, version)
            return encode_request(
                api,
                version,
                topics=tuple(
                    made(
                        "CreatableTopic",
                        name=topic.name,
                        num_partitions=topic.num_partitions,
                        replication_factor=topic.replication_factor,
                        assignments=(),
                        configs=tuple(
                            made("CreatableTopicConfig", name=name, value=value)
                            for name, value in topic.configs.items()
                        ),
                    )
                    for topic in topics
                ),
                timeout=duration(self._timeout if timeout is None else timeout),
                validate_only=False,
            )

        def read(answer: Any) -> dict[str, int]:
            return {one.name: one.error_code.value for one in answer.topics}

        return self._ask(self._forwarding, _CREATE_TOPICS, encode, read)

    def controlled_shutdown(self) -> Future[list[tuple[str, int]]]:
        """Have the leaders of this broker moved; return the partitions that it still leads.

        The request is sent once: how often it is tried is a setting of the broker.
        """

        def read(answer: Any) -> list[tuple[str, int]]:
            _check(answer)
            return [(one.topic_name, one.partition_index) for one in answer.remaining_partitions]

        timeout = self._shutdown_timeout
        return self._ask(
            self._connections, _CONTROLLED_SHUTDOWN, self._encode_identity, read, once=True, timeout=timeout
        )

    def _encode_identity(self, api: str, version: int) -> bytes:
        """Return the body of a request that only says which broker asks."""
        return encode_request(api, version, broker_id=self._node.id, broker_epoch=self._node.epoch)

    def _ask(
        self,
        connections: ControllerConnections,
        api: _Api,
        encode: Callable[[str, int], bytes],
        read: Callable[[Any], _T],
        *,
        once: bool = False,
        timeout: float | None = None,
    ) -> Future[_T]:
        """Return what `read` finds in the answer. ``encode``: returns the body of an API's version.

        A controller in this process needs no connection, and asks for no permission of its own broker.
        ``timeout``: in seconds, None: ``request.timeout.ms``.
        """
        result: Future[_T] = Future()

        def answered(done: Future[Answer]) -> None:
            try:
                version, body = done.result()
                result.set_result(read(decode_answer(api.name, version, body)))
            except BaseException as error:  # noqa: BLE001  (the caller gets it)
                result.set_exception(error)

        request = OutgoingRequest(api.key, api.versions, api.flexible_from, partial(encode, api.name))

        def send() -> Future[Answer]:
            return connections.send(request, self._timeout if timeout is None else timeout, once=once)

        local = self.local
        if local is None or not local.is_active:
            send().add_done_callback(answered)
            return result
        version = api.versions[-1]
        flexible = version >= api.flexible_from
        header = encode_request_header(2 if flexible else 1, api.key, version, 0, None)
        served = _served(
            partial(local.serve_own, header + encode(api.name, version)), version, flexible=flexible
        )

        def checked(answer: Answer | None) -> Answer | Future[Answer]:
            # It may have resigned meanwhile.
            return send() if answer is None or is_refused(api.key, *answer) else answer

        then(served, checked).add_done_callback(answered)
        return result

    def _find(self) -> Address | None:
        return self._address or self._metadata.address_of(self._node.endpoint.listener)


def _served(
    serve: Callable[[], Buffers | Future[Buffers]], version: int, *, flexible: bool
) -> Future[Answer | None]:
    """Return the answer of a controller in this process, None if it is not the controller any more."""

    def read(buffers: Buffers) -> Answer | None:
        data = b"".join(buffers)
        _, size, _ = decode_response_header(data, int(flexible))
        return Answer(version, data[size:])

    served: Future[Answer | None] = Future()

    def ended(done: Future[Buffers]) -> None:
        try:
            served.set_result(read(done.result()))
        except CannotAnswer:
            served.set_result(None)
        except BaseException as error:  # noqa: BLE001  (the caller gets it)
            served.set_exception(error)

    begun: Future[None] = Future()
    begun.set_result(None)
    then(begun, lambda _: serve()).add_done_callback(ended)
    return served


def _check(answer: Any) -> None:
    if answer.error_code.value:
        raise KafkaError(answer.error_code.value)
