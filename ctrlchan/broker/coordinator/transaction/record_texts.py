"""The records of ``__transaction_state`` as texts, in the words of Kafka's DumpLogSegments.

Source: ``kafka.coordinator.transaction.TransactionLog.formatRecordKeyAndValue``.
"""

from __future__ import annotations

from ctrlchan.broker.coordinator.transaction.records import read_key, read_value
from ctrlchan.errors import DecodeError

__all__ = ["text_of"]


def text_of(key: bytes | None, value: bytes | None) -> tuple[str, str | None]:
    """Return key and value of a record as texts. Raises DecodeError.

    The value of a key of a later Kafka is None: nothing is known of it.
    """
    if key is None:
        raise DecodeError("a record without a key")
    transactional_id = read_key(key)
    if isinstance(transactional_id, int):
        return f"unknown::version={transactional_id}", None
    text = f"transaction_metadata::transactionalId={transactional_id}"
    if value is None:
        return text, "<DELETE>"
    found = read_value(transactional_id, value)
    partitions = ",".join(f"{topic}-{partition}" for topic, partition in sorted(found.partitions))
    return text, (
        f"producerId:{found.producer_id},producerEpoch:{found.epoch},state={found.state.value},"
        f"partitions=[{partitions}],txnLastUpdateTimestamp={found.update_ms},txnTimeoutMs={found.timeout_ms}"
    )
