"""A Spark Connect server out of the pip-installed package, as a process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

import pyspark

from ctrlchan.pipeline.spark.java import java_home
from tests.spark.standalone import wait_for_line

_SPARK_HOME: Final = Path(pyspark.__file__).parent
_SOURCES: Final = Path(__file__).parents[2]
_STARTED: Final = re.compile(r"Spark Connect server started at: (?:\S+/)?([\d.]+):(\d+)")
_ENDED: Final = 20.0


class ConnectServer:
    """Started by ``with``. ``url``: for clients. Its tasks run in this Python, with two cores."""

    def __init__(self, folder: Path) -> None:
        self.url = ""
        self.log = folder / "connect.log"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(_SOURCES),
            "SPARK_HOME": str(_SPARK_HOME),
            "SPARK_CONF_DIR": str(_SPARK_HOME / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_CONNECT_MODE": "0",
        }
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.driver.memory": "2g",
            "spark.ui.enabled": "false",
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            # A busy machine takes its time to start a Python worker.
            "spark.python.authenticate.socketTimeout": "120s",
            # Inputs are small: classes for their expressions would cost most of the time.
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.shuffle.partitions": "2",
        }
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    str(_SPARK_HOME / "bin" / "spark-submit"),
                    *("--class", server, "--master", "local[2]"),
                    *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
                ],
                env=environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            [(host, port)] = wait_for_line(self.log, _STARTED, 1, [self._process])
        except BaseException:
            self.stop()
            raise
        self.url = f"sc://{host}:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_ENDED)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
