"""Damaged small files of log directories: what is loaded, offline and written, beside Kafka's own LogManager.

Two directories of one broker with two replicas each; one file of the first directory is damaged.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctrlchan.broker.config.log_manager_settings import LogManagerSettings
from ctrlchan.broker.log import checkpoints
from ctrlchan.broker.log.manager import LogManager
from ctrlchan.errors import LogDirectoryError
from ctrlchan.topic_names import id_to_text
from tests.conformance.filled_logs import CONFIG, FOREVER, contents, fill
from tests.conformance.java_process import JavaProcess
from tests.kafka.requirement import require_kafka

CLUSTER, BROKER = "fIzLt5gES8yVtylT72FT-w", 1
TOPIC, TOPIC_ID = "orders", bytes(range(16))
#: The replicas are in these directories, in turns.
DIRS, REPLICAS = ("a", "b"), range(4)
SETTINGS: Final = LogManagerSettings(cleaner_enabled=False, producer_expiration_ms=FOREVER)
OFFSET_FILES: Final = (
    checkpoints.RECOVERY_POINT_CHECKPOINT,
    checkpoints.HIGH_WATERMARK_CHECKPOINT,
    checkpoints.LOG_START_CHECKPOINT,
)
EPOCHS: Final = f"{TOPIC}-0/{checkpoints.LEADER_EPOCH_CHECKPOINT}"
METADATA: Final = f"{TOPIC}-0/{checkpoints.PARTITION_METADATA}"

#: Offline directories, and replicas as "a/orders-0:start:end:recovery point:high watermark:topic id". None:
#: the broker does not start.
Outcome: TypeAlias = list[str] | None
#: Returns what is in the file afterwards; None: it is not there.
Damage: TypeAlias = Callable[[bytes], bytes | None]


def rows(change: Callable[[list[str]], list[str]], *, count: int = 0) -> Damage:
    """Damage rows of a checkpoint; ``count``: added to the number of rows that is announced."""

    def damaged(data: bytes) -> bytes:
        version, _, *found = data.decode().splitlines()
        changed = change(found)
        return "\n".join([version, str(len(changed) + count), *changed, ""]).encode()

    return damaged


def with_last(word: str) -> Damage:
    """Replace the last word of each row."""
    return rows(lambda found: [f"{row.rsplit(' ', 1)[0]} {word}" for row in found])


ANY: Final[dict[str, Damage]] = {
    "missing": lambda _: None,
    "empty": lambda _: b"",
    "torn": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
    "nonsense": lambda data: b"\x00\xffnonsense \xc3\n" * 3 + data[:7],
}
ROWS: Final[dict[str, Damage]] = ANY | {
    "version 1": lambda data: b"1" + data[1:],
    "too few rows": rows(lambda found: found, count=1),
    "a negative number of rows": rows(lambda found: found, count=-90),
    "a row without its end": rows(lambda found: [found[0].split(" ")[0], *found[1:]]),
    "an offset that is a word": with_last("many"),
    "an offset of 20 digits": with_last("9" * 20),
    "an offset beyond the end": with_last("1000000"),
    "a negative offset": with_last("-1"),
    "no rows": rows(lambda _: []),
}
FILES: Final[dict[str, dict[str, Damage]]] = {
    **dict.fromkeys(OFFSET_FILES, ROWS | {"a replica that is not there": rows(lambda f: [*f, "other 7 5"])}),
    EPOCHS: ROWS | {"epochs that go back": rows(lambda found: found[::-1])},
    METADATA: ANY
    | {
        "version 7": lambda data: data.replace(b"version: 0", b"version: 7"),
        "version -1": lambda data: data.replace(b"version: 0", b"version: -1"),
        "a short id": lambda data: data[:-6],
        "the id zero": lambda data: data[:-22] + b"A" * 22,
        "another id": lambda data: data[:-22] + b"B" * 21 + b"A",
    },
    checkpoints.META_PROPERTIES: ANY
    | {
        "another cluster": lambda data: data.replace(CLUSTER.encode(), b"another"),
        "another broker": lambda data: data.replace(b"broker.id=1", b"broker.id=2"),
        "a broker that is a word": lambda data: data.replace(b"broker.id=1", b"broker.id=one"),
        "a negative broker": lambda data: data.replace(b"broker.id=1", b"broker.id=-4"),
        "KRaft": lambda _: b"version=1\nnode.id=1\ncluster.id=" + CLUSTER.encode(),
        "version 7": lambda data: data.replace(b"version=0", b"version=7"),
        "no version": lambda data: data.replace(b"version=0", b""),
        "blanks for signs": lambda data: data.replace(b"=", b" "),
        "a bad directory id": lambda data: data + b"directory.id=x\n",
        "ids alone": lambda _: b"broker.id : 1",
    },
    checkpoints.CLEAN_SHUTDOWN: ANY,
}
NO_NUMBERS: Final = ("a negative number of rows", "an offset that is a word", "an offset of 20 digits")
#: Kafka takes the directory offline, because it cannot read a checkpoint of offsets. We go on without the
#: file, which is what Kafka's own warning says that it does.
GOES_ON: Final = {
    (name, damage)
    for name in OFFSET_FILES
    for damage in ROWS
    if damage not in ("missing", "empty", "an offset beyond the end", "a negative offset", "no rows")
    # Kafka goes on where it fails over a number.
    and (name == checkpoints.HIGH_WATERMARK_CHECKPOINT or damage not in NO_NUMBERS)
}
#: Kafka does not start at all. We take the directory offline.
IS_OFFLINE: Final = {
    *((EPOCHS, damage) for damage in (*NO_NUMBERS, "a negative offset")),
    *((METADATA, damage) for damage in ("empty", "a short id")),
}


class Kafka:
    """Kafka's LogManager in a Java process (DirectoryOracle.java describes the protocol of lines)."""

    def __init__(self) -> None:
        self._java = JavaProcess("DirectoryOracle")

    def start(self, root: Path) -> Outcome:
        """Start on the directories, stop in order, and return what was found."""
        dirs = ",".join(str(root / name) for name in DIRS)
        words = "start", CLUSTER, BROKER, CONFIG.segment_bytes, CONFIG.index_interval_bytes, dirs
        kind, *found = self._java.ask(" ".join(map(str, words))).split(" ")
        return sorted(word.removeprefix(f"{root}/") for word in found) if kind == "ok" else None

    def close(self) -> None:
        self._java.close()


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    """Kafka's own classes; skipped without Java or Maven, failed in CI."""
    require_kafka()
    oracle = Kafka()
    yield oracle
    oracle.close()


def manager_of(root: Path) -> LogManager:
    return LogManager([root / name for name in DIRS], CONFIG, BROKER, CLUSTER, settings=SETTINGS)


def ours(root: Path) -> Outcome:
    """As ``Kafka.start``."""
    manager = manager_of(root)
    try:
        manager.start()
    except LogDirectoryError:
        return None
    found = [path.name for path in manager.offline_dirs]
    for (topic, partition), log in manager.logs().items():
        topic_id = manager.topic_id(topic, partition)
        words = (
            log.folder.relative_to(root), log.start_offset, log.end_offset, log.recovery_point,
            log.high_watermark, "-" if topic_id is None else id_to_text(topic_id),
        )  # fmt: skip
        found.append(":".join(map(str, words)))
    manager.stop(broker_epoch=7)
    return sorted(found)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directories of a broker that was closed in order."""
    root = tmp_path_factory.mktemp("closed")
    manager = manager_of(root)
    manager.start()
    for partition in REPLICAS:
        log = manager.open_log(TOPIC, partition, TOPIC_ID, CONFIG)
        fill(log)
        log.update_high_watermark(log.end_offset - 20)
        log.increment_start_offset(13)
    manager.stop(broker_epoch=7)
    return root


@pytest.fixture(scope="module", params=["clean", "unclean"])
def source(request: pytest.FixtureRequest, closed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directories after a clean shutdown, or as after a loss of power."""
    if request.param == "clean":
        return closed
    root = tmp_path_factory.mktemp("unclean")
    shutil.copytree(closed, root, dirs_exist_ok=True)
    for name in DIRS:
        (root / name / checkpoints.CLEAN_SHUTDOWN).unlink()
        path = root / name / checkpoints.RECOVERY_POINT_CHECKPOINT
        points = {}
        for replica in checkpoints.read_offsets(path):
            segments = sorted((root / name / f"{TOPIC}-{replica[1]}").glob("*.log"))
            points[replica] = int(segments[len(segments) // 2].stem)
        checkpoints.write_offsets(path, points)
    return root


def damaged(source: Path, root: Path, name: str, damage: Damage) -> Path:
    """Return a copy of the directories in which one file of the first directory is damaged."""
    shutil.copytree(source, root)
    path = root / DIRS[0] / name
    # A file that is not there, as .kafka_cleanshutdown after a crash, is damaged like an empty one.
    data = damage(path.read_bytes() if path.exists() else b"")
    path.unlink(missing_ok=True)
    if data is not None:
        path.write_bytes(data)
    return root


def written(root: Path, outcome: Outcome) -> dict[str, object]:
    """Return what is in the directories that were online: small files by their meaning, others as bytes."""
    found: dict[str, object] = {}
    for folder in (root / name for name in DIRS if outcome is not None and name not in outcome):
        found[f"{folder.name}/clean"] = checkpoints.read_clean_shutdown(folder)
        found[f"{folder.name}/identity"] = checkpoints.read_meta_properties(folder)
        for name in OFFSET_FILES:
            found[f"{folder.name}/{name}"] = checkpoints.read_offsets(folder / name)
        for replica in folder.glob(f"{TOPIC}-*"):
            found |= {
                # Kafka always writes leader epochs anew.
                f"{folder.name}/{replica.name}/{name}": data.rstrip()
                for name, data in contents(replica).items()
                if not name.endswith(".deleted")
            }
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
def test_damaged_files_mean_what_they_mean_to_kafka(
    kafka: Kafka, source: Path, tmp_path: Path, name: str
) -> None:
    whole = kafka.start(damaged(source, tmp_path / "whole", name, lambda data: data))
    assert whole is not None
    wrong = {}
    for number, (what, damage) in enumerate(FILES[name].items()):
        root = tmp_path / str(number)
        theirs = kafka.start(damaged(source, root / "kafka", name, damage))
        expected, expected_root = theirs, root / "kafka"
        if (name, what) in GOES_ON:
            expected_root = root / "without"
            expected = kafka.start(damaged(source, expected_root, name, ANY["missing"]))
        elif (name, what) in IS_OFFLINE:
            expected = sorted([DIRS[0], *(one for one in whole if one.startswith(DIRS[1]))])
        differs = (name, what) in GOES_ON | IS_OFFLINE
        found = ours(damaged(source, root / "ours", name, damage))
        if found != expected:
            wrong[what] = f"{found} instead of {expected}"
        elif differs and theirs == expected:
            wrong[what] = "the same as Kafka, so it is no exception"
        elif (name, what) not in IS_OFFLINE:
            left, right = written(expected_root, expected), written(root / "ours", found)
            if left != right:
                wrong[what] = str(sorted(key for key in left | right if left.get(key) != right.get(key)))
        shutil.rmtree(root)
    assert wrong == {}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(list(FILES)), where=st.floats(0, 1), bit=st.integers(0, 7), cut=st.booleans())
def test_one_wrong_bit_means_what_it_means_to_kafka(
    kafka: Kafka, source: Path, tmp_path: Path, name: str, where: float, bit: int, cut: bool
) -> None:
    def damage(data: bytes) -> bytes:
        at = int(where * max(0, len(data) - 1))
        if cut or not data:
            return data[:at]
        return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]

    def outcome_of(side: str, start: Callable[[Path], Outcome], damage: Damage) -> tuple[Outcome, Path]:
        shutil.rmtree(tmp_path / side, ignore_errors=True)
        root = damaged(source, tmp_path / side, name, damage)
        return start(root), root

    expected, root = outcome_of("kafka", kafka.start, damage)
    found, our_root = outcome_of("ours", ours, damage)
    if found != expected and (expected is None or DIRS[0] in expected):
        # Where Kafka gives up, we may go on without the file, or without the directory.
        assert found is not None
        if DIRS[0] in found:
            return
        expected, root = outcome_of("without", kafka.start, ANY["missing"])
    assert found == expected
    assert written(our_root, found) == written(root, expected)
