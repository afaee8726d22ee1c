"""Fetch (1) on a handler thread: what the processors leave to Python (``_fetch.pyx``).

That is a body that cannot be decoded, and an isolation level that does not exist, at which the whole request
fails. With an authorizer it is also a request for a topic of which the processor has no decision: it is asked
here, and the processor goes on. So it is with a replica selector of the user's own, before a wait and after
it. The records of versions 0 to 3 are converted here (``fetch_conversion.py``).
``KafkaApis.handleFetchRequest`` of Kafka 3.9.
"""

from __future__ import annotations

from typing import Any, Final

from ctrlchan.authorizer.acls import Operation
from ctrlchan.broker._decisions import Allowed, Decisions, Subject
from ctrlchan.broker.handlers.fetch_conversion import CONVERTED_BELOW, convert
from ctrlchan.broker.replica.selector import Consumer, SelectingReplicas
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ProtocolError
from ctrlchan.server.access import CLUSTER_ACTION_CLUSTER, READ_TOPIC, AuthorizedAccess, asks
from ctrlchan.server.api import Api, CannotAnswer, GoOn, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError
from ctrlchan.topic_names import ZERO_ID

__all__ = ["API"]

#: From this version on topics are named by their ids.
_IDS_FROM: Final = 13
#: From this version on an error of the whole response needs no partitions.
_NO_PARTITIONS_FROM: Final = 13
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
#: How often the authorizer is asked because decisions were forgotten meanwhile.
_ATTEMPTS: Final = 10


def _handle(core: StoringCore, request: Request) -> Reply:
    if request.version < CONVERTED_BELOW and core.old_fetches is not None:
        fetched = core.old_fetches.take(request.context.connection_id)
        if fetched is not None:
            reply = convert(core, request.version, fetched)
            return reply or Reply(b"", goes_on=GoOn(0, _identity(core, request)))
    messages = ClientMessages("fetch", request.version)
    body = messages.decode(request)
    if getattr(body, "isolation_level", _READ_UNCOMMITTED) in (_READ_UNCOMMITTED, _READ_COMMITTED):
        if core.selecting is not None and _select(core, core.selecting, request, body):
            return Reply(b"", goes_on=GoOn(0, _identity(core, request)))
        if core.decisions is not None:
            return _decide(core, core.decisions, request, body)
        raise ProtocolError("a Fetch request with a field that is not valid")
    error = KioError.unknown_server_error
    topics = () if request.version >= _NO_PARTITIONS_FROM else _topics(messages, body, error)
    response = messages.response(
        error_code=error, session_id=getattr(body, "session_id", 0), responses=topics
    )
    return Reply(response, error.value)


def _select(core: StoringCore, selecting: SelectingReplicas, request: Request, body: Any) -> bool:
    """Ask the selector for all partitions of the request, if it waits for that. Return whether it does."""
    context = request.context
    with core.metadata.state.lock:
        nodes = {one.id: (one.host, one.port, one.rack) for one in core.metadata.nodes(context.listener)}
    consumer = Consumer(
        rack=getattr(body, "rack_id", ""),
        client_id=(request.client_id or b"").decode(errors="replace"),
        host=context.client_host,
        principal=str(context.principal),
        listener=context.listener,
    )
    return selecting.choose_all(context.connection_id, consumer, nodes)


def _identity(core: StoringCore, request: Request) -> int:
    """Return the number of the peer for decisions; 0 without an authorizer."""
    if core.decisions is None:
        return 0
    access = request.access
    assert isinstance(access, AuthorizedAccess)
    return core.decisions.identity_of(access.requester.principal, access.requester.host)


def _decide(core: StoringCore, decisions: Decisions, request: Request, body: Any) -> Reply:
    """Ask the authorizer for all that the request fetches, and have the processor go on.

    Raises CannotAnswer.
    """
    access = request.access
    identity = _identity(core, request)
    for _ in range(_ATTEMPTS):
        # Read first: what is decided after a change of ACLs counts for the version after it.
        version = decisions.version
        if getattr(body, "replica_state", body).replica_id >= 0:
            is_allowed = access.allows_cluster(Operation.CLUSTER_ACTION)
            granted = [(int(Subject.CLUSTER), b"", int(Allowed.MAY_ACT))] if is_allowed else []
        else:
            granted = _readable(core, decisions, request, body)
        if decisions.grant(identity, version, granted):
            return Reply(b"", goes_on=GoOn(version, identity))
    # ACLs change all the time, or the request names more topics than decisions are kept.
    raise CannotAnswer("the decisions about the topics of a Fetch do not last until it is answered")


def _readable(
    core: StoringCore, decisions: Decisions, request: Request, body: Any
) -> list[tuple[int, bytes, int]]:
    """Return the decisions of the topics that the client may read."""
    has_ids = request.version >= _IDS_FROM
    keys = [
        (ZERO_ID if topic.topic_id is None else topic.topic_id.bytes) if has_ids else topic.topic.encode()
        for topic in body.topics
    ]
    if getattr(body, "session_id", 0):
        of_session, are_ids = decisions.session_topics(body.session_id)
        keys += of_session if are_ids == has_ids else []
    keys = list(dict.fromkeys(keys))
    subject, names = Subject.TOPIC_NAME, {key: key.decode(errors="replace") for key in keys if not has_ids}
    granted = []
    if has_ids:
        subject = Subject.TOPIC_ID
        with core.metadata.state.lock:
            known = {key: core.metadata.topic_name(key) for key in keys}
        # An id that no topic has is no secret.
        granted = [(int(subject), key, int(Allowed.IS_UNKNOWN)) for key in keys if known[key] is None]
        names = {key: name for key, name in known.items() if name is not None}
    readable = request.access.allowed(*READ_TOPIC, names.values())
    allowed = int(Allowed.MAY_READ)
    return granted + [(int(subject), key, allowed) for key, name in names.items() if name in readable]


API = Api(
    key=1,
    name="Fetch",
    lowest=0,
    highest=17,
    flexible_from=12,
    handle=_handle,
    locks_core=False,
    needs=asks(READ_TOPIC, CLUSTER_ACTION_CLUSTER),
)


def _topics(messages: ClientMessages, body: Any, error: KioError) -> tuple[Any, ...]:
    return tuple(
        messages.part(
            "FetchableTopicResponse",
            topic=topic.topic,
            partitions=tuple(
                messages.part(
                    "PartitionData",
                    partition_index=one.partition,
                    error_code=error,
                    high_watermark=-1,
                    aborted_transactions=(),
                    records=None,
                )
                for one in topic.partitions
            ),
        )
        for topic in body.topics
    )
