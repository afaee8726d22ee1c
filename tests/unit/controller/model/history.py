"""Everything that controllers have written and sent of leaders, and what must hold for all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["History", "Leadership"]

#: (topic id, partition)
Key = tuple[bytes, int]


class Leadership(NamedTuple):
    """The state node of a partition. ``version``: its zkVersion."""

    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: list[int]
    version: int


class History:
    """``unclean_allowed(key)``: whether a leader outside the ISR may be elected."""

    def __init__(self, unclean_allowed: Callable[[Key], bool]) -> None:
        self._unclean_allowed = unclean_allowed
        self._last: dict[Key, Leadership] = {}
        self._leaders: dict[tuple[Key, int], int] = {}
        #: The number of elections outside the ISR.
        self.unclean = 0

    def written(self, key: Key, new: Leadership, assigned: list[int]) -> None:
        """Check a state node that was written. ``assigned``: the replicas in the node of the topic."""
        old = self._last.get(key)
        where = f"{key}: {old} -> {new}, assigned {assigned}"
        assert new.isr, where
        assert len(set(new.isr)) == len(new.isr), where
        assert new.leader == -1 or new.leader in new.isr, f"the leader is not in the ISR: {where}"
        # The last member of an ISR stays, also when a cancelled reassignment takes it out of the assignment.
        is_last = old is not None and new.leader == -1 and len(new.isr) == 1 and new.isr[0] in old.isr
        assert is_last or set(new.isr) <= set(assigned), f"the ISR is not assigned: {where}"
        if old is not None:
            assert new.version > old.version, f"the partition epoch goes back: {where}"
            assert new.leader_epoch >= old.leader_epoch, f"the leader epoch goes back: {where}"
            assert new.controller_epoch >= old.controller_epoch, f"the controller epoch goes back: {where}"
            if new.leader >= 0 and new.leader not in old.isr:
                assert self._unclean_allowed(key), f"an unclean election: {where}"
                self.unclean += 1
        self._last[key] = new
        self.seen(key, new.leader, new.leader_epoch)

    def has(self, key: Key, version: int) -> bool:
        """Return whether the write that made this version of a state node is known."""
        last = self._last.get(key)
        return last is not None and last.version == version

    def seen(self, key: Key, leader: int, leader_epoch: int) -> None:
        """Check that this leader is the only one of its epoch, written or sent."""
        known = self._leaders.setdefault((key, leader_epoch), leader)
        assert known == leader, f"{key}: leader epoch {leader_epoch} has the leaders {known} and {leader}"
