"""Finds the active controller of a cluster by asking its brokers, as a client would."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ctrlchan.peers.connection import Address, PeerConnection
    from ctrlchan.state.brokers import Broker

__all__ = ["ActiveController", "UnaskedError", "find_active_controller"]

#: Seconds for all brokers, and for the question whether one node is the controller.
_SECONDS: Final = 5.0
#: Brokers asked at once, and answers that are enough: a single broker may have old metadata.
_AT_ONCE: Final = 32
_ENOUGH: Final = 3
_CLIENT_ID: Final = b"ctrlchan-push"
_NO_CONTROLLER: Final = -1
_METADATA: Final = 3
#: Kafka 0.10 has it, and it is the first version that names the controller.
_METADATA_VERSION: Final = 1
#: Of Kafka 2.4 and later; it changes nothing, and only the active controller answers it.
_LIST_REASSIGNMENTS: Final = 46


class ActiveController(NamedTuple):
    """A controller that a broker has named. ``address``: None if it is not among the live brokers."""

    id: int
    named_by: int
    address: Address | None


class UnaskedError(Exception):
    """Raised when no broker has a listener that can be asked: these questions need PLAINTEXT."""


def find_active_controller(brokers: Iterable[Broker], own_id: int) -> ActiveController | None:
    """Return a controller of these brokers that is alive, None if there is none or nobody answers.

    ``own_id``: the id that the caller uses as controller. A controller of that id that is not among the live
    brokers is taken for an earlier caller; with another id it is taken for alive, for it may be hidden from
    clients. Raises UnaskedError.
    """
    addresses = _addresses(brokers)
    for named in _named(addresses):
        if named.address is None:
            if named.id != own_id:
                return named
        elif _is_controller(named.address):
            return named
    return None


def _addresses(brokers: Iterable[Broker]) -> list[tuple[int, Address]]:
    """Return the id and the first PLAINTEXT address of each broker."""
    from ctrlchan.protocol import SecurityProtocol

    found: list[tuple[int, Address]] = []
    secured = False
    for broker in brokers:
        plain = [one for one in broker.endpoints if one.security_protocol == SecurityProtocol.PLAINTEXT]
        secured = secured or bool(broker.endpoints)
        found += [(broker.id, (one.host, one.port)) for one in plain[:1]]
    if secured and not found:
        raise UnaskedError
    return found


def _named(addresses: Sequence[tuple[int, Address]]) -> list[ActiveController]:
    """Return the controllers that the first brokers to answer name, each once."""
    deadline = monotonic() + _SECONDS
    left = iter(addresses)
    answers: SimpleQueue[ActiveController | None] = SimpleQueue()

    def ask() -> None:
        for broker_id, address in left:
            answers.put(_ask(broker_id, address, deadline))

    # Daemons: a node that accepts a connection and is silent must not delay the end of the command.
    for _ in range(min(_AT_ONCE, len(addresses))):
        Thread(target=ask, name="ask-controller", daemon=True).start()
    found: dict[int, ActiveController] = {}
    answered = 0
    for _ in addresses:
        answer = answers.get()
        if answer is None:
            continue
        if answer.id != _NO_CONTROLLER:
            found.setdefault(answer.id, answer)
        answered += 1
        if answered == _ENOUGH:
            break
    return list(found.values())


def _ask(broker_id: int, address: Address, deadline: float) -> ActiveController | None:
    """Return the controller that a broker names, with id -1 for none; None without an answer."""
    from ctrlchan.errors import DecodeError
    from ctrlchan.peers.messages import decode_answer, encode_request

    if monotonic() > deadline:
        return None
    try:
        connection = _connect(address)
        try:
            # No topics.
            request = encode_request("metadata", _METADATA_VERSION, topics=())
            frame, offset = connection.exchange(_METADATA, _METADATA_VERSION, False, request, deadline)
        finally:
            connection.close()
        answer = decode_answer("metadata", _METADATA_VERSION, frame, offset)
    except (OSError, DecodeError):
        return None
    nodes = {node.node_id: (node.host, node.port) for node in answer.brokers}
    return ActiveController(answer.controller_id, broker_id, nodes.get(answer.controller_id))


def _is_controller(address: Address) -> bool:
    """Return whether the node is alive and the active controller, or does not say that it is not."""
    from ctrlchan.errors import DecodeError, ErrorCode
    from ctrlchan.peers.messages import decode_answer, duration, encode_request

    deadline = monotonic() + _SECONDS
    try:
        connection = _connect(address)
    except OSError:
        return False
    try:
        connection.ask_versions(deadline)
        if _LIST_REASSIGNMENTS not in connection.versions:
            # A Kafka before 2.4 does not say. A node with later APIs is a broker of ctrlchan that knows no
            # controller, and cannot be one.
            return max(connection.versions) < _LIST_REASSIGNMENTS
        api = "list_partition_reassignments"
        request = encode_request(api, 0, timeout=duration(_SECONDS), topics=())
        answer = decode_answer(api, 0, *connection.exchange(_LIST_REASSIGNMENTS, 0, True, request, deadline))
        return bool(answer.error_code.value != ErrorCode.NOT_CONTROLLER)
    except (OSError, DecodeError):
        return True
    finally:
        connection.close()


def _connect(address: Address) -> PeerConnection:
    from ctrlchan.peers.connection import PeerConnection

    return PeerConnection(address, _CLIENT_ID)
