"""Old clients of other languages share a topic with one another and with a client of today.

librdkafka 0.9 speaks as to brokers of 0.8.2, 0.9 and 0.10; sarama, a Go client, as to brokers of each age.
Java's old clients are in ``test_old_java_clients``.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

import ctrlchan
from tests.acceptance.test_old_java_clients import printed_by, produce_today, read_today
from tests.kafka.jars import BUILD
from tests.kafka.requirement import miss

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SOURCES: Final = Path(__file__).with_name("old_clients")
SARAMA: Final = "github.com/IBM/sarama@v1.43.3"
#: This package of npm holds the sources of librdkafka 0.9.4.
LIBRDKAFKA: Final = "node-rdkafka@0.8.0"
CODECS: Final = ("none", "gzip", "snappy")
SARAMA_VERSIONS: Final = (
    "0.8.2.0",
    "0.9.0.1",
    "0.10.0.1",
    "0.10.2.1",
    "0.11.0.2",
    "1.1.1",
    "2.1.0",
    "2.8.1",
    "3.6.0",
)
LIBRDKAFKA_VERSIONS: Final = ("0.8.2.1", "0.9.0.1", "0.10.0.0")
COUNT: Final = 200


@pytest.fixture(scope="module")
def cluster() -> Iterator[ctrlchan.EmbeddedCluster]:
    with ctrlchan.EmbeddedCluster(1, log_dir=ctrlchan.TEMPORARY) as cluster:
        yield cluster


def make(folder: Path, *commands: Sequence[str | Path]) -> None:
    """Run commands in a folder. Raises OSError with what a command has printed."""
    for words in commands:
        ran = subprocess.run(
            words,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=800,
            check=False,
        )
        if ran.returncode:
            raise OSError(f"{' '.join(map(str, words))}: {ran.stdout[-2000:]}")


@pytest.fixture(scope="module")
def sarama() -> Path:
    """The compiled program of the client; made once."""
    folder = BUILD / "sarama"
    program = folder / "sarama"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCES / "sarama.go", folder)
        if not (folder / "go.mod").exists():
            make(folder, ("go", "mod", "init", "sarama_client"))
        make(folder, ("go", "get", SARAMA), ("go", "build", "-o", program))
    except (OSError, subprocess.SubprocessError) as error:
        miss("sarama", error)
    return program


@pytest.fixture(scope="module")
def librdkafka() -> Path:
    """The compiled program of the client, with the library in it; made once."""
    folder = BUILD / "librdkafka-0.9.4"
    program, source = folder / "librdkafka", folder / "package" / "deps" / "librdkafka"
    library, headers = source / "src" / "librdkafka.a", folder / "librdkafka-headers"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not library.exists():
            archive = LIBRDKAFKA.replace("@", "-") + ".tgz"
            make(folder, ("npm", "pack", "--silent", LIBRDKAFKA), ("tar", "xzf", archive))
            configure = ("./configure", "--disable-ssl", "--disable-sasl")
            make(source, configure, ("make", "-C", "src", library.name))
        # The program includes <librdkafka/rdkafka.h>, as with an installed library.
        headers.mkdir(exist_ok=True)
        shutil.copytree(source / "src", headers / "librdkafka", dirs_exist_ok=True)
        compiler = ("cc", "-O1", "-Wall", "-Wextra", "-I", headers, "-o", program)
        make(
            folder, (*compiler, SOURCES / "librdkafka.c", library, "-lz", "-lpthread", "-lrt", "-ldl", "-lm")
        )
    except (OSError, subprocess.SubprocessError) as error:
        miss("librdkafka 0.9", error)
    return program


def share_a_topic(
    cluster: ctrlchan.EmbeddedCluster,
    program: Path,
    topic: str,
    versions: Sequence[str],
    codecs: Sequence[str] = CODECS,
) -> None:
    """Let each version write, and then read all, in two turns: the second is from the committed offset on."""
    bootstrap = cluster.bootstrap_servers
    cluster.create_topic(topic, partitions=1)
    for version in versions:
        printed_by(str(program), "produce", bootstrap, topic, version, str(COUNT), *codecs)
    produce_today(bootstrap, topic, codecs)
    records = read_today(bootstrap, topic)
    written = [
        f"{version} {codec} {number}" for version in versions for codec in codecs for number in range(COUNT)
    ]
    assert [value for _, _, value in records][: len(written)] == written
    for version in versions:
        read = [
            line
            for count in (COUNT, len(records) - COUNT)
            for line in printed_by(
                str(program), "consume", bootstrap, topic, version, str(count), f"{topic}-{version}"
            )
        ]
        assert read == records, version


def test_sarama_of_all_ages(cluster: ctrlchan.EmbeddedCluster, sarama: Path) -> None:
    share_a_topic(cluster, sarama, "sarama", SARAMA_VERSIONS)


def test_sarama_with_lz4(cluster: ctrlchan.EmbeddedCluster, sarama: Path) -> None:
    """From 0.10 on: Kafka's LZ4 of format 0 has a checksum of its own, which sarama does not know."""
    share_a_topic(cluster, sarama, "sarama-lz4", SARAMA_VERSIONS[2:], ("lz4",))


def test_sarama_with_zstd(cluster: ctrlchan.EmbeddedCluster, sarama: Path) -> None:
    """From 2.1 on: Kafka refuses it to older clients."""
    share_a_topic(cluster, sarama, "sarama-zstd", SARAMA_VERSIONS[6:], ("zstd",))


def test_librdkafka(cluster: ctrlchan.EmbeddedCluster, librdkafka: Path) -> None:
    share_a_topic(cluster, librdkafka, "librdkafka", LIBRDKAFKA_VERSIONS)
