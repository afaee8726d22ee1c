"""Settings of the transaction coordinator, with Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass

from ctrlchan.config import table
from ctrlchan.config.typed import TypedSettings, value_of

__all__ = ["TransactionConfig"]


@dataclass(frozen=True, slots=True)
class TransactionConfig(TypedSettings):
    """Settings of ``TransactionLogConfigs`` and ``TransactionStateManagerConfigs``; times are milliseconds.

    ``abort_retry`` and ``expiration_retry``: Kafka looks that often for transactions and ids whose time is
    over. Here each has its timer, and these are the pauses after an append that failed.
    ``refuses_late_ends``: no EndTxn comes with an older connection than the one that began the transaction.
    """

    topic_partitions: int = value_of(table.TRANSACTION_STATE_LOG_NUM_PARTITIONS)
    topic_replication_factor: int = value_of(table.TRANSACTION_STATE_LOG_REPLICATION_FACTOR)
    topic_min_in_sync_replicas: int = value_of(table.TRANSACTION_STATE_LOG_MIN_ISR)
    topic_segment_bytes: int = value_of(table.TRANSACTION_STATE_LOG_SEGMENT_BYTES)
    load_buffer_size: int = value_of(table.TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE)
    max_timeout: int = value_of(table.TRANSACTION_MAX_TIMEOUT_MS)
    id_expiration: int = value_of(table.TRANSACTIONAL_ID_EXPIRATION_MS)
    abort_retry: int = value_of(table.TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS)
    expiration_retry: int = value_of(table.TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS)
    refuses_late_ends: bool = value_of(table.CTRLCHAN_TRANSACTION_LATE_END_REFUSE)
    request_timeout: int = value_of(table.REQUEST_TIMEOUT_MS)
