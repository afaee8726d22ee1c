"""Settings of the log manager and of its cleaner, with Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass

from ctrlchan.config import table
from ctrlchan.config.typed import TypedSettings, value_of

__all__ = ["LogManagerSettings"]


@dataclass(frozen=True, slots=True)
class LogManagerSettings(TypedSettings):
    """Settings of a broker that its log manager acts on."""

    recovery_threads_per_dir: int = value_of(table.NUM_RECOVERY_THREADS_PER_DATA_DIR)
    background_threads: int = value_of(table.BACKGROUND_THREADS)
    retention_check_ms: int = value_of(table.LOG_RETENTION_CHECK_INTERVAL_MS)
    recovery_point_checkpoint_ms: int = value_of(table.LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS)
    log_start_checkpoint_ms: int = value_of(table.LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS)
    high_watermark_checkpoint_ms: int = value_of(table.REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS)
    producer_expiration_ms: int = value_of(table.PRODUCER_ID_EXPIRATION_MS)
    producer_expiration_check_ms: int = value_of(table.PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS)
    cleaner_enabled: bool = value_of(table.LOG_CLEANER_ENABLE)
    cleaner_threads: int = value_of(table.LOG_CLEANER_THREADS)
    cleaner_backoff_ms: int = value_of(table.LOG_CLEANER_BACKOFF_MS)
    #: Of all threads, for the keys of the logs that are compacted.
    cleaner_memory: int = value_of(table.LOG_CLEANER_DEDUPE_BUFFER_SIZE)
    cleaner_load_factor: float = value_of(table.LOG_CLEANER_IO_BUFFER_LOAD_FACTOR)
    #: Of all threads, for what they read.
    cleaner_buffer_bytes: int = value_of(table.LOG_CLEANER_IO_BUFFER_SIZE)
    cleaner_max_bytes_per_second: float = value_of(table.LOG_CLEANER_IO_MAX_BYTES_PER_SECOND)
    #: Before the first retention and the first checkpoints.
    initial_delay_ms: int = value_of(table.LOG_INITIAL_TASK_DELAY_MS)

    @property
    def of_cleaner(self) -> tuple[float, ...]:
        """What the cleaner can have otherwise while it runs."""
        return (
            self.cleaner_threads,
            self.cleaner_backoff_ms,
            self.cleaner_memory,
            self.cleaner_load_factor,
            self.cleaner_buffer_bytes,
            self.cleaner_max_bytes_per_second,
        )
