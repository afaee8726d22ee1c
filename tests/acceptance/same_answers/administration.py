"""Topics, configs, log directories and the cluster: requests of administrators."""

from __future__ import annotations

import uuid
from typing import Any, Final

from tests.acceptance.same_answers.recorder import Answer, Broker
from tests.acceptance.same_answers.topics import UNKNOWN_ID, create_topic, plain, produce, topic_id

__all__ = [
    "acls",
    "altered_configs",
    "broker_configs",
    "cluster",
    "described_configs",
    "features",
    "log_directories",
    "log_levels",
    "metadata",
    "topics",
]

_NO_ID: Final = uuid.UUID(int=0)
_TIMEOUT: Final = 30_000
_TOPIC, _BROKER, _LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
#: Configs with addresses and paths, and those that the rig of Kafka's broker sets.
_OF_ONE_BROKER: Final = frozenset(
    {
        "advertised.listeners",
        "background.threads",
        "inter.broker.listener.name",
        "listeners",
        "log.cleaner.enable",
        "log.dir",
        "log.dirs",
        "num.io.threads",
        "num.network.threads",
        "replica.fetch.backoff.ms",
        "zookeeper.connect",
        "zookeeper.session.timeout.ms",
    }
)


def topics(broker: Broker) -> None:
    """CreateTopics, CreatePartitions, ElectLeaders, reassignments, DeleteTopics."""
    create_topic(broker, "there")
    for version in broker.versions["CreateTopics"]:
        for validates in (True, False) if version else (False,):
            _create(broker, version, validates)
    _partitions(broker)
    _leaders(broker)
    _deletions(broker)


def _create(broker: Broker, version: int, validates: bool) -> None:
    def create(*new: dict[str, Any]) -> None:
        fields = {"timeoutMs": _TIMEOUT, "validateOnly": validates}
        broker.ask("CreateTopics", version, Topics=list(new), **fields)

    name = f"created-{version}"
    for fields in (
        {"Name": ""},
        {"Name": "."},
        {"Name": ".."},
        {"Name": "not a topic"},
        {"Name": "x" * 250},
        {"Name": "there"},
        {"Name": "__consumer_offsets"},
        {"NumPartitions": 0},
        {"NumPartitions": -1},
        {"NumPartitions": -2},
        {"ReplicationFactor": 0},
        {"ReplicationFactor": -1},
        {"ReplicationFactor": -2},
        {"ReplicationFactor": 2},
        {"Configs": [{"Name": "no.such.config", "Value": "1"}]},
        {"Configs": [{"Name": "retention.ms", "Value": "text"}]},
        {"Configs": [{"Name": "retention.ms", "Value": "-5"}]},
        {"Configs": [{"Name": "retention.ms", "Value": None}]},
        {"Configs": [{"Name": "cleanup.policy", "Value": "other"}]},
        {"Assignments": [_assignment(0, 1)]},
    ):
        if _is_refused(fields, version):
            create(_topic(name) | fields)
    # Without this broker the topic has no leader, and Kafka waits for one.
    absent = [[_assignment(0, 2)]] if validates else []
    # Kafka also makes a topic without replicas, or on a broker with a negative id; ours does not.
    for assignments in (
        *absent,
        [_assignment(0, 1, 1)],
        [_assignment(1, 1)],
        [_assignment(0, 1), _assignment(0, 1)],
        [_assignment(0, 1), _assignment(2, 1)],
    ):
        create(_topic(name, -1, -1) | {"Assignments": assignments})
    create(_topic(name), _topic(name))
    create()
    create(_topic(name, 2, configs={"retention.ms": "5000", "cleanup.policy": "compact,delete"}))
    create(_topic(name))
    create(_topic(f"{name}-assigned", -1, -1) | {"Assignments": [_assignment(0, 1), _assignment(1, 1)]})
    create(_topic(f"{name}.x"), _topic("there"), _topic("not a topic"))
    if version >= 4:
        create(_topic(f"{name}-default", -1, -1))


def _is_refused(fields: dict[str, Any], version: int) -> bool:
    """Whether the request does not create the topic: defaults, and null, do."""
    return not (version >= 4 and -1 in fields.values())


def _topic(
    name: str, partitions: int = 1, replication_factor: int = 1, configs: dict[str, str] | None = None
) -> dict[str, Any]:
    return {
        "Name": name,
        "NumPartitions": partitions,
        "ReplicationFactor": replication_factor,
        "Configs": [{"Name": key, "Value": value} for key, value in (configs or {}).items()],
    }


def _assignment(index: int, *brokers: int) -> dict[str, Any]:
    return {"PartitionIndex": index, "BrokerIds": list(brokers)}


def _partitions(broker: Broker) -> None:
    one: dict[str, Any]
    for version in broker.versions["CreatePartitions"]:
        name = f"grown-{version}"
        create_topic(broker, name, 2)
        for validates in (True, False):
            for one in (
                {"Name": "unknown"},
                {"Name": "not a topic"},
                {"Name": ""},
                {"Count": 0},
                {"Count": -1},
                {"Count": 1},
                {"Count": 2},
                {"Assignments": []},
                {"Assignments": [{"BrokerIds": [2]}]},
                {"Assignments": [{"BrokerIds": []}]},
                {"Assignments": [{"BrokerIds": [1, 1]}]},
                {"Assignments": [{"BrokerIds": [1]}, {"BrokerIds": [1]}]},
                {},
                {"Count": 4, "Assignments": [{"BrokerIds": [1]}] * (2 if validates else 1)},
            ):
                topic = {"Name": name, "Count": 3, "Assignments": None} | one
                fields = {"TimeoutMs": _TIMEOUT, "ValidateOnly": validates}
                broker.ask("CreatePartitions", version, Topics=[topic], **fields)
        twice = [{"Name": name, "Count": 9, "Assignments": None}] * 2
        broker.ask("CreatePartitions", version, Topics=twice, TimeoutMs=_TIMEOUT)
        broker.ask("CreatePartitions", version, Topics=[], TimeoutMs=_TIMEOUT)


def _leaders(broker: Broker) -> None:
    create_topic(broker, "elected", 2)
    for version in broker.versions["ElectLeaders"]:
        for kind in (0, 1) if version else (0,):
            for name, partitions in (
                ("elected", [0, 1]),
                ("elected", [5]),
                ("elected", []),
                ("unknown", [0]),
                ("not a topic", [0]),
            ):
                named = [{"Topic": name, "Partitions": partitions}]
                broker.ask(
                    "ElectLeaders", version, ElectionType=kind, TopicPartitions=named, TimeoutMs=_TIMEOUT
                )
            broker.ask("ElectLeaders", version, ElectionType=kind, TopicPartitions=[], TimeoutMs=_TIMEOUT)
    for name, index, replicas in (
        ("elected", 0, [1]),
        ("elected", 0, None),
        ("elected", 0, []),
        ("elected", 0, [1, 1]),
        ("elected", 0, [-1]),
        ("elected", 0, [1, 2]),
        ("elected", 7, [1]),
        ("unknown", 0, [1]),
        ("unknown", 0, None),
    ):
        one = [{"Name": name, "Partitions": [{"PartitionIndex": index, "Replicas": replicas}]}]
        broker.ask("AlterPartitionReassignments", 0, Topics=one, TimeoutMs=_TIMEOUT)
    broker.ask("AlterPartitionReassignments", 0, Topics=[], TimeoutMs=_TIMEOUT)
    for names in (None, [], ["elected"], ["unknown"]):
        wanted = None if names is None else [{"Name": name, "PartitionIndexes": [0, 9]} for name in names]
        broker.ask("ListPartitionReassignments", 0, Topics=wanted, TimeoutMs=_TIMEOUT)


def _deletions(broker: Broker) -> None:
    for version in broker.versions["DeleteTopics"]:
        for names in (["unknown"], ["not a topic"], [""], [], ["unknown", "unknown"]):
            named = [{"Name": name, "TopicId": _NO_ID} for name in names]
            broker.ask("DeleteTopics", version, Topics=named, TopicNames=names, TimeoutMs=_TIMEOUT)
        name = f"gone-{version}"
        create_topic(broker, name)
        one = [{"Name": name, "TopicId": _NO_ID}]
        if version >= 6:
            for name_too, one_id in ((None, UNKNOWN_ID), (None, _NO_ID), (name, topic_id(broker, name))):
                both = [{"Name": name_too, "TopicId": one_id}]
                broker.ask("DeleteTopics", version, Topics=both, TimeoutMs=_TIMEOUT)
            broker.ask("DeleteTopics", version, Topics=[*one, *one], TimeoutMs=_TIMEOUT)
            by_id = [{"Name": None, "TopicId": topic_id(broker, name)}]
            broker.ask("DeleteTopics", version, Topics=by_id, TimeoutMs=_TIMEOUT)
            broker.ask("DeleteTopics", version, Topics=by_id, TimeoutMs=_TIMEOUT)
        else:
            broker.ask("DeleteTopics", version, TopicNames=[name], TimeoutMs=_TIMEOUT)
            broker.ask("DeleteTopics", version, TopicNames=[name], TimeoutMs=_TIMEOUT)


def altered_configs(broker: Broker) -> None:
    """AlterConfigs and IncrementalAlterConfigs, and what DescribeConfigs shows afterwards."""
    create_topic(broker, "altered", retention_ms="7000", cleanup_policy="compact")
    for version in broker.versions["AlterConfigs"]:
        for kind, name in _resources("altered"):
            for configs in (
                [],
                [("retention.ms", "5000")],
                [("retention.ms", None)],
                [("retention.ms", "text")],
                [("no.such.config", "1")],
                [("retention.ms", "1"), ("retention.ms", "2")],
                [("log.retention.ms", "86400000")],
                [("log.cleaner.threads", "2")],
                [("num.partitions", "7")],
            ):
                for validates in (True, False):
                    one = _resource(kind, name, [{"Name": key, "Value": value} for key, value in configs])
                    broker.ask("AlterConfigs", version, Resources=[one], ValidateOnly=validates)
        # Kafka does not answer a request that names a resource twice.
        broker.ask("AlterConfigs", version, Resources=[])
    for version in broker.versions["IncrementalAlterConfigs"]:
        for kind, name in _resources("altered"):
            for changes in (
                [],
                [("retention.ms", _SET, "6000")],
                [("retention.ms", _SET, None)],
                [("retention.ms", _SET, "text")],
                [("retention.ms", _APPEND, "1")],
                [("retention.ms", 9, "1")],
                [("cleanup.policy", _APPEND, "delete")],
                [("cleanup.policy", _APPEND, "other")],
                [("cleanup.policy", _SUBTRACT, "compact")],
                [("retention.ms", _DELETE, None)],
                [("no.such.config", _SET, "1")],
                [("no.such.config", _DELETE, None)],
                [("retention.ms", _SET, "1"), ("retention.ms", _DELETE, None)],
                [("log.cleaner.threads", _SET, "2")],
                [("log.cleaner.threads", _DELETE, None)],
                [("log.retention.ms", _SET, "-1")],
                [("num.partitions", _SET, "7")],
            ):
                altered = [
                    {"Name": key, "ConfigOperation": operation, "Value": value}
                    for key, operation, value in changes
                ]
                for validates in (True, False):
                    one = _resource(kind, name, altered)
                    broker.ask("IncrementalAlterConfigs", version, Resources=[one], ValidateOnly=validates)
        twice = [_resource(_TOPIC, "altered", []), _resource(_TOPIC, "altered", [])]
        broker.ask("IncrementalAlterConfigs", version, Resources=twice)
        broker.ask("IncrementalAlterConfigs", version, Resources=[])
    for kind, name in ((_TOPIC, "altered"), (_BROKER, "")):
        one = {"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": None}
        broker.ask("DescribeConfigs", 4, Resources=[one], IncludeSynonyms=True)


def acls(broker: Broker) -> None:
    """DescribeAcls, CreateAcls, DeleteAcls, without an authorizer."""
    kinds = {"Operation": 1, "PermissionType": 1}
    for kind, pattern, names in ((1, 1, {}), (2, 3, {"ResourceNameFilter": "t"}), (0, 3, {}), (4, 0, {})):
        one = {"ResourceTypeFilter": kind, "PatternTypeFilter": pattern, **kinds, **names}
        broker.ask_in_all("DescribeAcls", **one)
        broker.ask_in_all("DeleteAcls", Filters=[one, one])
    broker.ask_in_all("DeleteAcls", Filters=[])
    for kind, pattern, operation, permission in ((2, 3, 3, 3), (4, 4, 8, 2), (2, 3, 0, 3), (2, 3, 3, 0)):
        one = {
            "ResourceType": kind,
            "ResourceName": "t",
            "ResourcePatternType": pattern,
            "Principal": "User:u",
            "Host": "*",
            "Operation": operation,
            "PermissionType": permission,
        }
        broker.ask_in_all("CreateAcls", Creations=[one, one])
    broker.ask_in_all("CreateAcls", Creations=[])


def _resources(topic: str) -> list[tuple[int, str]]:
    return [
        (_TOPIC, topic),
        (_TOPIC, "unknown"),
        (_TOPIC, "not a topic"),
        (_TOPIC, ""),
        (_BROKER, "1"),
        (_BROKER, "2"),
        (_BROKER, "one"),
        (_BROKER, ""),
        (_CLIENT_METRICS, "m"),
        (_GROUP, "g"),
        (0, "x"),
        (7, "x"),
    ]


def _resource(kind: int, name: str, configs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"ResourceType": kind, "ResourceName": name, "Configs": configs}


def described_configs(broker: Broker) -> None:
    """DescribeConfigs."""
    create_topic(broker, "described", retention_ms="7000")
    keys = ["retention.ms", "cleanup.policy", "num.partitions", "broker.id", "no.such.config"]
    for version in broker.versions["DescribeConfigs"]:
        for synonyms in (False, True):
            for kind, name in (*_resources("described"), (_LOGGER, "")):
                one = {"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": keys}
                broker.ask("DescribeConfigs", version, Resources=[one], IncludeSynonyms=synonyms)
            one = {"ResourceType": _TOPIC, "ResourceName": "described", "ConfigurationKeys": None}
            broker.ask("DescribeConfigs", version, Resources=[one], IncludeSynonyms=synonyms)
            none = one | {"ConfigurationKeys": []}
            broker.ask("DescribeConfigs", version, Resources=[none, none], IncludeSynonyms=synonyms)
        broker.ask("DescribeConfigs", version, Resources=[])


def log_directories(broker: Broker) -> None:
    """DescribeLogDirs, AlterReplicaLogDirs."""
    create_topic(broker, "stored-here", 2)
    produce(broker, "stored-here", plain("a", "b"))
    for version in broker.versions["DescribeLogDirs"]:
        for name, partitions in (
            (None, []),
            ("stored-here", [0, 1]),
            ("stored-here", [1, 7]),
            ("unknown", [0]),
            ("stored-here", []),
        ):
            named = [] if name is None else [{"Topic": name, "Partitions": partitions}]
            broker.ask("DescribeLogDirs", version, Topics=named)
    [directory] = broker.look("DescribeLogDirs", version, Topics=[])["Results"]
    for version in broker.versions["AlterReplicaLogDirs"]:
        for words, path, wanted in (
            ("where it is", directory["LogDir"], {"stored-here": [0, 1]}),
            ("no such partition", directory["LogDir"], {"stored-here": [7, -1], "unknown": [0]}),
            ("a long name", directory["LogDir"], {"x" * 214: [0], "x" * 215: [0], "": [0]}),
            ("no such directory", "/no/such/directory", {"stored-here": [0], "unknown": [0]}),
            ("a relative path", "here", {"stored-here": [0]}),
            ("no partition", directory["LogDir"], {"stored-here": []}),
            ("no topic", directory["LogDir"], {}),
        ):
            topics = [{"Name": name, "Partitions": numbers} for name, numbers in wanted.items()]
            one = {"Path": path, "Topics": topics}
            for number in (1, 2):
                values = {"Dirs": [one] * number}
                label = f"AlterReplicaLogDirs v{version}: {words}, {number} times"
                broker.ask_frame(
                    "AlterReplicaLogDirs",
                    version,
                    broker.frame("AlterReplicaLogDirs", version, values),
                    label,
                )
        broker.ask("AlterReplicaLogDirs", version, Dirs=[])


def metadata(broker: Broker) -> None:
    """Metadata of topics by name and by id."""
    create_topic(broker, "shown", 3)
    ids = [topic_id(broker, "shown"), UNKNOWN_ID, _NO_ID]
    for version in broker.versions["Metadata"]:
        for asks in (False, True):
            fields = {
                "AllowAutoTopicCreation": False,
                "IncludeClusterAuthorizedOperations": asks,
                "IncludeTopicAuthorizedOperations": asks,
            }
            for names in (["shown"], ["unknown"], ["not a topic"], [""], ["shown", "unknown", "shown"]):
                wanted = [{"Name": name, "TopicId": _NO_ID} for name in names]
                broker.ask("Metadata", version, Topics=wanted, **fields)
            if version:
                broker.ask("Metadata", version, Topics=[], **fields)
            if version >= 10:
                for one_id in ids:
                    for name in ("shown", None):
                        broker.ask("Metadata", version, Topics=[{"Name": name, "TopicId": one_id}], **fields)
                both = [{"Name": None, "TopicId": ids[0]}, {"Name": "unknown", "TopicId": _NO_ID}]
                broker.ask("Metadata", version, Topics=both, **fields)


def cluster(broker: Broker) -> None:
    """DescribeCluster, ApiVersions."""
    for version in broker.versions["DescribeCluster"]:
        for kind in (0, 1, 2, 3):
            for asks in (False, True):
                fields = {"IncludeClusterAuthorizedOperations": asks, "EndpointType": kind}
                broker.ask("DescribeCluster", version, **fields)
    for version in broker.versions["ApiVersions"]:
        if version < 3:
            continue
        for name, number in (("", "1"), ("a", ""), ("ü", "1"), ("-a", "1"), ("a", "1 2"), ("a-", "1")):
            broker.ask("ApiVersions", version, ClientSoftwareName=name, ClientSoftwareVersion=number)


def features(broker: Broker) -> None:
    """UpdateFeatures: a broker in ZooKeeper mode supports no feature."""
    for version in broker.versions["UpdateFeatures"]:
        for validates in (True, False) if version else (False,):
            for updates in (
                [],
                [_update("metadata.version", 20)],
                [_update("no.such.feature", 1)],
                [_update("no.such.feature", 0)],
                [_update("no.such.feature", 0, 2)],
                [_update("no.such.feature", -1, 3)],
                [_update("no.such.feature", 1, 9)],
                [_update("", 1)],
                [_update("a", 1), _update("b", 1)],
            ):
                fields = {"timeoutMs": _TIMEOUT, "ValidateOnly": validates}
                broker.ask("UpdateFeatures", version, FeatureUpdates=updates, **fields)
    for version in broker.versions["ApiVersions"]:
        broker.ask("ApiVersions", version, ClientSoftwareName="a", ClientSoftwareVersion="1")


def _update(feature: str, level: int, kind: int = 1) -> dict[str, Any]:
    return {
        "Feature": feature,
        "MaxVersionLevel": level,
        "AllowDowngrade": kind != 1,
        "UpgradeType": kind,
    }


def log_levels(broker: Broker) -> None:
    """IncrementalAlterConfigs and DescribeConfigs of loggers."""
    for version in broker.versions["IncrementalAlterConfigs"]:
        for node in ("1", "2", "one", ""):
            for changes in (
                [],
                [("root", _SET, "FATAL")],
                [("root", _SET, "fatal")],
                [("root", _SET, "LOUD")],
                [("root", _SET, None)],
                [("root", _DELETE, None)],
                [("root", _APPEND, "INFO")],
                [("root", _SUBTRACT, "INFO")],
                [("no.such.logger", _SET, "INFO")],
                [("no.such.logger", _DELETE, None)],
                [("root", _SET, "WARN"), ("no.such.logger", _SET, "INFO")],
                [("root", _SET, "INFO"), ("root", _SET, "WARN")],
            ):
                altered = [
                    {"Name": key, "ConfigOperation": operation, "Value": value}
                    for key, operation, value in changes
                ]
                for validates in (True, False):
                    one = _resource(_LOGGER, node, altered)
                    broker.ask("IncrementalAlterConfigs", version, Resources=[one], ValidateOnly=validates)
    for version in broker.versions["DescribeConfigs"]:
        for synonyms in (False, True):
            one = {"ResourceType": _LOGGER, "ResourceName": "1", "ConfigurationKeys": ["root", "no"]}
            fields = {"IncludeSynonyms": synonyms, "IncludeDocumentation": True}
            broker.ask("DescribeConfigs", version, Resources=[one], **fields)


def broker_configs(broker: Broker) -> None:
    """DescribeConfigs of the broker: all names, with types, sources and synonyms."""
    one = {"ResourceType": _BROKER, "ResourceName": "1", "ConfigurationKeys": None}
    for version in (1, 4):
        fields = {"Resources": [one], "IncludeSynonyms": True, "IncludeDocumentation": False}
        answer = broker.look("DescribeConfigs", version, **fields)
        configs = sorted(answer["Results"][0]["Configs"], key=lambda config: str(config["Name"]))
        broker.answers.append(Answer(f"names v{version}", str([one["Name"] for one in configs]), None))
        for config in configs:
            if config["Name"] not in _OF_ONE_BROKER:
                broker.answers.append(Answer(f"{config['Name']} v{version}", str(config), config))
