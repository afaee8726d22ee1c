"""DescribeAcls, CreateAcls and DeleteAcls with Kafka's authorizer, in all versions."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError
from kio.schema.index import api_key_map

from ctrlchan.authorizer.acl_authorizer import AclAuthorizer
from ctrlchan.server.apis import acls
from ctrlchan.server.kio_entities import part_type
from ctrlchan.server.request_handler import RequestHandler
from ctrlchan.zookeeper.memory.server import MemoryZooKeeper
from ctrlchan.zookeeper.settings import ZooKeeperSettings
from tests.unit.authorizer.words import EVERYTHING
from tests.unit.broker.local_broker import client_frame, read_client_response
from tests.unit.server.contexts import context

DESCRIBE, CREATE, DELETE = 29, 30, 31
ANY, ALL, READ, WRITE = 1, 2, 3, 4
TOPIC, GROUP, CLUSTER = 2, 3, 4
MATCH, LITERAL, PREFIXED = 2, 3, 4
DENY, ALLOW = 2, 3


class Cluster:
    """The APIs of a broker whose super user is alice."""

    def __init__(self, zookeeper: str) -> None:
        self.authorizer = AclAuthorizer(ZooKeeperSettings(connect=zookeeper))
        self.authorizer.configure({"super.users": "User:alice"})
        apis = {api.key: api for api in acls.APIS}
        core: Any = SimpleNamespace(id=1)
        self.handler: RequestHandler[Any] = RequestHandler(core, apis, authorizer=self.authorizer)

    def ask(self, api_key: int, version: int, user: str = "alice", **fields: Any) -> Any:
        from ctrlchan.server.request_context import Principal

        frame = client_frame(api_key, version, **fields)
        answer: Any = self.handler.serve(frame, context(principal=Principal.user(user)))
        return read_client_response(api_key, version, b"".join(answer))

    def create(self, version: int, *creations: dict[str, Any], **more: Any) -> list[tuple[KioError, Any]]:
        kind: Any = part_type("create_acls", version, "request", "AclCreation")
        given = tuple(_part(kind, one) for one in creations)
        body = self.ask(CREATE, version, creations=given, **more)
        return [(one.error_code, one.error_message) for one in body.results]

    def describe(self, version: int = 3, user: str = "alice", **fields: Any) -> Any:
        return self.ask(DESCRIBE, version, user, **_filter(DESCRIBE, version, fields))

    def delete(self, version: int, *filters: dict[str, Any], **more: Any) -> Any:
        kind: Any = part_type("delete_acls", version, "request", "DeleteAclsFilter")
        given = tuple(_part(kind, _filter(DELETE, version, one)) for one in filters)
        return self.ask(DELETE, version, filters=given, **more)


def _part(kind: Any, fields: dict[str, Any]) -> Any:
    return kind(**{name: value for name, value in fields.items() if name in kind.__dataclass_fields__})


def _filter(api_key: int, version: int, fields: dict[str, Any]) -> dict[str, Any]:
    found = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    } | fields
    if version == 0:
        del found["pattern_type_filter"]
    return found


def acl(name: str = "t", kind: int = TOPIC, **fields: Any) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": "User:bob",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    } | fields


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with MemoryZooKeeper() as server:
        made = Cluster(server.address)
        yield made
        made.authorizer.close()


def described(body: Any) -> set[tuple[int, str, int, str, int, int]]:
    return {
        (
            resource.resource_type,
            resource.resource_name,
            getattr(resource, "pattern_type", LITERAL),
            one.principal,
            one.operation,
            one.permission_type,
        )
        for resource in body.resources
        for one in resource.acls
    }


@pytest.mark.parametrize("version", range(4))
def test_acls_are_created_described_and_deleted(cluster: Cluster, version: int) -> None:
    assert cluster.create(version, acl(), acl(operation=WRITE), acl("g", GROUP)) == [(KioError.none, "")] * 3
    body = cluster.describe(version)
    assert (body.error_code, body.error_message) == (KioError.none, "")
    assert described(body) == {
        (TOPIC, "t", LITERAL, "User:bob", READ, ALLOW),
        (TOPIC, "t", LITERAL, "User:bob", WRITE, ALLOW),
        (GROUP, "g", LITERAL, "User:bob", READ, ALLOW),
    }
    assert len(body.resources) == 2
    assert described(cluster.describe(version, operation=WRITE)) == {
        (TOPIC, "t", LITERAL, "User:bob", WRITE, ALLOW)
    }
    [topics, rest] = cluster.delete(version, {"resource_type_filter": TOPIC}, {}).filter_results
    assert (topics.error_code, topics.error_message) == (KioError.none, None)
    assert {(one.resource_name, one.operation) for one in topics.matching_acls} == {("t", READ), ("t", WRITE)}
    assert [(one.resource_name, one.error_code) for one in rest.matching_acls] == [("g", KioError.none)]
    assert described(cluster.describe(version)) == set()


def test_prefixes(cluster: Cluster) -> None:
    cluster.create(1, acl("pre", resource_pattern_type=PREFIXED), acl("prefix"), acl("*"))
    found = described(
        cluster.describe(
            1, resource_type_filter=TOPIC, resource_name_filter="prefix", pattern_type_filter=MATCH
        )
    )
    assert {(name, kind) for _, name, kind, *_ in found} == {
        ("pre", PREFIXED),
        ("prefix", LITERAL),
        ("*", LITERAL),
    }
    # Version 0 knows literal names alone.
    assert {name for _, name, *_ in described(cluster.describe(0))} == {"prefix", "*"}


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (acl("x", CLUSTER), "The only valid name for the CLUSTER resource is kafka-cluster"),
        (acl(""), "Invalid empty resource name"),
        (acl("a/b"), "Failed to create ACL"),
        (acl(operation=99), "Failed to create ACL"),
    ],
)
def test_one_acl_that_cannot_be_harms_no_other(cluster: Cluster, bad: dict[str, Any], text: str) -> None:
    assert cluster.create(3, bad, acl()) == [(KioError.invalid_request, text), (KioError.none, "")]
    assert len(cluster.authorizer.acls(EVERYTHING)) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": ANY},
        {"resource_pattern_type": MATCH},
        {"resource_pattern_type": ANY},
        {"operation": ANY},
        {"permission_type": ANY},
    ],
)
def test_what_only_filters_have_fails_the_request(cluster: Cluster, fields: dict[str, Any]) -> None:
    assert cluster.create(3, acl(**fields), acl()) == [(KioError.unknown_server_error, None)] * 2
    assert cluster.authorizer.acls(EVERYTHING) == []


def test_filters_of_unknown_kinds_find_nothing(cluster: Cluster) -> None:
    cluster.create(3, acl())
    assert described(cluster.describe(3, resource_type_filter=99)) == set()
    results = cluster.delete(3, {"operation": 99}, {}).filter_results
    assert [len(one.matching_acls) for one in results] == [0, 1]


@pytest.mark.parametrize("version", range(4))
def test_describe_and_alter_on_the_cluster_are_needed(cluster: Cluster, version: int) -> None:
    denied = KioError.cluster_authorization_failed
    assert cluster.describe(version, "bob").error_code == denied
    assert [code for code, _ in cluster.create(version, acl(), acl("u"), user="bob")] == [denied] * 2
    body = cluster.delete(version, {}, {}, user="bob")
    assert [one.error_code for one in body.filter_results] == [denied] * 2
    on_cluster = acl("kafka-cluster", CLUSTER, operation=7)
    cluster.create(version, on_cluster)
    # Alter implies Describe.
    assert cluster.describe(version, "bob").error_code == KioError.none
    assert cluster.create(version, acl(), user="bob") == [(KioError.none, "")]


def test_an_authorizer_without_acls(cluster: Cluster) -> None:
    from tests.unit.broker.authorizer.deciding import Deciding

    apis = {api.key: api for api in acls.APIS}
    core: Any = SimpleNamespace(id=1)
    cluster.handler = RequestHandler(core, apis, authorizer=Deciding())
    assert cluster.describe(3).error_code == KioError.unsupported_version
    assert [code for code, _ in cluster.create(3, acl())] == [KioError.unsupported_version]
    [one] = cluster.delete(3, {}).filter_results
    assert one.error_code == KioError.unsupported_version
    assert {api_key_map[key] for key in (DESCRIBE, CREATE, DELETE)} == {
        "describe_acls",
        "create_acls",
        "delete_acls",
    }
