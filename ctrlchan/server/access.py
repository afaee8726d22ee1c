"""Access: what the peer of a request may do, as handlers ask. Needs: what the row of an API declares of it.

``kafka.server.AuthHelper`` of Kafka 3.9. Each request has an ``Access`` (``Request.access``); without an
authorizer it is ``EVERYTHING``, which allows all at no cost. Each row of a table of APIs has ``Api.needs``:
a need of the cluster is checked by the request handler before the API is called; of the others it says what
the handler asks. ``tests/unit/broker/authorizer/test_needs.py`` holds the rows and the handlers to it.
"""

from __future__ import annotations

import ipaddress
import logging
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Final, NamedTuple

from ctrlchan.authorizer.acls import (
    CLUSTER_NAME,
    Operation,
    ResourcePattern,
    ResourceType,
    supported_operations,
)
from ctrlchan.authorizer.interface import Action, Authorizer, Requester
from ctrlchan.server.request_context import RequestContext

__all__ = [
    "ALL_NAMES",
    "ALTER_CLUSTER",
    "ALTER_CONFIGS_CLUSTER",
    "ALTER_CONFIGS_TOPIC",
    "ALTER_TOPIC",
    "CLUSTER_ACTION_CLUSTER",
    "CREATE_CLUSTER",
    "CREATE_TOKENS_USER",
    "CREATE_TOPIC",
    "DELETE_GROUP",
    "DELETE_TOPIC",
    "DESCRIBE_CLUSTER",
    "DESCRIBE_CONFIGS_CLUSTER",
    "DESCRIBE_CONFIGS_TOPIC",
    "DESCRIBE_DELEGATION_TOKEN",
    "DESCRIBE_GROUP",
    "DESCRIBE_TOKENS_USER",
    "DESCRIBE_TOPIC",
    "DESCRIBE_TRANSACTIONAL_ID",
    "EVERYTHING",
    "IDEMPOTENT_WRITE_CLUSTER",
    "NOTHING",
    "READ_GROUP",
    "READ_TOPIC",
    "WRITE_TOPIC",
    "WRITE_TRANSACTIONAL_ID",
    "Access",
    "AuthorizedAccess",
    "DecidedAccess",
    "Needs",
    "asks",
    "java_host",
    "needs_cluster",
]

_LOG: Final = logging.getLogger("ctrlchan.authorizer")


# Operations on the resources of a type, as handlers ask for them and as their APIs declare it.
ALTER_CLUSTER: Final = (Operation.ALTER, ResourceType.CLUSTER)
ALTER_CONFIGS_CLUSTER: Final = (Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
ALTER_CONFIGS_TOPIC: Final = (Operation.ALTER_CONFIGS, ResourceType.TOPIC)
ALTER_TOPIC: Final = (Operation.ALTER, ResourceType.TOPIC)
CLUSTER_ACTION_CLUSTER: Final = (Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
CREATE_CLUSTER: Final = (Operation.CREATE, ResourceType.CLUSTER)
CREATE_TOKENS_USER: Final = (Operation.CREATE_TOKENS, ResourceType.USER)
CREATE_TOPIC: Final = (Operation.CREATE, ResourceType.TOPIC)
DELETE_GROUP: Final = (Operation.DELETE, ResourceType.GROUP)
DELETE_TOPIC: Final = (Operation.DELETE, ResourceType.TOPIC)
DESCRIBE_CLUSTER: Final = (Operation.DESCRIBE, ResourceType.CLUSTER)
DESCRIBE_CONFIGS_CLUSTER: Final = (Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
DESCRIBE_CONFIGS_TOPIC: Final = (Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
DESCRIBE_DELEGATION_TOKEN: Final = (Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN)
DESCRIBE_GROUP: Final = (Operation.DESCRIBE, ResourceType.GROUP)
DESCRIBE_TOKENS_USER: Final = (Operation.DESCRIBE_TOKENS, ResourceType.USER)
DESCRIBE_TOPIC: Final = (Operation.DESCRIBE, ResourceType.TOPIC)
DESCRIBE_TRANSACTIONAL_ID: Final = (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
IDEMPOTENT_WRITE_CLUSTER: Final = (Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
READ_GROUP: Final = (Operation.READ, ResourceType.GROUP)
READ_TOPIC: Final = (Operation.READ, ResourceType.TOPIC)
WRITE_TOPIC: Final = (Operation.WRITE, ResourceType.TOPIC)
WRITE_TRANSACTIONAL_ID: Final = (Operation.WRITE, ResourceType.TRANSACTIONAL_ID)


class Needs(NamedTuple):
    """What an API needs.

    ``cluster``: the operation on the cluster without which the whole request is refused
    (CLUSTER_AUTHORIZATION_FAILED), before its handler sees it; ``refusal``: the text of that error.
    ``asked``: what the handler asks for.
    """

    cluster: Operation | None = None
    asked: frozenset[tuple[Operation, ResourceType]] = frozenset()
    refusal: str | None = None


#: Everybody may use the API.
NOTHING: Final = Needs()


def needs_cluster(operation: Operation, refusal: str | None = "The request is not authorized.") -> Needs:
    """Return the need of an API that is refused as a whole without an operation on the cluster."""
    return Needs(cluster=operation, refusal=refusal)


def asks(*asked: tuple[Operation, ResourceType]) -> Needs:
    """Return the needs of an API whose handler asks for operations on resources of these types."""
    return Needs(asked=frozenset(asked))


class _Everything(Container[str]):
    def __contains__(self, name: object) -> bool:
        return True


#: The names of what everything is allowed on.
ALL_NAMES: Final = _Everything()
_ALL_OPERATIONS: Final[Mapping[ResourceType, int]] = {
    kind: sum(1 << operation for operation in supported_operations(kind))
    for kind in ResourceType
    if kind != ResourceType.ANY
}


class Access:
    """Allows everything: there is no authorizer."""

    #: Whether there is an authorizer.
    is_restricted = False
    #: The authorizer, or None.
    authorizer: Authorizer | None = None

    def allows(
        self, operation: Operation, kind: ResourceType, name: str, *, references: int = 1, logs: bool = True
    ) -> bool:
        """Return whether the operation on one resource is allowed.

        ``logs``: False where results are filtered by the answer.
        """
        return True

    def allows_cluster(self, operation: Operation, *, logs: bool = True) -> bool:
        """Return whether the operation on the cluster is allowed."""
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, logs=logs)

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Return whether the operation on at least one resource of the type is allowed."""
        return True

    def allowed(
        self, operation: Operation, kind: ResourceType, names: Iterable[str], *, logs: bool = True
    ) -> Container[str]:
        """Return those of the names for which the operation is allowed.

        A name may come several times; a dictionary has how often.
        """
        return ALL_NAMES

    def operations(self, kind: ResourceType, name: str) -> int:
        """Return the bit field of the allowed operations on a resource (``authorizedOperations``)."""
        return _ALL_OPERATIONS[kind]

    def cluster_operations(self) -> int:
        """Return the bit field of the cluster; 0 for who may not describe it."""
        if not self.allows_cluster(Operation.DESCRIBE):
            return 0
        return self.operations(ResourceType.CLUSTER, CLUSTER_NAME)


EVERYTHING: Final = Access()


class DecidedAccess(Access):
    """Answers what another one has answered before: for code that must not wait for an authorizer."""

    is_restricted = True

    def __init__(self, access: Access, asked: Iterable[tuple[Operation, ResourceType, str]]) -> None:
        self._allowed = {one for one in dict.fromkeys(asked) if access.allows(*one)}

    def allows(
        self, operation: Operation, kind: ResourceType, name: str, *, references: int = 1, logs: bool = True
    ) -> bool:
        return (operation, kind, name) in self._allowed

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        return any((operation, kind) == one[:2] for one in self._allowed)

    def allowed(
        self, operation: Operation, kind: ResourceType, names: Iterable[str], *, logs: bool = True
    ) -> Container[str]:
        return {name for name in names if (operation, kind, name) in self._allowed}

    def operations(self, kind: ResourceType, name: str) -> int:
        return sum(
            1 << operation for operation in supported_operations(kind) if self.allows(operation, kind, name)
        )


class AuthorizedAccess(Access):
    """Asks the authorizer of a broker. An exception of the authorizer denies, and is logged."""

    is_restricted = True

    def __init__(
        self, authorizer: Authorizer, context: RequestContext, api: str, client_id: str | None = None
    ) -> None:
        self.authorizer: Authorizer = authorizer
        self.requester = Requester(
            str(context.principal),
            java_host(context.client_host),
            context.listener,
            context.security_protocol.name,
            api,
            client_id,
        )

    def allows(
        self, operation: Operation, kind: ResourceType, name: str, *, references: int = 1, logs: bool = True
    ) -> bool:
        action = Action(operation, ResourcePattern(kind, name), references, logs_denied=logs)
        return self._authorize([action])[0]

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        try:
            return self.authorizer.authorize_any(self.requester, operation, kind) is True
        except Exception:  # noqa: BLE001  (whatever the user's own code raises denies)
            _LOG.exception("the authorizer fails: %s is denied", self.requester.api)
            return False

    def allowed(
        self, operation: Operation, kind: ResourceType, names: Iterable[str], *, logs: bool = True
    ) -> Container[str]:
        counts: dict[str, int] = names if isinstance(names, dict) else Counter(names)
        try:
            together = self.authorizer.allowed_names(
                self.requester, operation, kind, counts, logs_denied=logs
            )
        except Exception:  # noqa: BLE001  (as above)
            _LOG.exception("the authorizer fails: %s is denied", self.requester.api)
            return set()
        if together is not None:
            return together
        actions = [
            Action(operation, ResourcePattern(kind, name), references, logs_denied=logs)
            for name, references in counts.items()
        ]
        return {name for name, is_allowed in zip(counts, self._authorize(actions), strict=True) if is_allowed}

    def operations(self, kind: ResourceType, name: str) -> int:
        operations = supported_operations(kind)
        actions = [
            Action(one, ResourcePattern(kind, name), logs_allowed=False, logs_denied=False)
            for one in operations
        ]
        answers = self._authorize(actions)
        return sum(1 << one for one, is_allowed in zip(operations, answers, strict=True) if is_allowed)

    def _authorize(self, actions: list[Action]) -> list[bool]:
        if not actions:
            return []
        try:
            answers = [answer is True for answer in self.authorizer.authorize(self.requester, actions)]
        except Exception:  # noqa: BLE001  (as above)
            _LOG.exception("the authorizer fails: %s is denied", self.requester.api)
            return [False] * len(actions)
        if len(answers) != len(actions):
            _LOG.error("the authorizer gives %d answers to %d actions", len(answers), len(actions))
            return [False] * len(actions)
        return answers


def java_host(host: str) -> str:
    """Return an IP address as ``InetAddress.getHostAddress`` writes it: ``0:0:0:0:0:0:0:1``."""
    if ":" not in host:
        return host
    address, separator, scope = host.partition("%")
    try:
        groups = ipaddress.IPv6Address(address).exploded.split(":")
    except ValueError:
        return host
    return ":".join(f"{int(group, 16):x}" for group in groups) + separator + scope
