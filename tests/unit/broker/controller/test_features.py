"""The finalized features of the cluster reach a broker, which shows them in ApiVersions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from kio.schema.api_versions.v4.response import ApiVersionsResponse
from kio.serial import entity_reader

from ctrlchan._codec import encode_request_header
from ctrlchan.broker.config.zookeeper_configs import BrokerConfigs
from ctrlchan.broker.core import BrokerCore
from ctrlchan.broker.metadata.finalized_features import follows_features, take_features
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.errors import ConfigError
from ctrlchan.server.apis.api_versions import FinalizedFeatures, with_api_versions
from ctrlchan.server.request_handler import RequestHandler
from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.memory.server import MemoryZooKeeper
from ctrlchan.zookeeper.operations import Create, Delete, SetData
from ctrlchan.zookeeper.session import ZooKeeperSession
from ctrlchan.zookeeper.values import FeatureNode
from tests.kafka.waiting import wait_until
from tests.unit.broker.controller.test_configs import Broker
from tests.unit.server.contexts import LOCAL_CLIENT
from tests.unit.zookeeper.sessions import session

EMPTY = nodes.encode_feature(2, True, {})
IBP = "inter.broker.protocol.version"


@pytest.fixture
def one() -> Iterator[ZooKeeperSession]:
    with MemoryZooKeeper() as server, session(server.address) as made:
        yield made


def followed(one: ZooKeeperSession, metadata: MetadataCache) -> BrokerConfigs:
    return BrokerConfigs(Broker(), one, lambda _name: False, take_features=partial(take_features, metadata))


def test_the_broker_follows_the_node(one: ZooKeeperSession, caplog: pytest.LogCaptureFixture) -> None:
    metadata = MetadataCache()
    configs = followed(one, metadata)
    configs.start()
    try:
        assert metadata.features is None
        one.multi([Create(paths.FEATURE, EMPTY)])
        wait_until(lambda: metadata.features == FinalizedFeatures({}, 0), what="the features of the node")
        one.multi([SetData(paths.FEATURE, EMPTY, 0)])
        wait_until(lambda: metadata.features == FinalizedFeatures({}, 1), what="the features of the node")
        one.multi([SetData(paths.FEATURE, nodes.encode_feature(2, False, {}), 1)])
        wait_until(lambda: metadata.features is None, what="the features of the node")
        one.multi([SetData(paths.FEATURE, EMPTY, 2)])
        wait_until(lambda: metadata.features == FinalizedFeatures({}, 3), what="the features of the node")
        one.multi([SetData(paths.FEATURE, b"no JSON", 3)])
        wait_until(lambda: metadata.features is None, what="the features of the node")
        one.multi([SetData(paths.FEATURE, nodes.encode_feature(2, True, {"f": 3}), 4)])
        wait_until(
            lambda: "finalized features that this broker does not support: f 3" in caplog.text,
            what="the features of the node",
        )
        one.multi([Delete(paths.FEATURE)])
        one.multi([Create(paths.FEATURE, EMPTY)])
        wait_until(lambda: metadata.features == FinalizedFeatures({}, 0), what="the features of the node")
    finally:
        configs.stop()
    assert "finalized features are not used" in caplog.text


def test_a_cluster_with_features_of_others(one: ZooKeeperSession) -> None:
    one.multi([Create(paths.FEATURE, nodes.encode_feature(2, True, {"b": 1, "a": 2}))])
    configs = followed(one, MetadataCache())
    with pytest.raises(ConfigError, match="does not support: a 2, b 1"):
        configs.start()


@pytest.mark.parametrize(("ibp", "follows"), [("2.6-IV0", False), ("2.7-IV0", True), ("3.9", True)])
def test_there_are_features_since(ibp: str, follows: bool) -> None:
    assert follows_features({IBP: ibp}) is follows
    assert follows_features({})


def test_api_versions_shows_them() -> None:
    core = BrokerCore(node=None, metadata=MetadataCache())  # type: ignore[arg-type]
    take_features(core.metadata, FeatureNode(2, True, {}, 5))
    assert core.metadata.features == FinalizedFeatures({}, 5)
    core.metadata.features = FinalizedFeatures({"f": 3}, 5)
    handler = RequestHandler(core, with_api_versions((), lambda core: core.metadata.features))
    request = encode_request_header(2, 18, 4, 7, b"c") + b"\2a\0021\0"
    answer = handler.serve(request, LOCAL_CLIENT)
    assert isinstance(answer, tuple)
    response, _ = entity_reader(ApiVersionsResponse)(b"".join(answer[1:]), 0)
    assert response.finalized_features_epoch == 5
    [feature] = response.finalized_features
    assert (feature.name, feature.min_version_level, feature.max_version_level) == ("f", 3, 3)
    assert response.supported_features == ()
