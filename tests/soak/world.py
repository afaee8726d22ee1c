"""What is soaked: a channel, brokers of two kinds, the proxies before them, and all that befalls them."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from time import monotonic, sleep

import numpy as np
import psutil

from ctrlchan import Broker, ClusterState, ControllerBrokerRequestBatch, EmbeddedBroker
from ctrlchan.channel import ChannelConfig, ControllerChannelManager, OutcomeKind, Sent
from ctrlchan.errors import UnknownBrokerError
from tests.fault.peer import Peer
from tests.fault.proxy import FINE, Harm, Proxy
from tests.fault.requests import number_of, update

__all__ = ["Failed", "Figures", "World"]

_EPOCH = 7
_TOPIC = "soak"
_PARTITIONS = 2000
#: Embedded brokers have a state to compare; peers keep every request, so that its order can be seen.
_EMBEDDED = (1, 2, 3)
_PEERS = (11, 12)
#: Less than one request of all partitions: a backlog of some broker gives way to a full state now and then.
_BACKLOG = 50_000
#: Requests that may be unfinished; more are not sent meanwhile.
_MOST_OPEN = 600
#: Seconds in which everything must have its end once all is healed.
_HEALED = 60.0
#: Seconds between two processes' ends.
_BETWEEN_KILLS = 0.4


class Failed(Exception):
    """Something was lost, out of order, or stayed."""


@dataclass(frozen=True)
class Figures:
    """What the processes hold at rest; ``memory``: bytes, private and shared, of all of them."""

    processes: int
    descriptors: int
    threads: int
    shared: int
    memory: int

    def __str__(self) -> str:
        return (
            f"{self.processes} processes, {self.descriptors} fds, {self.threads} threads, "
            f"{self.memory / 2**20:.0f} MiB"
        )


def _give_back() -> None:
    """What was freed goes back to the system, so that it does not look like something kept."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class World:
    """A context manager; ``storm`` and ``rest`` in turn."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._stack = ExitStack()
        self._stormy = False
        self._counts: Counter[str] = Counter()
        self._open: list[Sent] = []
        self._number = 0
        # Of each peer: the newest request that it has.
        self._seen: dict[int, int] = {}
        self._last_kill = 0.0
        self._lock = threading.Lock()

    def __enter__(self) -> World:
        with ExitStack() as stack:
            self._embedded = {id: stack.enter_context(EmbeddedBroker(id, epoch=1000)) for id in _EMBEDDED}
            self._peers = {id: stack.enter_context(Peer(id, 1000)) for id in _PEERS}
            ports = {id: one.port for id, one in self._embedded.items()}
            ports |= {id: one.port for id, one in self._peers.items()}
            self._proxies = {id: stack.enter_context(Proxy(port, self._plan)) for id, port in ports.items()}
            self._epochs = dict.fromkeys(ports, 1000)
            config = ChannelConfig(
                controller_id=0,
                senders=2,
                retry_backoff=0.02,
                socket_timeout=1.5,
                request_timeout=1.5,
                sender_timeout=2.0,
                max_backlog_bytes=_BACKLOG,
            )
            self._channel = stack.enter_context(ControllerChannelManager(config, _EPOCH))
            brokers = [self._broker(id) for id in ports]
            self._channel.startup(brokers)
            self._state = ClusterState.empty("soak", 0, _EPOCH)
            self._state.set_brokers(brokers)
            replicas = {partition: [1, 2, 3] for partition in range(_PARTITIONS)}
            self._state.add_topic(_TOPIC, replicas, topic_id=bytes(15) + b"\1", leader=1, leader_epoch=0)
            self._batch = ControllerBrokerRequestBatch(self._channel, self._state)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _broker(self, broker_id: int) -> Broker:
        return self._proxies[broker_id].broker(broker_id, self._epochs[broker_id])

    @property
    def counters(self) -> str:
        names = ("requests", "repeated", "gone", "kills", "stops", "comings and goings", "cuts")
        counts = ", ".join(f"{self._counts[name]} {name}" for name in names)
        return f"{counts}, {self._channel.describe()['full_states']} full states"

    # -- faults

    def _plan(self, _: int) -> tuple[Harm, Harm]:
        """Called by the proxies' threads."""
        with self._lock:
            chance = self._chance
            if not self._stormy or chance.random() < 0.5:
                return FINE, FINE
            at = int(chance.expovariate(1 / 30_000))
            either = [
                Harm(cut_at=at, reset=chance.random() < 0.5),
                Harm(stall_at=at),
                Harm(halve=True),
                Harm(delay=chance.uniform(0.001, 0.02)),
                Harm(rate=100_000.0),
            ]
            if chance.random() < 0.5:
                return chance.choice(either), FINE
            # Of a response, what is checked: its size and its correlation id.
            return FINE, chance.choice([*either, Harm(corrupt_at=chance.randrange(8))])

    def storm(self, seconds: float) -> None:
        deadline = monotonic() + seconds
        faults: Sequence[tuple[float, Callable[[], None]]] = (
            (0.03, self._cut),
            (0.02, self._refuse),
            (0.04, self._kill_sender),
            (0.005, self._stop_sender),
            (0.003, self._kill_fork_server),
            (0.04, self._come_and_go),
        )
        self._stormy = True
        for proxy in self._proxies.values():
            proxy.drop_connections()
        while monotonic() < deadline:
            for likely, fault in faults:
                if self._chance.random() < likely:
                    fault()
            self._open = [one for one in self._open if not self._ended(one)]
            if len(self._open) < _MOST_OPEN:
                self._send()
            else:
                sleep(0.01)

    def _cut(self) -> None:
        self._any_proxy().drop_connections(reset=self._chance.random() < 0.5)
        self._counts["cuts"] += 1

    def _refuse(self) -> None:
        proxy = self._any_proxy()
        if proxy.is_listening:
            proxy.stop_listening()
            proxy.drop_connections()
        else:
            proxy.listen()

    def _any_proxy(self) -> Proxy:
        return self._chance.choice(list(self._proxies.values()))

    def _kill_sender(self) -> None:
        self._end_process(self._expendable(), signal.SIGKILL, "kills")

    def _stop_sender(self) -> None:
        self._end_process(self._expendable(), signal.SIGSTOP, "stops")

    def _expendable(self) -> list[int]:
        """Senders whose end is not the last straw: after some that bring no response, brokers are gone."""
        channel_state = self._channel._channel_state
        assert channel_state is not None
        with channel_state.lock:
            senders = channel_state.pool.senders.values()
            return sorted(one.pid for one in senders if one.pid and (one.has_responded or one.failures < 2))

    def _kill_fork_server(self) -> None:
        self._end_process([child.pid for child in psutil.Process().children()], signal.SIGKILL, "kills")

    def _senders(self) -> list[int]:
        return sorted({one["sender_pid"] for one in self._channel.describe()["brokers"].values()} - {0})

    def _end_process(self, pids: list[int], how: signal.Signals, name: str) -> None:
        if not pids or monotonic() - self._last_kill < _BETWEEN_KILLS:
            return
        with suppress(ProcessLookupError):
            os.kill(self._chance.choice(pids), how)
            self._counts[name] += 1
            self._last_kill = monotonic()

    def _come_and_go(self) -> None:
        """An embedded broker is restarted: what its former life was still to be sent is refused."""
        broker_id = self._chance.choice(_EMBEDDED)
        with suppress(UnknownBrokerError):
            self._channel.remove_broker(broker_id)
        self._epochs[broker_id] += 1
        self._embedded[broker_id].set_epoch(self._epochs[broker_id])
        broker = self._broker(broker_id)
        self._state.add_brokers([broker])
        self._channel.add_broker(broker)
        self._counts["comings and goings"] += 1

    # -- requests

    def _send(self) -> None:
        self._number += 1
        sent = self._channel.send_requests(
            _PEERS, update(self._number, size=self._chance.choice([64, 64, 64, 200_000]))
        )
        rows = np.sort(self._chance.sample(range(_PARTITIONS), k=20)).astype(np.int64)
        self._state.update(
            rows,
            leader=np.array([self._chance.choice(_EMBEDDED) for _ in rows], dtype=np.int32),
            leader_epoch=self._number,
        )
        self._batch.new_batch()
        self._batch.add_update_metadata(_EMBEDDED, "all" if self._chance.random() < 0.05 else rows)
        sent += self._batch.send_requests_to_brokers(_EPOCH)
        self._counts["requests"] += len(sent)
        self._open += sent

    def _ended(self, sent: Sent) -> bool:
        outcome = sent.outcome
        if outcome is None:
            return False
        self._counts["repeated"] += outcome.attempts > 1
        if outcome.kind is OutcomeKind.BROKER_GONE and sent.broker_id in _EMBEDDED:
            self._counts["gone"] += 1
        elif outcome.kind is OutcomeKind.FENCED and sent.broker_id in _EMBEDDED:
            # Its epoch changed while the request was on its way.
            self._counts["gone"] += 1
        elif outcome.kind is not OutcomeKind.ACKNOWLEDGED:
            raise Failed(f"{sent!r} ended as {outcome!r}")
        return True

    # -- rest

    def rest(self) -> Figures:
        """Heal everything, and look whether all is well. Raises Failed."""
        self._stormy = False
        for proxy in self._proxies.values():
            if not proxy.is_listening:
                proxy.listen()
            proxy.drop_connections()
        self._wait(self._open)
        self._open = [one for one in self._open if not self._ended(one)]
        self._check_order()
        self._batch.new_batch()
        self._batch.add_update_metadata(_EMBEDDED, "all")
        sent = self._batch.send_requests_to_brokers(_EPOCH)
        sent += self._channel.send_requests(_PEERS, update(self._number))
        self._wait(sent)
        for one in sent:
            self._ended(one)
            if one.outcome is None or one.outcome.kind is not OutcomeKind.ACKNOWLEDGED:
                raise Failed(f"{one!r} ended as {one.outcome!r} while all was well")
        for broker_id, broker in self._embedded.items():
            self._check_state(broker_id, broker)
        for peer in self._peers.values():
            peer.received.clear()
        return self._settled()

    def _wait(self, sent: list[Sent]) -> None:
        try:
            self._channel.wait(sent, _HEALED)
        except TimeoutError as problem:
            raise Failed(f"{problem}: {self._channel.describe()}") from None

    def _check_order(self) -> None:
        """Every number arrives, and in order; a copy of one whose response was lost may come late, over a
        link that was slow, but never after a newer one on the same connection."""
        for broker_id, peer in self._peers.items():
            newest = self._seen.get(broker_id, 0)
            by_connection: dict[int, int] = {}
            for exchange in list(peer.received):
                now = number_of(exchange.body)
                if now > newest + 1:
                    raise Failed(f"broker {broker_id} got request {now} after {newest}")
                if now < by_connection.get(exchange.connection, 0):
                    raise Failed(f"broker {broker_id} got request {now} after a newer one")
                by_connection[exchange.connection] = now
                newest = max(newest, now)
            if newest != self._number:
                raise Failed(f"broker {broker_id} got {newest} of {self._number} requests")
            self._seen[broker_id] = newest

    def _check_state(self, broker_id: int, broker: EmbeddedBroker) -> None:
        ours = self._state.partitions

        def differing(leader: object, epoch: object) -> int:
            return int(np.count_nonzero((leader != ours.leader) | (epoch != ours.leader_epoch)))

        different = broker.inspect(
            lambda core: differing(
                core.metadata.state.partitions.leader, core.metadata.state.partitions.leader_epoch
            )
        )
        if different:
            raise Failed(f"broker {broker_id} differs in {different} of {_PARTITIONS} partitions")

    def _settled(self) -> Figures:
        """The figures once they no longer change: threads and processes end in their own time."""
        deadline = monotonic() + 10
        before = self._figures()
        while monotonic() < deadline:
            sleep(0.1)
            now = self._figures()
            settled = all(proxy.open_connections <= 1 for proxy in self._proxies.values())
            if settled and (now.processes, now.descriptors, now.threads) == (
                before.processes,
                before.descriptors,
                before.threads,
            ):
                return now
            before = now
        return before

    def _figures(self) -> Figures:
        gc.collect()
        _give_back()
        # A fork server that was killed is not replaced before it is needed, and its children are nobody's.
        processes = [psutil.Process()]
        descriptors = memory = 0
        with suppress(psutil.NoSuchProcess):
            processes += [psutil.Process(pid) for pid in self._senders()]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                descriptors += process.num_fds()
                memory += process.memory_full_info().pss
        shared = self._channel.describe()["shared_memory_bytes"]
        return Figures(len(processes), descriptors, threading.active_count(), shared, memory)
