"""Each API declares what it needs, asks for that and nothing else, and refuses who is denied it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode as KioError
from kio.serial import entity_reader

from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.authorizer.acls import Operation, ResourceType
from ctrlchan.broker.handlers.table import storing_apis
from ctrlchan.field_reader import FieldReader
from ctrlchan.launch.embedded import EmbeddedBroker
from ctrlchan.metadata_broker.table import served_apis as metadata_apis
from ctrlchan.server.access import AuthorizedAccess
from ctrlchan.server.api import Api, GoOn, Throttled
from ctrlchan.server.request_handler import RequestHandler
from tests.unit.broker.authorizer.deciding import (
    CLASS,
    NO_STORE,
    SOME_TOKENS,
    Deciding,
    NoController,
    deciding,
    errors_of,
    everything_but,
    frame_of,
    only,
)
from tests.unit.broker.local_broker import Part
from tests.unit.broker.log.made_batches import batch
from tests.unit.broker.test_storing_broker import ALONE, send
from tests.unit.server.contexts import SASL_CLIENT
from tests.unit.server.delegation_tokens.token_messages import TOKEN_APIS, token_body

APIS = storing_apis(forwards=True, alters_configs=True)
TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, ID_DENIED = (KioError(code) for code in (29, 30, 31, 53))
NONE = KioError.none
TRANSACTIONAL = batch([b"v"], producer_id=1, producer_epoch=0, sequence=0, attributes=0x10)
PRODUCE, FETCH, CONTROL = 0, 1, (4, 5, 6)

#: What who is denied everything is answered.
DENIALS = {
    "Produce": TOPIC_DENIED,
    "ListOffsets": TOPIC_DENIED,
    "Metadata": TOPIC_DENIED,
    "LeaderAndIsr": CLUSTER_DENIED,
    "StopReplica": CLUSTER_DENIED,
    "UpdateMetadata": CLUSTER_DENIED,
    "OffsetCommit": GROUP_DENIED,
    "OffsetFetch": GROUP_DENIED,
    "FindCoordinator": GROUP_DENIED,
    "JoinGroup": GROUP_DENIED,
    "Heartbeat": GROUP_DENIED,
    "LeaveGroup": GROUP_DENIED,
    "SyncGroup": GROUP_DENIED,
    "DescribeGroups": GROUP_DENIED,
    "DeleteGroups": GROUP_DENIED,
    "OffsetDelete": GROUP_DENIED,
    "CreateTopics": TOPIC_DENIED,
    "DeleteTopics": TOPIC_DENIED,
    "CreatePartitions": TOPIC_DENIED,
    "DeleteRecords": TOPIC_DENIED,
    "InitProducerId": ID_DENIED,
    "OffsetForLeaderEpoch": TOPIC_DENIED,
    "AddPartitionsToTxn": ID_DENIED,
    "AddOffsetsToTxn": ID_DENIED,
    "EndTxn": ID_DENIED,
    "WriteTxnMarkers": CLUSTER_DENIED,
    "TxnOffsetCommit": ID_DENIED,
    "DescribeAcls": CLUSTER_DENIED,
    "CreateAcls": CLUSTER_DENIED,
    "DeleteAcls": CLUSTER_DENIED,
    "DescribeConfigs": TOPIC_DENIED,
    "AlterConfigs": TOPIC_DENIED,
    "IncrementalAlterConfigs": TOPIC_DENIED,
    "DescribeLogDirs": CLUSTER_DENIED,
    "AlterReplicaLogDirs": CLUSTER_DENIED,
    "DescribeUserScramCredentials": CLUSTER_DENIED,
    "AlterUserScramCredentials": CLUSTER_DENIED,
    "UpdateFeatures": CLUSTER_DENIED,
    "ControlledShutdown": CLUSTER_DENIED,
    "AlterPartition": CLUSTER_DENIED,
    "AllocateProducerIds": CLUSTER_DENIED,
    "DescribeClientQuotas": CLUSTER_DENIED,
    "AlterClientQuotas": CLUSTER_DENIED,
    "ElectLeaders": CLUSTER_DENIED,
    "AlterPartitionReassignments": CLUSTER_DENIED,
    "ListPartitionReassignments": CLUSTER_DENIED,
    "DescribeProducers": TOPIC_DENIED,
    "DescribeTransactions": ID_DENIED,
    # Versions before 3 are about the requester himself, who needs no ACL, and there are no tokens here.
    "CreateDelegationToken": KioError.delegation_token_authorization_failed,
}
#: APIs that refuse nobody: they filter, or need nothing.
OPEN = {"ApiVersions", "DescribeCluster", "DescribeDelegationToken", "ListGroups", "ListTransactions"}
#: Answered with ILLEGAL_SASL_STATE, whoever asks.
AUTHENTICATING = {"SaslHandshake", "SaslAuthenticate"}
#: Answered with UNSUPPORTED_VERSION, whoever asks.
UNSUPPORTED = {"ConsumerGroupHeartbeat", "ConsumerGroupDescribe"}
#: Who sends it loses the connection: a broker is not the controller.
ENVELOPE = 58
#: Here nobody can change a token: the sample has the HMAC of none.
OF_TOKENS = {"RenewDelegationToken", "ExpireDelegationToken"}
#: Requests beside the plain one, so that all is asked for.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "Produce": [{"transactional_id": "x", "records": TRANSACTIONAL}],
    "Fetch": [{"replica_id": 1}],
    "FindCoordinator": [{"key_type": 1}, {"key_type": 2}],
    "InitProducerId": [{"transactional_id": None}],
    "DescribeConfigs": [{"resource_type": 4, "resource_name": "1"}],
    "AlterConfigs": [{"resource_type": 4, "resource_name": "1", "configs": ()}],
    "IncrementalAlterConfigs": [{"resource_type": 4, "resource_name": "1", "configs": ()}],
    "DescribeDelegationToken": [{"owners": None}],
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    configs = {"num.io.threads": "1", "authorizer.class.name": CLASS}
    with EmbeddedBroker(1, log_dir=tmp_path_factory.mktemp("logs"), configs=configs) as started:
        with deciding(everything_but()):
            # Metadata waits for the first one.
            send(started, UPDATE_METADATA, Part("another", 0, **ALONE))
        yield started


@pytest.fixture
def handler(broker: EmbeddedBroker) -> RequestHandler[Any]:
    """The handler of the broker's requests, with a controller that answers nothing."""
    core: Any = broker.inspect(lambda core: core)
    core = replace(core, controller=NoController(), config_store=NO_STORE, tokens=SOME_TOKENS)
    return RequestHandler(core, APIS, core.lock, authorizer=Deciding.last)


def served(handler: RequestHandler[Any], api: Api[Any], version: int, **values: Any) -> Any:
    """Return kio's response, None for GoOn and for a request that is not answered at once."""
    answer = handler.serve_left(frame_of(api.key, version, **values), SASL_CLIENT)
    if isinstance(answer, Future):
        if not answer.done():
            return None
        answer = answer.result()
    if isinstance(answer, GoOn):
        return None
    assert not isinstance(answer, Throttled)
    if api.key in TOKEN_APIS:
        return token_body(api.key, version, FieldReader(b"".join(answer[1:])))
    schema: Any = load_response_schema(api.key, version)
    return entity_reader(schema)(b"".join(answer[1:]), 0)[0]


def versions() -> Iterator[Any]:
    """All but Fetch, which the processor answers: ``test_produce_and_fetch.py``."""
    for api in APIS.values():
        for version in range(api.lowest, api.highest + 1) if api.key not in (FETCH, ENVELOPE) else ():
            yield pytest.param(api, version, id=f"{api.name}-{version}")


@pytest.mark.parametrize("api", [*APIS.values()], ids=lambda api: api.name)
def test_each_api_declares_its_needs(api: Api[Any]) -> None:
    assert api.needs is not None, "state what the API needs: needs_cluster, asks, NOTHING"
    others = OPEN | AUTHENTICATING | OF_TOKENS | UNSUPPORTED
    assert (api.name in DENIALS) != (api.name in others or api.key in (FETCH, ENVELOPE))


def test_apis_of_a_broker_without_records() -> None:
    """It has no authorizer. An API that declares nothing would be refused."""
    for api in metadata_apis().values():
        if api.key in APIS and api.needs is not None and api.needs.cluster is not None:
            other = APIS[api.key].needs
            assert other is not None
            assert api.needs.cluster == other.cluster or other.asked


@pytest.mark.parametrize(("api", "version"), list(versions()))
def test_who_is_denied_everything_is_refused(
    handler: RequestHandler[Any], api: Api[Any], version: int
) -> None:
    expected = DENIALS.get(api.name, NONE)
    if api.name == "AddPartitionsToTxn" and version >= 4:
        expected = CLUSTER_DENIED
    if api.name in OF_TOKENS:
        expected = KioError.delegation_token_not_found
    if api.name == "CreateDelegationToken" and version < 3:
        expected = KioError.invalid_principal_type
    with deciding(only()):
        body = served(handler, api, version)
    errors = errors_of(body) - {NONE}
    fields = {name for name in type(body).__dataclass_fields__ if name.endswith("error_code")}
    if api.name == "DescribeLogDirs" and version < 3:
        # Its response has no error of the whole.
        assert body.results == ()
    elif api.name in AUTHENTICATING:
        assert errors == {KioError.illegal_sasl_state}
    elif api.name in UNSUPPORTED:
        assert errors == {KioError.unsupported_version}
    elif api.name in OPEN:
        assert not errors, fields
    else:
        assert errors == {expected}


# Fetch is the processor's: ``test_acls_that_change_while_clients_work``. Control requests ask once, before
# their handler, and what it does only tests of their own can undo.
@pytest.mark.parametrize("answers", [0, 1, 2])
@pytest.mark.parametrize(
    "api",
    [api for api in APIS.values() if api.key not in (FETCH, ENVELOPE, *CONTROL)],
    ids=lambda api: api.name,
)
def test_acls_that_change_during_a_request(handler: RequestHandler[Any], api: Api[Any], answers: int) -> None:
    """After so many answers everything is denied: the request ends in order, and the next one is denied."""
    left = answers

    def changing(*_: object) -> bool:
        nonlocal left
        left -= 1
        if left == -1:
            Deciding.last.changed()
        return left >= 0

    for version in (api.lowest, api.highest):
        with deciding(only()):
            denied = errors_of(served(handler, api, version))
        for values in ({}, *VARIANTS.get(api.name, [])):
            left = answers
            with deciding(changing):
                served(handler, api, version, **values)
        with deciding(only()):
            assert errors_of(served(handler, api, version)) == denied


@pytest.mark.parametrize(
    "api", [api for api in APIS.values() if api.key != ENVELOPE], ids=lambda api: api.name
)
def test_each_api_asks_for_what_it_declares(
    handler: RequestHandler[Any], api: Api[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[tuple[Operation, ResourceType]] = set()
    for name in ("allows", "allowed", "allows_any"):
        method = getattr(AuthorizedAccess, name)

        def recorded(
            self: Any, operation: Operation, kind: ResourceType, *rest: Any, method: Any = method, **more: Any
        ) -> Any:
            asked.add((operation, kind))
            return method(self, operation, kind, *rest, **more)

        monkeypatch.setattr(AuthorizedAccess, name, recorded)
    needs = api.needs
    assert needs is not None
    declared = set(needs.asked)
    if needs.cluster is not None:
        declared.add((needs.cluster, ResourceType.CLUSTER))
    if api.key in CONTROL:
        # What they do when they are allowed belongs to other tests.
        with deciding(only()):
            served(handler, api, api.highest)
    else:
        for decide in (only(), everything_but(), *(everything_but(one) for one in declared)):
            with deciding(decide):
                for version in range(api.lowest, api.highest + 1):
                    for values in ({}, *VARIANTS.get(api.name, [])):
                        served(handler, api, version, **values)
    assert asked == declared


def test_an_authorizer_that_fails_denies(
    handler: RequestHandler[Any], caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: object) -> bool:
        raise ZeroDivisionError

    with deciding(failing):
        body = served(handler, APIS[2], 1)
    assert errors_of(body) == {TOPIC_DENIED}
    assert "the authorizer fails: ListOffsets is denied" in caplog.text


def test_what_is_not_true_denies(handler: RequestHandler[Any]) -> None:
    with deciding(lambda *_: "yes"):  # type: ignore[arg-type]
        assert errors_of(served(handler, APIS[2], 1)) == {TOPIC_DENIED}


def test_without_an_authorizer_nothing_is_asked(broker: EmbeddedBroker) -> None:
    core: Any = broker.inspect(lambda core: core)
    handler: RequestHandler[Any] = RequestHandler(core, APIS, core.lock)
    asked = len(Deciding.last.asked)
    assert errors_of(served(handler, APIS[2], 1)) == {KioError.unknown_topic_or_partition}
    assert len(Deciding.last.asked) == asked


def test_levels_of_loggers_are_refused_to_who_may_not_change_them(handler: RequestHandler[Any]) -> None:
    for decide, expected in ((only(), CLUSTER_DENIED), (everything_but(), NONE)):
        with deciding(decide):
            body = served(
                handler, APIS[44], 1, resource_type=8, resource_name="1", configs=(), validate_only=False
            )
        assert errors_of(body) == {expected}
    # The older API has none of them, whoever asks.
    with deciding(only()):
        body = served(handler, APIS[33], 1, resource_type=8, resource_name="1", configs=())
    assert errors_of(body) == {KioError.invalid_request}
