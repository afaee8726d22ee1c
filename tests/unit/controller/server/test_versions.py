"""Every API in every version: requests are decoded, answers are encoded, errors are where clients look."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode as KioError

from ctrlchan.controller.server.apis.table import served_apis
from tests.unit.controller.server.local_server import LocalServer, local_server
from tests.unit.controller.server.requests import Connection, connection, part, timeout

APIS = served_apis()
#: kio cannot read their answers, whose times are -1. tests/unit/server/delegation_tokens has all versions; a
#: controller that is not active answers as any broker does.
ABOUT_TOKENS = {38, 39, 40, 41}
CASES = [
    pytest.param(key, version, id=f"{APIS[key].name}-{version}")
    for key in sorted(APIS.keys() - ABOUT_TOKENS)
    for version in range(APIS[key].lowest, APIS[key].highest + 1)
]
TOPIC_ID = uuid.UUID(int=7)


def fields_of(key: int, version: int) -> dict[str, Any]:
    """A request with one of everything."""

    def one(kind: str, **fields: Any) -> tuple[Any, ...]:
        return (part(key, version, kind, **fields),)

    common: dict[str, Any] = {"timeout": timeout(), "validate_only": False, "broker_id": 1, "broker_epoch": 5}
    own: dict[int, Any] = {
        # Version 0 asks for all topics with an empty list.
        3: lambda: {"topics": None if version else ()},
        7: dict,
        10: lambda: {"key": "g", "coordinator_keys": ("g", "h"), "key_type": 0},
        16: dict,
        17: lambda: {"mechanism": "PLAIN"},
        18: lambda: {"client_software_name": "a", "client_software_version": "1"},
        19: lambda: {
            "topics": one(
                "CreatableTopic", name="t", num_partitions=1, replication_factor=1, assignments=(), configs=()
            )
        },
        20: lambda: {
            "topic_names": ("t",),
            "topics": one("DeleteTopicState", name="t", topic_id=None) if version >= 6 else (),
        },
        22: lambda: {"transactional_id": None, "transaction_timeout": timeout(1)},
        29: lambda: {
            "resource_type_filter": 2,
            "resource_name_filter": None,
            "pattern_type_filter": 3,
            "principal_filter": None,
            "host_filter": None,
            "operation": 1,
            "permission_type": 1,
        },
        30: lambda: {
            "creations": one(
                "AclCreation",
                resource_type=2,
                resource_name="t",
                resource_pattern_type=3,
                principal="User:u",
                host="*",
                operation=3,
                permission_type=3,
            )
        },
        31: lambda: {
            "filters": one(
                "DeleteAclsFilter",
                resource_type_filter=2,
                resource_name_filter=None,
                pattern_type_filter=3,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            )
        },
        32: lambda: {
            "resources": one(
                "DescribeConfigsResource", resource_type=2, resource_name="t", configuration_keys=None
            )
        },
        33: lambda: {
            "resources": one("AlterConfigsResource", resource_type=2, resource_name="t", configs=())
        },
        35: lambda: {"topics": None},
        36: lambda: {"auth_bytes": b""},
        37: lambda: {"topics": one("CreatePartitionsTopic", name="t", count=2, assignments=None)},
        43: lambda: {
            "election_type": 0,
            "topic_partitions": one("TopicPartitions", topic="t", partitions=(0, 1)),
        },
        44: lambda: {
            "resources": one("AlterConfigsResource", resource_type=2, resource_name="t", configs=())
        },
        45: lambda: {
            "topics": one(
                "ReassignableTopic",
                name="t",
                partitions=one("ReassignablePartition", partition_index=0, replicas=(1,)),
            )
        },
        46: lambda: {"topics": None},
        48: lambda: {
            "components": one("ComponentData", entity_type="user", match_type=2, match=None),
            "strict": False,
        },
        49: lambda: {
            "entries": one(
                "EntryData",
                entity=one("EntityData", entity_type="user", entity_name="u"),
                ops=one("OpData", key="request_percentage", value=1.0, remove=False),
            )
        },
        50: lambda: {"users": None},
        51: lambda: {"deletions": one("ScramCredentialDeletion", name="u", mechanism=1), "upsertions": ()},
        56: lambda: {
            "topics": one(
                "TopicData",
                topic_name="t",
                topic_id=TOPIC_ID,
                partitions=one(
                    "PartitionData",
                    partition_index=0,
                    leader_epoch=0,
                    partition_epoch=0,
                    new_isr=(1, 2),
                    new_isr_with_epochs=one("BrokerState", broker_id=1) if version >= 3 else (),
                ),
            )
        },
        57: lambda: {
            "feature_updates": one(
                "FeatureUpdateKey", feature="f", max_version_level=1, allow_downgrade=False, upgrade_type=1
            )
        },
        58: lambda: {"request_data": b"", "request_principal": None, "client_host_address": b""},
        60: lambda: {"include_cluster_authorized_operations": False, "endpoint_type": 1},
        66: lambda: {"state_filters": (), "producer_id_filters": ()},
        67: dict,
    }
    request: dict[str, Any] = common | own[key]()
    return request


#: Where clients find NOT_CONTROLLER in each answer.
NOT_CONTROLLER: dict[int, Any] = {
    7: lambda body: [body.error_code],
    19: lambda body: [topic.error_code for topic in body.topics],
    20: lambda body: [topic.error_code for topic in body.responses],
    33: lambda body: [one.error_code for one in body.responses],
    37: lambda body: [topic.error_code for topic in body.results],
    43: lambda body: [
        one.error_code for topic in body.replica_election_results for one in topic.partition_result
    ],
    44: lambda body: [one.error_code for one in body.responses],
    45: lambda body: [body.error_code],
    46: lambda body: [body.error_code],
    48: lambda body: [body.error_code],
    49: lambda body: [one.error_code for one in body.entries],
    50: lambda body: [body.error_code],
    51: lambda body: [one.error_code for one in body.results],
    56: lambda body: [body.error_code],
    57: lambda body: [body.error_code],
    58: lambda body: [body.error_code],
    67: lambda body: [body.error_code],
}


#: Metadata, FindCoordinator, DescribeConfigs and DescribeCluster.
ABOUT_THE_CLUSTER = {3, 10, 32, 60}


@pytest.fixture(scope="module")
def standby() -> Iterator[LocalServer]:
    with local_server(active=False) as local:
        yield local


@pytest.fixture
def client(standby: LocalServer) -> Iterator[Connection]:
    with connection(standby.address()) as client:
        yield client


@pytest.mark.parametrize(("key", "version"), CASES)
def test_a_controller_that_is_not_active(client: Connection, key: int, version: int) -> None:
    """Requests for the controller get NOT_CONTROLLER; those about the cluster close the connection."""
    if key in ABOUT_THE_CLUSTER:
        with pytest.raises(ConnectionError):
            client.ask(key, version, fields_of(key, version))
        return
    body = client.ask(key, version, fields_of(key, version))
    if key in NOT_CONTROLLER:
        errors = NOT_CONTROLLER[key](body)
        assert errors
        assert set(errors) == {KioError.not_controller}


@pytest.mark.parametrize("key", sorted(ABOUT_THE_CLUSTER))
def test_a_controller_that_is_taking_over(key: int) -> None:
    """It has read a part of the cluster only, and does not show that."""
    with local_server() as local, connection(local.address()) as client:
        assert local.core is not None
        local.core.is_loaded = False
        with pytest.raises(ConnectionError):
            client.ask(key, APIS[key].highest, fields_of(key, APIS[key].highest))


def test_a_producer_asks_again_while_no_controller_is_active(client: Connection) -> None:
    body = client.ask(22, 5, fields_of(22, 5))
    assert body.error_code is KioError.coordinator_load_in_progress


def test_elections_of_all_partitions_have_one_error(client: Connection) -> None:
    body = client.ask(43, 2, {"election_type": 0, "topic_partitions": None, "timeout": timeout()})
    assert (body.error_code, body.replica_election_results) == (KioError.not_controller, ())


@pytest.mark.parametrize("key", sorted(APIS))
def test_the_table_agrees_with_kio(key: int) -> None:
    """Header versions are those of kio's schemas, and no version is announced that kio does not have."""
    api = APIS[key]
    for version in range(api.lowest, api.highest + 1):
        schema: Any = load_request_schema(key, version)
        header = schema.__header_schema__.__module__
        assert header.endswith(f".v{api.request_header_version(version)}.header")
        assert schema.__flexible__ is (version >= api.flexible_from)


def test_all_announced_versions_are_served(client: Connection) -> None:
    announced = client.ask(18, 3, {"client_software_name": "a", "client_software_version": "1"}).api_keys
    assert {one.api_key: (one.min_version, one.max_version) for one in announced} == {
        key: (api.lowest, api.highest) for key, api in APIS.items()
    }
