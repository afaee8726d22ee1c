"""DescribeClientQuotas (48) and AlterClientQuotas (49): quotas of users, client ids and IPs in ZooKeeper.

``KafkaApis.handleDescribeClientQuotasRequest`` and ``handleAlterClientQuotasRequest`` of Kafka 3.9; KIP-546.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from ctrlchan.authorizer.acls import Operation
from ctrlchan.controller.admin.client_quotas import Component, QuotaFilter, alter_quotas, entity_of
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.access import needs_cluster
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages
from ctrlchan.server.result_fields import error_fields
from ctrlchan.zookeeper.paths import sanitized
from ctrlchan.zookeeper.quotas import QuotaEntity

__all__ = ["ALTER", "DESCRIBE"]


def _describe(core: ServerCore, request: Request) -> Reply:
    messages = ClientMessages("describe_client_quotas", request.version)
    body = messages.decode(request)

    try:
        wanted = QuotaFilter(
            (Component(one.entity_type, one.match_type, one.match) for one in body.components),
            strict=body.strict,
        )
        quotas = wanted.select(core.read_quotas(wanted.types))
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
    return Reply(messages.response(**error_fields(None), entries=entries))


def _alter(core: ServerCore, request: Request) -> Future[Reply]:
    messages = ClientMessages("alter_client_quotas", request.version)
    body = messages.decode(request)
    named = [[(one.entity_type, one.entity_name) for one in entry.entity] for entry in body.entries]
    entities = [_entity_or_error(names) for names in named]

    def alter(controller: ControllerCore) -> list[KafkaError | None]:
        return [one_error(controller, *one) for one in zip(entities, body.entries, strict=True)]

    def one_error(
        controller: ControllerCore, entity: QuotaEntity | KafkaError, entry: Any
    ) -> KafkaError | None:
        if isinstance(entity, KafkaError):
            return entity
        changes = ((op.key, None if op.remove else op.value) for op in entry.ops)
        try:
            alter_quotas(controller, entity, changes, validate_only=body.validate_only)
        except KafkaError as error:
            return error
        return None

    def reply(errors: list[KafkaError | None] | KafkaError) -> Reply:
        if isinstance(errors, KafkaError):
            errors = [errors] * len(named)
        return Reply(
            messages.response(
                entries=tuple(
                    messages.part("EntryData", **error_fields(error), entity=_entity(messages, names))
                    for names, error in zip(named, errors, strict=True)
                )
            )
        )

    return core.call(ControllerState.TOPIC_CHANGE, "AlterClientQuotas", alter, reply)


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


# The nodes of all entities are read.
DESCRIBE: Api[ServerCore] = Api(
    key=48,
    name="DescribeClientQuotas",
    lowest=0,
    highest=1,
    flexible_from=1,
    handle=_describe,
    blocks=True,
    needs=needs_cluster(Operation.DESCRIBE_CONFIGS),
)
# Names are looked up.
ALTER: Api[ServerCore] = Api(
    key=49,
    name="AlterClientQuotas",
    lowest=0,
    highest=1,
    flexible_from=1,
    handle=_alter,
    blocks=True,
    needs=needs_cluster(Operation.ALTER_CONFIGS),
)
