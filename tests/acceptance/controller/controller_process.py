"""A controller in a process of its own, which a test can stop and kill.

``python -m tests.acceptance.controller.controller_process ZOOKEEPER ID`` starts a controller that takes over,
prints a line of JSON (endpoint, epoch) when it is active, and one when a term begins or ends. It ends at the
end of its input.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from ctrlchan.controller.events.notifications import Notification, NotificationKind
from ctrlchan.controller.kafka_controller import KafkaController
from tests.acceptance.controller.cluster import controller_config
from tests.kafka.waiting import wait_until

__all__ = ["ControllerProcess"]


class ControllerProcess:
    """The process of a controller that has taken over; a context manager. Its log is in ``folder``."""

    def __init__(self, folder: Path, zookeeper: str, controller_id: int) -> None:
        self.lines = folder / f"controller-{controller_id}.lines"
        self.log = folder / f"controller-{controller_id}.log"
        with self.lines.open("wb") as lines, self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, zookeeper, str(controller_id)],
                cwd=Path(__file__).parents[3],
                stdin=subprocess.PIPE,
                stdout=lines,
                stderr=log,
                process_group=0,
            )
        self.elected: dict[str, Any] = {}

    def __enter__(self) -> ControllerProcess:
        self.elected = self.wait_for("elected")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.go_on()
        self._process.communicate(timeout=60)

    def wait_for(self, event: str) -> dict[str, Any]:
        """Wait for the first line of this event."""

        def found() -> dict[str, Any] | None:
            assert self._process.poll() is None, self.log.read_text()
            lines = [
                json.loads(line)
                for line in self.lines.read_text().splitlines(keepends=True)
                if line[-1] == "\n"
            ]
            return next((line for line in lines if line["event"] == event), None)

        return wait_until(found, timeout=60, what=f"the controller process has {event}")

    def stop(self, *, senders: bool) -> None:
        """SIGSTOP the process; ``senders``: its sender processes too."""
        for process in self._processes() if senders else [psutil.Process(self._process.pid)]:
            process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT all its processes."""
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)

    def _processes(self) -> list[psutil.Process]:
        parent = psutil.Process(self._process.pid)
        return [parent, *parent.children(recursive=True)]


def _main(zookeeper: str, controller_id: int) -> None:
    def report(notification: Notification) -> None:
        if notification.kind in (NotificationKind.ELECTED, NotificationKind.RESIGNED):
            line = {"event": notification.kind.name.lower(), "epoch": notification.controller_epoch}
            line["port"] = controller.endpoints[0].port
            os.write(1, json.dumps(line).encode() + b"\n")

    controller = KafkaController(controller_config(zookeeper, controller_id=controller_id), listener=report)
    with controller:
        wait_until(controller.take_over, timeout=60, what="the controller takes over")
        sys.stdin.read()


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
