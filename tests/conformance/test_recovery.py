"""Recovery beside Kafka's own LogLoader: the same damaged folder, twice, becomes the same log."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctrlchan.broker.log._log import Log
from ctrlchan.errors import KafkaError, LogDirectoryError
from tests.conformance.filled_logs import CONFIG, FOREVER, contents, fill, fill_old
from tests.conformance.java_process import JavaProcess
from tests.kafka.requirement import require_kafka


class Kafka:
    """Kafka's LogLoader in a Java process (RecoveryOracle.java describes the protocol of lines)."""

    def __init__(self) -> None:
        self._java = JavaProcess("RecoveryOracle")

    def load(self, folder: Path, *, clean: bool, start: int, recovery_point: int) -> list[int] | str:
        """Return start, end, recovery point and last stable offset of the log, or why it cannot be loaded."""
        words = "load", int(clean), start, recovery_point, CONFIG.segment_bytes, CONFIG.index_interval_bytes
        kind, _, answer = self._java.ask(f"{' '.join(map(str, words))} {folder}").partition(" ")
        return [int(word) for word in answer.split()] if kind == "ok" else answer

    def close(self) -> None:
        self._java.close()


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    """Kafka's own loader; skipped without Java or Maven, failed in CI."""
    require_kafka()
    oracle = Kafka()
    yield oracle
    oracle.close()


def ours(folder: Path, *, clean: bool, start: int, recovery_point: int) -> list[int] | str:
    """As ``Kafka.load``."""
    try:
        log = Log(
            folder, CONFIG, clean=clean, start_offset=start, recovery_point=recovery_point,
            producer_expiration_ms=FOREVER,
        )  # fmt: skip
    except (LogDirectoryError, KafkaError) as error:
        return str(error)
    found_point = log.recovery_point
    log.update_high_watermark(log.end_offset)
    found = [log.start_offset, log.end_offset, found_point, log.stable_offset]
    log.close()
    log.delete_files(2**62)
    return found


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """A log that was closed in order (True), and one that was not."""
    made = {}
    for clean in (True, False):
        made[clean] = tmp_path_factory.mktemp("clean" if clean else "unclean") / "orders-0"
        log = Log(made[clean], CONFIG, producer_expiration_ms=FOREVER)
        fill(log)
        if clean:
            log.close()
        else:
            log.close_files()
    return made


@pytest.fixture(scope="module")
def old_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that begins with formats 0 and 1, and was not closed in order."""
    folder = tmp_path_factory.mktemp("old") / "orders-0"
    log = Log(folder, CONFIG, producer_expiration_ms=FOREVER)
    fill_old(log)
    log.close_files()
    return folder


def damage(path: Path, kind: str, where: float, more: bytes) -> None:
    """Do one thing to a file; ``where``: at which part of it."""
    data = bytearray(path.read_bytes())
    at = min(int(where * len(data)), max(len(data) - 1, 0))
    if kind == "flip" and data:
        data[at] ^= more[0] | 1
    elif kind == "cut":
        del data[at:]
    elif kind == "append":
        data += more
    elif kind == "zeros":
        data[at:] = bytes(len(data) - at)
    if kind == "delete":
        path.unlink()
    else:
        path.write_bytes(data)


def same_log(
    kafka: Kafka, root: Path, source: Path, broken: list[tuple[str, str, float, bytes]], *, clean: bool,
    start: int = 0, recovery_point: int = 0,
) -> None:  # fmt: skip
    copies = root / "kafka" / "orders-0", root / "ours" / "orders-0"
    for copy in copies:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy)
        for name, kind, where, more in broken:
            with suppress(FileNotFoundError):
                damage(copy / name, kind, where, more)
    theirs = kafka.load(copies[0], clean=clean, start=start, recovery_point=recovery_point)
    found = ours(copies[1], clean=clean, start=start, recovery_point=recovery_point)
    if isinstance(theirs, str):
        # Kafka does not start: ours may mend more, as an index that can be written anew.
        return
    assert found == theirs, (found, theirs)
    left, right = contents(copies[0]), contents(copies[1])
    differing = [
        (name, left.get(name), right.get(name))
        for name in sorted(left | right)
        if left.get(name) != right.get(name)
    ]
    assert not differing, [(name, len(one or b""), len(other or b"")) for name, one, other in differing]


#: One thing at a time: Kafka recovers a segment with a wrong index twice, and after the second time it does
#: not know that the first one has removed records, so that later segments stay behind a gap.
DAMAGE = st.lists(
    st.tuples(
        st.sampled_from(
            ["log", "log", "index", "timeindex", "txnindex", "snapshot", "leader-epoch-checkpoint"]
        ),
        st.floats(0, 1),
        st.sampled_from(["flip", "flip", "cut", "append", "zeros", "delete"]),
        st.floats(0, 1, exclude_max=True),
        st.binary(min_size=1, max_size=80),
    ),
    max_size=1,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(broken=DAMAGE, start=st.sampled_from([0, 0, 13, 10**6]), point=st.floats(0, 1))
def test_an_unclean_log_is_recovered_as_kafka_does_it(
    kafka: Kafka,
    folders: dict[bool, Path],
    tmp_path: Path,
    broken: list[tuple[str, float, str, float, bytes]],
    start: int,
    point: float,
) -> None:
    source = folders[False]
    bases = sorted(int(path.stem) for path in source.glob("*.log"))
    recovered_from = bases[int(point * (len(bases) - 1))]
    files = []
    for kind, which, how, where, more in broken:
        # What is below the recovery point Kafka trusts, also where an index does not fit its segment.
        named = sorted(
            path.name
            for path in source.glob(f"*{kind}")
            if kind not in ("log", "index", "timeindex", "txnindex") or int(path.stem) >= recovered_from
        )
        if named:
            files.append((named[int(which * (len(named) - 1))], how, where, more))
    same_log(kafka, tmp_path, source, files, clean=False, start=start, recovery_point=recovered_from)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    which=st.floats(0, 1), kind=st.sampled_from(["flip", "cut", "delete", "zeros"]), where=st.floats(0, 0.99)
)
def test_snapshots_of_a_clean_log_are_not_trusted(
    kafka: Kafka, folders: dict[bool, Path], tmp_path: Path, which: float, kind: str, where: float
) -> None:
    names = sorted(path.name for path in folders[True].glob("*.snapshot"))
    name = names[int(which * (len(names) - 1))]
    same_log(kafka, tmp_path, folders[True], [(name, kind, where, b"\x10")], clean=True)


def test_a_missing_index_of_a_clean_log_is_written_anew(
    kafka: Kafka, folders: dict[bool, Path], tmp_path: Path
) -> None:
    for path in folders[True].glob("*.index"):
        same_log(kafka, tmp_path, folders[True], [(path.name, "delete", 0, b"")], clean=True)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    broken=st.lists(
        st.tuples(
            st.floats(0, 1),
            st.sampled_from(["flip", "flip", "cut", "append", "zeros"]),
            st.floats(0, 1, exclude_max=True),
            st.binary(min_size=1, max_size=80),
        ),
        max_size=1,
    )
)
def test_segments_of_old_formats_are_recovered_as_kafka_does_it(
    kafka: Kafka, old_folder: Path, tmp_path: Path, broken: list[tuple[float, str, float, bytes]]
) -> None:
    names = sorted(path.name for path in old_folder.glob("*.log"))
    files = [(names[int(which * (len(names) - 1))], how, where, more) for which, how, where, more in broken]
    same_log(kafka, tmp_path, old_folder, files, clean=False)
