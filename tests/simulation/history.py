"""One history: a cluster, its clients and its faults, all chosen by one generator from the seed."""

from __future__ import annotations

import hashlib
import heapq
import logging
import random
import shutil
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.replica._partitions import Partition
from tests.simulation import wire
from tests.simulation._operating_system import OperatingSystem, SimulatedClock
from tests.simulation.broker import MAX_LAG_MS, SimulatedBroker
from tests.simulation.clients import Client, Consumer, IdempotentProducer, Intruder, PlainProducer
from tests.simulation.controller import Controller
from tests.simulation.link import Link, Pending, ViolationError
from tests.simulation.record import Record

#: Turns after which nothing may be left to do at one time.
_MOST_TURNS: Final = 20_000
#: Moves of the time within which a healed cluster must have done everything.
_MOST_WAITS: Final = 600
#: Events that are kept for a report.
_LAST_EVENTS: Final = 60
_MEMORY: Final = Path("/dev/shm")


class History:
    """One history: ``run`` raises ViolationError where a guarantee was broken. ``digest``: of all events."""

    topic: Final = "t"

    def __init__(self, seed: int, *, steps: int | None = None) -> None:
        self.seed = seed
        self.choose = random.Random(seed)
        self.step = 0
        self.events: deque[str] = deque(maxlen=_LAST_EVENTS)
        self._hash = hashlib.blake2b(digest_size=16)
        self.clock = SimulatedClock(1_000)
        self._later: list[tuple[int, int, str, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = 0
        self.record = Record()
        self.controller = Controller(self)
        choose = self.choose
        self._steps = choose.randint(60, 200) if steps is None else steps
        self._faults = choose.choice((0, 1, 2, 3, 5))
        self.indexes = list(range(choose.choice((1, 1, 2))))
        self.links: list[Link] = []
        self.clients: list[Client] = []
        self.brokers: dict[int, SimulatedBroker] = {}
        self._watermarks: dict[tuple[int, int], tuple[int, int, int]] = {}
        self._folder: Path

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    # -- the parts of the world

    def note(self, *what: object) -> None:
        line = f"{self.step} {self.clock.now_ms} {' '.join(map(str, what))}"
        self.events.append(line)
        self._hash.update(line.encode())

    def later(self, delay_ms: int, what: str, action: Callable[..., None], *arguments: Any) -> None:
        """Call ``action`` after some time. What is due at one time is done in the order of these calls."""
        self._numbers += 1
        heapq.heappush(
            self._later, (self.clock.now_ms + max(0, delay_ms), self._numbers, what, action, arguments)
        )

    def connect(self, system: OperatingSystem, name: str, on_lost: Callable[[], None]) -> Link:
        link = Link(system, self.choose.choice((64, 500, 100_000)), name, on_lost)
        self.links = [one for one in self.links if not one.is_lost]
        self.links.append(link)
        return link

    def system_of(self, broker_id: int) -> OperatingSystem | None:
        broker = self.brokers[broker_id]
        return broker.system if broker.is_up else None

    def leader_of(self, index: int) -> OperatingSystem | None:
        """Return the broker that a client takes for the leader: sometimes another one."""
        leader = self.controller.states[self.topic, index].leader
        if self.choose.random() < 0.1:
            leader = self.choose.choice(list(self.brokers))
        return self.system_of(leader) if leader in self.brokers else None

    @property
    def has_restarted(self) -> bool:
        """Whether a broker has been started again."""
        return any(broker.incarnation > 1 for broker in self.brokers.values())

    def partition_of(self, broker_id: int, partition: Partition) -> Partition | None:
        broker = self.brokers[broker_id]
        return broker.table.get(partition.topic, partition.partition) if broker.is_up else None

    def committed_end(self, index: int) -> int:
        """Return the high watermark of the leader, 0 while there is none."""
        leader = self._leading(index)
        return 0 if leader is None else leader.high_watermark

    def _leading(self, index: int) -> Partition | None:
        """Return the partition of the leader that the controller has, if that broker leads by now."""
        state = self.controller.states[self.topic, index]
        if state.leader not in self.brokers or not self.brokers[state.leader].is_up:
            return None
        partition = self.brokers[state.leader].table.get(self.topic, index)
        if partition is None or not partition.is_leader or partition.leader_epoch != state.leader_epoch:
            return None
        return partition

    # -- a run

    def run(self) -> None:
        parent = _MEMORY if _MEMORY.is_dir() else None
        self._folder = Path(tempfile.mkdtemp(prefix="ctrlchan-simulation-", dir=parent))
        log = logging.getLogger("ctrlchan.broker")
        was_disabled, log.disabled = log.disabled, True
        try:
            self._begin()
            for step in range(1, self._steps + 1):
                self.step = step
                self._take_step()
                self._check_watermarks()
            self._heal()
            self._check_logs()
            for broker in self.brokers.values():
                self._end(broker)
        finally:
            OperatingSystem.leave()
            log.disabled = was_disabled
            for broker in self.brokers.values():
                for one in broker.logs.values():
                    one.close_files()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _begin(self) -> None:
        choose = self.choose
        count = choose.choice((1, 2, 3, 3, 3))
        config = LogConfig(
            segment_bytes=choose.choice((2000, 5000, 100_000)),
            segment_index_bytes=choose.choice((64, 1024)),
            index_interval_bytes=choose.choice((0, 200, 4096)),
            min_insync_replicas=choose.choice((1, 1, 2)),
            flush_messages=choose.choice((3, 20, 2**63 - 1, 2**63 - 1)),
        )
        for broker_id in range(1, count + 1):
            broker = self.brokers[broker_id] = SimulatedBroker(
                self, broker_id, self._folder / str(broker_id), config
            )
            broker.start()
            self.controller.live.add(broker_id)
        for index in self.indexes:
            replicas = list(self.brokers)
            choose.shuffle(replicas)
            self.controller.create(self.topic, index, tuple(replicas))
        number = 0
        for _ in range(choose.randint(1, 3)):
            number += 1
            kind = choose.choice((IdempotentProducer, IdempotentProducer, PlainProducer))
            self.clients.append(kind(self, number, choose.choice(self.indexes), choose.randint(2, 14)))
        for _ in range(choose.randint(1, 2)):
            number += 1
            self.clients.append(Consumer(self, number))
        if choose.random() < 0.4:
            self.clients.append(Intruder(self, "intruder"))
        self.note("cluster", count, self.indexes, config, [type(one).__name__ for one in self.clients])
        self.later(MAX_LAG_MS // 2, "shrink ISRs", self._shrink)

    def _shrink(self) -> None:
        for broker in self._up():
            broker.table.shrink_isrs()
        self.later(MAX_LAG_MS // 2, "shrink ISRs", self._shrink)

    def _up(self) -> list[SimulatedBroker]:
        return [broker for broker in self.brokers.values() if broker.is_up]

    # -- steps

    def _take_step(self) -> None:
        chance = self.choose.random()
        if chance < 0.36:
            self._turn_one()
        elif chance < 0.56:
            self._move_link()
        elif chance < 0.70:
            self._act()
        elif chance < 0.80:
            self._fetch()
        elif chance < 0.86:
            self._run_later()
        elif chance < 0.90:
            for broker in self._up():
                broker.serve_events()
                broker.serve_queue(at_once=False)
        elif chance < 0.96:
            self._pass_time()
        elif chance < 0.97:
            self._maintain()
        elif chance < 0.985:
            self.settle()
        elif self._faults:
            self._faults -= 1
            self._fault()

    def _turn_one(self) -> bool:
        due = [(broker, index) for broker in self._up() for index in broker.due()]
        if not due:
            return False
        broker, index = self.choose.choice(due)
        self.note("turn", broker.id, index)
        broker.turn(index)
        return True

    def _move_link(self) -> bool:
        links = [link for link in self.links if link.has_work()]
        if not links:
            return False
        link = self.choose.choice(links)
        received = link.move(self.choose)
        self.note("moved", link.name, received.hex())
        return True

    def _act(self) -> bool:
        now = self.clock.now_ms
        ready = [one for one in self.clients if (due := one.due_ms()) is not None and due <= now]
        if not ready:
            return False
        client = self.choose.choice(ready)
        self.note("acts", client.name)
        client.act()
        return True

    def _fetch(self) -> bool:
        now = self.clock.now_ms
        ready = [
            one
            for broker in self._up()
            for one in broker.fetchers.by_leader.values()
            if (due := one.due_ms()) is not None and due <= now
        ]
        if not ready:
            return False
        one = self.choose.choice(ready)
        self.note("fetcher", one.name)
        one.act()
        return True

    def _run_later(self) -> bool:
        if not self._later or self._later[0][0] > self.clock.now_ms:
            return False
        _, _, what, action, arguments = heapq.heappop(self._later)
        self.note(what)
        action(*arguments)
        return True

    def _next_ms(self) -> int:
        """Return when something happens next by itself."""
        times = [self._later[0][0]] if self._later else []
        for broker in self._up():
            times += [due] if (due := broker.next_due_ms()) is not None else []
            times += [
                int(resume) + 1
                for one in broker.fetchers.by_leader.values()
                if (resume := one.due_ms()) is not None and resume < 2**62
            ]
        times += [due for one in self.clients if (due := one.due_ms()) is not None]
        return max(min(times, default=0), self.clock.now_ms + 1)

    def _pass_time(self) -> None:
        if self.choose.random() < 0.4:
            self.clock.advance((self._next_ms() - self.clock.now_ms) * 1_000_000)
        else:
            self.clock.advance(self.choose.choice((1, 200_000, 3_000_000, 20_000_000)))

    def _maintain(self) -> None:
        for broker in self._up():
            if self.choose.random() < 0.5:
                broker.save_checkpoint()
            if self.choose.random() < 0.5:
                broker.flush()
            broker.check_end()

    # -- faults

    def _fault(self) -> None:
        choose = self.choose
        up = self._up()
        broker = choose.choice(up) if up else None
        kind = choose.randrange(8)
        self.note("fault", kind, broker.id if broker else None)
        if broker is None or kind == 0:
            self.controller.move_leader(choose.choice(list(self.controller.states.values())))
        elif kind == 1:
            self._end(broker, clean=False)
        elif kind == 2:
            broker.system.die_at(choose.randint(0, 12))
        elif kind == 3:
            broker.system.fill_disk(choose.randint(0, 4))
        elif kind == 4:
            self._end(broker)
        elif kind == 5:
            for link in list(self.links):
                if choose.random() < 0.5 and not link.is_lost:
                    link.reset()
        elif kind == 6:
            for link in self.links:
                if choose.random() < 0.3 and not link.is_lost:
                    link.shut()
        else:
            self.controller.move_leader(choose.choice(list(self.controller.states.values())))
        for one in self.brokers.values():
            if not one.is_up:
                self.later(choose.randint(0, 200), f"restart {one.id}", self._start, one, one.incarnation)

    def _end(self, broker: SimulatedBroker, *, clean: bool = True) -> None:
        if not broker.is_up:
            return
        self.note("ends", broker.id, clean)
        if clean:
            broker.shut_down()
        else:
            broker.kill()
        self.controller.broker_ended(broker.id)

    def _start(self, broker: SimulatedBroker, incarnation: int) -> None:
        if not broker.is_up and broker.incarnation == incarnation:
            broker.start()
            self.note("started", broker.id, {key: log.end_offset for key, log in broker.logs.items()})
            self.controller.broker_started(broker.id)

    # -- checks

    def settle(self) -> None:
        """Do all that can be done without time passing. Then no answer may be due."""
        for _ in range(_MOST_TURNS):
            if not self._settle_once():
                break
        else:
            raise ViolationError(f"after {_MOST_TURNS} turns at one time there is still something to do")
        for link in self.links:
            if link.pending and not link.is_lost and link.is_sent:
                self._check_pending(link, link.pending[0])

    def _settle_once(self) -> bool:
        busy = False
        for broker in self._up():
            for index in broker.due():
                busy = True
                if broker.is_up:
                    broker.turn(index)
            if broker.is_up:
                broker.serve_events()
                # An append that is answered wakes a processor.
                busy = busy or bool(broker.is_up and broker.due())
            while broker.is_up and broker.serve_queue(at_once=True):
                busy = True
        for link in self.links:
            if link.has_work():
                busy = True
                self._hash.update(link.move(None))
        return busy

    def _check_pending(self, link: Link, pending: Pending) -> None:
        """Raise ViolationError where the first request of a connection should have been answered by now."""
        now = self.clock.now_ms
        if pending.seen_ms is None:
            pending.seen_ms = now
        if now > pending.seen_ms + max(0, pending.wait_ms) + 2:
            raise ViolationError(
                f"{pending.what} is parked since {pending.seen_ms}, for {pending.wait_ms} ms at most"
            )
        broker = next(one for one in self.brokers.values() if one.is_up and one.system is link.system)
        if pending.request[0] == "consumer":
            _, min_bytes, positions = pending.request
            if min_bytes <= 1 and self._has_more(broker, pending, positions, above_watermark=False):
                raise ViolationError(f"{pending.what} waits, and broker {broker.id} has committed records")
        elif pending.request[0] == "follower":
            positions = {index: offset for (_, index), offset in pending.request[1].items()}
            if self._has_more(broker, pending, positions, above_watermark=True):
                raise ViolationError(f"{pending.what} waits, and broker {broker.id} has records")
        elif pending.request[0] == "produce":
            _, acks, ends = pending.request
            if acks == -1 and all(self._is_committed(broker, index, value) for index, value in ends):
                raise ViolationError(
                    f"{pending.what} waits, and broker {broker.id} has committed the records"
                )

    def _has_more(
        self, broker: SimulatedBroker, pending: Pending, positions: dict[int, int], *, above_watermark: bool
    ) -> bool:
        """Return whether a Fetch could be answered with records."""
        for index, offset in positions.items():
            partition = broker.table.get(self.topic, index)
            if partition is None or not partition.is_leader or partition.log is None:
                continue
            if broker.opened[self.topic, index] >= pending.step:
                # As in Kafka, a request does not wait for a partition that is unknown when it arrives.
                continue
            end = partition.log.end_offset if above_watermark else partition.high_watermark
            if offset < end:
                return True
        return False

    def _is_committed(self, broker: SimulatedBroker, index: int, value: bytes) -> bool:
        partition = broker.table.get(self.topic, index)
        if partition is None or not partition.is_leader or partition.log is None:
            return True
        data = partition.read(partition.log.start_offset, 1 << 20)
        return any(
            value == one.values[-1] and one.end_offset <= partition.high_watermark
            for one in wire.read_batches(data)
        )

    def _check_watermarks(self) -> None:
        """A leader's high watermark never falls, and all in-sync replicas have what is below it."""
        for broker in self._up():
            for index in self.indexes:
                partition = broker.table.get(self.topic, index)
                if partition is None or not partition.is_leader or broker.is_offline:
                    continue
                now = (broker.incarnation, partition.leader_epoch, partition.high_watermark)
                before = self._watermarks.get((broker.id, index))
                if before is not None and before[:2] == now[:2] and now[2] < before[2]:
                    raise ViolationError(
                        f"the high watermark of partition {index} falls from {before[2]} to {now[2]} on "
                        f"broker {broker.id}"
                    )
                self._watermarks[broker.id, index] = now
        for index in self.indexes:
            leader = self._leading(index)
            if leader is None or leader.log is None:
                continue
            for member in self.controller.states[self.topic, index].isr:
                log = self.brokers[member].logs.get((self.topic, index))
                other = self.brokers[member]
                if not other.is_up or other.is_offline or other.system.is_dead or log is None:
                    continue
                if log.end_offset < leader.high_watermark and not log.offline:
                    raise ViolationError(
                        f"broker {member} is in sync and has partition {index} up to {log.end_offset}; "
                        f"the high watermark is {leader.high_watermark}"
                    )

    def _heal(self) -> None:
        """Let all faults end, and wait until everything is done."""
        self.note("heal")
        for client in self.clients:
            client.is_ending = True
        for broker in self._up():
            broker.system.calm()
            broker.system.free_disk()
            if broker.is_offline or broker.system.is_dead:
                self._end(broker, clean=False)
        for _ in range(_MOST_WAITS):
            for broker in self.brokers.values():
                if broker.is_up and (broker.is_offline or broker.system.is_dead):
                    self._end(broker, clean=False)
                if not broker.is_up:
                    self._start(broker, broker.incarnation)
                    broker.system.calm()
                broker.system.free_disk()
            self._drain()
            self._check_watermarks()
            if self._is_done():
                return
            self.clock.advance((self._next_ms() - self.clock.now_ms) * 1_000_000)
            self.step += 1
        raise ViolationError(f"a healed cluster does not come to rest: {self._why_not_done()}")

    def _drain(self) -> None:
        """Do all that is due now, clients included."""
        for _ in range(_MOST_TURNS):
            busy = self._settle_once()
            while self._run_later():
                busy = True
            now = self.clock.now_ms
            for broker in self._up():
                for one in list(broker.fetchers.by_leader.values()):
                    if (due := one.due_ms()) is not None and due <= now:
                        busy = True
                        one.act()
            for client in self.clients:
                if (due := client.due_ms()) is not None and due <= now and not isinstance(client, Intruder):
                    busy = True
                    client.act()
            if not busy:
                break
        else:
            raise ViolationError(f"after {_MOST_TURNS} turns at one time there is still something to do")
        self.settle()

    def _is_done(self) -> bool:
        return not self._why_not_done()

    def _why_not_done(self) -> str:
        for index in self.indexes:
            state = self.controller.states[self.topic, index]
            leader = self._leading(index)
            if leader is None or leader.log is None:
                return f"partition {index} has no leader: {state}"
            if set(state.isr) != set(state.replicas):
                return f"the ISR of partition {index} is {state.isr}, followers {leader.followers()}"
            if leader.high_watermark != leader.log.end_offset:
                return f"partition {index} has {leader.log.end_offset}, committed {leader.high_watermark}"
            for member in state.replicas:
                one = self.brokers[member].table.get(self.topic, index)
                if one is None or one.log is None or one.log.high_watermark != leader.high_watermark:
                    return f"broker {member} does not know the high watermark of partition {index}"
                if one.log.end_offset != leader.log.end_offset:
                    return f"broker {member} has partition {index} up to {one.log.end_offset}"
        for client in self.clients:
            if not client.is_done:
                return f"{client.name} has not finished"
        return ""

    def _check_logs(self) -> None:
        """All replicas are the same bytes, and have all that was promised."""
        for index in self.indexes:
            leader = self._leading(index)
            assert leader is not None
            state = self.controller.states[self.topic, index]
            data = {}
            for member in state.replicas:
                log = self.brokers[member].logs[self.topic, index]
                end = log.end_offset
                part, parts = log.start_offset, []
                while part < end:
                    found = log.read_file_range(part, 1 << 20)
                    parts.append(found.read())
                    found.close()
                    part = wire.read_batches(parts[-1])[-1].end_offset
                data[member] = b"".join(parts)
            own = data[state.leader]
            for member, other in data.items():
                if other != own:
                    at = next(
                        (i for i, (a, b) in enumerate(zip(own, other, strict=False)) if a != b),
                        min(len(own), len(other)),
                    )
                    raise ViolationError(
                        f"partition {index}: broker {member} has other bytes than leader {state.leader} from "
                        f"byte {at} on, {len(other)} and {len(own)} bytes"
                    )
            self.note("log", index, leader.high_watermark, hashlib.blake2b(own).hexdigest())
            batches = wire.read_batches(own)
            self.record.check_log(f"leader {state.leader}", index, batches, leader.high_watermark)
