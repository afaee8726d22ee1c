"""The finalized features of the cluster, as ApiVersions shows them (KIP-584).

Source: ``kafka.server.FinalizedFeatureChangeListener`` and ``ZkMetadataCache`` of Kafka 3.9. A broker in
ZooKeeper mode supports no feature, so it cannot run in a cluster that has finalized one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.config import table
from ctrlchan.errors import ConfigError
from ctrlchan.protocol import ibp_at_least
from ctrlchan.server.apis.api_versions import FinalizedFeatures

if TYPE_CHECKING:
    from ctrlchan.zookeeper.values import FeatureNode

__all__ = ["follows_features", "take_features"]

#: From this inter-broker protocol on there are features.
_SINCE: Final = "2.7-IV0"


def follows_features(configs: Mapping[str, str]) -> bool:
    """Return whether the inter-broker protocol of a broker has features."""
    return ibp_at_least(table.INTER_BROKER_PROTOCOL_VERSION.of(configs), _SINCE)


def take_features(metadata: MetadataCache, node: FeatureNode | None) -> None:
    """Let ApiVersions show the features of their node in ZooKeeper.

    Raises ConfigError if there is a feature, which this broker does not support.
    """
    metadata.features = None
    if node is None or not node.enabled:
        return
    if node.features:
        levels = ", ".join(f"{name} {level}" for name, level in sorted(node.features.items()))
        raise ConfigError(f"the cluster has finalized features that this broker does not support: {levels}")
    metadata.features = FinalizedFeatures({}, node.version)
