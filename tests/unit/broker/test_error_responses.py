"""The answer to a request that fails as a whole has the error for everything that the request names."""

from __future__ import annotations

import os
from datetime import timedelta
from importlib import import_module
from typing import Any, get_args, get_type_hints
from uuid import UUID

import kio.schema
import pytest
from kio.serial import entity_reader

from ctrlchan.server.error_responses import NamedPartition, error_response, named_partitions
from ctrlchan.server.kio_messages import ClientMessages, KioError

ID = UUID(int=5)
APIS = (
    "produce", "fetch", "list_offsets", "metadata", "offset_commit", "offset_fetch", "find_coordinator",
    "join_group", "heartbeat", "leave_group", "sync_group", "describe_groups", "list_groups", "api_versions",
    "create_topics", "delete_topics", "delete_records", "init_producer_id", "offset_for_leader_epoch",
    "describe_configs", "alter_configs", "create_partitions", "delete_groups", "elect_leaders",
    "incremental_alter_configs", "alter_partition_reassignments", "list_partition_reassignments",
    "offset_delete", "describe_cluster", "describe_producers", "add_partitions_to_txn", "add_offsets_to_txn",
    "end_txn", "txn_offset_commit", "write_txn_markers", "describe_transactions", "list_transactions",
)  # fmt: skip


def versions(api: str) -> list[int]:
    folder = os.path.join(next(iter(kio.schema.__path__)), api)
    return sorted(int(name[1:]) for name in os.listdir(folder) if name[0] == "v")


def message(api: str, version: int, direction: str) -> Any:
    name = "".join(map(str.capitalize, api.split("_"))) + direction.capitalize()
    return getattr(import_module(f"kio.schema.{api}.v{version}.{direction}"), name)


def example(entity: Any) -> Any:
    """A message with one entry in each array."""
    values = {}
    for name, hint in get_type_hints(entity).items():
        if name.startswith("__"):
            continue
        field = entity.__dataclass_fields__[name]
        inner = next((one for one in (get_args(hint) or ()) if get_args(one)), hint)
        types = [one for one in get_args(inner) if one is not Ellipsis] or [inner]
        kind = field.metadata.get("kafka_type")
        if kind is None and hasattr(types[0], "__dataclass_fields__"):
            values[name] = example(inner) if inner is types[0] else (example(types[0]),)
        elif kind is not None and getattr(inner, "__origin__", None) is tuple:
            values[name] = ("text" if kind == "string" else 3,)
        elif kind == "uuid":
            values[name] = ID
        elif kind == "string":
            values[name] = "text"
        elif kind == "bytes":
            values[name] = b""
        elif kind == "bool":
            values[name] = False
        elif kind is not None and kind.startswith("int"):
            values[name] = 3
        elif kind == "timedelta_i32":
            values[name] = timedelta(0)
        elif kind == "timedelta_i64":
            continue
        elif kind == "records":
            values[name] = None
    return entity(**values)


@pytest.mark.parametrize("api", APIS)
def test_every_version_has_the_error(api: str) -> None:
    for version in versions(api):
        body = example(message(api, version, "request"))
        messages = ClientMessages(api, version)
        answer = error_response(messages, body, KioError.not_controller, "why")
        decoded, _ = entity_reader(message(api, version, "response"))(memoryview(answer), 0)
        assert "not_controller" in repr(decoded), (version, decoded)


def test_topics_and_partitions_are_named_as_in_the_request() -> None:
    by_name = [NamedPartition("text", None, 3)]
    for api in ("produce", "list_offsets", "elect_leaders", "offset_commit"):
        for version in versions(api):
            assert named_partitions(example(message(api, version, "request"))) == by_name
    by_id = [NamedPartition(None, ID.bytes, 3)]
    assert named_partitions(example(message("fetch", 17, "request"))) == by_id
    whole_topic = [NamedPartition("text", None, None)]
    assert named_partitions(example(message("delete_topics", 3, "request"))) == whole_topic


@pytest.mark.parametrize(
    ("api", "version"), [("leader_and_isr", 1), ("leader_and_isr", 4), ("stop_replica", 0)]
)
def test_flat_answers_name_topics_and_partitions(api: str, version: int) -> None:
    """Their requests have partitions, or topics with partitions."""
    body = example(message(api, version, "request"))
    answer = error_response(ClientMessages(api, version), body, KioError.cluster_authorization_failed)
    decoded, _ = entity_reader(message(api, version, "response"))(memoryview(answer), 0)
    [one] = decoded.partition_errors
    assert (one.topic_name, one.partition_index) == ("text", 3)
    assert one.error_code is KioError.cluster_authorization_failed


def test_answers_repeat_what_was_asked() -> None:
    markers = example(message("write_txn_markers", 1, "request"))
    denied = KioError.cluster_authorization_failed
    answer = error_response(ClientMessages("write_txn_markers", 1), markers, denied)
    decoded, _ = entity_reader(message("write_txn_markers", 1, "response"))(memoryview(answer), 0)
    assert [one.producer_id for one in decoded.markers] == [3]
    asked = example(message("list_partition_reassignments", 0, "request"))
    answer = error_response(ClientMessages("list_partition_reassignments", 0), asked, denied)
    decoded, _ = entity_reader(message("list_partition_reassignments", 0, "response"))(memoryview(answer), 0)
    [topic] = decoded.topics
    assert (topic.name, [one.partition_index for one in topic.partitions]) == ("text", [3])


def test_each_user_of_deleted_and_altered_credentials_has_the_error() -> None:
    """Kafka's AlterUserScramCredentialsRequest.getErrorResponse: users in order, each once."""
    request = import_module("kio.schema.alter_user_scram_credentials.v0.request")

    def deletion(name: str) -> Any:
        return request.ScramCredentialDeletion(name=name, mechanism=1)

    def upsertion(name: str) -> Any:
        return request.ScramCredentialUpsertion(
            name=name, mechanism=2, iterations=4096, salt=b"", salted_password=b""
        )

    body = request.AlterUserScramCredentialsRequest(
        deletions=(deletion("zoe"), deletion("amy")), upsertions=(upsertion("zoe"), upsertion("bob"))
    )
    denied = KioError.cluster_authorization_failed
    answer = error_response(ClientMessages("alter_user_scram_credentials", 0), body, denied, "why")
    read = entity_reader(message("alter_user_scram_credentials", 0, "response"))
    decoded, _ = read(memoryview(answer), 0)
    assert [(one.user, one.error_code, one.error_message) for one in decoded.results] == [
        ("amy", denied, None), ("bob", denied, None), ("zoe", denied, None),
    ]  # fmt: skip
