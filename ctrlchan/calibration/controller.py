"""The measured controller, in a process of its own.

``main`` starts a controller of the ZooKeeper that its argument names, and prints the port of its listener.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

from ctrlchan.calibration.child import ChildProcess

__all__ = ["CONTROLLER_ID", "MeasuredController", "main"]

#: No broker of a measured cluster has it.
CONTROLLER_ID: Final = 100_000
_HOST: Final = "127.0.0.1"


def main() -> None:
    """Run a controller until standard input ends."""
    from ctrlchan.channel import ChannelConfig
    from ctrlchan.controller.kafka_controller import KafkaController
    from ctrlchan.controller.settings.config import ControllerConfig
    from ctrlchan.protocol import SecurityProtocol
    from ctrlchan.state import Endpoint

    # Registrations end while it works; their log lines would only frighten.
    logging.disable(logging.CRITICAL)
    config = ControllerConfig(
        controller_id=CONTROLLER_ID,
        zookeeper=sys.argv[1],
        listeners=(Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, _HOST, 0),),
        channel=ChannelConfig(controller_id=CONTROLLER_ID),
        auto_leader_rebalance=False,
    )
    with KafkaController(config) as controller:
        print(controller.endpoints[0].port, flush=True)
        sys.stdin.read()


class MeasuredController(ChildProcess):
    """The process; ``port``: of its listener."""

    def __init__(self, zookeeper: str) -> None:
        super().__init__("the measured controller", "ctrlchan.calibration.controller", zookeeper)
        self.port = int(self.first_line)
