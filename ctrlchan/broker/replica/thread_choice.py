"""Which of several threads copies a partition: Kafka's rule, so that both spread partitions alike."""

from __future__ import annotations

from ctrlchan.internal_topics import java_hash

__all__ = ["thread_of"]


def thread_of(topic: str, partition: int, threads: int) -> int:
    """Return the number of the thread, from 0. Source: ``AbstractFetcherManager.getFetcherId``."""
    value = (31 * java_hash(topic) + partition) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    # The least integer has no absolute value in Java.
    return 0 if signed == -(1 << 31) else abs(signed) % threads
