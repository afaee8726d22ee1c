"""Authorizer: the base class of what decides which requests are allowed.

``org.apache.kafka.server.authorizer.Authorizer`` of Kafka 3.9. A user's own authorizer is a subclass;
``authorizer.class.name`` names it as ``package.module.Class``. docs/own-classes.md has an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ctrlchan.authorizer.acls import AclBinding, AclFilter, Operation, ResourcePattern, ResourceType
from ctrlchan.errors import ErrorCode, KafkaError

__all__ = ["Action", "Authorizer", "DeletedAcl", "Requester"]


class Requester(NamedTuple):
    """Who asks for something.

    ``principal``: as ``User:alice``. ``host``: the IP address as Java writes it: ``127.0.0.1``,
    ``0:0:0:0:0:0:0:1``. ``api``: Kafka's name of the request, such as ``Fetch``.
    """

    principal: str
    host: str
    listener: str
    security_protocol: str
    api: str
    client_id: str | None = None


class Action(NamedTuple):
    """What a request wants to do to one resource.

    ``pattern``: a literal one. ``references``: how often the request names the resource. ``logs_allowed``:
    the request gets access by this answer. ``logs_denied``: the request has named the resource; False where
    results are filtered.
    """

    operation: Operation
    pattern: ResourcePattern
    references: int = 1
    logs_allowed: bool = True
    logs_denied: bool = True


class DeletedAcl(NamedTuple):
    """A binding that a filter has found. ``error``: why it is not deleted, or None."""

    binding: AclBinding
    error: KafkaError | None = None


class Authorizer(ABC):
    """Decides who may do what. All methods may be called by any thread, several at a time.

    A broker makes the authorizer without arguments, calls ``configure`` once before it serves requests, and
    ``close`` at its end. An exception of ``authorize`` or ``authorize_any`` denies the action.

    What is allowed to Produce and Fetch is remembered until ``changed`` is called.
    """

    #: A broker sets it: called by the authorizer after decisions may have become others.
    changed: Callable[[], object] = staticmethod(lambda: None)

    def configure(self, configs: Mapping[str, str]) -> None:  # noqa: B027  (may be left out)
        """Take the settings of the broker, under Kafka's names. Raises ConfigError."""

    @abstractmethod
    def authorize(self, requester: Requester, actions: Sequence[Action]) -> Sequence[bool]:
        """Return for each action whether it is allowed."""

    def allowed_names(
        self,
        requester: Requester,
        operation: Operation,
        kind: ResourceType,
        names: Mapping[str, int],
        *,
        logs_denied: bool,
    ) -> set[str] | None:
        """Return those of the names on which the operation is allowed, or None: ``authorize`` is asked.

        ``names``: with the number of references of each; ``logs_denied``: as in Action. An authorizer that
        decides about many names faster than one by one overrides it.
        """
        return None

    @abstractmethod
    def authorize_any(self, requester: Requester, operation: Operation, kind: ResourceType) -> bool:
        """Return whether the operation is allowed on at least one resource of a type (KIP-679)."""

    def acls(self, filter: AclFilter) -> Iterable[AclBinding]:
        """Return the bindings that a filter means, for DescribeAcls. Raises KafkaError."""
        raise _no_acls()

    def create_acls(
        self, requester: Requester, bindings: Sequence[AclBinding]
    ) -> Sequence[KafkaError | None]:
        """Add bindings; return the error of each, None where it is added. Raises KafkaError."""
        raise _no_acls()

    def delete_acls(
        self, requester: Requester, filters: Sequence[AclFilter]
    ) -> Sequence[Sequence[DeletedAcl]]:
        """Delete what the filters mean; return what each has found. A binding is in one result.

        Raises KafkaError.
        """
        raise _no_acls()

    def close(self) -> None:  # noqa: B027  (may be left out)
        """Give threads and connections back."""


def _no_acls() -> KafkaError:
    return KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The authorizer has no ACLs that can be managed.")
