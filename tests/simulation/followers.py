"""A broker's fetchers: those of the product, without their threads and sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ctrlchan._codec import encode_request_header
from ctrlchan.broker.config.parts import FetcherSettings
from ctrlchan.broker.log._log import EARLIEST
from ctrlchan.broker.replica import fetcher
from ctrlchan.broker.replica._partitions import Partition
from ctrlchan.errors import KafkaError
from ctrlchan.peers.messages import decode_answer
from tests.simulation.link import Link, Pending

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker

SETTINGS = FetcherSettings(
    max_wait_ms=40, min_bytes=1, max_bytes=2000, partition_max_bytes=900, backoff_ms=30
)


class SimulatedFetcher(fetcher._FetcherThread):
    """Fetches from one leader when ``act`` is called. It is never started as a thread."""

    def __init__(self, broker: SimulatedBroker, leader: int) -> None:
        super().__init__(broker.id, leader, 0, lambda _: None, broker.truncate, SETTINGS)
        self._broker = broker
        self._asked: dict[Any, Any] | None = None
        self._resume_ms = 0
        self.link: Link | None = None

    @property
    def leader(self) -> int:
        return self._leader

    def _now(self) -> float:
        return self._broker.clock.now_ms / 1000

    def due_ms(self) -> float | None:
        """Return when the fetcher has something to send, None while it waits for an answer."""
        if self._asked is not None or not self._followed:
            return None
        if self._ready():
            return self._resume_ms
        # One more: seconds with a fraction are not exact.
        return max(min(one.resume_at for one in self._followed.values()) * 1000 + 1, self._resume_ms)

    def act(self) -> None:
        """Send a Fetch, if one is due."""
        due = self.due_ms()
        if due is None or due > self._broker.clock.now_ms:
            return
        if self.link is None or self.link.is_lost:
            system = self._broker.history.system_of(self._leader)
            if system is None:
                self._fail()
                return
            name = f"fetcher {self._broker_id} of {self._leader}"
            self.link = self._broker.history.connect(system, name, self._lost)
        followed = self._ready()
        body = self._fetch_body(followed)
        number = self.link.next_id()
        head = encode_request_header(2, 1, fetcher.FETCH_VERSION, number, b"f")
        offsets = {key: one.partition.log.end_offset for key, one in followed.items() if one.partition.log}
        pending = Pending(
            number,
            f"{self.link.name}: {offsets}",
            SETTINGS.max_wait_ms,
            self._answered,
            ("follower", offsets),
        )
        pending.step = self._broker.history.step
        self._asked = followed
        self.link.send(head + body, pending)

    def _answered(self, answer: bytes) -> None:
        followed, self._asked = self._asked, None
        assert followed is not None
        with self._broker.entered():
            try:
                self._apply(followed, decode_answer("fetch", fetcher.FETCH_VERSION, answer, 5))
            except (OSError, KafkaError) as error:
                name = type(error).__name__
                self._broker.history.note("fetcher failed", self._broker_id, self._leader, name)
                self._fail()
        self._broker.check_disk()

    def _lost(self) -> None:
        self._fail()

    def _fail(self) -> None:
        self._asked = None
        self._resume_ms = self._broker.clock.now_ms + SETTINGS.backoff_ms
        if self.link is not None and not self.link.is_lost:
            self.link.reset()

    def stop(self) -> None:
        self._followed.clear()
        if self.link is not None and not self.link.is_lost:
            self.link.reset()

    def _exchange(self, api_key: int, version: int, flexible: bool, body: bytes) -> tuple[bytes, int]:
        raise AssertionError("only ListOffsets is asked for at once, by _list_offset")

    def _list_offset(self, one: Any, timestamp: int) -> int:
        """Ask the leader without a connection; it answers at once or not at all."""
        found = self._broker.history.partition_of(self._leader, one.partition)
        if (
            found is None
            or not found.is_leader
            or found.leader_epoch != one.leader_epoch
            or found.log is None
        ):
            raise KafkaError(6)
        return found.log.start_offset if timestamp == EARLIEST else found.log.end_offset


class SimulatedFetchers:
    """The fetchers of a broker, one for each leader. As ``ReplicaFetchers``."""

    def __init__(self, broker: SimulatedBroker, started: Callable[[SimulatedFetcher], None]) -> None:
        self._broker = broker
        self._started = started
        self.by_leader: dict[int, SimulatedFetcher] = {}

    def follow(self, partition: Partition) -> None:
        self.unfollow(partition.topic, partition.partition)
        found = self.by_leader.get(partition.leader)
        if found is None:
            found = self.by_leader[partition.leader] = SimulatedFetcher(self._broker, partition.leader)
            self._started(found)
        found.follow(partition)

    def unfollow(self, topic: str, index: int) -> None:
        for leader, one in list(self.by_leader.items()):
            if one.unfollow((topic, index)):
                del self.by_leader[leader]
                one.stop()

    def stop(self) -> None:
        for one in self.by_leader.values():
            one.stop()
        self.by_leader.clear()
