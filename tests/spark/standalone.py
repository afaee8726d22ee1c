"""A standalone Spark cluster out of the pip-installed package: a master and workers as processes."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

import psutil
import pyspark

from ctrlchan.pipeline.spark.java import java_home

_SPARK_HOME: Final = Path(pyspark.__file__).parent
_STARTED: Final = 240.0
_ENDED: Final = 20.0
_MASTER: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = re.compile(r"Registering worker ")


class StandaloneCluster:
    """Started by ``with``. ``master``: its URL. Logs stay in ``folder``. All its JVMs have the options that
    ``environment`` gives those of drivers."""

    def __init__(self, folder: Path, environment: dict[str, str], workers: int = 2) -> None:
        self.folder = folder
        self.master = ""
        self._jvm_options = environment.get("SPARK_SUBMIT_OPTS", "")
        self._environment = {
            **environment,
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": sys.executable,
            # Not an installation of the user's, nor its settings.
            "SPARK_HOME": str(_SPARK_HOME),
            # No file is there. The class path of drivers has it too, so that the class archive fits.
            "SPARK_CONF_DIR": str(_SPARK_HOME / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            # Tests of several checkouts may run at once.
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            "SPARK_DAEMON_MEMORY": "512m",
            "SPARK_DAEMON_JAVA_OPTS": self._jvm_options,
        }
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            log = self._start(
                "master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
            )
            self.master = self._said(log, _MASTER, 1)[0]
            for number in range(self._workers):
                work = self.folder / f"work-{number}"
                self._start(
                    f"worker-{number}",
                    "worker.Worker",
                    *("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g"),
                    *("--work-dir", str(work), self.master),
                )
            self._said(log, _REGISTERED, self._workers)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def conf(self) -> dict[str, str]:
        """Return settings for a job: executors of one core and little memory."""
        return {
            "spark.master": self.master,
            "spark.executor.memory": "768m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": self._jvm_options,
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "4",
            "spark.ui.enabled": "false",
        }

    def arguments(self) -> list[str]:
        """``conf`` for ``ctrlchan pipeline JOB``."""
        settings = self.conf()
        master = settings.pop("spark.master")
        return [
            "--master",
            master,
            *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
        ]

    def executors(self) -> list[psutil.Process]:
        """Return the running JVMs of executors, oldest first."""
        found = []
        for worker in self._processes[1:]:
            try:
                children = psutil.Process(worker.pid).children(recursive=True)
            except psutil.NoSuchProcess:
                continue
            for child in children:
                try:
                    if any("CoarseGrainedExecutorBackend" in word for word in child.cmdline()):
                        found.append(child)
                except (psutil.NoSuchProcess, psutil.ZombieProcess):
                    continue
        return sorted(found, key=lambda process: process.create_time())

    def stop(self) -> None:
        """End the workers, which end their executors; then end the executors that remain."""
        executors = self.executors()
        for process in reversed(self._processes):
            process.terminate()
        deadline = time.monotonic() + _ENDED
        for process in reversed(self._processes):
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        for executor in psutil.wait_procs(executors, max(0.1, deadline - time.monotonic()))[1]:
            executor.kill()

    def _start(self, name: str, kind: str, *arguments: str) -> Path:
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            self._processes.append(
                subprocess.Popen(
                    [str(_SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments],
                    env=self._environment,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C of the tests reaches the fixture, which ends them in order.
                    start_new_session=True,
                )
            )
        return log

    def _said(self, log: Path, pattern: re.Pattern[str], times: int) -> list[str]:
        return wait_for_line(log, pattern, times, self._processes)


def wait_for_line(
    log: Path, pattern: re.Pattern[str], times: int, processes: Sequence[subprocess.Popen[bytes]]
) -> list[Any]:
    """Wait until the log has the pattern so many times; return what ``findall`` does.

    Raises RuntimeError if one of the processes ends, or if the time for a start is over.
    """
    deadline = time.monotonic() + _STARTED
    while True:
        text = log.read_text(errors="replace")
        found = pattern.findall(text)
        if len(found) >= times:
            return found
        ended = [process for process in processes if process.poll() is not None]
        if ended or time.monotonic() > deadline:
            last = "\n".join(text.splitlines()[-20:])
            raise RuntimeError(f"Spark did not start ({pattern.pattern}); {log.name} has:\n{last}")
        time.sleep(0.05)
