"""DescribeClientQuotas (48), AlterClientQuotas (49): quotas of users, client ids and addresses in ZooKeeper.

Brokers and the controller answer both; what differs is where the nodes are read and written.
``KafkaApis.handleDescribeClientQuotasRequest`` and ``handleAlterClientQuotasRequest`` of Kafka 3.9; KIP-546.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias

from ctrlchan.authorizer.acls import Operation
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.access import needs_cluster
from ctrlchan.server.api import Api, Core, Reply, Request
from ctrlchan.server.client_quotas import Component, QuotaFilter, QuotaStore, alter_quotas, entity_of
from ctrlchan.server.kio_messages import ClientMessages
from ctrlchan.server.result_fields import error_fields
from ctrlchan.zookeeper.paths import sanitized
from ctrlchan.zookeeper.quotas import QuotaEntity

__all__ = ["Alterations", "alter_api", "describe_api"]

#: Takes the first types of entities. Returns the configurations of all entities of these types.
ReadQuotas: TypeAlias = Callable[[Iterable[str]], Mapping[QuotaEntity, Mapping[str, str]]]


class Alterations:
    """The changes of one AlterClientQuotas request."""

    def __init__(self, request: Request) -> None:
        self._messages = ClientMessages("alter_client_quotas", request.version)
        self._body = self._messages.decode(request)
        self._names = [
            [(one.entity_type, one.entity_name) for one in entry.entity] for entry in self._body.entries
        ]
        # Before anything is changed: names are looked up.
        self._entities = [_entity_or_error(names) for names in self._names]

    def apply(self, store: QuotaStore) -> list[KafkaError | None]:
        """Make all changes; return the error of each entity. Raises what the store does."""
        return [self._apply(store, *one) for one in zip(self._entities, self._body.entries, strict=True)]

    def _apply(self, store: QuotaStore, entity: QuotaEntity | KafkaError, entry: Any) -> KafkaError | None:
        if isinstance(entity, KafkaError):
            return entity
        changes = ((op.key, None if op.remove else op.value) for op in entry.ops)
        try:
            alter_quotas(store, entity, changes, validate_only=self._body.validate_only)
        except KafkaError as error:
            return error
        return None

    def reply(self, errors: Sequence[KafkaError | None] | KafkaError) -> Reply:
        """Return the answer; one error is that of every entity."""
        if isinstance(errors, KafkaError):
            errors = [errors] * len(self._names)
        return Reply(
            self._messages.response(
                entries=tuple(
                    self._messages.part(
                        "EntryData", **error_fields(error), entity=_entity(self._messages, names)
                    )
                    for names, error in zip(self._names, errors, strict=True)
                )
            )
        )


def describe(request: Request, read_quotas: ReadQuotas) -> Reply:
    """Answer DescribeClientQuotas. A KafkaError of ``read_quotas`` is the error of the answer."""
    messages = ClientMessages("describe_client_quotas", request.version)
    body = messages.decode(request)
    try:
        wanted = QuotaFilter(
            (Component(one.entity_type, one.match_type, one.match) for one in body.components),
            strict=body.strict,
        )
        quotas = wanted.select(read_quotas(wanted.types))
    except KafkaError as error:
        return Reply(messages.response(**error_fields(error), entries=None), error_code=error.code)
    entries = tuple(
        messages.part(
            "EntryData",
            entity=_entity(messages, entity),
            values=tuple(messages.part("ValueData", key=key, value=value) for key, value in of.items()),
        )
        for entity, of in quotas.items()
    )
    return Reply(messages.response(**error_fields(None, ""), entries=entries))


def _entity_or_error(names: list[tuple[str, str | None]]) -> QuotaEntity | KafkaError:
    try:
        entity = entity_of(names)
    except KafkaError as error:
        return error
    ip = dict(entity).get("ip")
    if ip is not None:
        try:
            # Brokers look up the name of the node, in which an address of IPv6 has "%3A".
            socket.getaddrinfo(sanitized(ip), None)
        except (OSError, UnicodeError):
            return KafkaError(ErrorCode.INVALID_REQUEST, f"{ip} is not a valid IP or resolvable host.")
    return entity


def _entity(messages: ClientMessages, names: Iterable[tuple[str, str | None]]) -> tuple[Any, ...]:
    return tuple(messages.part("EntityData", entity_type=kind, entity_name=name) for kind, name in names)


def describe_api(handle: Callable[[Core, Request], Reply]) -> Api[Core]:
    """Return the row of DescribeClientQuotas. ``handle`` may block: the nodes of all entities are read."""
    return Api(
        key=48,
        name="DescribeClientQuotas",
        lowest=0,
        highest=1,
        flexible_from=1,
        handle=handle,
        locks_core=False,
        needs=needs_cluster(Operation.DESCRIBE_CONFIGS),
    )


def alter_api(handle: Callable[[Core, Request], Reply | Future[Reply]]) -> Api[Core]:
    """Return the row of AlterClientQuotas. ``handle`` may block: names are looked up."""
    return Api(
        key=49,
        name="AlterClientQuotas",
        lowest=0,
        highest=1,
        flexible_from=1,
        handle=handle,
        locks_core=False,
        needs=needs_cluster(Operation.ALTER_CONFIGS),
    )
