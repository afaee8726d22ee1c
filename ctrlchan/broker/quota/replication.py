"""ReplicationQuotas: how many bytes of throttled replicas may be copied in a second, by direction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ctrlchan.broker.config.parts import QuotaSettings
from ctrlchan.broker.quota._replication_quota import ReplicationQuota
from ctrlchan.config import table

__all__ = ["ReplicationQuotas", "throttled_rates"]


class ReplicationQuotas(NamedTuple):
    """The quotas of a broker: of the replicas that it leads, and of those that it follows."""

    leader: ReplicationQuota
    follower: ReplicationQuota

    @classmethod
    def of(cls, settings: QuotaSettings) -> ReplicationQuotas:
        """Return quotas without a bound."""
        leader, follower = (
            ReplicationQuota(
                samples=settings.replication_samples, window_seconds=settings.replication_window_seconds
            )
            for _ in cls._fields
        )
        return cls(leader, follower)

    def limit(self, rates: tuple[int | None, int | None]) -> None:
        """Take other bounds: of the leader, and of the follower; None for no bound."""
        for quota, rate in zip(self, rates, strict=True):
            quota.limit(rate)


def throttled_rates(configs: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return the bounds that configs have under Kafka's names. Raises ConfigError."""
    leader, follower = (
        setting.parse(configs[setting.name]) if setting.name in configs else None
        for setting in (table.LEADER_REPLICATION_THROTTLED_RATE, table.FOLLOWER_REPLICATION_THROTTLED_RATE)
    )
    return leader, follower
