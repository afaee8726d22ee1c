"""A controller as a process that takes commands from standard input, as ``peers/kafka/ControllerPeer.java``.

Command: ``python -m bench.controller PORT BROKERS TOPICS PARTITIONS_PER_TOPIC``, with ``--config`` (fields of
ChannelConfig as a JSON object) and features that may be on in production: ``--journal`` (into a temporary
folder), ``--metrics`` and ``--state-change-log LEVEL`` (lines are formatted and discarded).

The address of every broker is HOST:PORT (``--host``, 127.0.0.1), a sink. Prints "ready" and answers each
command with one line of milliseconds: ``start``, ``push`` ("BUILD SEND TOTAL"), ``awaited N``, ``queued N``;
``peers/controllers.py`` describes them. The process contains only a controller, so its memory and its first
push are those of a controller.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from bench import workload
from bench.peers.place import LOOPBACK
from ctrlchan._codec import UPDATE_METADATA, encode_head, update_metadata_body
from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.channel import ChannelConfig, ControllerChannelManager, OutcomeKind, Sent
from ctrlchan.state import ClusterState

if TYPE_CHECKING:
    from ctrlchan.channel.observability.metrics import ChannelMetrics
    from ctrlchan.journal import Journal

CONTROLLER_ID: Final = 0
CONTROLLER_EPOCH: Final = 3
TIMEOUT: Final = 120.0
#: The partition of the small updates.
ROW: Final = 0
#: The version that the channel sends by itself.
_VERSION: Final = 8


def cluster_of(port: int, brokers: int, topics: int, host: str = LOOPBACK) -> ClusterState:
    """Return the measured cluster; all brokers have the address of one sink."""
    return ClusterState(
        workload.topics_of(topics),
        workload.partitions_of(topics, brokers),
        workload.brokers_of(brokers, host=lambda _: host, port=port),
    )


def body_bytes(state: ClusterState, rows: npt.NDArray[np.int64] | None = None) -> int:
    """Return the size of the UpdateMetadata body of these rows (None: all)."""
    shared_body = update_metadata_body(_VERSION, state.topics, state.partitions, state.brokers, rows)
    head = encode_head(UPDATE_METADATA, _VERSION, CONTROLLER_ID, CONTROLLER_EPOCH)
    return len(head) + shared_body.size


class Controller:
    """State, batch and channel of a controller; every method returns milliseconds."""

    def __init__(
        self,
        state: ClusterState,
        config: dict[str, Any],
        journal: Journal | None = None,
        metrics: ChannelMetrics | None = None,
    ) -> None:
        self._state = state
        self._broker_ids: list[int] = state.broker_ids.tolist()
        self._channel = ControllerChannelManager(
            ChannelConfig(controller_id=CONTROLLER_ID, **config),
            controller_epoch=CONTROLLER_EPOCH,
            journal=journal,
            metrics=metrics,
        )
        self._batch = ControllerBrokerRequestBatch(self._channel, state)

    def start(self) -> float:
        begin = perf_counter_ns()
        self._channel.startup(self._state.brokers)
        self._batch.new_batch()
        self._batch.add_update_metadata(self._broker_ids, ())
        self._wait(self._batch.send_requests_to_brokers(CONTROLLER_EPOCH))
        return _since(begin)

    def push(self) -> tuple[float, float, float]:
        begin = perf_counter_ns()
        self._batch.new_batch()
        self._batch.add_update_metadata(self._broker_ids, "all")
        built = _since(begin)
        sent = self._batch.send_requests_to_brokers(CONTROLLER_EPOCH)
        handed = _since(begin)
        self._wait(sent)
        return built, handed, _since(begin)

    def awaited(self, rounds: int) -> float:
        begin = perf_counter_ns()
        for _ in range(rounds):
            self._wait(self._send_one())
        return _since(begin)

    def queued(self, rounds: int) -> float:
        begin = perf_counter_ns()
        sent: list[Sent] = []
        for _ in range(rounds):
            sent += self._send_one()
        self._wait(sent)
        return _since(begin)

    def shutdown(self) -> None:
        self._channel.shutdown()

    def _send_one(self) -> list[Sent]:
        self._batch.new_batch()
        self._batch.add_update_metadata(self._broker_ids, ROW)
        return self._batch.send_requests_to_brokers(CONTROLLER_EPOCH)

    def _wait(self, sent: list[Sent]) -> None:
        for outcome in self._channel.wait(sent, TIMEOUT):
            if outcome.kind is not OutcomeKind.ACKNOWLEDGED:
                sys.exit(f"error: {outcome!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("port", type=int)
    parser.add_argument("brokers", type=int)
    parser.add_argument("topics", type=int)
    parser.add_argument("partitions_per_topic", type=int, choices=[workload.PARTITIONS_PER_TOPIC])
    parser.add_argument("--host", default=LOOPBACK)
    parser.add_argument("--config", type=json.loads, default={})
    parser.add_argument("--journal", action="store_true")
    parser.add_argument("--metrics", action="store_true")
    parser.add_argument("--state-change-log", metavar="LEVEL")
    options = parser.parse_args()
    if options.state_change_log:
        _log_at(options.state_change_log)
    state = cluster_of(options.port, options.brokers, options.topics, options.host)
    with ExitStack() as stack:
        journal = metrics = None
        if options.journal:
            from ctrlchan.journal import Journal

            folder = stack.enter_context(TemporaryDirectory(prefix="ctrlchan-bench-"))
            journal = stack.enter_context(Journal(folder))
        if options.metrics:
            from ctrlchan.channel.observability.metrics import ChannelMetrics

            metrics = ChannelMetrics()
        controller = Controller(state, options.config, journal, metrics)
        print("ready", flush=True)
        for line in sys.stdin:
            print(_obey(controller, line.split()), flush=True)
        controller.shutdown()


def _obey(controller: Controller, command: list[str]) -> str:
    match command:
        case ["start"]:
            return f"{controller.start():.3f}"
        case ["push"]:
            return " ".join(f"{milliseconds:.3f}" for milliseconds in controller.push())
        case ["awaited", rounds]:
            return f"{controller.awaited(int(rounds)):.3f}"
        case ["queued", rounds]:
            return f"{controller.queued(int(rounds)):.3f}"
    sys.exit(f"error: no such command: {command}")


def _log_at(level: str) -> None:
    handler = logging.StreamHandler(open(os.devnull, "w"))  # noqa: SIM115 - open until the process ends
    handler.setFormatter(logging.Formatter("[%(asctime)s] %(levelname)s %(message)s (%(name)s)"))
    log = logging.getLogger("state.change.logger")
    log.addHandler(handler)
    log.setLevel(level)
    log.propagate = False


def _since(begin: int) -> float:
    return (perf_counter_ns() - begin) / 1e6


if __name__ == "__main__":
    main()
