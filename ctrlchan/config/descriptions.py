"""What each setting does, in a sentence: the documentation of DescribeConfigs."""

from __future__ import annotations

from functools import cache
from typing import Final

from ctrlchan.config.table import TOPICS, without_listener
from ctrlchan.config.without_effect import WITHOUT_EFFECT

__all__ = ["description_of"]

#: A line for each setting: its name, a colon, the sentence.
_TEXT: Final = """
advertised.listeners: The addresses that clients and other brokers are given.
allow.everyone.if.no.acl.found: Whether everybody may use a resource for which there is no ACL.
alter.config.policy.class.name: The class that is asked whether configs may be changed.
alter.log.dirs.replication.quota.window.num: How many samples the rate of moves between log directories has.
alter.log.dirs.replication.quota.window.size.seconds: How many seconds each of these samples is long.
authorizer.class.name: The class that decides who may do what.
authorizer.zookeeper.session.timeout.ms: The session timeout of the authorizer's own connection to ZooKeeper.
authorizer.zookeeper.url: The ZooKeeper servers that have the ACLs, if they are other ones.
auto.create.topics.enable: Whether a topic is created when a client asks for it.
auto.leader.rebalance.enable: Whether the controller moves leaders back to preferred replicas.
background.threads: How many threads flush, delete and check logs.
broker.id: The id of the broker.
broker.id.generation.enable: Whether a broker without an id gets one from ZooKeeper.
broker.rack: The rack of the broker; replicas are spread over racks.
cleanup.policy: Whether old segments are deleted, compacted, or both.
client.quota.callback.class: The class that decides on the quotas of clients.
compression.gzip.level: The level of gzip, where the broker compresses records.
compression.lz4.level: The level of lz4, where the broker compresses records.
compression.type: The codec of the records of a topic; producer keeps that of the producer.
compression.zstd.level: The level of zstd, where the broker compresses records.
connection.failed.authentication.delay.ms: How long the answer to a failed authentication is delayed.
connections.max.idle.ms: After how long without a request a connection is closed.
connections.max.reauth.ms: The longest time of a session of SASL, after which the client authenticates again.
control.plane.listener.name: The listener of brokers that the controller connects to.
controlled.shutdown.enable: Whether a broker that stops has its leaders moved before.
controlled.shutdown.max.retries: How often the controller is asked to move the leaders.
controlled.shutdown.retry.backoff.ms: The pause before it is asked again.
controller.quota.window.num: How many samples the rates of topic changes have.
controller.quota.window.size.seconds: How many seconds each of these samples is long.
controller.socket.timeout.ms: How long requests between the controller and a broker may take.
create.topic.policy.class.name: The class that is asked whether a topic may be created.
ctrlchan.transaction.late.end.refuse: Whether a late second EndTxn is refused (KAFKA-17754).
default.replication.factor: How many replicas a topic gets that is created without a number.
delegation.token.expiry.check.interval.ms: How often expired delegation tokens are removed.
delegation.token.expiry.time.ms: How long a delegation token is valid if it is not renewed.
delegation.token.master.key: The former name of the secret of delegation tokens.
delegation.token.max.lifetime.ms: How long a delegation token can be renewed.
delegation.token.secret.key: The secret that delegation tokens are made with, the same for all brokers.
delete.retention.ms: How long a compacted log keeps tombstones.
delete.topic.enable: Whether topics can be deleted.
fetch.max.bytes: The most bytes of records in the answer to one Fetch.
file.delete.delay.ms: How long a removed file stays on the disk.
flush.messages: After how many records a log is written to the disk.
flush.ms: After how long a log is written to the disk.
follower.replication.throttled.rate: The bytes a second that a broker copies to throttled followers.
follower.replication.throttled.replicas: The followers whose replication is throttled.
group.initial.rebalance.delay.ms: How long a new group waits for more members before it rebalances.
group.max.session.timeout.ms: The longest session timeout that a member may ask for.
group.max.size: The most members of a group.
group.min.session.timeout.ms: The shortest session timeout that a member may ask for.
index.interval.bytes: After how many bytes a segment gets an entry in its indexes.
inter.broker.listener.name: The listener that brokers connect to among themselves.
inter.broker.protocol.version: The version of the protocol between brokers.
java.security.auth.login.config: The file with the JAAS settings.
leader.imbalance.check.interval.seconds: How often the controller looks for leaders to move back.
leader.imbalance.per.broker.percentage: How many percent of a broker's leaders may be elsewhere.
leader.replication.throttled.rate: The bytes a second that a broker sends for throttled leaders.
leader.replication.throttled.replicas: The leaders whose replication is throttled.
listener.security.protocol.map: The security protocol of each listener.
listeners: The names and addresses that the broker listens on.
local.retention.bytes: The size of the local part of a log in tiered storage.
local.retention.ms: The age of the local part of a log in tiered storage.
log.cleaner.backoff.ms: The pause of the cleaner when no log is dirty enough.
log.cleaner.dedupe.buffer.size: The memory of all cleaner threads for keys.
log.cleaner.enable: Whether logs are compacted.
log.cleaner.io.buffer.load.factor: How full the map of keys may get.
log.cleaner.io.buffer.size: The memory of all cleaner threads for what they read.
log.cleaner.io.max.bytes.per.second: How many bytes a second the cleaner reads and writes.
log.cleaner.threads: How many threads compact logs.
log.dir: The log directory, if there is one alone.
log.dirs: The log directories.
log.flush.offset.checkpoint.interval.ms: How often recovery points are written.
log.flush.start.offset.checkpoint.interval.ms: How often the start offsets of logs are written.
log.initial.task.delay.ms: How long a broker waits before its first retention and its first checkpoints.
log.retention.check.interval.ms: How often old segments are looked for.
max.compaction.lag.ms: After how long a record is compacted at the latest.
max.connection.creation.rate: How many connections a second are accepted.
max.connections: The most connections at once.
max.connections.per.ip: The most connections of one address.
max.connections.per.ip.overrides: The most connections of certain addresses, as HOST:LIMIT.
max.incremental.fetch.session.cache.slots: The most fetch sessions at once.
max.message.bytes: The largest batch of records that a topic takes.
message.downconversion.enable: Whether records are converted for clients that read older formats.
message.format.version: The version of the format of records; it is not used any more.
message.timestamp.after.max.ms: How far a timestamp may be after the clock of the broker.
message.timestamp.before.max.ms: How far a timestamp may be before the clock of the broker.
message.timestamp.difference.max.ms: How far a timestamp may be from the clock of the broker.
message.timestamp.type: Whether records keep the time of the producer or get that of the append.
metric.reporters: The classes of Java that report metrics.
min.cleanable.dirty.ratio: How large the dirty part of a log must be to be compacted.
min.compaction.lag.ms: How long a record is not compacted.
min.insync.replicas: How many replicas must be in sync for a Produce with acks=all.
node.id: Another name of the id of the broker.
num.io.threads: How many threads handle requests.
num.network.threads: How many threads serve the connections of a listener.
num.partitions: How many partitions a topic gets that is created without a number.
num.recovery.threads.per.data.dir: How many threads load the logs of a directory.
num.replica.alter.log.dirs.threads: How many threads move replicas between log directories.
num.replica.fetchers: How many threads copy from each leader.
offset.metadata.max.bytes: The longest text that a committed offset may have.
offsets.commit.required.acks: How many acknowledgements a commit of offsets needs.
offsets.commit.timeout.ms: How long a commit of offsets waits for replicas.
offsets.load.buffer.size: How many bytes of committed offsets are read at once.
offsets.retention.check.interval.ms: How often expired offsets are looked for.
offsets.retention.minutes: How long the offsets of a group without members are kept.
offsets.topic.compression.codec: The codec of the topic of committed offsets, as a number.
offsets.topic.num.partitions: How many partitions the topic of committed offsets has.
offsets.topic.replication.factor: How many replicas the topic of committed offsets has.
offsets.topic.segment.bytes: The size of a segment of the topic of committed offsets.
password.encoder.cipher.algorithm: The cipher of dynamic passwords in ZooKeeper.
password.encoder.iterations: How often the key of that cipher is derived.
password.encoder.key.length: The length of that key in bits.
password.encoder.keyfactory.algorithm: How that key is derived.
password.encoder.old.secret: The former secret of dynamic passwords, to encode them again.
password.encoder.secret: The secret of dynamic passwords in ZooKeeper.
preallocate: Whether the disk space of a new segment is reserved at once.
principal.builder.class: The class that makes the principals of those who connect.
producer.id.expiration.check.interval.ms: How often expired producer ids are looked for.
producer.id.expiration.ms: After how long without a record a producer id is forgotten.
queued.max.request.bytes: How many bytes the requests may have that were received and are not handled.
queued.max.requests: How many requests may wait for a thread.
quota.window.num: How many samples the rates of client quotas have.
quota.window.size.seconds: How many seconds each of these samples is long.
remote.fetch.max.wait.ms: How long a Fetch waits for tiered storage.
remote.log.copy.disable: Whether segments are no longer copied to tiered storage.
remote.log.delete.on.disable: Whether tiered segments are deleted when tiered storage is switched off.
remote.log.index.file.cache.total.size.bytes: The size of the cache of indexes of tiered storage.
remote.log.manager.copy.max.bytes.per.second: The bytes a second that are copied to tiered storage.
remote.log.manager.fetch.max.bytes.per.second: The bytes a second that are read from tiered storage.
remote.storage.enable: Whether a topic has tiered storage.
replica.alter.log.dirs.io.max.bytes.per.second: The bytes a second of moves between log directories.
replica.fetch.backoff.ms: How long a follower waits after an error of a partition.
replica.fetch.max.bytes: The most bytes of a partition in an answer to a follower.
replica.fetch.min.bytes: How many bytes a leader waits for before it answers a follower.
replica.fetch.response.max.bytes: The most bytes in an answer to a follower.
replica.fetch.wait.max.ms: How long a leader waits for records before it answers a follower.
replica.high.watermark.checkpoint.interval.ms: How often high watermarks are written.
replica.lag.time.max.ms: After how long a follower that lags leaves the ISR.
replica.selector.class: The class that selects the replica that a consumer reads from.
replica.socket.receive.buffer.bytes: The receive buffer of the connections of followers.
replica.socket.timeout.ms: How long a follower waits for an answer.
replication.quota.window.num: How many samples the rates of throttled replication have.
replication.quota.window.size.seconds: How many seconds each of these samples is long.
request.timeout.ms: How long a broker waits for the answer to a request of its own.
reserved.broker.max.id: The largest id that people may choose where ids are generated.
retention.bytes: The size from which on the oldest segments of a log are deleted.
retention.ms: The age from which on segments are deleted.
sasl.enabled.mechanisms: The mechanisms of SASL that a listener offers.
sasl.jaas.config: The JAAS settings of a listener.
sasl.kerberos.principal.to.local.rules: How the name of a Kerberos principal becomes that of a user.
sasl.kerberos.service.name: The name of the Kerberos service of the brokers.
sasl.mechanism.inter.broker.protocol: The mechanism of SASL between brokers.
sasl.oauthbearer.clock.skew.seconds: How far the clocks of issuer and broker may differ.
sasl.oauthbearer.expected.audience: The audiences of which a token must name one.
sasl.oauthbearer.expected.issuer: The issuer that a token must name.
sasl.oauthbearer.jwks.endpoint.refresh.ms: How often the keys of the issuer are fetched.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms: The longest pause before these keys are fetched again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms: The first pause before these keys are fetched again.
sasl.oauthbearer.jwks.endpoint.url: Where the keys of the issuer are.
sasl.oauthbearer.sub.claim.name: The claim of a token that names the user.
sasl.oauthbearer.token.endpoint.url: Where tokens are issued.
sasl.server.callback.handler.class: The class of Java that checks what clients send in SASL.
sasl.server.max.receive.size: The largest message of SASL.
security.inter.broker.protocol: The security protocol between brokers, if no listener is named.
segment.bytes: The size from which on a new segment is begun.
segment.index.bytes: The size of the indexes of a segment.
segment.jitter.ms: By how much segments begin earlier, so that they do not begin all at once.
segment.ms: The age from which on a new segment is begun.
socket.connection.setup.timeout.max.ms: The longest time until a connection to another node is ready.
socket.connection.setup.timeout.ms: The first such time; it doubles after each failure.
socket.listen.backlog.size: How many connections wait to be accepted.
socket.receive.buffer.bytes: The receive buffer of the connections of a listener.
socket.request.max.bytes: The largest request.
socket.send.buffer.bytes: The send buffer of the connections of a listener.
ssl.allow.dn.changes: Whether the name in a certificate may change while the broker runs.
ssl.allow.san.changes: Whether the alternative names in a certificate may change while the broker runs.
ssl.cipher.suites: The cipher suites of TLS.
ssl.client.auth: Whether clients need a certificate.
ssl.enabled.protocols: The versions of TLS.
ssl.endpoint.identification.algorithm: How the host name of a server is checked with its certificate.
ssl.key.password: The password of the private key.
ssl.keystore.certificate.chain: The certificates of the broker, as PEM.
ssl.keystore.key: The private key of the broker, as PEM.
ssl.keystore.location: The file with the private key and the certificates of the broker.
ssl.keystore.password: The password of this file.
ssl.keystore.type: The format of this file.
ssl.principal.mapping.rules: How the name in a certificate becomes that of a user.
ssl.stores.refresh.interval.ms: How often the files of keys and certificates are looked at for changes.
ssl.truststore.certificates: The certificates that are trusted, as PEM.
ssl.truststore.location: The file with the certificates that are trusted.
ssl.truststore.password: The password of this file.
ssl.truststore.type: The format of this file.
super.users: The users who may do everything.
transaction.abort.timed.out.transaction.cleanup.interval.ms: The pause before a failed abort is tried again.
transaction.max.timeout.ms: The longest time that a producer may ask for its transactions.
transaction.partition.verification.enable: Whether a partition asks if it is part of a transaction.
transaction.remove.expired.transaction.cleanup.interval.ms: The pause before a failed removal is tried again.
transaction.state.log.load.buffer.size: How many bytes of the states of transactions are read at once.
transaction.state.log.min.isr: How many replicas of the states of transactions must be in sync.
transaction.state.log.num.partitions: How many partitions the topic of transactions has.
transaction.state.log.replication.factor: How many replicas the topic of transactions has.
transaction.state.log.segment.bytes: The size of a segment of the topic of transactions.
transactional.id.expiration.ms: After how long without a transaction an id is forgotten.
unclean.leader.election.enable: Whether a replica that is not in sync may become leader.
zookeeper.connect: The servers of ZooKeeper, and the node below which the cluster is.
zookeeper.connection.timeout.ms: How long the first connection to ZooKeeper may take.
zookeeper.sasl.client: Whether connections to ZooKeeper may use SASL.
zookeeper.sasl.clientconfig: The section of the JAAS settings for ZooKeeper.
zookeeper.session.timeout.ms: The session timeout of ZooKeeper.
zookeeper.set.acl: Whether nodes in ZooKeeper get ACLs.
zookeeper.ssl.cipher.suites: The cipher suites of TLS to ZooKeeper.
zookeeper.ssl.client.enable: Whether connections to ZooKeeper have TLS.
zookeeper.ssl.crl.enable: Whether revocation lists are checked for ZooKeeper.
zookeeper.ssl.enabled.protocols: The versions of TLS to ZooKeeper.
zookeeper.ssl.endpoint.identification.algorithm: How the host name of a ZooKeeper server is checked.
zookeeper.ssl.keystore.location: The file with the key and the certificates for ZooKeeper.
zookeeper.ssl.keystore.password: The password of this file.
zookeeper.ssl.keystore.type: The format of this file.
zookeeper.ssl.ocsp.enable: Whether revocation is asked for (OCSP) for ZooKeeper.
zookeeper.ssl.truststore.location: The file with the certificates that are trusted for ZooKeeper.
zookeeper.ssl.truststore.password: The password of this file.
zookeeper.ssl.truststore.type: The format of this file.
"""


@cache
def _descriptions() -> dict[str, str]:
    lines = (line.partition(": ") for line in _TEXT.splitlines() if line)
    found = {name: text for name, _, text in lines}
    for name, row in TOPICS.items():
        for broker, _ in row.behind:
            found.setdefault(broker.name, f"The default of {name}, for topics that have none of their own.")
    for name, unserved in WITHOUT_EFFECT.items():
        found.setdefault(name, f"Without effect here. {unserved.reason}")
    return found


def description_of(name: str) -> str | None:
    """Return what a setting does, also one of a listener, or None if there is no such setting."""
    found = _descriptions()
    return found.get(name) or found.get(without_listener(name))
