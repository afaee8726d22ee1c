"""``ctrlchan broker`` with log directories under load: signals, a full disk, no descriptors."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from kio.static.primitive import i32Timedelta

from ctrlchan import EmbeddedBroker
from ctrlchan._codec import LEADER_AND_ISR
from ctrlchan.errors import ErrorCode
from ctrlchan.peers.messages import encode_request, part
from tests.fault.channels import linux_only
from tests.kafka.waiting import wait_until
from tests.kafka.wire import exchange, exchange_on, send_frame
from tests.unit.broker.local_broker import LiveBroker, Part, control_frame
from tests.unit.broker.log.made_batches import batch
from tests.unit.broker.replica.serving import outcomes, produce_frame
from tests.unit.broker.test_command import line, running

VERSION = 11
TOPIC = "t"
SECONDS = 60


@contextmanager
def started(*folders: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A broker that leads two partitions; yields the process and the port."""
    file = folders[0].parent / "server.properties"
    file.write_text(
        "broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nnum.io.threads=1\n"
        f"log.dirs={','.join(map(str, folders))}\n"
    )
    with running("--config", str(file), "--json") as process:
        port = json.loads(line(process))["port"]
        lead(port)
        yield process, port


def lead(port: int) -> None:
    parts = [Part(TOPIC, number, replicas=(1,), isr=(1,)) for number in range(2)]
    live = [LiveBroker(1, host="127.0.0.1", port=port)]
    exchange("127.0.0.1", port, control_frame(LEADER_AND_ISR, 7, parts, live=live, broker_epoch=-1))


def produce(connection: socket.socket, value: bytes, partition: int = 0) -> tuple[int, int]:
    """Produce one record; return its error and its offset."""
    frame = produce_frame(VERSION, [(TOPIC, [(partition, batch([value]))])], acks=1)
    ((_, _, error, offset),) = outcomes(VERSION, exchange_on(connection, frame))
    return error, offset


def end_offsets(folders: list[Path]) -> list[int]:
    """Return where the logs of the two partitions end, read by another broker."""
    ends: dict[int, int] = {}
    for folder in folders:
        with EmbeddedBroker(1, log_dir=folder) as broker:
            logs = broker.inspect(lambda core: core.logs.logs())  # type: ignore[attr-defined]
            ends |= {partition: log.end_offset for (_, partition), log in logs.items()}
    return [ends[0], ends[1]]


class Producers:
    """Threads that produce to partition 0 until their connection ends. ``acknowledged``: the last offset."""

    def __init__(self, port: int, count: int = 4) -> None:
        self.acknowledged = -1
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=[port]) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self, port: int) -> None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
            while True:
                error, offset = produce(connection, b"x" * 100)
                assert error == 0
                with self._lock:
                    self.acknowledged = max(self.acknowledged, offset)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


def behind_the_note(errors: str) -> str:
    """Return what a broker has written to standard error behind the note that it has no controller."""
    note, _, rest = errors.partition("\n")
    assert note.startswith("note: there is no controller")
    return rest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_under_load_loses_no_acknowledged_record(tmp_path: Path, number: int) -> None:
    folder = tmp_path / "logs"
    with started(folder) as (process, port):
        producers = Producers(port)
        wait_until(lambda: producers.acknowledged >= 200, what="records are acknowledged")
        process.send_signal(number)
        _, errors = process.communicate(timeout=SECONDS)
        producers.join()
        killed = number == signal.SIGKILL
        assert (process.returncode, behind_the_note(errors)) == (-signal.SIGKILL if killed else 0, "")
    assert (folder / ".kafka_cleanshutdown").exists() != killed
    assert end_offsets([folder])[0] > producers.acknowledged
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port))


@linux_only
def test_a_full_disk_acknowledges_nothing_that_is_not_written(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    with started(*folders) as (process, port):
        # No file may grow beyond a size: as on a full disk, a write fails or is cut. An index has its full
        # size, 10 MiB, from its first entry on.
        psutil.Process(process.pid).rlimit(psutil.RLIMIT_FSIZE, (12 << 20, 12 << 20))
        acknowledged = -1
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
            while True:
                error, offset = produce(connection, b"x" * 200_000)
                if error:
                    break
                acknowledged = offset
            assert error == ErrorCode.KAFKA_STORAGE_ERROR
            for _ in range(3):
                assert produce(connection, b"small")[0] == ErrorCode.KAFKA_STORAGE_ERROR
            # The other log directory goes on.
            assert produce(connection, b"small", partition=1) == (0, 0)
        process.terminate()
        _, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == 0
        assert "is offline" in errors
        assert "Traceback" not in errors
    assert acknowledged > 10
    first, second = end_offsets(folders)
    assert first >= acknowledged + 1
    assert second == 1


@linux_only
def test_a_broker_goes_on_when_no_descriptor_was_free(tmp_path: Path) -> None:
    with started(tmp_path / "logs") as (process, port):
        limited = psutil.Process(process.pid)
        before = limited.rlimit(psutil.RLIMIT_NOFILE)
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
            assert produce(connection, b"before") == (0, 0)
            limited.rlimit(psutil.RLIMIT_NOFILE, (limited.num_fds() + 3, before[1]))
            others = [socket.create_connection(("127.0.0.1", port), timeout=SECONDS) for _ in range(10)]
            assert produce(connection, b"meanwhile") == (0, 1)
            for one in others[:-1]:
                one.close()
            # It has waited in the backlog.
            assert produce(others[-1], b"after") == (0, 2)
            others[-1].close()
        process.terminate()
        _, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == 0
        assert "Traceback" not in errors


def test_a_thousand_connections_of_which_half_stall(tmp_path: Path) -> None:
    """Half of the frames never come to their end, and answers that nobody reads, cost others nothing."""
    with started(tmp_path / "logs") as (process, port), ExitStack() as stack:

        def connected() -> socket.socket:
            address = ("127.0.0.1", port)
            return stack.enter_context(socket.create_connection(address, timeout=SECONDS))

        first = connected()
        for _ in range(100):
            assert produce(first, b"x" * 100_000)[0] == 0
        before = psutil.Process(process.pid).memory_info().rss
        half = produce_frame(VERSION, [(TOPIC, [(0, batch([b"x" * 50_000_000]))])])[:2_000]
        for _ in range(250):
            connected().sendall(struct.pack(">i", 50_000_100) + half)
            # Ten megabytes, which the kernel's buffers do not take.
            send_frame(connected(), fetch_frame())
        for _ in range(500):
            assert produce(connected(), b"x")[0] == 0
        assert produce(first, b"last")[0] == 0
        assert psutil.Process(process.pid).memory_info().rss - before < 50 << 20
        process.terminate()
        _, errors = process.communicate(timeout=SECONDS)
        assert (process.returncode, behind_the_note(errors)) == (0, "")


def fetch_frame() -> bytes:
    """Return a Fetch of all records of partition 0."""
    version = 11
    partition = part(
        "fetch", version, "FetchPartition", partition=0, fetch_offset=0, partition_max_bytes=1 << 26
    )
    body = encode_request(
        "fetch",
        version,
        replica_id=-1,
        max_wait=i32Timedelta.parse(timedelta()),
        min_bytes=0,
        topics=(part("fetch", version, "FetchTopic", topic=TOPIC, partitions=(partition,)),),
        forgotten_topics_data=(),
    )
    return struct.pack(">hhih", 1, version, 1, -1) + body
