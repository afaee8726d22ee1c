"""The simulated controller: who leads, and each ISR. Messages in both directions are late, but in order.

Leaders are elected from the ISR alone, so nothing that was acknowledged may be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ctrlchan.broker.replica._partitions import Partition, WantedIsr

if TYPE_CHECKING:
    from tests.simulation.broker import SimulatedBroker
    from tests.simulation.history import History

NO_LEADER: Final = -1
#: Most milliseconds until a message arrives, and until the end of a broker is noticed.
_DELAY_MS: Final = 30
_SESSION_MS: Final = 120


@dataclass(frozen=True, slots=True)
class State:
    """One partition, as the controller has written it."""

    topic: str
    index: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Controller:
    def __init__(self, history: History) -> None:
        self._history = history
        self.states: dict[tuple[str, int], State] = {}
        self.live: set[int] = set()
        #: Brokers whose disk has failed, until they are started again.
        self._failed: set[int] = set()
        self._sent_ms: dict[int, int] = {}

    def create(self, topic: str, index: int, replicas: tuple[int, ...]) -> None:
        self._set(State(topic, index, replicas[0], 0, 0, replicas, replicas))

    # -- what happens to brokers

    def broker_started(self, broker_id: int) -> None:
        self._history.later(
            self._history.choose.randint(0, _DELAY_MS), f"start of {broker_id}", self._started, broker_id
        )

    def broker_ended(self, broker_id: int) -> None:
        delay = self._history.choose.randint(1, _SESSION_MS)
        incarnation = self._history.brokers[broker_id].incarnation
        self._history.later(delay, f"end of {broker_id}", self._ended, broker_id, incarnation)

    def broker_failed(self, broker_id: int) -> None:
        delay = self._history.choose.randint(1, _DELAY_MS)
        incarnation = self._history.brokers[broker_id].incarnation
        self._history.later(delay, f"failed disk of {broker_id}", self._disk_failed, broker_id, incarnation)

    def _started(self, broker_id: int) -> None:
        if broker_id in self.live:
            # It was started again before its end was noticed.
            self._remove(broker_id)
        self._failed.discard(broker_id)
        self.live.add(broker_id)
        self._send_live()
        for state in list(self.states.values()):
            if state.leader == NO_LEADER and broker_id in state.isr:
                self._elect(state, state.isr)
            else:
                self._send(state, broker_id)

    def _ended(self, broker_id: int, incarnation: int) -> None:
        broker = self._history.brokers[broker_id]
        if broker_id in self.live and (broker.incarnation == incarnation and not broker.is_up):
            self._remove(broker_id)

    def _disk_failed(self, broker_id: int, incarnation: int) -> None:
        if self._history.brokers[broker_id].incarnation == incarnation and broker_id not in self._failed:
            self._remove(broker_id)
            self._failed.add(broker_id)

    def _remove(self, broker_id: int) -> None:
        """Take a broker out of all ISRs; elsewhere elect another leader."""
        self.live.discard(broker_id)
        self._send_live()
        for state in list(self.states.values()):
            if broker_id not in state.isr and broker_id != state.leader:
                continue
            # The last one stays: it alone has all records.
            isr = tuple(one for one in state.isr if one != broker_id) or state.isr
            if state.leader == broker_id:
                self._elect(state, isr)
            else:
                self._set(
                    replace(
                        state,
                        isr=isr,
                        leader_epoch=state.leader_epoch + 1,
                        partition_epoch=state.partition_epoch + 1,
                    )
                )

    def _elect(self, state: State, isr: tuple[int, ...]) -> None:
        candidates = [one for one in isr if one in self.live]
        leader = self._history.choose.choice(candidates) if candidates else NO_LEADER
        self._set(
            replace(
                state,
                leader=leader,
                isr=isr,
                leader_epoch=state.leader_epoch + 1,
                partition_epoch=state.partition_epoch + 1,
            )
        )

    def move_leader(self, state: State) -> None:
        """Let another in-sync replica lead, as a preferred election does."""
        others = [one for one in state.isr if one in self.live and one != state.leader]
        if others and state.leader != NO_LEADER:
            self._set(
                replace(
                    state,
                    leader=self._history.choose.choice(others),
                    leader_epoch=state.leader_epoch + 1,
                    partition_epoch=state.partition_epoch + 1,
                )
            )

    # -- messages

    def _set(self, state: State) -> None:
        self.states[state.topic, state.index] = state
        self._history.note("state", state.index, state.leader, state.leader_epoch, state.isr)
        for broker_id in state.replicas:
            self._send(state, broker_id)

    def _send(self, state: State, broker_id: int) -> None:
        broker = self._history.brokers[broker_id]
        if broker_id in self.live and broker.is_up:
            self._deliver(broker, f"LeaderAndIsr for {broker_id}", lambda: broker.become(state))

    def _send_live(self) -> None:
        """Tell all brokers who is live, as UpdateMetadata does."""
        live = tuple(sorted(self.live))
        for broker_id in live:
            broker = self._history.brokers[broker_id]
            if broker.is_up:
                self._deliver(
                    broker, f"UpdateMetadata for {broker_id}", partial(broker.table.set_live_brokers, live)
                )

    def _deliver(self, broker: SimulatedBroker, what: str, action: Callable[[], None]) -> None:
        """Do something at a broker later: behind all that was sent to it before, and not to its successor."""
        now = self._history.clock.now_ms
        at = max(self._sent_ms.get(broker.id, 0), now + self._history.choose.randint(0, _DELAY_MS))
        self._sent_ms[broker.id] = at
        incarnation = broker.incarnation

        def arrive() -> None:
            if broker.is_up and broker.incarnation == incarnation:
                action()
                broker.check_end()

        self._history.later(at - now, what, arrive)

    # -- ISRs

    def alter_partition(self, broker: SimulatedBroker, partition: Partition, wanted: WantedIsr) -> None:
        delay = self._history.choose.randint(0, _DELAY_MS)
        self._history.later(delay, f"AlterPartition of {broker.id}", self._altered, broker, partition, wanted)

    def _altered(self, broker: SimulatedBroker, partition: Partition, wanted: WantedIsr) -> None:
        state = self.states[partition.topic, partition.partition]
        if (
            state.leader != broker.id
            or state.leader_epoch != wanted.leader_epoch
            or state.partition_epoch != wanted.partition_epoch
        ):
            # Another LeaderAndIsr is on its way.
            return
        if not set(wanted.isr) <= self.live:
            # INELIGIBLE_REPLICA
            self._deliver(
                broker,
                f"refused ISR for {broker.id}",
                lambda: partition.keep_isr(wanted.leader_epoch, wanted.partition_epoch),
            )
            return
        changed = replace(state, isr=wanted.isr, partition_epoch=state.partition_epoch + 1)
        self.states[state.topic, state.index] = changed
        self._history.note("ISR", state.index, changed.isr)

        def take() -> None:
            with broker.entered():
                partition.set_isr(changed.isr, changed.partition_epoch, changed.leader_epoch)

        self._deliver(broker, f"ISR for {broker.id}", take)
