"""The assignment of one partition, while it is reassigned and when it is not (KIP-455)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

__all__ = ["ReplicaAssignment", "Replicas"]

#: Broker ids, the preferred leader first.
Replicas: TypeAlias = tuple[int, ...]


class ReplicaAssignment(NamedTuple):
    """The replicas of a partition, those that are being added and those that will be removed.

    ``adding`` and ``removing`` are parts of ``replicas``; both are empty unless the partition is being
    reassigned. Source: ``kafka.controller.ReplicaAssignment`` (Kafka 3.9).
    """

    replicas: Replicas
    adding: Replicas = ()
    removing: Replicas = ()

    @property
    def is_being_reassigned(self) -> bool:
        """Whether replicas are being added or removed."""
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> Replicas:
        """The replicas without those that are being added."""
        return _without(self.replicas, self.adding)

    @property
    def target(self) -> Replicas:
        """The replicas that the partition has after the reassignment."""
        return _without(self.replicas, self.removing)

    def reassign_to(self, target: Sequence[int]) -> ReplicaAssignment:
        """Return the assignment during a reassignment to ``target``; targets stand first, in their order.

        A reassignment that is in progress is replaced: replicas that it was adding and that are no target are
        in none of the lists.
        """
        origin = self.origin
        replicas = tuple(dict.fromkeys((*target, *origin)))
        return ReplicaAssignment(replicas, _without(replicas, origin), _without(replicas, target))


def _without(replicas: Replicas, others: Sequence[int]) -> Replicas:
    return tuple(broker_id for broker_id in replicas if broker_id not in others)
