"""Tests of grouping lines into entries: the result does not depend on how a file is cut into pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan.errors import ConfigError
from ctrlchan.pipeline.jobs.merge_logs import grouping
from ctrlchan.pipeline.jobs.merge_logs.grouping import group_lines
from ctrlchan.pipeline.jobs.merge_logs.origins import FileOrigins

_HEAD = b"[2026-01-31 10:00:00,001] INFO [Broker id=1] Reticulating partition t-0"
_KINDS = {
    "head": _HEAD + b" (state.change.logger)",
    "split head": _HEAD + b" and",
    "more": b"\tat kafka.Kafka.main(Kafka.scala)",
    "blank": b"",
    "bad head": b"[2026-01-31 10:00:00,001] what",
    "no such time": b"[2026-02-30 10:00:00,001] INFO x",
    "not UTF-8": b"\xff\xfe",
    "head not UTF-8": _HEAD + b"\xff",
    "carriage return": b"and so on\r",
}

Lines = Sequence[bytes]


def _batches(file: str, numbered: Sequence[tuple[int, bytes]], size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(numbered), size):
        some = numbered[start : start + size]
        yield pa.record_batch(
            {
                "file": pa.array([file] * len(some)),
                "line": pa.array([line for line, _ in some], pa.int64()),
                "text": pa.array([raw for _, raw in some], pa.binary()),
            }
        )


def _rows(batches: Iterator[pa.RecordBatch], *, final: bool) -> list[dict[str, Any]]:
    return [row for batch in group_lines(batches, FileOrigins(), final=final) for row in batch.to_pylist()]


def _expected(lines: Lines) -> list[tuple[int, int, str, str | None]]:
    """Return (line, lines, text, reason) of each row, computed line by line from the whole file."""
    rows: list[tuple[int, int, str, str | None]] = []
    entry: tuple[int, list[str]] | None = None
    begun = good = False
    bad_head = {_KINDS["bad head"], _KINDS["no such time"], _KINDS["head not UTF-8"]}

    def close() -> None:
        if entry is not None:
            rows.append((entry[0], len(entry[1]), "\n".join(entry[1]), None))

    for number, raw in enumerate(lines, 1):
        if raw.startswith(b"[2026-"):
            close()
            entry, begun, good = None, True, raw not in bad_head
            if good:
                entry = (number, [raw.decode()])
            else:
                rows.append((number, 1, raw.decode(errors="backslashreplace"), "bad"))
        elif good and entry is not None and b"\xff" not in raw:
            entry[1].append(raw.decode().removesuffix("\r"))
        else:
            rows.append((number, 1, raw.decode(errors="backslashreplace"), "bad" if begun else "early"))
    close()
    return sorted(rows)


def _shape(row: dict[str, Any]) -> tuple[int, int, str, str | None]:
    reason = row["reason"]
    if reason is not None:
        reason = "early" if reason == "no entry begins before this line" else "bad"
    return row["line"], row["lines"], row["text"], reason


@given(
    st.lists(st.sampled_from(sorted(_KINDS)), max_size=30), st.lists(st.integers(0, 30)), st.integers(1, 7)
)
def test_pieces_of_a_file_give_the_same_rows(kinds: list[str], cuts: list[int], size: int) -> None:
    lines = [_KINDS[kind] for kind in kinds]
    numbered = list(enumerate(lines, 1))
    ends = sorted({cut for cut in cuts if cut < len(lines)} | {0, len(lines)})
    found: list[dict[str, Any]] = []
    edges: list[tuple[int, bytes]] = []
    for start, end in pairwise(ends):
        for row in _rows(_batches("f", numbered[start:end], size), final=False):
            if row["raw"] is None:
                found.append(row)
            else:
                assert row["lines"] == len(row["raw"])
                edges += enumerate(row["raw"], row["line"])
    found += _rows(_batches("f", sorted(edges), size), final=True)

    assert sorted(map(_shape, found)) == _expected(lines)
    assert sum(row["lines"] for row in found) == len(lines)
    whole = _rows(_batches("f", numbered, size), final=True)
    assert sorted(found, key=lambda row: row["line"]) == sorted(whole, key=lambda row: row["line"])


def test_the_length_of_an_entry_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "MOST_LINES", 3)
    monkeypatch.setattr(grouping, "MOST_BYTES", 40)
    more, long = b"x", b"y" * 41
    lines = [_HEAD, more, more, more, more, _HEAD + b" 2", long, more, _HEAD * 99]
    rows = _rows(_batches("f", list(enumerate(lines, 1)), 2), final=True)
    entries = [(row["line"], row["lines"]) for row in rows if row["reason"] is None]
    assert entries == [(1, 3), (6, 2), (9, 1)]
    assert [row["line"] for row in rows if row["reason"] is not None] == [4, 5, 7]
    assert {row["reason"].split(" has")[0] for row in rows if row["reason"]} == {"its entry"}


def test_large_batches_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "_BATCH_BYTES", 300)
    numbered = [(line, _HEAD) for line in range(1, 31)]
    batches = list(group_lines(_batches("f", numbered, 30), FileOrigins(), final=True))
    assert sum(batch.num_rows for batch in batches) == 30
    assert max(batch.num_rows for batch in batches) <= 300 // len(_HEAD) + 1


@pytest.mark.parametrize(
    ("file", "broker"),
    [
        ("/logs/broker-3/state-change.log", 3),
        ("/logs/kafka12/state-change.log.1", 12),
        ("/logs/7/state-change.log", 7),
        ("s3a://bucket/b_4/state-change.log", 4),
        ("/logs/2026-01-31/state-change.log", None),
        ("/logs/10.0.0.1/state-change.log", None),
        ("/logs/broker-3/old/state-change.log", None),
        ("/east/a/state-change.log", 101),
    ],
)
def test_the_broker_of_a_file(file: str, broker: int | None) -> None:
    assert FileOrigins(brokers=(("/east/*", 101), ("/east/*", 102))).of(file).broker == broker


def test_the_time_zone_of_a_file() -> None:
    origins = FileOrigins("UTC", zones=(("east/*.log", "Asia/Tokyo"),))
    assert origins.of("/logs/east/a.log").zone.key == "Asia/Tokyo"
    assert origins.of("/logs/west/a.log").zone.key == "UTC"
    with pytest.raises(ConfigError, match="Mars/Olympus"):
        FileOrigins("UTC", zones=(("east", "Mars/Olympus"),))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16"])
def test_utf_16_is_named(encoding: str) -> None:
    """As some editors and shells of Windows write it; lines were cut at the byte of their end."""
    lines = (_HEAD.decode() + " (state.change.logger)\r\n" * 2).encode(encoding).split(b"\n")
    rows = _rows(_batches("f", list(enumerate(lines, 1)), 2), final=True)
    assert len(rows) == len(lines)
    assert {row["reason"] for row in rows if row["text"]} == {grouping._UTF_16}
    assert "iconv -f UTF-16 -t UTF-8" in grouping._UTF_16


def test_rotated_files_sort_by_age() -> None:
    names = [
        "state-change.log.2026-01-30-23",
        "state-change.log.2026-01-31-01.gz",
        "state-change.log.12",
        "state-change.log.2.gz",
        "state-change.log.1",
        "state-change.log",
    ]
    rotations = [FileOrigins().of(f"/b/{name}").rotation for name in names]
    assert rotations == sorted(rotations)
    assert len(set(rotations)) == len(names)
