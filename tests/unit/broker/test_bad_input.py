"""No request, however wrong, ends a broker that stores records or is an error of its own."""

from __future__ import annotations

import io
import logging
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import entity_writer
from kio.static.primitive import Records

from ctrlchan._codec import LEADER_AND_ISR
from ctrlchan.broker.handlers.table import storing_apis
from ctrlchan.errors import ErrorCode
from ctrlchan.launch.embedded import EmbeddedBroker
from tests.kafka.wire import answers_api_versions
from tests.unit.broker.local_broker import Part
from tests.unit.broker.log.made_batches import batch
from tests.unit.broker.test_storing_broker import ALONE, send

st.register_type_strategy(
    Records, st.one_of(st.binary(max_size=100), st.just(batch([b"a", b"b"]))).map(Records)
)
CHANGES = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=4)), max_size=3)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    configs = {"num.io.threads": "2"}
    with EmbeddedBroker(1, log_dir=tmp_path_factory.mktemp("logs"), configs=configs) as broker:
        yield broker


def versions(broker: EmbeddedBroker) -> list[tuple[int, int]]:
    apis = storing_apis(forwards=False, alters_configs=False)
    return [(api.key, version) for api in apis.values() for version in range(api.lowest, api.highest + 1)]


def frame_of(api_key: int, version: int, request: Any) -> bytes:
    schema: Any = load_request_schema(api_key, version)
    header: Any = schema.__header_schema__
    head = {
        "request_api_key": api_key,
        "request_api_version": version,
        "correlation_id": 1,
        "client_id": "fuzz",
    }
    buffer = io.BytesIO()
    known = {name: value for name, value in head.items() if name in header.__dataclass_fields__}
    entity_writer(header)(buffer, header(**known))
    entity_writer(schema)(buffer, request)
    return buffer.getvalue()


def changed(frame: bytes, changes: list[tuple[float, bytes]]) -> bytes:
    """Return the frame with other bytes at some places, or without its end."""
    data = bytearray(frame)
    for place, other in changes:
        at = int(place * len(data))
        if other:
            data[at : at + len(other)] = other
        else:
            del data[at:]
    return bytes(data)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_requests_with_wrong_bytes(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture, data: st.DataObject
) -> None:
    api_key, version = data.draw(st.sampled_from(versions(broker)))
    request = data.draw(st.from_type(load_request_schema(api_key, version)))
    frame = changed(frame_of(api_key, version, request), data.draw(CHANGES))
    with caplog.at_level(logging.ERROR, "ctrlchan"):
        with socket.create_connection(("127.0.0.1", broker.port), timeout=20) as client:
            client.sendall(struct.pack(">i", len(frame)) + frame)
        assert answers_api_versions("127.0.0.1", broker.port)
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR] == []


def test_a_topic_cannot_be_another_folder(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    with EmbeddedBroker(1, log_dir=folder) as broker:
        before = set(tmp_path.rglob("*"))
        wrong = [(name, 0) for name in ("../above", "a/b", "..", "", "\0", "n" * 250, "ü")] + [("good", -1)]
        for name, partition in wrong:
            answer = send(broker, LEADER_AND_ISR, Part(name, partition, **ALONE))
            assert [error for _, _, error in answer] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert set(tmp_path.rglob("*")) == before
        assert send(broker, LEADER_AND_ISR, Part("good", 0, **ALONE)) == [("good", 0, 0)]
