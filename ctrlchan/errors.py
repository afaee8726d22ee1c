"""Every error this package raises on purpose, and the Kafka error codes it acts on.

::

    CtrlchanError
    ├── ProtocolError              bytes or columns the protocol does not allow   (defined by the codec)
    │   ├── DecodeError            bytes that are not a message of this version
    │   ├── EncodeError            columns that cannot be encoded
    │   └── UnsupportedVersionError  the version cannot carry it, or does not exist
    ├── SnapshotError              a file of a snapshot: file, row and reason
    ├── JournalError               a file of a journal: file and reason
    ├── LogDirectoryError          a file of a broker's log directory: file, line and reason
    ├── MalformedError             a ZooKeeper node or a line of text that cannot be parsed: all reasons
    ├── ZooKeeperError             ZooKeeper does not answer, or refuses: path and reason
    │   ├── SessionExpiredError    the session is gone, with its ephemeral nodes
    │   └── NodeError              a request for a node failed: path and ZooKeeper's result code
    ├── InvalidStateError          rows that a cluster state refuses
    ├── IllegalStateError          a call at the wrong time (Kafka's IllegalStateException)
    ├── StateChangeFailedError     a partition or replica that cannot change its state
    ├── ConfigError                a setting that cannot work
    ├── JavaNotFoundError          no Java on this machine that can be used
    ├── PipelineError              a job that cannot run: its input, or what the machine needs
    ├── ControllerMovedError       another controller was elected: this one must not write
    ├── MigrationError             the cluster is migrating to KRaft: no ZooKeeper controller may be elected
    ├── KafkaError                 an error code of Kafka as the answer to a request
    │   └── NotControllerError     NOT_CONTROLLER
    └── ChannelError               the channel to the brokers
        ├── ChannelClosedError     it was shut down
        ├── OutcomesTimeoutError   ``wait``: some requests have no outcome yet
        └── UnknownBrokerError     no such broker

The root and the protocol errors are defined in ``_codec``, which imports no other module of this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from ctrlchan._codec import (
    CtrlchanError,
    DecodeError,
    EncodeError,
    ProtocolError,
    UnsupportedVersionError,
)

__all__ = [
    "ChannelClosedError",
    "ChannelError",
    "ConfigError",
    "ControllerMovedError",
    "CtrlchanError",
    "DecodeError",
    "EncodeError",
    "ErrorCode",
    "IllegalStateError",
    "InvalidStateError",
    "JavaNotFoundError",
    "JournalError",
    "KafkaError",
    "LogDirectoryError",
    "MalformedError",
    "MigrationError",
    "NodeError",
    "NotControllerError",
    "OutcomesTimeoutError",
    "PipelineError",
    "ProtocolError",
    "ResultCode",
    "SessionExpiredError",
    "SnapshotError",
    "StateChangeFailedError",
    "UnknownBrokerError",
    "UnsupportedVersionError",
    "ZooKeeperError",
]


class SnapshotError(CtrlchanError):
    """A snapshot that cannot be read or written; the message names file, row and reason."""


class JournalError(CtrlchanError):
    """A journal that cannot be read or written; the message names file and reason."""


class LogDirectoryError(CtrlchanError):
    """A file or folder of a log directory that cannot be used; the message names it and the reason."""


class MalformedError(CtrlchanError, ValueError):
    """A ZooKeeper node or a line of text that cannot be parsed. ``reasons``: all of them, in order."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons

    def __reduce__(self) -> tuple[type[MalformedError], tuple[str, ...]]:
        return type(self), self.reasons


class ZooKeeperError(CtrlchanError):
    """ZooKeeper does not answer, or refuses a request; the message names the path or the servers."""


class SessionExpiredError(ZooKeeperError):
    """The session with ZooKeeper is gone, with its ephemeral nodes, or its owner has yet to handle that."""


class ResultCode(IntEnum):
    """ZooKeeper's results that a writer acts on. Source: ``KeeperException.Code``."""

    OK = 0
    #: Of the operations behind the one that failed in a multi.
    RUNTIME_INCONSISTENCY = -2
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111

    @classmethod
    def name_of(cls, code: int) -> str:
        """``BAD_VERSION`` for -103; ``error -999`` for a code that is not listed."""
        try:
            return cls(code).name
        except ValueError:
            return f"error {code}"


class NodeError(ZooKeeperError):
    """A request for the node ``path`` failed with ``code`` (``ResultCode``).

    ``index``: of the operation in its multi that failed, 0 for a single request.
    """

    def __init__(self, path: str, code: int, *, index: int = 0) -> None:
        super().__init__(f"{path}: {ResultCode.name_of(code)}")
        self.path = path
        self.code = code
        self.index = index

    def __reduce__(self) -> tuple[type[NodeError], tuple[str, int]]:
        return type(self), (self.path, self.code)


class InvalidStateError(CtrlchanError, ValueError):
    """A change or a table that a cluster state refuses; the message names row, column and reason."""


class IllegalStateError(CtrlchanError, RuntimeError):
    """A call that is not allowed now, as Kafka's IllegalStateException."""


class StateChangeFailedError(CtrlchanError):
    """A partition or replica that cannot change its state (Kafka's StateChangeFailedException).

    It is the reason in a line of the state-change log, and is not raised.
    """


class ConfigError(CtrlchanError, ValueError):
    """A setting that cannot work; the message names the setting."""


class JavaNotFoundError(CtrlchanError):
    """No Java on this machine can be used; the message has the problem of each candidate."""


class PipelineError(CtrlchanError):
    """A job of the pipeline cannot run or go on; the message names the input or what the machine needs."""


class ControllerMovedError(CtrlchanError):
    """Another controller was elected, or may have been: nothing was written (Kafka's exception)."""


class MigrationError(CtrlchanError):
    """The cluster is migrating to KRaft (``kraftControllerEpoch`` of ``/controller`` is not negative)."""


class KafkaError(CtrlchanError):
    """A request is answered with a Kafka error. ``code``: see ``ErrorCode``; ``message``: for the client."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message or ErrorCode.name_of(code))
        self.code = int(code)
        self.message = message

    def __reduce__(self) -> tuple[type[KafkaError], tuple[int, str]]:
        return KafkaError, (self.code, self.message)


class NotControllerError(KafkaError):
    """This is not the controller, or no longer."""

    def __init__(self, message: str = "") -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER, message)


class ChannelError(CtrlchanError):
    """The channel cannot do what was asked."""


class ChannelClosedError(ChannelError):
    """The channel was shut down."""


class OutcomesTimeoutError(ChannelError, TimeoutError):
    """Some requests had no outcome within the time given to ``ControllerChannelManager.wait``.

    ``outcomes``: the ``Outcome`` of each request that ended, in the order of the call. ``pending``: the
    ``Sent`` of the others, in the same order. Both types are the channel's, of which nothing is imported
    here.
    """

    def __init__(self, message: str, outcomes: Sequence[Any], pending: Sequence[Any]) -> None:
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
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    UNKNOWN_TOPIC_ID = 100
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    INELIGIBLE_REPLICA = 107
    TRANSACTION_ABORTABLE = 120

    @classmethod
    def known(cls, code: int) -> ErrorCode:
        """Return the error of a code; UNKNOWN_SERVER_ERROR for a code that is not listed."""
        try:
            return cls(code)
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR

    @classmethod
    def name_of(cls, code: int) -> str:
        """``STALE_BROKER_EPOCH`` for 77; ``error 12345`` for a code that is not listed."""
        try:
            return cls(code).name
        except ValueError:
            return f"error {code}"
