"""ReplicationQuotas: how many bytes of throttled replicas may be copied in a second, by direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ctrlchan.broker.config.parts import QuotaSettings
from ctrlchan.broker.quota._replication_quota import ReplicationQuota
from ctrlchan.config import table

__all__ = ["ReplicationQuotas", "throttled_rates"]


class ReplicationQuotas(NamedTuple):
    """The quotas of replicas that a broker leads, that it follows, that move between log directories."""

    leader: ReplicationQuota
    follower: ReplicationQuota
    alter_log_dirs: ReplicationQuota

    @classmethod
    def of(cls, settings: QuotaSettings) -> ReplicationQuotas:
        """Return quotas without a bound."""
        leader, follower = (
            ReplicationQuota(
                samples=settings.replication_samples, window_seconds=settings.replication_window_seconds
            )
            for _ in range(2)
        )
        alter_log_dirs = ReplicationQuota(
            samples=settings.log_dirs_samples, window_seconds=settings.log_dirs_window_seconds
        )
        return cls(leader, follower, alter_log_dirs)

    def limit(self, rates: Sequence[int | None]) -> None:
        """Take other bounds, in the order of the quotas; None for no bound."""
        for quota, rate in zip(self, rates, strict=True):
            quota.limit(rate)


def throttled_rates(configs: Mapping[str, str]) -> Sequence[int | None]:
    """Return the bounds that configs have under Kafka's names. Raises ConfigError."""
    return tuple(
        setting.parse(configs[setting.name]) if setting.name in configs else None
        for setting in (
            table.LEADER_REPLICATION_THROTTLED_RATE,
            table.FOLLOWER_REPLICATION_THROTTLED_RATE,
            table.REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND,
        )
    )
