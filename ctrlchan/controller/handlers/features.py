"""Keeps the node of finalized features (KIP-584), and answers UpdateFeatures.

Features are enabled from inter-broker protocol 2.7-IV0 on; below, the node says disabled and is empty. A
controller in ZooKeeper mode supports no feature of its own, so a new cluster begins without finalized ones.
Source: ``kafka.controller.KafkaController``, ``kafka.zk.FeatureZNode``,
``org.apache.kafka.server.BrokerFeatures`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from ctrlchan.controller.core import ControllerCore
from ctrlchan.errors import ErrorCode, MalformedError, ZooKeeperError
from ctrlchan.protocol import ibp_at_least
from ctrlchan.zookeeper.values import FeatureNode, RegisteredBroker

__all__ = [
    "FeatureRanges",
    "FeatureUpdate",
    "UpdateResult",
    "UpgradeType",
    "compatible_brokers",
    "startup",
    "update",
]

#: From this inter-broker protocol on the node has format 2, which has no lowest level.
FORMAT_2_SINCE: Final = "3.3-IV0"

#: Feature -> (lowest, highest level) that a broker supports.
FeatureRanges: TypeAlias = Mapping[str, tuple[int, int]]
#: (error code, message); code 0 has no message.
Answer: TypeAlias = tuple[int, str | None]

_DONE: Final[Answer] = (ErrorCode.NONE, None)


class UpgradeType(IntEnum):
    """The kind of an update. Source: ``org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType``."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3

    @classmethod
    def of(cls, code: int) -> UpgradeType:
        """Return the type with this code, UNKNOWN for any other."""
        return cls(code) if code in tuple(cls) else cls.UNKNOWN


class FeatureUpdate(NamedTuple):
    """One update of an UpdateFeatures request. Version 0: ``SAFE_DOWNGRADE`` where it allows a downgrade."""

    feature: str
    level: int
    kind: UpgradeType


class UpdateResult(NamedTuple):
    """The answer to UpdateFeatures: one for the whole request, one for each feature."""

    error: int
    message: str | None
    features: dict[str, Answer]


def startup(core: ControllerCore) -> Mapping[str, int]:
    """Bring the node of finalized features to the state that the inter-broker protocol asks for.

    Return the finalized features. A malformed node has none; it is logged and left as it is. Raises
    ControllerMovedError, ZooKeeperError.
    """
    enabled, wanted_format = core.config.feature_versioning, _format(core)
    try:
        node = core.nodes.read_feature()
    except ZooKeeperError as error:
        if not isinstance(error.__cause__, MalformedError):
            raise
        core.log.error("finalized features are not used: %s", error)
        return {}
    features: Mapping[str, int] = {}
    if node is not None:
        if not node.enabled and node.features:
            core.log.warning(
                "finalized features are disabled, but the node has some: %s", dict(node.features)
            )
        if enabled and node.enabled:
            features = node.features
    if node is None or (node.format_version, node.enabled, node.features) != (
        wanted_format,
        enabled,
        features,
    ):
        version = None if node is None else node.version
        version = core.nodes.write_feature(wanted_format, enabled, features, version)
        node = FeatureNode(wanted_format, enabled, dict(features), version)
        core.log.info("finalized features: %s, %s", "enabled" if enabled else "disabled", dict(features))
    core.features = node if enabled else None
    return features


def compatible_brokers(
    core: ControllerCore, brokers: Iterable[RegisteredBroker], finalized: Mapping[str, int] | None = None
) -> list[RegisteredBroker]:
    """Return the brokers that support all finalized features; the others are logged and ignored.

    ``finalized``: None reads them. Raises ZooKeeperError. Source:
    ``KafkaController.partitionOnFeatureCompatibility``.
    """
    if not core.config.feature_versioning:
        finalized = {}
    elif finalized is None:
        finalized = _finalized(core)
    compatible = []
    for broker in brokers:
        missing = [name for name, level in finalized.items() if not _supports(broker.features, name, level)]
        if missing:
            core.log.warning("broker %d is ignored: it does not support %s", broker.id, ", ".join(missing))
        else:
            compatible.append(broker)
    return compatible


def update(
    core: ControllerCore, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
) -> UpdateResult:
    """Change finalized features (UpdateFeatures 0 and 1); a refused update does not stop the others.

    ``validate_only``: check the updates and write nothing. Codes of a feature: 0, 42 for a refused update, 96
    where ZooKeeper refused the write. Code 42 for the whole request below inter-broker protocol 2.7-IV0.
    Raises ControllerMovedError, ZooKeeperError.
    """
    if not core.config.feature_versioning:
        return UpdateResult(ErrorCode.INVALID_REQUEST, "Feature versioning system is disabled.", {})
    existing = _finalized(core)
    target = dict(existing)
    answers: dict[str, Answer] = {}
    live = set(core.state.broker_ids.tolist())
    brokers = [broker.features for broker in core.nodes.read_brokers().brokers if broker.id in live]
    for one in updates:
        refusal = _refusal(one, existing.get(one.feature), brokers)
        answers[one.feature] = _DONE if refusal is None else (ErrorCode.INVALID_REQUEST, refusal)
        if refusal is None and _deletes(one):
            target.pop(one.feature, None)
        elif refusal is None:
            target[one.feature] = one.level
    if target != existing and not validate_only:
        try:
            node = core.nodes.read_feature()
            version = None if node is None else node.version
            version = core.nodes.write_feature(_format(core), True, target, version)
            core.features = FeatureNode(_format(core), True, target, version)
        except ZooKeeperError as error:
            core.log.warning("finalized features are not written: %s", error)
            failed = (ErrorCode.FEATURE_UPDATE_FAILED, str(error))
            answers = {name: failed if answer is _DONE else answer for name, answer in answers.items()}
    return UpdateResult(ErrorCode.NONE, None, answers)


def _format(core: ControllerCore) -> int:
    return 2 if ibp_at_least(core.config.inter_broker_protocol, FORMAT_2_SINCE) else 1


def _finalized(core: ControllerCore) -> dict[str, int]:
    """Return the finalized features; a malformed node has none, which is logged."""
    try:
        node = core.nodes.read_feature()
    except ZooKeeperError as error:
        if not isinstance(error.__cause__, MalformedError):
            raise
        core.log.error("finalized features are not used: %s", error)
        return {}
    return dict(node.features) if node is not None and node.enabled else {}


def _deletes(update: FeatureUpdate) -> bool:
    return update.level < 1 and update.kind != UpgradeType.UPGRADE


def _refusal(update: FeatureUpdate, existing: int | None, brokers: Collection[FeatureRanges]) -> str | None:
    """Return the reason against the update, None when it is allowed."""
    level, kind = update.level, update.kind
    if not update.feature:
        return "The name of the feature is empty."
    if kind == UpgradeType.UNKNOWN:
        return "The upgrade type is unknown."
    if _deletes(update):
        return None if existing is not None else "The feature is not finalized, so it cannot be deleted."
    if level < 1:
        return f"Level {level} is below 1; only a downgrade may delete a feature."
    if existing is not None:
        if level == existing:
            return f"The feature is finalized at level {existing} already."
        if level < existing and kind != UpgradeType.SAFE_DOWNGRADE:
            return f"Level {level} is below the finalized level {existing}; only a safe downgrade is allowed."
        if level > existing and kind != UpgradeType.UPGRADE:
            return f"Level {level} is above the finalized level {existing}; a downgrade cannot raise it."
    ranges = [broker[update.feature] for broker in brokers if update.feature in broker]
    if not ranges:
        return "The feature is not supported."
    if not all(_supports(broker, update.feature, level) for broker in brokers):
        return f"Some brokers do not support level {level} of the feature."
    return None


def _supports(supported: FeatureRanges, feature: str, level: int) -> bool:
    lowest, highest = supported.get(feature, (1, 0))
    return lowest <= level <= highest
