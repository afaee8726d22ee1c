"""Produce (0) on a handler thread: what the processors leave to Python (``_produce.pyx``).

That is compressed records, partitions that this broker does not lead, batches that are refused, and all else
that is unusual. Errors, their order and the fields beside them are Kafka's:
``KafkaApis.handleProduceRequest``, ``ReplicaManager.appendRecords``. Of two entries for one partition the
last counts, as in Kafka's map.

The first batch of a transaction in a partition is appended when the coordinator has confirmed it
(``produce_verification.py``). Versions 0 to 2 may carry records of format 0 and 1, which the append converts
(``log/old_formats``).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from ctrlchan.broker._decisions import Allowed, Decisions, Subject
from ctrlchan.broker.handlers.current_leaders import CurrentLeader, CurrentLeaders
from ctrlchan.broker.handlers.produce_records import (
    FORMAT_2_FROM,
    ZSTD_FROM,
    begins_as_batch,
    error_of_records,
    has_unknown_codec,
    is_transactional,
)
from ctrlchan.broker.handlers.produce_response import Key, ProduceResponse
from ctrlchan.broker.handlers.produce_verification import Verified, verify
from ctrlchan.broker.replica._partitions import ProduceResult
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import DecodeError, ErrorCode, KafkaError, ProtocolError
from ctrlchan.internal_topics import INTERNAL_TOPICS
from ctrlchan.server.access import WRITE_TOPIC, WRITE_TRANSACTIONAL_ID, Access, AuthorizedAccess, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.futures import then, when_done
from ctrlchan.server.kio_messages import ClientMessages

__all__ = ["API"]

_FLEXIBLE_FROM: Final = 9
_CURRENT_LEADER_FROM: Final = 10
_ADMIN_CLIENT: Final = b"__admin_client"


def _handle(core: StoringCore, request: Request) -> Future[Reply]:
    body = ClientMessages("produce", request.version).decode(request)
    entries = {
        (str(topic.name), int(partition.index)): partition.records
        for topic in body.topic_data
        for partition in topic.partition_data
    }
    if None in entries.values():
        # Kafka has no answer to this either.
        raise DecodeError("null for records", api="ProduceRequest", version=request.version)
    transactional_id: str | None = getattr(body, "transactional_id", None)
    # Read first: what is decided after a change of ACLs counts for the version after it.
    version = 0 if core.decisions is None else core.decisions.version
    refusal, writable = _authorize(core, request, body, entries, transactional_id)
    if core.decisions is not None:
        _remember(core.decisions, version, request.access, writable, entries, transactional_id)
    if refusal is not None:
        return _when_done(core, request, body.acks, dict.fromkeys(entries, refusal))
    denied = {
        key: ProduceResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED) for key in entries if key[0] not in writable
    }
    append = partial(
        _append_all, core, request, body.acks, int(body.timeout.total_seconds() * 1000), entries, denied
    )
    if transactional_id is None:
        return append(Verified({}, {}))
    whole = {
        key: records
        for key, records in entries.items()
        if key not in denied and _is_known(core, key) and not error_of_records(records, request.version)
    }
    try:
        verified = verify(
            core.partitions, core.transactions.verifier, transactional_id, request.version, whole
        )
    except KafkaError as error:
        refusal = ProduceResult(error.code, error_message=error.message)
        return _when_done(core, request, body.acks, dict.fromkeys(entries, refusal))
    return then(verified, append)


API = Api(
    key=0,
    name="Produce",
    lowest=0,
    highest=11,
    flexible_from=_FLEXIBLE_FROM,
    handle=_handle,
    locks_core=False,
    needs=asks(WRITE_TOPIC, WRITE_TRANSACTIONAL_ID),
)


def _authorize(
    core: StoringCore,
    request: Request,
    body: Any,
    entries: Mapping[Key, bytes],
    transactional_id: str | None,
) -> tuple[ProduceResult | None, Container[str]]:
    """Return why the request is refused as a whole, or None, and the topics that the client may write."""
    for records in entries.values():
        # Kafka looks for the first batch of a transaction, and fails at records that are none before it.
        if not begins_as_batch(records):
            return ProduceResult(ErrorCode.CORRUPT_MESSAGE, error_message="records that are no batch"), ()
        if is_transactional(records):
            if transactional_id is None or not request.access.allows(
                *WRITE_TRANSACTIONAL_ID, transactional_id
            ):
                return ProduceResult(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), ()
            break
    writable = request.access.allowed(*WRITE_TOPIC, [topic.name for topic in body.topic_data])
    if FORMAT_2_FROM <= request.version < ZSTD_FROM and any(
        has_unknown_codec(records) and key[0] in writable and _is_known(core, key)
        for key, records in entries.items()
    ):
        # Kafka looks whether it is zstd, and fails.
        return ProduceResult(ErrorCode.UNKNOWN_SERVER_ERROR), writable
    return None, writable


def _remember(
    decisions: Decisions,
    version: int,
    access: Access,
    writable: Container[str],
    entries: Mapping[Key, bytes],
    transactional_id: str | None,
) -> None:
    """Let the processors append to these topics from now on."""
    assert isinstance(access, AuthorizedAccess)
    names = {topic for topic, _ in entries if topic in writable}
    granted = [(int(Subject.TOPIC_NAME), name.encode(), int(Allowed.MAY_WRITE)) for name in names]
    if transactional_id is not None and any(map(is_transactional, entries.values())) and names:
        granted.append((int(Subject.TRANSACTIONAL_ID), transactional_id.encode(), int(Allowed.MAY_WRITE)))
    identity = decisions.identity_of(access.requester.principal, access.requester.host)
    decisions.grant(identity, version, granted)


def _append_all(
    core: StoringCore,
    request: Request,
    acks: int,
    timeout_ms: int,
    entries: Mapping[Key, bytes],
    denied: Mapping[Key, ProduceResult],
    verified: Verified,
) -> Future[Reply]:
    """Append the records of all partitions that are not refused; return the reply."""
    results: dict[Key, ProduceResult | Future[ProduceResult]] = {
        key: denied.get(key)
        or verified.refused.get(key)
        or _append(core, request, key, records, acks, timeout_ms, verified.guards.get(key, 0))
        for key, records in entries.items()
    }
    return _when_done(core, request, acks, results)


def _append(
    core: StoringCore, request: Request, key: Key, records: bytes, acks: int, timeout_ms: int, guard: int
) -> ProduceResult | Future[ProduceResult]:
    """Append the records of one partition, or return the error. ``guard``: of its verification, or 0."""
    partition = core.partitions.get(*key)
    if partition is None and not _is_known(core, key):
        return ProduceResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    # Before version 3 the append alone looks at the records.
    if request.version >= FORMAT_2_FROM and (error := error_of_records(records, request.version)):
        return ProduceResult(error)
    if not -1 <= acks <= 1:
        return ProduceResult(ErrorCode.INVALID_REQUIRED_ACKS)
    if key[0] in INTERNAL_TOPICS and request.client_id != _ADMIN_CLIENT:
        return ProduceResult(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if partition is None:
        return ProduceResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    appended: Future[ProduceResult] = partition.append_records(
        records,
        required_acks=acks,
        timeout_ms=timeout_ms,
        refuses_zstd=request.version < ZSTD_FROM,
        takes_old_formats=request.version < FORMAT_2_FROM,
        verification_guard=guard,
    )
    return appended


def _is_known(core: StoringCore, key: Key) -> bool:
    """Whether the metadata have the partition."""
    return core.metadata.snapshot.has_partition(*key)


def _when_done(
    core: StoringCore,
    request: Request,
    acks: int,
    results: Mapping[Key, ProduceResult | Future[ProduceResult]],
) -> Future[Reply]:
    """Return the reply that is made when all appends are acknowledged."""
    waiting = [result for result in results.values() if isinstance(result, Future)]

    def reply(_: None) -> Reply:
        known = {
            key: result.result() if isinstance(result, Future) else result for key, result in results.items()
        }
        return _reply(core, request, acks, known)

    return then(when_done(waiting), reply)


def _reply(core: StoringCore, request: Request, acks: int, results: Mapping[Key, ProduceResult]) -> Reply:
    """Return the response. Raises ProtocolError for an error with acks=0, which closes the connection."""
    errors = [result.error_code for result in results.values() if result.error_code]
    if not acks:
        if errors:
            # Kafka's only way to show an error to such a producer.
            raise ProtocolError(f"Produce with acks=0: {ErrorCode.name_of(errors[0])}")
        return Reply(b"", rows=len(results), is_sent=False)
    leaders: dict[Key, CurrentLeader] = {}
    endpoints = b""
    if request.version >= _CURRENT_LEADER_FROM and ErrorCode.NOT_LEADER_OR_FOLLOWER in errors:
        current = CurrentLeaders(core)
        for key, result in results.items():
            if result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leaders[key] = current.of(*key)
        endpoints = current.endpoints(request.context.listener, {leader.id for leader in leaders.values()})
    body, tags_size = ProduceResponse(request.version).encode(results, leaders, endpoints)
    return Reply(body, partition_errors=len(errors), rows=len(results), tags_size=tags_size)
