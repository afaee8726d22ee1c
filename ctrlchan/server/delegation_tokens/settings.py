"""DelegationTokenSettings: the settings of delegation tokens, with Kafka's names and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from ctrlchan.config import table
from ctrlchan.config.typed import TypedSettings, value_of

__all__ = ["DelegationTokenSettings"]


@dataclass(frozen=True, slots=True)
class DelegationTokenSettings(TypedSettings):
    """Settings of ``DelegationTokenManagerConfigs``; times are milliseconds.

    ``secret_key``: all brokers and controllers of a cluster have the same. Empty: there are no tokens.
    """

    secret_key: str = field(default="", repr=False)
    max_lifetime_ms: int = value_of(table.DELEGATION_TOKEN_MAX_LIFETIME_MS)
    expiry_time_ms: int = value_of(table.DELEGATION_TOKEN_EXPIRY_TIME_MS)
    expiry_check_interval_ms: int = value_of(table.DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS)

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> Self:
        """Return the settings that configs have under Kafka's names. Raises ConfigError.

        The key has two names, of which the older one counts where the other one is not set.
        """
        keys = (table.DELEGATION_TOKEN_SECRET_KEY, table.DELEGATION_TOKEN_MASTER_KEY)
        secret_key = next((one.parse(configs[one.name]) for one in keys if one.name in configs), "")
        return replace(cls().with_configs(configs), secret_key=secret_key)

    @property
    def are_enabled(self) -> bool:
        """Whether there are tokens."""
        return bool(self.secret_key)
