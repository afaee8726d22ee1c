"""Every error this package raises on purpose, and the Kafka error codes it acts on.

::

    CtrlchanError
    ├── ProtocolError              bytes or columns the protocol does not allow   (defined by the codec)
    │   ├── DecodeError            bytes that are not a message of this version
    │   ├── EncodeError            columns that cannot be encoded
    │   └── UnsupportedVersionError  the version cannot carry it, or does not exist
    ├── SnapshotError              a file of a snapshot: file, row and reason
    ├── JournalError               a file of a journal: file and reason
    ├── MalformedError             a ZooKeeper node or a line of text that cannot be parsed: all reasons
    ├── ZooKeeperError             ZooKeeper does not answer, or refuses: path and reason
    ├── InvalidStateError          rows that a cluster state refuses
    ├── IllegalStateError          a call at the wrong time (Kafka's IllegalStateException)
    ├── ConfigError                a setting that cannot work
    ├── PipelineError              a job that cannot run: its input, or what the machine needs
    └── ChannelError               the channel to the brokers
        ├── ChannelClosedError     it was shut down
        ├── OutcomesTimeoutError   ``wait``: some requests have no outcome yet
        └── UnknownBrokerError     no such broker

The root and the protocol errors are defined in ``_codec``, which imports no other module of this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from ctrlchan._codec import (
    CtrlchanError,
    DecodeError,
    EncodeError,
    ProtocolError,
    UnsupportedVersionError,
)

if TYPE_CHECKING:
    from ctrlchan.channel.queues._entries import Outcome, Sent

__all__ = [
    "ChannelClosedError",
    "ChannelError",
    "ConfigError",
    "CtrlchanError",
    "DecodeError",
    "EncodeError",
    "ErrorCode",
    "IllegalStateError",
    "InvalidStateError",
    "JournalError",
    "MalformedError",
    "OutcomesTimeoutError",
    "PipelineError",
    "ProtocolError",
    "SnapshotError",
    "UnknownBrokerError",
    "UnsupportedVersionError",
    "ZooKeeperError",
]


class SnapshotError(CtrlchanError):
    """A snapshot that cannot be read or written; the message names file, row and reason."""


class JournalError(CtrlchanError):
    """A journal that cannot be read or written; the message names file and reason."""


class MalformedError(CtrlchanError, ValueError):
    """A ZooKeeper node or a line of text that cannot be parsed. ``reasons``: all of them, in order."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons

    def __reduce__(self) -> tuple[type[MalformedError], tuple[str, ...]]:
        return type(self), self.reasons


class ZooKeeperError(CtrlchanError):
    """ZooKeeper does not answer, or refuses a request; the message names the path or the servers."""


class InvalidStateError(CtrlchanError, ValueError):
    """A change or a table that a cluster state refuses; the message names row, column and reason."""


class IllegalStateError(CtrlchanError, RuntimeError):
    """A call that is not allowed now, as Kafka's IllegalStateException."""


class ConfigError(CtrlchanError, ValueError):
    """A setting that cannot work; the message names the setting."""


class PipelineError(CtrlchanError):
    """A job of the pipeline cannot run or go on; the message names the input or what the machine needs."""


class ChannelError(CtrlchanError):
    """The channel cannot do what was asked."""


class ChannelClosedError(ChannelError):
    """The channel was shut down."""


class OutcomesTimeoutError(ChannelError, TimeoutError):
    """Some requests had no outcome within the time given to ``ControllerChannelManager.wait``.

    ``outcomes``: the outcomes of the requests that ended, in the order of the call. ``pending``: the ``Sent``
    of the others, in the same order.
    """

    def __init__(self, message: str, outcomes: Sequence[Outcome], pending: Sequence[Sent]) -> None:
        super().__init__(message)
        self.outcomes = list(outcomes)
        self.pending = list(pending)

    def __reduce__(self) -> tuple[type[ChannelError], tuple[str]]:
        # Requests belong to their process.
        return ChannelError, (str(self),)


class UnknownBrokerError(ChannelError, KeyError):
    """The channel has no broker of this id."""

    def __str__(self) -> str:
        # KeyError would show the message in quotes.
        return Exception.__str__(self)


class ErrorCode(IntEnum):
    """The Kafka error codes that a controller, its channel or a broker acts on.

    Source: ``org.apache.kafka.common.protocol.Errors``. Codes that are not listed are passed on as plain
    integers.
    """

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    REPLICA_NOT_AVAILABLE = 9
    STALE_CONTROLLER_EPOCH = 11
    INVALID_TOPIC_EXCEPTION = 17
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_VERSION = 35
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    KAFKA_STORAGE_ERROR = 56
    LISTENER_NOT_FOUND = 72
    FENCED_LEADER_EPOCH = 74
    STALE_BROKER_EPOCH = 77
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103

    @classmethod
    def name_of(cls, code: int) -> str:
        """``STALE_BROKER_EPOCH`` for 77; ``error 12345`` for a code that is not listed."""
        try:
            return cls(code).name
        except ValueError:
            return f"error {code}"
