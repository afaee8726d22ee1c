"""Kafka's settings that nothing here acts on, each with the reason.

Brokers take and check them, and log a line for a value that is not the default. Values that would make
another broker of this one are refused: ``refuse_unserved``. docs/api/settings.md has the same as a table.
Names and defaults: ``KafkaConfig`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from ctrlchan.config import table
from ctrlchan.config.setting import BOOLEAN, CLASS, DOUBLE, INT, LIST, LONG, SHORT, STRING, Setting
from ctrlchan.errors import ConfigError

__all__ = ["INTERNAL", "WITHOUT_EFFECT", "Unserved", "refuse_unserved", "warnings_of"]


class Unserved(NamedTuple):
    """A setting, and why it has no effect."""

    setting: Setting[Any]
    reason: str


def _group(reason: str, *settings: Setting[Any]) -> Iterator[Unserved]:
    return (Unserved(setting, reason) for setting in settings)


_TIERED: Final = "Tiered storage is not served."
_NO_REPORTERS: Final = "Metrics are those for Prometheus; there are no reporters in Java."
_REMOTE: Final = "org.apache.kafka.server.log.remote.metadata.storage"
_ASSIGNOR: Final = "org.apache.kafka.coordinator.group.assignor"
_PROTOCOLS: Final = ("consumer", "classic", "share", "unknown")
_OTHERS: Final = (
    *_group(
        "Only KRaft has it.",
        Setting("broker.heartbeat.interval.ms", INT, "2000"),
        Setting("broker.session.timeout.ms", INT, "9000"),
        Setting("controller.listener.names", STRING),
        Setting("controller.quorum.append.linger.ms", INT, "25"),
        Setting("controller.quorum.bootstrap.servers", LIST, ""),
        Setting("controller.quorum.election.backoff.max.ms", INT, "1000"),
        Setting("controller.quorum.election.timeout.ms", INT, "1000"),
        Setting("controller.quorum.fetch.timeout.ms", INT, "2000"),
        Setting("controller.quorum.request.timeout.ms", INT, "2000"),
        Setting("controller.quorum.retry.backoff.ms", INT, "20"),
        Setting("controller.quorum.voters", LIST, ""),
        Setting("eligible.leader.replicas.enable", BOOLEAN, "false"),
        Setting("initial.broker.registration.timeout.ms", INT, "60000"),
        Setting("log.dir.failure.timeout.ms", LONG, "30000", least=1),
        Setting("metadata.log.dir", STRING),
        Setting("metadata.log.max.record.bytes.between.snapshots", LONG, "20971520", least=1),
        Setting("metadata.log.max.snapshot.interval.ms", LONG, "3600000", least=0),
        Setting("metadata.log.segment.bytes", INT, "1073741824", least=12),
        Setting("metadata.log.segment.min.bytes", INT, "8388608", least=12),
        Setting("metadata.log.segment.ms", LONG, "604800000"),
        Setting("metadata.max.idle.interval.ms", INT, "500", least=0),
        Setting("metadata.max.retention.bytes", LONG, "104857600"),
        Setting("metadata.max.retention.ms", LONG, "604800000"),
        Setting(
            "process.roles",
            LIST,
            "",
            choices=("broker", "controller"),
        ),
        Setting("sasl.mechanism.controller.protocol", STRING, "GSSAPI"),
        Setting("server.max.startup.time.ms", LONG, "9223372036854775807", least=0),
        Setting("telemetry.max.bytes", INT, "1048576", least=1),
        Setting("unclean.leader.election.interval.ms", LONG, "300000", least=1),
        Setting("zookeeper.metadata.migration.enable", BOOLEAN, "false"),
        Setting("zookeeper.metadata.migration.min.batch.size", INT, "200", least=1),
    ),
    *_group(
        _TIERED,
        Setting("remote.log.manager.copier.thread.pool.size", INT, "-1"),
        Setting("remote.log.manager.copy.quota.window.num", INT, "11", least=1),
        Setting("remote.log.manager.copy.quota.window.size.seconds", INT, "1", least=1),
        Setting("remote.log.manager.expiration.thread.pool.size", INT, "-1"),
        Setting("remote.log.manager.fetch.quota.window.num", INT, "11", least=1),
        Setting("remote.log.manager.fetch.quota.window.size.seconds", INT, "1", least=1),
        Setting("remote.log.manager.task.interval.ms", LONG, "30000", least=1),
        Setting("remote.log.manager.task.retry.backoff.max.ms", LONG, "30000", least=1),
        Setting("remote.log.manager.task.retry.backoff.ms", LONG, "500", least=1),
        Setting("remote.log.manager.task.retry.jitter", DOUBLE, "0.2"),
        Setting("remote.log.manager.thread.pool.size", INT, "10", least=1),
        Setting("remote.log.metadata.custom.metadata.max.bytes", INT, "128", least=0),
        Setting(
            "remote.log.metadata.manager.class.name",
            STRING,
            f"{_REMOTE}.TopicBasedRemoteLogMetadataManager",
        ),
        Setting("remote.log.metadata.manager.class.path", STRING),
        Setting("remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config."),
        Setting("remote.log.metadata.manager.listener.name", STRING),
        Setting("remote.log.reader.max.pending.tasks", INT, "100", least=1),
        Setting("remote.log.reader.threads", INT, "10", least=1),
        Setting("remote.log.storage.manager.class.name", STRING),
        Setting("remote.log.storage.manager.class.path", STRING),
        Setting("remote.log.storage.manager.impl.prefix", STRING, "rsm.config."),
        Setting("remote.log.storage.system.enable", BOOLEAN, "false"),
    ),
    *_group(
        "The new group coordinator, which needs KRaft, is not served.",
        Setting(
            "group.consumer.assignors",
            LIST,
            f"{_ASSIGNOR}.UniformAssignor,{_ASSIGNOR}.RangeAssignor",
        ),
        Setting("group.consumer.heartbeat.interval.ms", INT, "5000", least=1),
        Setting("group.consumer.max.heartbeat.interval.ms", INT, "15000", least=1),
        Setting("group.consumer.max.session.timeout.ms", INT, "60000", least=1),
        Setting("group.consumer.max.size", INT, "2147483647", least=1),
        Setting("group.consumer.migration.policy", STRING, "disabled"),
        Setting("group.consumer.min.heartbeat.interval.ms", INT, "5000", least=1),
        Setting("group.consumer.min.session.timeout.ms", INT, "45000", least=1),
        Setting("group.consumer.session.timeout.ms", INT, "45000", least=1),
        Setting("group.coordinator.append.linger.ms", INT, "10", least=0),
        Setting("group.coordinator.new.enable", BOOLEAN, "false"),
        Setting(
            "group.coordinator.rebalance.protocols",
            LIST,
            "classic",
            choices=_PROTOCOLS,
        ),
        Setting("group.coordinator.threads", INT, "1", least=1),
        Setting("group.share.delivery.count.limit", INT, "5", least=2, most=10),
        Setting("group.share.enable", BOOLEAN, "false"),
        Setting("group.share.heartbeat.interval.ms", INT, "5000", least=1),
        Setting("group.share.max.groups", SHORT, "10", least=1, most=100),
        Setting("group.share.max.heartbeat.interval.ms", INT, "15000", least=1),
        Setting("group.share.max.record.lock.duration.ms", INT, "60000", least=30000, most=3600000),
        Setting("group.share.max.session.timeout.ms", INT, "60000", least=1),
        Setting("group.share.max.size", SHORT, "200", least=10, most=1000),
        Setting("group.share.min.heartbeat.interval.ms", INT, "5000", least=1),
        Setting("group.share.min.record.lock.duration.ms", INT, "15000", least=1000, most=30000),
        Setting("group.share.min.session.timeout.ms", INT, "45000", least=1),
        Setting("group.share.partition.max.record.locks", INT, "200", least=100, most=10000),
        Setting("group.share.record.lock.duration.ms", INT, "30000", least=1000, most=60000),
        Setting("group.share.session.timeout.ms", INT, "45000", least=1),
    ),
    *_group(
        _NO_REPORTERS,
        Setting("auto.include.jmx.reporter", BOOLEAN, "true"),
        Setting("kafka.metrics.polling.interval.secs", INT, "10", least=1),
        Setting("kafka.metrics.reporters", LIST, ""),
        Setting("metrics.num.samples", INT, "2", least=1),
        Setting("metrics.recording.level", STRING, "INFO"),
        Setting("metrics.sample.window.ms", LONG, "30000", least=1),
    ),
    *_group(
        "A request that has ended leaves the list of waiting ones at once.",
        Setting("delete.records.purgatory.purge.interval.requests", INT, "1"),
        Setting("fetch.purgatory.purge.interval.requests", INT, "1000"),
        Setting("producer.purgatory.purge.interval.requests", INT, "1000"),
    ),
    *_group(
        "It names a class, a provider or an algorithm of Java.",
        Setting("sasl.client.callback.handler.class", CLASS),
        Setting("sasl.login.callback.handler.class", CLASS),
        Setting("sasl.login.class", CLASS),
        Setting("security.providers", STRING),
        Setting("ssl.engine.factory.class", CLASS),
        Setting("ssl.keymanager.algorithm", STRING, "SunX509"),
        Setting("ssl.provider", STRING),
        Setting("ssl.secure.random.implementation", STRING),
        Setting("ssl.trustmanager.algorithm", STRING, "PKIX"),
        Setting("zookeeper.clientCnxnSocket", STRING),
    ),
    *_group(
        "The versions of TLS are those of the setting with enabled.protocols.",
        Setting("ssl.protocol", STRING, "TLSv1.3"),
        Setting("zookeeper.ssl.protocol", STRING, "TLSv1.2"),
    ),
    *_group(
        "Logins are renewed as the library of the mechanism does it.",
        Setting("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit"),
        Setting("sasl.kerberos.min.time.before.relogin", LONG, "60000"),
        Setting("sasl.kerberos.ticket.renew.jitter", DOUBLE, "0.05"),
        Setting("sasl.kerberos.ticket.renew.window.factor", DOUBLE, "0.8"),
        Setting("sasl.login.connect.timeout.ms", INT),
        Setting("sasl.login.read.timeout.ms", INT),
        Setting("sasl.login.refresh.buffer.seconds", SHORT, "300"),
        Setting("sasl.login.refresh.min.period.seconds", SHORT, "60"),
        Setting("sasl.login.refresh.window.factor", DOUBLE, "0.8"),
        Setting("sasl.login.refresh.window.jitter", DOUBLE, "0.05"),
        Setting("sasl.login.retry.backoff.max.ms", LONG, "10000"),
        Setting("sasl.login.retry.backoff.ms", LONG, "100"),
    ),
    *_group(
        "Kafka 3.9 has no unstable version of what a broker in ZooKeeper mode serves.",
        Setting("unstable.api.versions.enable", BOOLEAN, "false"),
        Setting("unstable.feature.versions.enable", BOOLEAN, "false"),
    ),
    *_group(
        "Requests to ZooKeeper are sent in groups, without a limit for those in flight.",
        Setting("zookeeper.max.in.flight.requests", INT, "10", least=1),
    ),
    *_group(
        "All listeners begin to serve when the authorizer is ready.",
        Setting("early.start.listeners", STRING),
    ),
    *_group(
        "Only DescribeTopicPartitions reads it, which brokers in ZooKeeper mode do not have.",
        Setting("max.request.partition.size.limit", INT, "2000", least=1),
    ),
    *_group(
        "No scope of a token is read.",
        Setting("sasl.oauthbearer.scope.claim.name", STRING, "scope"),
    ),
)
#: Rows of the table of settings that brokers describe, and that have no effect either.
_DESCRIBED: Final[Mapping[str, str]] = {
    "metric.reporters": _NO_REPORTERS,
    **dict.fromkeys((name for name in table.BROKERS if name.startswith(("remote.", "log.local."))), _TIERED),
    "log.message.format.version": (
        "Records are written in format 2; before inter-broker protocol 3.0 an older one is refused."
    ),
}
#: By name.
WITHOUT_EFFECT: Final[Mapping[str, Unserved]] = {
    **{one.setting.name: one for one in _OTHERS},
    **{name: Unserved(table.BROKERS[name], reason) for name, reason in _DESCRIBED.items()},
}

#: Those that Kafka shows to nobody.
INTERNAL: Final = frozenset(
    {
        "group.consumer.migration.policy",
        "group.coordinator.new.enable",
        "group.share.enable",
        "metadata.log.segment.min.bytes",
        "remote.log.manager.task.retry.backoff.max.ms",
        "remote.log.manager.task.retry.backoff.ms",
        "remote.log.manager.task.retry.jitter",
        "server.max.startup.time.ms",
        "unclean.leader.election.interval.ms",
        "unstable.api.versions.enable",
        "unstable.feature.versions.enable",
        "zookeeper.metadata.migration.min.batch.size",
    }
)

#: Settings of which only these values are served; other ones ask for another broker.
_SERVED: Final[Mapping[str, tuple[str, ...]]] = {
    "eligible.leader.replicas.enable": ("false",),
    "group.coordinator.new.enable": ("false",),
    "group.coordinator.rebalance.protocols": ("classic",),
    "group.share.enable": ("false",),
    "process.roles": ("",),
    "remote.log.storage.system.enable": ("false",),
    "zookeeper.metadata.migration.enable": ("false",),
}


def refuse_unserved(configs: Mapping[str, str]) -> None:
    """Raise ConfigError for a value that cannot be, or that asks for what is not served."""
    for name, unserved in WITHOUT_EFFECT.items():
        if name not in configs:
            continue
        unserved.setting.parse(configs[name])
        served = _SERVED.get(name)
        if served is not None and configs[name].strip().lower() not in served:
            raise ConfigError(f"{name}: {configs[name]!r} is not served here: {unserved.reason}")


def warnings_of(configs: Mapping[str, str]) -> list[str]:
    """Return a line for each setting without effect that has another value than its default."""
    return [
        f"{name} has no effect: {WITHOUT_EFFECT[name].reason}"
        for name, value in configs.items()
        if name in WITHOUT_EFFECT and value.strip() != (WITHOUT_EFFECT[name].setting.default or "")
    ]
