"""The topics that Kafka keeps for itself, and the partitions of their keys.

Source: ``org.apache.kafka.common.internals.Topic``.
"""

from __future__ import annotations

from typing import Final

__all__ = ["INTERNAL_TOPICS", "OFFSETS_TOPIC", "TRANSACTIONS_TOPIC", "coordinator_partition", "java_hash"]

#: The offsets and the members of groups.
OFFSETS_TOPIC: Final = "__consumer_offsets"
#: The states of transactions.
TRANSACTIONS_TOPIC: Final = "__transaction_state"
#: Clients may not write to these. The third one is of share groups, which ZooKeeper mode does not have.
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state"})


def java_hash(text: str) -> int:
    """Return ``String.hashCode``: over the UTF-16 units, as a signed 32-bit integer."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def coordinator_partition(key: str, partitions: int) -> int:
    """Return the partition that holds a group or a transaction; its leader is the coordinator.

    By the absolute value of the hash, 0 for the integer that has none (``Utils.abs``).
    """
    value = java_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % partitions
