"""A small HDFS, a NameNode and a DataNode in one JVM, and the jars that Spark needs for S3.

Needs ``java`` and ``javac`` 17 or newer, and ``mvn``, as real Kafka does (``tests.kafka.jars``).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark

from tests.kafka.jars import SHORT_LIVED, fetched_jars, report_on_stderr

__all__ = ["hadoop_jars", "serving_hdfs"]

_POM: Final = Path(__file__).with_name("pom.xml")
_SOURCE: Final = Path(__file__).with_name("MiniHdfs.java")
_SPARK_JARS: Final = Path(pyspark.__file__).parent / "jars"
#: In the folder of jars, but nothing for the class path of Spark.
_SERVER: Final = "hadoop-client-minicluster"


def hadoop_jars() -> list[str]:
    """Return the jars that Spark needs for ``s3a``. Raises KafkaUnavailableError without Maven."""
    folder = fetched_jars(_POM, "hadoop-jars", "Hadoop's jars (70 MB)", report_on_stderr)
    return sorted(str(jar) for jar in folder.glob("*.jar") if not jar.name.startswith(_SERVER))


@contextmanager
def serving_hdfs() -> Iterator[str]:
    """Start HDFS; yield its URL. Raises KafkaUnavailableError without Java or Maven."""
    folder = fetched_jars(_POM, "hadoop-jars", "Hadoop's jars (70 MB)", report_on_stderr)
    path = [*map(str, folder.glob(f"{_SERVER}*.jar")), f"{_SPARK_JARS}{os.sep}*"]
    with tempfile.TemporaryDirectory(prefix="ctrlchan-hdfs-") as data, tempfile.TemporaryFile() as log:
        command = ["java", *SHORT_LIVED, "-cp", os.pathsep.join(path), str(_SOURCE), data]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as server:
            try:
                assert server.stdout is not None
                url = server.stdout.readline().strip()
                if not url.startswith("hdfs://"):
                    log.seek(0)
                    raise RuntimeError(f"HDFS does not start: {log.read().decode(errors='replace')[-2_000:]}")
                yield url
            finally:
                # It ends when its standard input is closed; its data is thrown away.
                server.kill()
