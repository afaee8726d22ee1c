"""Each API of the controller declares what it needs, asks for that, and refuses who is denied it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode as KioError
from kio.serial import entity_reader

from ctrlchan.authorizer.acls import Operation, ResourceType
from ctrlchan.controller.server.apis import find_coordinator, metadata
from ctrlchan.controller.server.apis.table import served_apis
from ctrlchan.field_reader import FieldReader
from ctrlchan.server.access import AuthorizedAccess
from ctrlchan.server.api import Api
from ctrlchan.server.request_handler import RequestHandler
from tests.unit.broker.authorizer.deciding import (
    SOME_TOKENS,
    Deciding,
    deciding,
    errors_of,
    everything_but,
    frame_of,
    only,
)
from tests.unit.controller.server.local_server import local_server
from tests.unit.server.contexts import SASL_CLIENT
from tests.unit.server.delegation_tokens.token_messages import TOKEN_APIS, token_body

APIS = served_apis()
SECONDS = 20
TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, ID_DENIED = (KioError(code) for code in (29, 30, 31, 53))
NONE = KioError.none

#: What who is denied everything is answered. All others are refused on the cluster.
DENIALS = {
    "Metadata": TOPIC_DENIED,
    "FindCoordinator": GROUP_DENIED,
    "CreateTopics": TOPIC_DENIED,
    "DeleteTopics": TOPIC_DENIED,
    "InitProducerId": ID_DENIED,
    "DescribeConfigs": TOPIC_DENIED,
    "AlterConfigs": TOPIC_DENIED,
    "IncrementalAlterConfigs": TOPIC_DENIED,
    "CreatePartitions": TOPIC_DENIED,
    # There are no tokens here.
    "RenewDelegationToken": KioError.delegation_token_not_found,
    "ExpireDelegationToken": KioError.delegation_token_not_found,
}
#: APIs that refuse nobody: they need nothing, or show nothing to who is denied.
OPEN = {
    "ApiVersions",
    "SaslHandshake",
    "SaslAuthenticate",
    "DescribeCluster",
    "DescribeDelegationToken",
    "ListGroups",
    "ListTransactions",
}
#: Requests beside the plain one, so that all is asked for.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "FindCoordinator": [{"key_type": 1}, {"key_type": 2}],
    "InitProducerId": [{"transactional_id": None}],
    "DescribeConfigs": [{"resource_type": 4, "resource_name": "1000"}],
    "AlterConfigs": [{"resource_type": 4, "resource_name": "1000", "configs": ()}],
    "IncrementalAlterConfigs": [{"resource_type": 4, "resource_name": "1000", "configs": ()}],
    "DescribeDelegationToken": [{"owners": None}],
}


@pytest.fixture(scope="module")
def handler() -> Iterator[RequestHandler[Any]]:
    """The handler of an active controller, without the parts that change anything."""
    with local_server() as local:
        core: Any = local.server._handlers[0].core
        core.tokens = SOME_TOKENS
        yield RequestHandler(core, APIS, authorizer=Deciding())


@pytest.fixture(autouse=True)
def _asks_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (metadata, find_coordinator):
        monkeypatch.setattr(module, "ask_aside", lambda *_: None)


def served(handler: RequestHandler[Any], api: Api[Any], version: int, **values: Any) -> Any:
    """Return kio's response; None if the connection would be closed by what the controller has not here."""
    answer: Any
    try:
        answer = handler.serve(frame_of(api.key, version, **values), SASL_CLIENT)
        if isinstance(answer, Future):
            answer = answer.result(SECONDS)
    except AttributeError:
        return None
    if api.key in TOKEN_APIS:
        return token_body(api.key, version, FieldReader(b"".join(answer[1:])))
    schema: Any = load_response_schema(api.key, version)
    return entity_reader(schema)(b"".join(answer[1:]), 0)[0]


def versions() -> Iterator[Any]:
    for api in APIS.values():
        for version in range(api.lowest, api.highest + 1):
            yield pytest.param(api, version, id=f"{api.name}-{version}")


@pytest.mark.parametrize("api", [*APIS.values()], ids=lambda api: api.name)
def test_each_api_declares_its_needs(api: Api[Any]) -> None:
    assert api.needs is not None, "state what the API needs: needs_cluster, asks, NOTHING"


@pytest.mark.parametrize(("api", "version"), list(versions()))
def test_who_is_denied_everything_is_refused(
    handler: RequestHandler[Any], api: Api[Any], version: int
) -> None:
    with deciding(only()):
        body = served(handler, api, version)
    errors = errors_of(body) - {NONE}
    if api.name == "DescribeLogDirs" and version < 3:
        # Its response has no error of the whole.
        assert body.results == ()
    elif api.name in OPEN:
        assert errors <= {KioError.illegal_sasl_state}
    else:
        expected = DENIALS.get(api.name, CLUSTER_DENIED)
        if api.name == "CreateDelegationToken":
            # Versions before 3 are about the requester himself, who needs no ACL.
            by_version = KioError.invalid_principal_type, KioError.delegation_token_authorization_failed
            expected = by_version[version >= 3]
        assert errors == {expected}


@pytest.mark.parametrize("api", [*APIS.values()], ids=lambda api: api.name)
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
    for decide in (only(), everything_but(), *(everything_but(one) for one in declared)):
        with deciding(decide):
            for version in range(api.lowest, api.highest + 1):
                for values in ({}, *VARIANTS.get(api.name, [])):
                    served(handler, api, version, **values)
    assert asked == declared
