"""DescribeLogDirs: sizes of replicas by directory, in all versions, and a directory that is offline."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.handlers.describe_log_dirs import API
from ctrlchan.broker.log.manager import LogManager
from ctrlchan.server.api import Reply, Request
from tests.unit.broker.log.made_batches import batch, checked
from tests.unit.server.contexts import LOCAL_CLIENT


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogManager]:
    (tmp_path / "broken").write_text("no folder")
    manager = LogManager([tmp_path / "a", tmp_path / "broken"], LogConfig(), 1, "c")
    manager.start()
    for topic, partition in (("alpha", 0), ("alpha", 1), ("beta", 0)):
        log = manager.open_log(topic, partition, bytes(16), is_new=True)
        log.append_as_leader(checked(batch([b"value"])), 0)
    yield manager
    manager.kill()


def describe(logs: LogManager | None, version: int, topics: dict[str, tuple[int, ...]] | None) -> Any:
    """Return the decoded response."""
    entity: Any = load_request_schema(API.key, version)
    part = sys.modules[entity.__module__].DescribableLogDirTopic
    fields = None
    if topics is not None:
        key = "partitions" if "partitions" in part.__dataclass_fields__ else "partition_index"
        fields = tuple(part(topic=name, **{key: indexes}) for name, indexes in topics.items())
    buffer = io.BytesIO()
    entity_writer(entity)(buffer, entity(topics=fields))
    request = Request(version, 1, None, memoryview(buffer.getvalue()), 0, LOCAL_CLIENT)
    reply = API.handle(SimpleNamespace(logs=logs), request)
    assert isinstance(reply, Reply)
    response, size = entity_reader(load_response_schema(API.key, version))(memoryview(reply.body), 0)
    assert size == len(reply.body)
    return response


@pytest.mark.parametrize("version", range(API.lowest, API.highest + 1))
def test_sizes_of_all_replicas(logs: LogManager, tmp_path: Path, version: int) -> None:
    online, offline = describe(logs, version, None).results
    assert (online.error_code, online.log_dir) == (ErrorCode.none, str(tmp_path / "a"))
    found = {
        (topic.name, one.partition_index): (one.partition_size, one.offset_lag, one.is_future_key)
        for topic in online.topics
        for one in topic.partitions
    }
    size = len(batch([b"value"]))
    assert found == dict.fromkeys([("alpha", 0), ("alpha", 1), ("beta", 0)], (size, 0, False))
    assert (offline.error_code, offline.topics) == (ErrorCode.kafka_storage_error, ())
    if version >= 4:
        assert 0 < online.usable_bytes <= online.total_bytes
        assert (offline.total_bytes, offline.usable_bytes) == (-1, -1)


def test_some_replicas(logs: LogManager) -> None:
    online, _ = describe(logs, 4, {"alpha": (1, 7), "gamma": (0,)}).results
    [topic] = online.topics
    assert (topic.name, [one.partition_index for one in topic.partitions]) == ("alpha", [1])


def test_a_replica_that_moves(tmp_path: Path) -> None:
    """A broker was stopped while it copied alpha-0 from one directory to another; gamma-0 is gone."""
    one, other = tmp_path / "one", tmp_path / "other"
    manager = LogManager([one], LogConfig(), 1, "c")
    manager.start()
    log = manager.open_log("alpha", 0, bytes(16), is_new=True)
    for _ in range(3):
        log.append_as_leader(checked(batch([b"value"])), 0)
    manager.stop()
    copied = len(batch([b"value"]))
    segment = "00000000000000000000.log"
    for name, size in (("alpha", 2 * copied), ("gamma", 0)):
        folder = other / f"{name}-0.0123456789abcdef0123456789abcdef-future"
        folder.mkdir(parents=True)
        (folder / segment).write_bytes((one / "alpha-0" / segment).read_bytes()[:size])
    manager = LogManager([one, other], LogConfig(), 1, "c")
    manager.start()
    try:
        found = {
            (Path(directory.log_dir).name, topic.name): (
                part.partition_size,
                part.offset_lag,
                part.is_future_key,
            )
            for directory in describe(manager, 4, None).results
            for topic in directory.topics
            for part in topic.partitions
        }
    finally:
        manager.kill()
    assert found == {
        ("one", "alpha"): (3 * copied, 0, False),
        ("other", "alpha"): (2 * copied, 1, True),
        ("other", "gamma"): (0, -1, True),
    }


def test_a_broker_without_logs() -> None:
    assert describe(None, 4, None).results == ()
