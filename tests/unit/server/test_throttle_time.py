"""ThrottleTimeMs in the responses of all APIs and versions that are served, as kio decodes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.index import api_key_map
from kio.serial import entity_reader

from ctrlchan._codec import encode_request_header
from ctrlchan.broker.handlers.current_leaders import CurrentLeader
from ctrlchan.broker.handlers.produce_response import ProduceResponse
from ctrlchan.broker.handlers.table import storing_apis
from ctrlchan.broker.replica._partitions import ProduceResult
from ctrlchan.controller.server.apis.table import served_apis as controller_apis
from ctrlchan.metadata_broker.table import served_apis
from ctrlchan.server.api import Api, Reply
from ctrlchan.server.error_responses import error_response
from ctrlchan.server.kio_messages import ClientMessages, KioError
from ctrlchan.server.request_handler import RequestHandler
from ctrlchan.server.throttle_time import throttle_time_at
from tests.unit.server.contexts import LOCAL_CLIENT

TABLES: Mapping[str, Mapping[int, Api[Any]]] = {
    "storing broker": storing_apis(forwards=True, alters_configs=True),
    "metadata broker": served_apis(),
    "controller": controller_apis(),
}
PRODUCE, API_VERSIONS = 0, 18
MS = 7
CORE: Any = SimpleNamespace(id=1)


def versions() -> Iterator[Any]:
    for table, apis in TABLES.items():
        for api in apis.values():
            for version in range(api.lowest, api.highest + 1):
                yield pytest.param(api, version, id=f"{table}-{api.name}-{version}")


def answered(api: Api[Any], version: int, reply: Reply) -> bytes:
    """Return the body that the request handler sends for a reply."""
    handler = RequestHandler(CORE, {api.key: replace(api, handle=lambda *_: reply)})
    header = encode_request_header(api.request_header_version(version), api.key, version, 5, b"test")
    answer = handler.serve(header, LOCAL_CLIENT)
    assert isinstance(answer, tuple)
    size = 5 if api.response_header_version(version) else 4
    return b"".join(answer)[size:]


def decoded(api_key: int, version: int, body: bytes) -> Any:
    response, size = entity_reader(load_response_schema(api_key, version))(body, 0)
    assert size == len(body)
    return response


@pytest.mark.parametrize(("api", "version"), list(versions()))
def test_every_version_that_has_the_field(api: Api[Any], version: int) -> None:
    messages = ClientMessages(api_key_map[api.key], version)
    body = error_response(messages, None, KioError.not_controller)
    throttled = answered(api, version, Reply(body, throttle_time_ms=MS))
    assert answered(api, version, Reply(body)) == body
    before, after = decoded(api.key, version, body), decoded(api.key, version, throttled)
    if hasattr(before, "throttle_time"):
        assert after.throttle_time.total_seconds() * 1_000 == MS
        after = replace(after, throttle_time=before.throttle_time)
    assert after == before


@pytest.mark.parametrize("version", range(12))
def test_before_the_tagged_fields_of_produce(version: int) -> None:
    key = ("t", 0)
    # One node: id, host, port, no rack, no tags; before it the length of the array.
    endpoints = bytes.fromhex("02 00000002 02 68 00002384 00 00") if version >= 10 else b""
    body, tags_size = ProduceResponse(version).encode(
        {key: ProduceResult(6)}, {key: CurrentLeader(2, 5)} if endpoints else {}, endpoints
    )
    api = TABLES["storing broker"][PRODUCE]
    reply = Reply(body, tags_size=tags_size, throttle_time_ms=MS)
    response = decoded(PRODUCE, version, answered(api, version, reply))
    if version >= 1:
        assert response.throttle_time.total_seconds() * 1_000 == MS
    if endpoints:
        [node] = response.node_endpoints
        assert (node.node_id, node.host, node.port) == (2, "h", 9092)


def test_an_unknown_version_of_api_versions() -> None:
    """The answer has version 0, which has no such field."""
    messages = ClientMessages("api_versions", 0)
    body = error_response(messages, None, KioError.unsupported_version)
    api = TABLES["controller"][API_VERSIONS]
    assert answered(api, 99, Reply(body, throttle_time_ms=MS)).endswith(body)


@pytest.mark.parametrize("key", [key for key in api_key_map if key <= 67 and key not in range(52, 56)])
def test_the_table_agrees_with_kio(key: int) -> None:
    """For all APIs of Kafka in ZooKeeper mode, also those that nobody serves yet."""
    known = 0
    for version in range(20):
        try:
            schema: Any = load_response_schema(key, version)
        except Exception:  # noqa: BLE001  (kio's own, for a version that does not exist)
            continue
        known += 1
        fields = [
            name
            for name, field in schema.__dataclass_fields__.items()
            if not name.startswith("__") and "tag" not in field.metadata
        ]
        at = throttle_time_at(key, version)
        assert (at is not None) == ("throttle_time" in fields), version
        if at is not None:
            number = fields.index("throttle_time")
            assert number == (0 if at == 0 else len(fields) - 1 if at < 0 else 1), version
    assert known
