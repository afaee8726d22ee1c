"""The small files of a log directory: Kafka's own bytes, and errors that name file, line and reason."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan.broker.log import checkpoints, names
from ctrlchan.broker.log._leader_epochs import EpochEnd, LeaderEpochs
from ctrlchan.errors import LogDirectoryError

TOPIC_ID = bytes(range(16))


def test_offsets_are_written_as_kafka_does(tmp_path: Path) -> None:
    path = tmp_path / checkpoints.HIGH_WATERMARK_CHECKPOINT
    offsets = {("orders", 0): 17, ("orders", 11): 2**63 - 1}
    checkpoints.write_offsets(path, offsets)
    assert path.read_text() == "0\n2\norders 0 17\norders 11 9223372036854775807\n"
    assert checkpoints.read_offsets(path) == offsets
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("text", ["", "0\n", "0\n0\n"])
def test_a_checkpoint_may_be_empty_or_missing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "checkpoint"
    assert checkpoints.read_offsets(path) == {}
    path.write_text(text)
    assert checkpoints.read_offsets(path) == {}


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("1\n0\n", 1, "version 1"),
        ("x\n0\n", 1, "not an integer"),
        ("0\nmany\n", 2, "not an integer"),
        ("0\n2\na 0 1\n", 2, "2 entries announced, 1 found"),
        ("0\n1\na 0\n", 3, "2 columns, not 3"),
        ("0\n1\n\n", 3, "0 columns, not 3"),
        ("0\n1\na 0 9223372036854775808\n", 3, "not an integer that fits"),
        ("0\n1\na 2147483648 0\n", 3, "not an integer that fits"),
        ("0\n1\na zero 0\n", 3, "partition 'zero'"),
    ],
)
def test_a_malformed_checkpoint_names_file_line_and_reason(
    tmp_path: Path, text: str, line: int, reason: str
) -> None:
    path = tmp_path / "checkpoint"
    path.write_text(text)
    with pytest.raises(LogDirectoryError, match=re.escape(f"{path}, line {line}: ")) as raised:
        checkpoints.read_offsets(path)
    assert reason in str(raised.value)


@given(st.binary(max_size=60))
def test_no_bytes_make_a_reader_fail_in_another_way(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("any")
    readers: dict[str, Callable[[], object]] = {
        checkpoints.LEADER_EPOCH_CHECKPOINT: lambda: checkpoints.read_epochs(
            folder / checkpoints.LEADER_EPOCH_CHECKPOINT
        ),
        "offsets": lambda: checkpoints.read_offsets(folder / "offsets"),
        checkpoints.META_PROPERTIES: lambda: checkpoints.read_meta_properties(folder),
        checkpoints.PARTITION_METADATA: lambda: checkpoints.read_topic_id(folder),
        checkpoints.CLEAN_SHUTDOWN: lambda: checkpoints.read_clean_shutdown(folder),
    }
    for name, read in readers.items():
        (folder / name).write_bytes(data)
        try:
            read()
        except LogDirectoryError as raised:
            reason = str(raised)
        else:
            continue
        assert str(folder / name) in reason


@pytest.mark.parametrize("other", ["\v", "\f", "\x1c", "\x85", "\u2028"])
def test_only_what_ends_a_line_in_java_ends_one(tmp_path: Path, other: str) -> None:
    path = tmp_path / checkpoints.HIGH_WATERMARK_CHECKPOINT
    path.write_text(f"0\n2\norders 0 5{other}orders 1 6\n", encoding="utf-8", newline="")
    with pytest.raises(LogDirectoryError, match=r"columns|not an integer"):
        checkpoints.read_offsets(path)
    path.write_text("0\r\n2\rorders 0 5\norders 1 6", encoding="utf-8", newline="")
    assert checkpoints.read_offsets(path) == {("orders", 0): 5, ("orders", 1): 6}


def test_epochs_are_written_as_kafka_does(tmp_path: Path) -> None:
    epochs = LeaderEpochs(tmp_path)
    epochs.assign(0, 0)
    epochs.assign(3, 20)
    epochs.assign(3, 25)  # begun already
    path = tmp_path / checkpoints.LEADER_EPOCH_CHECKPOINT
    assert path.read_text() == "0\n2\n0 0\n3 20\n"
    assert LeaderEpochs(tmp_path).pairs() == [(0, 0), (3, 20)]
    path.write_text("0\n1\n-1 0\n")
    with pytest.raises(LogDirectoryError, match=r"line 3: .*negative"):
        LeaderEpochs(tmp_path)


def test_ends_of_epochs(tmp_path: Path) -> None:
    epochs = LeaderEpochs(tmp_path)
    assert epochs.end_of(0, 10) == EpochEnd(-1, -1)
    for epoch, start in ((2, 10), (4, 20), (7, 30)):
        epochs.assign(epoch, start)
    assert [epochs.end_of(epoch, 40) for epoch in (-1, 0, 2, 3, 4, 6, 7, 8)] == [
        (-1, -1), (0, 10), (2, 20), (2, 20), (4, 30), (4, 30), (7, 40), (-1, -1),
    ]  # fmt: skip
    assert [epochs.epoch_of(offset) for offset in (9, 10, 19, 20, 35)] == [-1, 2, 2, 4, 7]


def test_epochs_are_truncated(tmp_path: Path) -> None:
    epochs = LeaderEpochs(tmp_path)
    for epoch, start in ((2, 10), (4, 20), (7, 30)):
        epochs.assign(epoch, start)
    epochs.truncate_end(30)
    assert epochs.pairs() == [(2, 10), (4, 20)]
    epochs.truncate_start(25)
    assert epochs.pairs() == [(4, 25)]
    assert LeaderEpochs(tmp_path).pairs() == [(2, 10), (4, 20), (7, 30)]
    epochs.flush()
    assert LeaderEpochs(tmp_path).pairs() == [(4, 25)]
    # A new leader's epoch removes what lies above its first offset.
    epochs.assign(9, 12)
    assert epochs.pairs() == [(9, 12)]


def test_meta_properties(tmp_path: Path) -> None:
    assert checkpoints.read_meta_properties(tmp_path) is None
    checkpoints.write_meta_properties(tmp_path, "fIzLt5gES8yVtylT72FT-w", 3)
    path = tmp_path / checkpoints.META_PROPERTIES
    comment, now, *rest = path.read_text().splitlines()
    assert (comment, rest) == ("#", ["broker.id=3", "version=0", "cluster.id=fIzLt5gES8yVtylT72FT-w"])
    assert re.fullmatch(r"#\w{3} \w{3} \d\d [\d:]{8} UTC \d{4}", now)
    assert checkpoints.read_meta_properties(tmp_path) == ("fIzLt5gES8yVtylT72FT-w", 3, None)
    path.write_text("! comment\n version : 0\ncluster.id = a\\:b\n")
    assert checkpoints.read_meta_properties(tmp_path) == ("a:b", None, None)
    # As Java reads it: no version is version 0, and a line of one word is a key.
    path.write_bytes(b"nothing\ncluster.id c\rbroker.id=3 \n\xff=\n")
    assert checkpoints.read_meta_properties(tmp_path) == ("c", 3, None)
    checkpoints.write_meta_properties(tmp_path, "c", 3, "uP5zLt5gES8yVtylT72FTg")
    assert checkpoints.read_meta_properties(tmp_path) == ("c", 3, "uP5zLt5gES8yVtylT72FTg")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("version=1\nnode.id=1\n", "line 1: version 1"),
        ("version=7\n", "line 1: version 7"),
        ("version=0\nbroker.id=one\n", "line 2: broker.id 'one'"),
        ("version=0\ndirectory.id=x\n", "line 2: directory.id 'x' is not an id"),
    ],
)
def test_malformed_meta_properties(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / checkpoints.META_PROPERTIES).write_text(text)
    with pytest.raises(LogDirectoryError, match=re.escape(reason)):
        checkpoints.read_meta_properties(tmp_path)


def test_topic_ids(tmp_path: Path) -> None:
    assert checkpoints.read_topic_id(tmp_path) is None
    checkpoints.write_topic_id(tmp_path, TOPIC_ID)
    path = tmp_path / checkpoints.PARTITION_METADATA
    assert path.read_text() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert checkpoints.read_topic_id(tmp_path) == TOPIC_ID
    for text, reason in (
        ("version: 0\n", "line 2: not 'topic_id: …'"),
        ("version: 0\ntopic_id: short", "line 2: 'short' is not a topic id"),
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "line 2: the topic id is zero"),
        ("version: x\ntopic_id: AAECAwQFBgcICQoLDA0ODw", "line 1: version 'x'"),
    ):
        path.write_text(text)
        with pytest.raises(LogDirectoryError, match=re.escape(reason)):
            checkpoints.read_topic_id(tmp_path)


def test_clean_shutdown(tmp_path: Path) -> None:
    assert checkpoints.read_clean_shutdown(tmp_path) is None
    checkpoints.write_clean_shutdown(tmp_path, 77)
    path = tmp_path / checkpoints.CLEAN_SHUTDOWN
    assert path.read_text() == '{"version":0,"brokerEpoch":77}'
    assert checkpoints.read_clean_shutdown(tmp_path) == (77,)
    for text in ("", "[]", '{"brokerEpoch":null}', '{"brokerEpoch":true}'):
        path.write_text(text)
        assert checkpoints.read_clean_shutdown(tmp_path) == (None,)


def test_names_of_folders() -> None:
    assert names.folder_name("a-b", 7) == "a-b-7"
    assert names.parse_folder_name("a-b-7") == ("a-b", 7, "")
    for suffix in (names.DELETE_SUFFIX, names.STRAY_SUFFIX, names.FUTURE_SUFFIX):
        renamed = names.renamed_folder("a-b.c", 7, suffix)
        assert re.fullmatch(rf"a-b\.c-7\.[0-9a-f]{{32}}{suffix}", renamed)
        assert names.parse_folder_name(renamed) == ("a-b.c", 7, suffix)
    assert len(names.renamed_folder("t" * 249, 2**31 - 1, names.DELETE_SUFFIX)) == 255
    for wrong in ("", "a", "-1", "a-", "a-b", "a-1-delete", "a-2147483648", "a-1.x", "a-٣"):
        with pytest.raises(LogDirectoryError):
            names.parse_folder_name(wrong)


def test_log_lines_name_the_partition_and_the_directory() -> None:
    for name in ("a-b.c-7", names.renamed_folder("a-b.c", 7, names.FUTURE_SUFFIX)):
        context = names.log_context("UnifiedLog", Path("/data") / name)
        assert context == "[UnifiedLog partition=a-b.c-7, dir=/data] "


def test_names_of_segments() -> None:
    assert names.segment_name(368769) == "00000000000000368769"
    assert names.offset_of("00000000000000368769.log") == 368769
    for wrong in ("leader-epoch-checkpoint", "99999999999999999999.log", "-1.log", ".log"):
        assert names.offset_of(wrong) is None
