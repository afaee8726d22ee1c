"""The settings of a topic that its logs act on, with Kafka's names and defaults (``LogConfig``)."""

from __future__ import annotations

from typing import Final, NamedTuple

from ctrlchan.errors import ConfigError

__all__ = ["LogConfig"]

_MAX_INT64: Final = 2**63 - 1
_DAY_MS: Final = 24 * 3600 * 1000


class LogConfig(NamedTuple):
    """Settings of one log. Names are Kafka's topic configs with ``_`` for ``.``; -1 stands for no limit."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    flush_messages: int = _MAX_INT64
    file_delete_delay_ms: int = 60_000
    cleanup_delete: bool = True
    cleanup_compact: bool = False
    max_compaction_lag_ms: int = _MAX_INT64

    @property
    def roll_ms(self) -> int:
        """After how much time a segment is rolled: sooner where records must be compacted sooner."""
        return min(self.max_compaction_lag_ms, self.segment_ms) if self.cleanup_compact else self.segment_ms

    def check(self) -> LogConfig:
        """Return this. Raises ConfigError for a value that Kafka refuses."""
        lowest = {
            "segment_bytes": 14,
            "segment_ms": 1,
            "segment_index_bytes": 4,
            "retention_ms": -1,
            "flush_messages": 1,
            "max_compaction_lag_ms": 1,
        }
        for name, value in self._asdict().items():
            least = -_MAX_INT64 - 1 if name == "retention_bytes" else lowest.get(name, 0)
            most = (
                2**31 - 1
                if name in ("segment_bytes", "segment_index_bytes", "index_interval_bytes")
                else _MAX_INT64
            )
            if not isinstance(value, bool) and not least <= value <= most:
                raise ConfigError(f"{name.replace('_', '.')}={value}: not from {least} to {most}")
        return self
