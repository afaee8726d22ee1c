"""One simulated broker: the product's processors, partitions and logs on a simulated operating system."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.handlers._fetch import FetchApi
from ctrlchan.broker.handlers._hot import BrokerHandler
from ctrlchan.broker.handlers._produce import ProduceApi
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.metadata.published_metadata import PublishedMetadata
from ctrlchan.broker.replica._partitions import Partition, PartitionTable, WantedIsr
from ctrlchan.errors import KafkaError
from ctrlchan.server._connection_quotas import ConnectionQuotas
from ctrlchan.server._processor import NetworkThreads, TakenRequest
from tests.simulation import wire
from tests.simulation._operating_system import OperatingSystem, SimulatedClock
from tests.simulation.followers import SimulatedFetchers
from tests.simulation.link import ViolationError

if TYPE_CHECKING:
    from tests.simulation.controller import State
    from tests.simulation.history import History

PROCESSORS: Final = 2
MAX_LAG_MS: Final = 300
IDLE_MS: Final = 2_000
MAX_FRAME: Final = 20_000
_FOR_EVER_MS: Final = 10**15

Key = tuple[str, int]


@dataclass(slots=True)
class Checkpoint:
    """What a broker has written about a log before it ended."""

    recovery_point: int = 0
    high_watermark: int = 0
    is_clean: bool = False


class SimulatedBroker:
    """The broker ``id``, which is started, killed and started again on the same folder."""

    def __init__(self, history: History, id: int, folder: Path, config: LogConfig) -> None:
        self.history = history
        self.id = id
        self.clock: SimulatedClock = history.clock
        self.checkpoints: dict[Key, Checkpoint] = {}
        self.is_up = False
        self.is_offline = False
        self.incarnation = 0
        self.logs: dict[Key, Log] = {}
        #: In which step each partition was first hosted.
        self.opened: dict[Key, int] = {}
        self.system: OperatingSystem
        self.table: PartitionTable
        self.threads: NetworkThreads
        self.produce: ProduceApi
        self.fetch: FetchApi
        self.fetchers: SimulatedFetchers
        self._folder = folder
        self._config = config
        self._due_ms: list[int | None] = []
        self._held: list[TakenRequest] = []
        #: (taken, request, futures) of Produce requests that wait for followers.
        self._appending: list[tuple[TakenRequest, wire.ProduceRequest, list[Future[object]]]] = []

    # -- life

    def start(self) -> None:
        choose = self.history.choose
        self.system = OperatingSystem(choose.getrandbits(64))
        self.table = PartitionTable(
            self.id,
            isr_wanted=self._isr_wanted,
            storage_failed=lambda _partition: self.check_disk(),
            max_lag_ms=MAX_LAG_MS,
            clock=self.clock,
            has_thread=False,
        )
        metadata = _METADATA.current
        self.produce = ProduceApi(self.table, metadata)
        self.fetch = FetchApi(
            self.table,
            metadata,
            max_bytes=3000,
            sessions=choose.choice((0, 1, 4)),
            eviction_ms=200,
            seed=choose.getrandbits(64),
        )
        hot = BrokerHandler([self.produce, self.fetch])
        self.threads = NetworkThreads(
            [("PLAINTEXT", self.system.listener)],
            hot,
            processors=PROCESSORS,
            max_request_bytes=MAX_FRAME,
            queue_capacity=choose.choice((1, 2, 8)),
            idle_ns=IDLE_MS * 1_000_000,
            send_buffer=-1,
            quotas=_quotas(choose, self.clock),
            clock=self.clock,
            poller=self.system,
        )
        hot.attach(self.threads)
        self.fetchers = SimulatedFetchers(self, lambda _one: None)
        self.logs, self.opened = {}, {}
        for topic, index in sorted(self.checkpoints):
            self._open_log((topic, index))
        self._due_ms = [0] * (PROCESSORS + 1)
        self._held, self._appending = [], []
        self.is_up, self.is_offline = True, False
        self.incarnation += 1

    def _open_log(self, key: Key) -> Log:
        saved = self.checkpoints.setdefault(key, Checkpoint())
        log = Log(
            self._folder / f"{key[0]}-{key[1]}",
            self._config,
            recovery_point=saved.recovery_point,
            clean=saved.is_clean,
            # The log has the time of the machine, the records have that of the simulation.
            producer_expiration_ms=_FOR_EVER_MS,
        )
        log.update_high_watermark(saved.high_watermark)
        saved.is_clean = False
        self.logs[key] = log
        return log

    def kill(self) -> None:
        """End the process: its files stay as they are, and its connections are reset."""
        self.system.die()
        self._end()

    def shut_down(self) -> None:
        """End in order: logs need no recovery afterwards."""
        self._stop_network()
        for key, log in self.logs.items():
            if not log.offline and not log.closed:
                saved = self.checkpoints[key]
                saved.high_watermark = log.high_watermark
                with self.entered():
                    try:
                        log.close()
                    except KafkaError:
                        continue
                if not self.system.is_dead:
                    saved.recovery_point, saved.is_clean = log.recovery_point, True
        self._end()

    def _stop_network(self) -> None:
        self.threads.stop(0)
        with self.entered():
            for index in range(PROCESSORS):
                while self.threads.turn(index) is not None:
                    pass
        self._held.clear()
        self._appending.clear()
        while (taken := self.threads.take(0)) is not None:
            taken.close()

    def _end(self) -> None:
        self._stop_network()
        self.fetchers.stop()
        for log in self.logs.values():
            log.close_files()
        self.table.close()
        self.system.die()
        self.is_up = False
        self._check_nothing_is_left()

    def _check_nothing_is_left(self) -> None:
        left = {
            "open connections": self.system.open_connections,
            "parked Produce requests": self.produce.waiting,
            "parked Fetch requests": self.fetch.counters()["waiting"],
            "watchers": sum(one.watchers for one in self.table.partitions()),
        }
        if any(left.values()):
            raise ViolationError(f"broker {self.id} ended, and has {left}")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Let this broker's disk be the one that fails."""
        self.system.enter()
        try:
            yield
        finally:
            OperatingSystem.leave()

    def check_end(self) -> bool:
        """End the broker if it has died within a step. Return whether it has."""
        if self.is_up and self.system.is_dead:
            self.history.note("died", self.id)
            self._end()
            self.history.controller.broker_ended(self.id)
            return True
        return False

    # -- the disk

    def check_disk(self) -> None:
        """Give up all logs if one of them has failed. Source: LogDirFailureHandler."""
        if self.is_offline or not self.is_up or self.system.is_dead:
            return
        if any(log.offline for log in self.logs.values()):
            self.history.note("disk failed", self.id)
            self.is_offline = True
            for (topic, index), log in self.logs.items():
                self.fetchers.unfollow(topic, index)
                partition = self.table.get(topic, index)
                if partition is not None:
                    partition.set_offline()
                log.close_files()
            self.history.controller.broker_failed(self.id)

    def save_checkpoint(self) -> None:
        """Write high watermarks and recovery points, as the scheduler does now and then."""
        for key, log in self.logs.items():
            if not log.offline and not log.closed:
                self.checkpoints[key].high_watermark = log.high_watermark
                self.checkpoints[key].recovery_point = log.recovery_point

    def flush(self) -> None:
        with self.entered():
            for log in self.logs.values():
                if not log.offline and not log.closed:
                    try:
                        log.flush()
                    except KafkaError:
                        break
        self.check_disk()

    def truncate(self, topic: str, index: int, offset: int) -> None:
        log = self.logs[topic, index]
        self.history.note("truncate", self.id, index, log.end_offset, offset)
        log.truncate_to(offset)
        saved = self.checkpoints[topic, index]
        saved.recovery_point = min(saved.recovery_point, offset)

    # -- what the controller says

    def become(self, state: State) -> None:
        """Apply a LeaderAndIsr for one partition."""
        key = state.topic, state.index
        if self.table.get(*key) is None:
            self.opened[key] = self.history.step
        partition = self.table.open(*key)
        if self.is_offline or state.leader_epoch <= partition.leader_epoch or state.leader < 0:
            return
        with self.entered():
            try:
                log = self.logs.get(key) or self._open_log(key)
                if state.leader == self.id:
                    self.fetchers.unfollow(*key)
                    partition.make_leader(
                        log, state.leader_epoch, state.partition_epoch, state.replicas, state.isr
                    )
                else:
                    partition.make_follower(
                        log,
                        state.leader,
                        state.leader_epoch,
                        state.partition_epoch,
                        state.replicas,
                        state.isr,
                    )
                    self.fetchers.follow(partition)
            except (KafkaError, OSError) as error:
                self.history.note("no role", self.id, state.index, type(error).__name__)
        self.check_disk()

    def _isr_wanted(self, partition: Partition, wanted: WantedIsr) -> None:
        self.history.controller.alter_partition(self, partition, wanted)

    # -- turns

    def due(self) -> list[int]:
        """Return the processors, and PROCESSORS for the acceptor, that would wake now."""
        now = self.clock.now_ms
        return [
            index
            for index, due in enumerate(self._due_ms)
            # The acceptor's poller is opened first.
            if (due is not None and due <= now) or self.system.is_due((index + 1) % (PROCESSORS + 1))
        ]

    def next_due_ms(self) -> int | None:
        return min((due for due in self._due_ms if due is not None), default=None)

    def turn(self, index: int) -> None:
        with self.entered():
            wait = self.threads.turn(index) if index < PROCESSORS else self.threads.accept(0)
        self._due_ms[index] = None if wait is None or wait < 0 else self.clock.now_ms + wait
        self.check_end()

    def serve_events(self) -> None:
        with self.entered():
            self.table.serve_events()
        self._finish_appends()
        self.check_end()

    # -- the request queue

    def serve_queue(self, *, at_once: bool) -> bool:
        """Handle one queued request, or a held one. Return whether there was one."""
        choose = self.history.choose
        taken = self.threads.take(0)
        if taken is not None and not at_once and choose.random() < 0.3:
            self._held.append(taken)
            return True
        if taken is None and self._held:
            taken = self._held.pop(0)
        if taken is None:
            return False
        self._handle(taken)
        self._finish_appends()
        self.check_end()
        return True

    @property
    def has_queued(self) -> bool:
        return bool(self._held) or self.threads.queue_size() > 0

    def _handle(self, taken: TakenRequest) -> None:
        """Do what a handler thread does: Produce by Python; all else with a correlation id is answered."""
        frame = bytes(taken.frame)
        if frame[:2] == b"\0\0":
            try:
                request = wire.read_produce_request(frame)
            except (ValueError, struct.error):
                taken.close()
                return
            futures: list[Future[object]] = []
            with self.entered():
                for topic, index, records in request.parts:
                    partition = self.table.get(topic, index)
                    if partition is None:
                        futures.append(_done((3, -1, -1)))
                    else:
                        appended = partition.append(
                            records, required_acks=request.acks, timeout_ms=request.timeout_ms
                        )
                        futures.append(appended)  # type: ignore[arg-type]
            self._appending.append((taken, request, futures))
        elif len(frame) >= 8:
            taken.answer(frame[4:8])
        else:
            taken.close()

    def _finish_appends(self) -> None:
        """Answer the Produce requests all of whose appends have a result."""
        left = []
        for taken, request, futures in self._appending:
            if not all(future.done() for future in futures):
                left.append((taken, request, futures))
                continue
            results = [future.result()[:2] for future in futures]  # type: ignore[index]
            if request.acks:
                taken.answer(wire.produce_answer(request, results))
            elif any(error for error, _ in results):
                taken.close()
            else:
                taken.skip()
        self._appending = left
        self.check_disk()


def _quotas(choose: Random, clock: SimulatedClock) -> ConnectionQuotas:
    quotas = ConnectionQuotas(1, clock=clock)
    most = choose.choice((6, 100))
    quotas.limit(most, 2**31 - 1, [(most, 2**31 - 1)])
    quotas.limit_ips(choose.choice((8, 1000)), [])
    return quotas


def _done(result: object) -> Future[object]:
    future: Future[object] = Future()
    future.set_result(result)
    return future


_METADATA: Final = PublishedMetadata()
