"""The record classes of kafka-python, which warns when it is imported."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.codec import gzip_decode, gzip_encode
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
    from kafka.record.legacy_records import LegacyRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecords

__all__ = [
    "DefaultRecordBatch",
    "DefaultRecordBatchBuilder",
    "LegacyRecordBatchBuilder",
    "MemoryRecords",
    "gzip_decode",
    "gzip_encode",
]
