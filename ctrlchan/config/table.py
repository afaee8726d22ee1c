"""The table of Kafka's settings: each has one row here, and everything else is derived from the rows.

A row has Kafka's name, type and default, the allowed values, and whether the value can be changed while a
broker runs (``scope``); ``setting.py`` describes all columns. A row has a Python name if the setting has an
effect in this package: whoever acts on the setting, usually a field of typed settings (``typed.py``), reads
it by that name. All others are described only: brokers accept the setting, without effect.

Source: ``KafkaConfig``, ``LogConfig``, ``ServerLogConfigs``, ``ReplicationConfigs``, ``SocketServerConfigs``,
``GroupCoordinatorConfig``, ``TransactionLogConfigs``, ``TransactionStateManagerConfigs``, ``CleanerConfig``,
``QuotaConfigs``, ``ZkConfigs``, ``SslConfigs`` and ``SaslConfigs`` (Kafka 3.9).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from ctrlchan.config.checks import (
    check_gzip_level,
    check_inter_broker_protocol,
    check_message_format,
    check_retention,
    check_throttled_replicas,
)
from ctrlchan.config.setting import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    SHORT,
    STRING,
    ConfigType,
    Scope,
    Setting,
    Type,
)

T = TypeVar("T")

_MAX_INT: Final = "2147483647"
_MAX_LONG: Final = "9223372036854775807"
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
READ_ONLY, PER_BROKER, CLUSTER_WIDE = Scope

# The rows in the order of DescribeConfigs: those of brokers stand around the broker settings that rows of
# topic settings name.
_broker_rows: list[Setting[Any]] = []
_more_broker_rows: list[Setting[Any]] = []
_topic_rows: list[Setting[Any]] = []
_unshown_rows: list[Setting[Any]] = []
_dynamic_only_rows: list[Setting[Any]] = []
_controller_rows: list[Setting[Any]] = []
_security_rows: list[Setting[Any]] = []


def _broker(name: str, type: Type[T], default: str | None = None, **columns: Any) -> Setting[T]:
    """Add a setting of brokers."""
    return _added(_broker_rows, Setting(name=name, type=type, default=default, **columns))


def _more(name: str, type: Type[T], default: str | None = None, **columns: Any) -> Setting[T]:
    """Add a setting of brokers behind those that rows of topic settings name."""
    return _added(_more_broker_rows, Setting(name=name, type=type, default=default, **columns))


def _unshown(name: str, type: Type[T], default: str | None = None, **columns: Any) -> Setting[T]:
    """Add a setting of brokers that DescribeConfigs does not show."""
    return _added(_unshown_rows, Setting(name=name, type=type, default=default, **columns))


def _dynamic_only(name: str, type: Type[T], **columns: Any) -> Setting[T]:
    """Add a setting that all brokers can have dynamically, and that no file has."""
    return _added(_dynamic_only_rows, Setting(name=name, type=type, scope=CLUSTER_WIDE, **columns))


def _controller(name: str, type: Type[T], default: str | None = None, **columns: Any) -> Setting[T]:
    """Add a setting that only controllers and channels read."""
    return _added(_controller_rows, Setting(name=name, type=type, default=default, **columns))


def _security(name: str, type: Type[T], default: str | None = None, **columns: Any) -> Setting[T]:
    """Add a setting of a secured listener, which any listener may have for itself."""
    columns.setdefault("per_listener", True)
    return _added(_security_rows, Setting(name=name, type=type, default=default, **columns))


def _topic(
    name: str,
    type: Type[T],
    default: str,
    *,
    twin: str | None = None,
    twin_scope: Scope = CLUSTER_WIDE,
    **columns: Any,
) -> Setting[T]:
    """Add a setting of topics. ``twin``: the broker setting that is its default, with the same values."""
    setting = Setting(name=name, type=type, default=default, **columns)
    if twin is not None:
        setting = setting._replace(behind=((setting._replace(name=twin, scope=twin_scope), 1),))
    return _added(_topic_rows, setting)


def _described_only(_row: Setting[Any]) -> None:
    """Mark a row as described only: brokers accept and describe the setting, and nothing acts on it."""


def _added(rows: list[Setting[Any]], setting: Setting[T]) -> Setting[T]:
    rows.append(setting)
    return setting


# -- brokers

ADVERTISED_LISTENERS = _broker("advertised.listeners", STRING, scope=PER_BROKER)
AUTO_CREATE_TOPICS_ENABLE = _broker("auto.create.topics.enable", BOOLEAN, "true")
BROKER_ID = _broker("broker.id", INT, "-1", least=-1)
BROKER_RACK = _broker("broker.rack", STRING)
CONNECTIONS_MAX_IDLE_MS = _broker("connections.max.idle.ms", LONG, "600000")
DEFAULT_REPLICATION_FACTOR = _broker("default.replication.factor", INT, "1", least=1, most=2**15 - 1)
DELETE_TOPIC_ENABLE = _broker("delete.topic.enable", BOOLEAN, "true")
INTER_BROKER_PROTOCOL_VERSION = _broker(
    "inter.broker.protocol.version", STRING, "3.9-IV0", check=check_inter_broker_protocol
)
LISTENER_SECURITY_PROTOCOL_MAP = _broker(
    "listener.security.protocol.map",
    STRING,
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    scope=PER_BROKER,
)
LISTENERS = _broker("listeners", STRING, "PLAINTEXT://:9092", scope=PER_BROKER)
#: Another name of broker.id.
NODE_ID = _unshown("node.id", INT, "-1", least=-1)
NUM_PARTITIONS = _broker("num.partitions", INT, "1", least=1)
SOCKET_REQUEST_MAX_BYTES = _broker("socket.request.max.bytes", INT, "104857600", least=1)
BACKGROUND_THREADS = _broker("background.threads", INT, "10", least=1, scope=CLUSTER_WIDE)
LOG_CLEANER_BACKOFF_MS = _broker("log.cleaner.backoff.ms", LONG, "15000", least=0, scope=CLUSTER_WIDE)
LOG_CLEANER_DEDUPE_BUFFER_SIZE = _broker(
    "log.cleaner.dedupe.buffer.size", LONG, "134217728", scope=CLUSTER_WIDE
)
LOG_CLEANER_IO_BUFFER_LOAD_FACTOR = _broker(
    "log.cleaner.io.buffer.load.factor", DOUBLE, "0.9", scope=CLUSTER_WIDE
)
LOG_CLEANER_IO_BUFFER_SIZE = _broker("log.cleaner.io.buffer.size", INT, "524288", least=0, scope=CLUSTER_WIDE)
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND = _broker(
    "log.cleaner.io.max.bytes.per.second", DOUBLE, "1.7976931348623157E308", scope=CLUSTER_WIDE
)
LOG_CLEANER_THREADS = _broker("log.cleaner.threads", INT, "1", least=1, scope=CLUSTER_WIDE)
LOG_FLUSH_INTERVAL_MS = _broker("log.flush.interval.ms", LONG, least=0, scope=CLUSTER_WIDE)
LOG_RETENTION_MS = _broker("log.retention.ms", LONG, check=check_retention, scope=CLUSTER_WIDE)
LOG_ROLL_JITTER_MS = _broker("log.roll.jitter.ms", LONG, least=0, scope=CLUSTER_WIDE)
LOG_ROLL_MS = _broker("log.roll.ms", LONG, least=1, scope=CLUSTER_WIDE)
MAX_CONNECTION_CREATION_RATE = _broker(
    "max.connection.creation.rate", INT, _MAX_INT, least=0, scope=CLUSTER_WIDE, per_listener=True
)
MAX_CONNECTIONS = _broker("max.connections", INT, _MAX_INT, least=0, scope=CLUSTER_WIDE, per_listener=True)
MAX_CONNECTIONS_PER_IP = _broker("max.connections.per.ip", INT, _MAX_INT, least=0, scope=CLUSTER_WIDE)
MAX_CONNECTIONS_PER_IP_OVERRIDES = _broker("max.connections.per.ip.overrides", STRING, "", scope=CLUSTER_WIDE)
_described_only(_broker("metric.reporters", LIST, "", scope=CLUSTER_WIDE))
NUM_IO_THREADS = _broker("num.io.threads", INT, "8", least=1, scope=CLUSTER_WIDE)
NUM_NETWORK_THREADS = _broker(
    "num.network.threads", INT, "3", least=1, here="1", scope=CLUSTER_WIDE, per_listener=True
)
NUM_RECOVERY_THREADS_PER_DATA_DIR = _broker(
    "num.recovery.threads.per.data.dir", INT, "1", least=1, scope=CLUSTER_WIDE
)
NUM_REPLICA_FETCHERS = _broker("num.replica.fetchers", INT, "1", scope=CLUSTER_WIDE)
PRODUCER_ID_EXPIRATION_MS = _broker("producer.id.expiration.ms", INT, "86400000", least=1, scope=CLUSTER_WIDE)
_described_only(_broker("remote.fetch.max.wait.ms", INT, "500", least=1, scope=CLUSTER_WIDE))
_described_only(
    _broker("remote.log.index.file.cache.total.size.bytes", LONG, "1073741824", least=1, scope=CLUSTER_WIDE)
)
_described_only(
    _broker("remote.log.manager.copy.max.bytes.per.second", LONG, _MAX_LONG, least=1, scope=CLUSTER_WIDE)
)
_described_only(
    _broker("remote.log.manager.fetch.max.bytes.per.second", LONG, _MAX_LONG, least=1, scope=CLUSTER_WIDE)
)
TRANSACTION_PARTITION_VERIFICATION_ENABLE = _broker(
    "transaction.partition.verification.enable", BOOLEAN, "true", scope=CLUSTER_WIDE
)

AUTHORIZER_CLASS_NAME = _more("authorizer.class.name", STRING, "")
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS = _more(
    "connection.failed.authentication.delay.ms", INT, "100", least=0
)
CONTROLLED_SHUTDOWN_ENABLE = _more("controlled.shutdown.enable", BOOLEAN, "true")
CONTROLLED_SHUTDOWN_MAX_RETRIES = _more("controlled.shutdown.max.retries", INT, "3", least=0)
CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS = _more("controlled.shutdown.retry.backoff.ms", LONG, "5000", least=0)
FETCH_MAX_BYTES = _more("fetch.max.bytes", INT, "57671680", least=1024)
GROUP_INITIAL_REBALANCE_DELAY_MS = _more("group.initial.rebalance.delay.ms", INT, "3000", least=0)
GROUP_MAX_SESSION_TIMEOUT_MS = _more("group.max.session.timeout.ms", INT, "1800000", least=1)
GROUP_MAX_SIZE = _more("group.max.size", INT, _MAX_INT, least=1)
GROUP_MIN_SESSION_TIMEOUT_MS = _more("group.min.session.timeout.ms", INT, "6000", least=0)
LOG_CLEANER_ENABLE = _more("log.cleaner.enable", BOOLEAN, "true")
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = _more(
    "log.flush.offset.checkpoint.interval.ms", INT, "60000", least=0
)
LOG_FLUSH_SCHEDULER_INTERVAL_MS = _more("log.flush.scheduler.interval.ms", LONG, _MAX_LONG, least=0)
LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS = _more(
    "log.flush.start.offset.checkpoint.interval.ms", INT, "60000", least=0
)
LOG_RETENTION_CHECK_INTERVAL_MS = _more("log.retention.check.interval.ms", LONG, "300000", least=1)
LOG_RETENTION_HOURS = _more("log.retention.hours", INT, "168", check=check_retention)
LOG_RETENTION_MINUTES = _more("log.retention.minutes", INT, check=check_retention)
LOG_ROLL_HOURS = _more("log.roll.hours", INT, "168", least=1)
LOG_ROLL_JITTER_HOURS = _more("log.roll.jitter.hours", INT, "0", least=0)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS = _more(
    "max.incremental.fetch.session.cache.slots", INT, "1000", least=0
)
OFFSET_METADATA_MAX_BYTES = _more("offset.metadata.max.bytes", INT, "4096", least=0)
OFFSETS_COMMIT_TIMEOUT_MS = _more("offsets.commit.timeout.ms", INT, "5000", least=1)
OFFSETS_LOAD_BUFFER_SIZE = _more("offsets.load.buffer.size", INT, "5242880", least=1)
OFFSETS_RETENTION_CHECK_INTERVAL_MS = _more("offsets.retention.check.interval.ms", LONG, "600000", least=1)
OFFSETS_RETENTION_MINUTES = _more("offsets.retention.minutes", INT, "10080", least=1)
OFFSETS_TOPIC_NUM_PARTITIONS = _more("offsets.topic.num.partitions", INT, "50", least=1)
OFFSETS_TOPIC_REPLICATION_FACTOR = _more("offsets.topic.replication.factor", SHORT, "3", least=1)
OFFSETS_TOPIC_SEGMENT_BYTES = _more("offsets.topic.segment.bytes", INT, "104857600", least=1)
QUEUED_MAX_REQUESTS = _more("queued.max.requests", INT, "500", least=1)
REPLICA_FETCH_BACKOFF_MS = _more("replica.fetch.backoff.ms", INT, "1000", least=0)
REPLICA_FETCH_MAX_BYTES = _more("replica.fetch.max.bytes", INT, "1048576", least=0)
REPLICA_FETCH_MIN_BYTES = _more("replica.fetch.min.bytes", INT, "1")
REPLICA_FETCH_RESPONSE_MAX_BYTES = _more("replica.fetch.response.max.bytes", INT, "10485760", least=0)
REPLICA_FETCH_WAIT_MAX_MS = _more("replica.fetch.wait.max.ms", INT, "500")
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = _more(
    "replica.high.watermark.checkpoint.interval.ms", LONG, "5000"
)
REPLICA_LAG_TIME_MAX_MS = _more("replica.lag.time.max.ms", LONG, "30000", least=1)
REPLICA_SELECTOR_CLASS = _more("replica.selector.class", STRING)
REQUEST_TIMEOUT_MS = _more("request.timeout.ms", INT, "30000", least=1)
SOCKET_LISTEN_BACKLOG_SIZE = _more("socket.listen.backlog.size", INT, "50", least=1)
SOCKET_RECEIVE_BUFFER_BYTES = _more("socket.receive.buffer.bytes", INT, "102400", least=-1, here="-1")
SOCKET_SEND_BUFFER_BYTES = _more("socket.send.buffer.bytes", INT, "102400", least=-1, here="-1")
TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS = _more(
    "transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, "10000", least=1
)
TRANSACTION_MAX_TIMEOUT_MS = _more("transaction.max.timeout.ms", INT, "900000", least=1)
TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS = _more(
    "transaction.remove.expired.transaction.cleanup.interval.ms", INT, "3600000", least=1
)
TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE = _more(
    "transaction.state.log.load.buffer.size", INT, "5242880", least=1
)
TRANSACTION_STATE_LOG_MIN_ISR = _more("transaction.state.log.min.isr", INT, "2", least=1)
TRANSACTION_STATE_LOG_NUM_PARTITIONS = _more("transaction.state.log.num.partitions", INT, "50", least=1)
TRANSACTION_STATE_LOG_REPLICATION_FACTOR = _more(
    "transaction.state.log.replication.factor", SHORT, "3", least=1
)
TRANSACTION_STATE_LOG_SEGMENT_BYTES = _more("transaction.state.log.segment.bytes", INT, "104857600", least=1)
TRANSACTIONAL_ID_EXPIRATION_MS = _more("transactional.id.expiration.ms", INT, "604800000", least=1)

# -- brokers: read by the start alone

ALLOW_EVERYONE_IF_NO_ACL_FOUND = _unshown("allow.everyone.if.no.acl.found", BOOLEAN, "false")
ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_NUM = _unshown(
    "alter.log.dirs.replication.quota.window.num", INT, "11", least=1
)
ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_SIZE_SECONDS = _unshown(
    "alter.log.dirs.replication.quota.window.size.seconds", INT, "1", least=1
)
AUTHORIZER_ZOOKEEPER_SESSION_TIMEOUT_MS = _unshown("authorizer.zookeeper.session.timeout.ms", INT, least=1)
ALTER_CONFIG_POLICY_CLASS_NAME = _unshown("alter.config.policy.class.name", CLASS)
AUTHORIZER_ZOOKEEPER_URL = _unshown("authorizer.zookeeper.url", STRING, "")
BROKER_ID_GENERATION_ENABLE = _unshown("broker.id.generation.enable", BOOLEAN, "true")
CLIENT_QUOTA_CALLBACK_CLASS = _unshown("client.quota.callback.class", CLASS)
CONTROLLER_QUOTA_WINDOW_NUM = _unshown("controller.quota.window.num", INT, "11", least=1)
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS = _unshown("controller.quota.window.size.seconds", INT, "1", least=1)
CREATE_TOPIC_POLICY_CLASS_NAME = _unshown("create.topic.policy.class.name", CLASS)
#: No setting of Kafka's: a switch for what is stricter here (KAFKA-17754).
CTRLCHAN_TRANSACTION_LATE_END_REFUSE = _unshown("ctrlchan.transaction.late.end.refuse", BOOLEAN, "true")
DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS = _unshown(
    "delegation.token.expiry.check.interval.ms", LONG, "3600000", least=1
)
DELEGATION_TOKEN_EXPIRY_TIME_MS = _unshown("delegation.token.expiry.time.ms", LONG, "86400000", least=1)
#: The former name of the secret key.
DELEGATION_TOKEN_MASTER_KEY = _unshown("delegation.token.master.key", PASSWORD)
DELEGATION_TOKEN_MAX_LIFETIME_MS = _unshown("delegation.token.max.lifetime.ms", LONG, "604800000", least=1)
DELEGATION_TOKEN_SECRET_KEY = _unshown("delegation.token.secret.key", PASSWORD)
INTER_BROKER_LISTENER_NAME = _unshown("inter.broker.listener.name", STRING)
LOG_DIR = _unshown("log.dir", STRING, "/tmp/kafka-logs")
#: Kafka's type is a text.
LOG_DIRS = _unshown("log.dirs", Type(ConfigType.STRING, LIST.parse))
LOG_INITIAL_TASK_DELAY_MS = _unshown("log.initial.task.delay.ms", LONG, "30000", least=0)
NUM_REPLICA_ALTER_LOG_DIRS_THREADS = _unshown("num.replica.alter.log.dirs.threads", INT, least=1)
OFFSETS_COMMIT_REQUIRED_ACKS = _unshown("offsets.commit.required.acks", SHORT, "-1")
OFFSETS_TOPIC_COMPRESSION_CODEC = _unshown("offsets.topic.compression.codec", INT, "0")
PASSWORD_ENCODER_CIPHER_ALGORITHM = _unshown(
    "password.encoder.cipher.algorithm", STRING, "AES/CBC/PKCS5Padding"
)
PASSWORD_ENCODER_ITERATIONS = _unshown("password.encoder.iterations", INT, "4096", least=1024)
PASSWORD_ENCODER_KEY_LENGTH = _unshown("password.encoder.key.length", INT, "128", least=8)
PASSWORD_ENCODER_KEYFACTORY_ALGORITHM = _unshown("password.encoder.keyfactory.algorithm", STRING)
PASSWORD_ENCODER_OLD_SECRET = _unshown("password.encoder.old.secret", PASSWORD)
PASSWORD_ENCODER_SECRET = _unshown("password.encoder.secret", PASSWORD)
PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS = _unshown(
    "producer.id.expiration.check.interval.ms", INT, "600000", least=1
)
QUEUED_MAX_REQUEST_BYTES = _unshown("queued.max.request.bytes", LONG, "-1")
QUOTA_WINDOW_NUM = _unshown("quota.window.num", INT, "11", least=1)
QUOTA_WINDOW_SIZE_SECONDS = _unshown("quota.window.size.seconds", INT, "1", least=1)
REPLICA_SOCKET_RECEIVE_BUFFER_BYTES = _unshown(
    "replica.socket.receive.buffer.bytes", INT, "65536", least=-1, here="-1"
)
REPLICA_SOCKET_TIMEOUT_MS = _unshown("replica.socket.timeout.ms", INT, "30000")
REPLICATION_QUOTA_WINDOW_NUM = _unshown("replication.quota.window.num", INT, "11", least=1)
REPLICATION_QUOTA_WINDOW_SIZE_SECONDS = _unshown("replication.quota.window.size.seconds", INT, "1", least=1)
RESERVED_BROKER_MAX_ID = _unshown("reserved.broker.max.id", INT, "1000", least=0)
SECURITY_INTER_BROKER_PROTOCOL = _unshown("security.inter.broker.protocol", STRING, "PLAINTEXT")
SUPER_USERS = _unshown("super.users", STRING, "")
ZOOKEEPER_CONNECT = _unshown("zookeeper.connect", STRING)
ZOOKEEPER_SASL_CLIENT = _unshown("zookeeper.sasl.client", BOOLEAN, "true")
ZOOKEEPER_SASL_CLIENTCONFIG = _unshown("zookeeper.sasl.clientconfig", STRING, "Client")
ZOOKEEPER_SESSION_TIMEOUT_MS = _unshown("zookeeper.session.timeout.ms", INT, "18000", least=1)
ZOOKEEPER_SET_ACL = _unshown("zookeeper.set.acl", BOOLEAN, "false")
ZOOKEEPER_SSL_CIPHER_SUITES = _unshown("zookeeper.ssl.cipher.suites", LIST)
ZOOKEEPER_SSL_CLIENT_ENABLE = _unshown("zookeeper.ssl.client.enable", BOOLEAN, "false")
ZOOKEEPER_SSL_CRL_ENABLE = _unshown("zookeeper.ssl.crl.enable", BOOLEAN, "false")
ZOOKEEPER_SSL_ENABLED_PROTOCOLS = _unshown("zookeeper.ssl.enabled.protocols", LIST)
ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = _unshown(
    "zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS"
)
ZOOKEEPER_SSL_KEYSTORE_LOCATION = _unshown("zookeeper.ssl.keystore.location", STRING)
ZOOKEEPER_SSL_KEYSTORE_PASSWORD = _unshown("zookeeper.ssl.keystore.password", PASSWORD)
ZOOKEEPER_SSL_KEYSTORE_TYPE = _unshown("zookeeper.ssl.keystore.type", STRING)
ZOOKEEPER_SSL_OCSP_ENABLE = _unshown("zookeeper.ssl.ocsp.enable", BOOLEAN, "false")
ZOOKEEPER_SSL_TRUSTSTORE_LOCATION = _unshown("zookeeper.ssl.truststore.location", STRING)
ZOOKEEPER_SSL_TRUSTSTORE_PASSWORD = _unshown("zookeeper.ssl.truststore.password", PASSWORD)
ZOOKEEPER_SSL_TRUSTSTORE_TYPE = _unshown("zookeeper.ssl.truststore.type", STRING)

# -- brokers: only dynamic (``QuotaConfigs.brokerQuotaConfigs``)

FOLLOWER_REPLICATION_THROTTLED_RATE = _dynamic_only("follower.replication.throttled.rate", LONG, least=0)
LEADER_REPLICATION_THROTTLED_RATE = _dynamic_only("leader.replication.throttled.rate", LONG, least=0)
REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND = _dynamic_only(
    "replica.alter.log.dirs.io.max.bytes.per.second", LONG, least=0
)

# -- topics

CLEANUP_POLICY = _topic(
    "cleanup.policy", LIST, "delete", twin="log.cleanup.policy", choices=("compact", "delete")
)
COMPRESSION_GZIP_LEVEL = _topic(
    "compression.gzip.level", INT, "-1", twin="compression.gzip.level", check=check_gzip_level
)
COMPRESSION_LZ4_LEVEL = _topic(
    "compression.lz4.level", INT, "9", twin="compression.lz4.level", least=1, most=17
)
COMPRESSION_TYPE = _topic(
    "compression.type",
    STRING,
    "producer",
    twin="compression.type",
    choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
)
COMPRESSION_ZSTD_LEVEL = _topic(
    "compression.zstd.level", INT, "3", twin="compression.zstd.level", least=-131_072, most=22
)
DELETE_RETENTION_MS = _topic(
    "delete.retention.ms", LONG, "86400000", twin="log.cleaner.delete.retention.ms", least=0
)
FILE_DELETE_DELAY_MS = _topic(
    "file.delete.delay.ms", LONG, "60000", twin="log.segment.delete.delay.ms", least=0
)
FLUSH_MESSAGES = _topic("flush.messages", LONG, _MAX_LONG, twin="log.flush.interval.messages", least=1)
FLUSH_MS = _topic(
    "flush.ms",
    LONG,
    _MAX_LONG,
    behind=((LOG_FLUSH_INTERVAL_MS, 1), (LOG_FLUSH_SCHEDULER_INTERVAL_MS, 1)),
    least=0,
)
FOLLOWER_REPLICATION_THROTTLED_REPLICAS = _topic(
    "follower.replication.throttled.replicas", LIST, "", check=check_throttled_replicas
)
INDEX_INTERVAL_BYTES = _topic("index.interval.bytes", INT, "4096", twin="log.index.interval.bytes", least=0)
LEADER_REPLICATION_THROTTLED_REPLICAS = _topic(
    "leader.replication.throttled.replicas", LIST, "", check=check_throttled_replicas
)
_described_only(_topic("local.retention.bytes", LONG, "-2", twin="log.local.retention.bytes", least=-2))
_described_only(_topic("local.retention.ms", LONG, "-2", twin="log.local.retention.ms", least=-2))
MAX_COMPACTION_LAG_MS = _topic(
    "max.compaction.lag.ms", LONG, _MAX_LONG, twin="log.cleaner.max.compaction.lag.ms", least=1
)
MAX_MESSAGE_BYTES = _topic("max.message.bytes", INT, "1048588", twin="message.max.bytes", least=0)
MESSAGE_DOWNCONVERSION_ENABLE = _topic(
    "message.downconversion.enable", BOOLEAN, "true", twin="log.message.downconversion.enable"
)
MESSAGE_FORMAT_VERSION = _topic(
    "message.format.version",
    STRING,
    "3.0-IV1",
    twin="log.message.format.version",
    check=check_message_format,
    twin_scope=READ_ONLY,
)
MESSAGE_TIMESTAMP_AFTER_MAX_MS = _topic(
    "message.timestamp.after.max.ms", LONG, _MAX_LONG, twin="log.message.timestamp.after.max.ms", least=0
)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS = _topic(
    "message.timestamp.before.max.ms", LONG, _MAX_LONG, twin="log.message.timestamp.before.max.ms", least=0
)
MESSAGE_TIMESTAMP_DIFFERENCE_MAX_MS = _topic(
    "message.timestamp.difference.max.ms",
    LONG,
    _MAX_LONG,
    twin="log.message.timestamp.difference.max.ms",
    least=0,
)
MESSAGE_TIMESTAMP_TYPE = _topic(
    "message.timestamp.type",
    STRING,
    "CreateTime",
    twin="log.message.timestamp.type",
    choices=("CreateTime", "LogAppendTime"),
)
MIN_CLEANABLE_DIRTY_RATIO = _topic(
    "min.cleanable.dirty.ratio", DOUBLE, "0.5", twin="log.cleaner.min.cleanable.ratio", least=0, most=1
)
MIN_COMPACTION_LAG_MS = _topic(
    "min.compaction.lag.ms", LONG, "0", twin="log.cleaner.min.compaction.lag.ms", least=0
)
MIN_INSYNC_REPLICAS = _topic("min.insync.replicas", INT, "1", twin="min.insync.replicas", least=1)
PREALLOCATE = _topic("preallocate", BOOLEAN, "false", twin="log.preallocate")
_described_only(_topic("remote.log.copy.disable", BOOLEAN, "false"))
_described_only(_topic("remote.log.delete.on.disable", BOOLEAN, "false"))
REMOTE_STORAGE_ENABLE = _topic("remote.storage.enable", BOOLEAN, "false")
RETENTION_BYTES = _topic("retention.bytes", LONG, "-1", twin="log.retention.bytes")
RETENTION_MS = _topic(
    "retention.ms",
    LONG,
    "604800000",
    behind=((LOG_RETENTION_MS, 1), (LOG_RETENTION_MINUTES, _MINUTE_MS), (LOG_RETENTION_HOURS, _HOUR_MS)),
    least=-1,
)
SEGMENT_BYTES = _topic("segment.bytes", INT, "1073741824", twin="log.segment.bytes", least=14)
SEGMENT_INDEX_BYTES = _topic("segment.index.bytes", INT, "10485760", twin="log.index.size.max.bytes", least=4)
SEGMENT_JITTER_MS = _topic(
    "segment.jitter.ms",
    LONG,
    "0",
    behind=((LOG_ROLL_JITTER_MS, 1), (LOG_ROLL_JITTER_HOURS, _HOUR_MS)),
    least=0,
)
SEGMENT_MS = _topic(
    "segment.ms", LONG, "604800000", behind=((LOG_ROLL_MS, 1), (LOG_ROLL_HOURS, _HOUR_MS)), least=1
)
UNCLEAN_LEADER_ELECTION_ENABLE = _topic(
    "unclean.leader.election.enable", BOOLEAN, "false", twin="unclean.leader.election.enable"
)

# -- controllers, and their channel to brokers

AUTO_LEADER_REBALANCE_ENABLE = _controller("auto.leader.rebalance.enable", BOOLEAN, "true")
CONTROL_PLANE_LISTENER_NAME = _controller("control.plane.listener.name", STRING)
CONTROLLER_SOCKET_TIMEOUT_MS = _controller("controller.socket.timeout.ms", INT, "30000", least=1)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = _controller(
    "leader.imbalance.check.interval.seconds", LONG, "300", least=1
)
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE = _controller(
    "leader.imbalance.per.broker.percentage", INT, "10", least=0
)
SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS = _controller(
    "socket.connection.setup.timeout.max.ms", LONG, "30000", least=1
)
SOCKET_CONNECTION_SETUP_TIMEOUT_MS = _controller("socket.connection.setup.timeout.ms", LONG, "10000", least=1)
ZOOKEEPER_CONNECTION_TIMEOUT_MS = _controller("zookeeper.connection.timeout.ms", INT, least=1)

# -- TLS and SASL of a listener, and of the connections to it

CONNECTIONS_MAX_REAUTH_MS = _security("connections.max.reauth.ms", LONG, "0")
#: In Kafka a system property of Java: the JAAS file.
JAVA_SECURITY_AUTH_LOGIN_CONFIG = _security("java.security.auth.login.config", STRING, per_listener=False)
PRINCIPAL_BUILDER_CLASS = _security(
    "principal.builder.class",
    CLASS,
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
)
SASL_ENABLED_MECHANISMS = _security("sasl.enabled.mechanisms", LIST, "GSSAPI")
SASL_JAAS_CONFIG = _security("sasl.jaas.config", PASSWORD)
SASL_MECHANISM_INTER_BROKER_PROTOCOL = _security(
    "sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", per_listener=False
)
SASL_KERBEROS_PRINCIPAL_TO_LOCAL_RULES = _security("sasl.kerberos.principal.to.local.rules", LIST, "DEFAULT")
SASL_KERBEROS_SERVICE_NAME = _security("sasl.kerberos.service.name", STRING)
SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS = _security("sasl.oauthbearer.clock.skew.seconds", INT, "30", least=0)
SASL_OAUTHBEARER_EXPECTED_AUDIENCE = _security("sasl.oauthbearer.expected.audience", LIST)
SASL_OAUTHBEARER_EXPECTED_ISSUER = _security("sasl.oauthbearer.expected.issuer", STRING)
SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS = _security(
    "sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, "3600000", least=1
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS = _security(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, "10000", least=1
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS = _security(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, "100", least=1
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_URL = _security("sasl.oauthbearer.jwks.endpoint.url", STRING)
SASL_OAUTHBEARER_SUB_CLAIM_NAME = _security("sasl.oauthbearer.sub.claim.name", STRING, "sub")
SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL = _security("sasl.oauthbearer.token.endpoint.url", STRING)
SASL_SERVER_CALLBACK_HANDLER_CLASS = _security("sasl.server.callback.handler.class", CLASS)
SASL_SERVER_MAX_RECEIVE_SIZE = _security("sasl.server.max.receive.size", INT, "524288", per_listener=False)
SSL_ALLOW_DN_CHANGES = _security("ssl.allow.dn.changes", BOOLEAN, "false")
SSL_ALLOW_SAN_CHANGES = _security("ssl.allow.san.changes", BOOLEAN, "false")
SSL_CIPHER_SUITES = _security("ssl.cipher.suites", LIST, "")
SSL_CLIENT_AUTH = _security("ssl.client.auth", STRING, "none")
SSL_ENABLED_PROTOCOLS = _security("ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3")
SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = _security("ssl.endpoint.identification.algorithm", STRING, "https")
SSL_KEY_PASSWORD = _security("ssl.key.password", PASSWORD)
SSL_KEYSTORE_CERTIFICATE_CHAIN = _security("ssl.keystore.certificate.chain", PASSWORD)
SSL_KEYSTORE_KEY = _security("ssl.keystore.key", PASSWORD)
SSL_KEYSTORE_LOCATION = _security("ssl.keystore.location", STRING)
SSL_KEYSTORE_PASSWORD = _security("ssl.keystore.password", PASSWORD)
SSL_KEYSTORE_TYPE = _security("ssl.keystore.type", STRING, "JKS")
SSL_PRINCIPAL_MAPPING_RULES = _security("ssl.principal.mapping.rules", STRING, "DEFAULT")
#: Our own: Kafka looks at the files only when a client sets configs (KAFKA-10731).
SSL_STORES_REFRESH_INTERVAL_MS = _security("ssl.stores.refresh.interval.ms", LONG, "0", least=0)
SSL_TRUSTSTORE_CERTIFICATES = _security("ssl.truststore.certificates", PASSWORD)
SSL_TRUSTSTORE_LOCATION = _security("ssl.truststore.location", STRING)
SSL_TRUSTSTORE_PASSWORD = _security("ssl.truststore.password", PASSWORD)
SSL_TRUSTSTORE_TYPE = _security("ssl.truststore.type", STRING, "JKS")


# -- all of them, by name


def _by_name(*rows: Setting[Any]) -> Mapping[str, Setting[Any]]:
    return {row.name: row for row in rows}


#: Of topics.
TOPICS: Final = _by_name(*_topic_rows)
#: Of brokers, as DescribeConfigs shows them.
BROKERS: Final = _by_name(
    *_broker_rows,
    # A duration has broker settings in several units, which have rows of their own.
    *(row.behind[0][0] for row in _topic_rows if len(row.behind) == 1),
    *_more_broker_rows,
)
#: That a broker has only in its file.
UNSHOWN: Final = _by_name(*_unshown_rows)
#: That all brokers may have dynamically.
DYNAMIC: Final = _by_name(
    *(row for row in BROKERS.values() if row.scope is CLUSTER_WIDE), *_dynamic_only_rows
)
#: That secure the listeners of brokers and controllers. DescribeConfigs does not show them.
SECURITY: Final = _by_name(*_security_rows)
#: Of controllers and their channels, which brokers do not act on.
CONTROLLERS: Final = _by_name(*_controller_rows)


#: Stands before the name of a setting of one listener.
LISTENER_PREFIX: Final = re.compile(r"^listener\.name\.[^.]*\.")


def without_listener(name: str) -> str:
    """Return the name of the setting of all listeners for that of one listener which brokers can change."""
    base = LISTENER_PREFIX.sub("", name)
    return base if base in DYNAMIC and DYNAMIC[base].per_listener else name


def secures_listener(name: str) -> bool:
    """Return whether a name is that of a setting that secures one listener or all."""
    base = LISTENER_PREFIX.sub("", name)
    # The name of a mechanism, in small letters, may stand before these.
    for setting in (SASL_JAAS_CONFIG, CONNECTIONS_MAX_REAUTH_MS, SASL_SERVER_CALLBACK_HANDLER_CLASS):
        if base.endswith(f".{setting}"):
            base = setting.name
    if base.startswith("oauthbearer.sasl.oauthbearer."):
        base = base.removeprefix("oauthbearer.")
    return base in SECURITY and (base == name or SECURITY[base].per_listener)
