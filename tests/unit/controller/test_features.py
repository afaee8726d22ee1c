"""Finalized features on a real ZooKeeper: the node, brokers that do not fit, UpdateFeatures.

Twins of the ``/feature`` cases of ``ControllerIntegrationTest``.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from kazoo.client import KazooClient

from ctrlchan.controller.handlers import features
from ctrlchan.controller.handlers.features import FeatureUpdate, UpgradeType
from ctrlchan.errors import ErrorCode
from ctrlchan.zookeeper import paths
from tests.unit.controller.manual_controller import ManualController, read_json, register_brokers

REFUSED, OK = ErrorCode.INVALID_REQUEST, ErrorCode.NONE
UP, DOWN = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE


def write(znodes: KazooClient, node: dict[str, Any]) -> None:
    znodes.create(paths.FEATURE, json.dumps(node).encode(), makepath=True)


def register(znodes: KazooClient, broker_id: int, **supported: tuple[int, int]) -> None:
    """Register a broker that supports these features."""
    register_brokers(znodes, broker_id)
    path = paths.broker(broker_id)
    ranges = {
        name: {"min_version": lowest, "max_version": highest} for name, (lowest, highest) in supported.items()
    }
    znodes.set(path, json.dumps(read_json(znodes, path) | {"features": ranges}).encode())


@pytest.mark.parametrize(
    ("ibp", "node"),
    [
        ("2.6", {"version": 1, "status": 0, "features": {}}),
        ("2.7-IV0", {"version": 1, "status": 1, "features": {}}),
        ("3.2", {"version": 1, "status": 1, "features": {}}),
        ("3.3-IV0", {"version": 2, "status": 1, "features": {}}),
        ("3.9", {"version": 2, "status": 1, "features": {}}),
    ],
)
def test_a_new_cluster(znodes: KazooClient, zookeeper: str, ibp: str, node: dict[str, Any]) -> None:
    with ManualController(zookeeper, ibp=ibp):
        assert read_json(znodes, paths.FEATURE) == node


@pytest.mark.parametrize(
    ("ibp", "before", "after"),
    [
        # An older IBP disables features and empties the node.
        (
            "2.6",
            {"version": 1, "status": 1, "features": {"f": {"min_version_level": 1, "max_version_level": 3}}},
            {"version": 1, "status": 0, "features": {}},
        ),
        # Enabled again: without the features of a disabled node.
        (
            "2.7",
            {"version": 1, "status": 0, "features": {"f": {"min_version_level": 1, "max_version_level": 3}}},
            {"version": 1, "status": 1, "features": {}},
        ),
        # A newer format keeps the features.
        (
            "3.9",
            {"version": 1, "status": 1, "features": {"f": {"min_version_level": 1, "max_version_level": 3}}},
            {"version": 2, "status": 1, "features": {"f": {"max_version_level": 3}}},
        ),
    ],
)
def test_a_node_of_another_ibp(
    znodes: KazooClient, zookeeper: str, ibp: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    write(znodes, before)
    with ManualController(zookeeper, ibp=ibp) as controller:
        assert read_json(znodes, paths.FEATURE) == after
        version = znodes.get(paths.FEATURE)[1].version
        controller.fail_over()
        assert znodes.get(paths.FEATURE)[1].version == version


def test_a_malformed_node_stops_features_alone(znodes: KazooClient, zookeeper: str) -> None:
    write(znodes, {"version": 1})
    register_brokers(znodes, 1)
    with ManualController(zookeeper) as controller:
        assert controller.state.broker_ids.tolist() == [1]
        result = features.update(controller.core, [FeatureUpdate("f", 1, UP)])
        assert result.features["f"][0] == REFUSED
        assert read_json(znodes, paths.FEATURE) == {"version": 1}


def test_brokers_that_do_not_fit_are_ignored(znodes: KazooClient, zookeeper: str) -> None:
    write(znodes, {"version": 2, "status": 1, "features": {"f": {"max_version_level": 3}}})
    register(znodes, 1, f=(1, 3), g=(1, 1))
    register(znodes, 2, f=(1, 2))
    register(znodes, 3, f=(4, 5))
    register(znodes, 4)
    with ManualController(zookeeper) as controller:
        brokers = controller.nodes.read_brokers().brokers
        assert [one.id for one in features.compatible_brokers(controller.core, brokers)] == [1]
    with ManualController(zookeeper, ibp="2.6") as controller:
        assert len(features.compatible_brokers(controller.core, brokers)) == 4


@pytest.fixture
def cluster(znodes: KazooClient) -> KazooClient:
    """Two brokers; feature f is finalized at 3, g and h are not."""
    write(znodes, {"version": 2, "status": 1, "features": {"f": {"max_version_level": 3}}})
    register(znodes, 1, f=(1, 5), g=(1, 2), h=(1, 2))
    register(znodes, 2, f=(1, 4), g=(1, 2))
    return znodes


@pytest.mark.parametrize(
    ("update", "code", "level"),
    [
        (FeatureUpdate("f", 4, UP), OK, 4),
        (FeatureUpdate("f", 2, DOWN), OK, 2),
        (FeatureUpdate("f", 0, DOWN), OK, None),
        (FeatureUpdate("g", 1, UP), OK, 1),
        (FeatureUpdate("f", 5, UP), REFUSED, 3),
        (FeatureUpdate("f", 3, UP), REFUSED, 3),
        (FeatureUpdate("f", 2, UP), REFUSED, 3),
        (FeatureUpdate("f", 2, UpgradeType.UNSAFE_DOWNGRADE), REFUSED, 3),
        (FeatureUpdate("f", 4, DOWN), REFUSED, 3),
        (FeatureUpdate("f", 0, UP), REFUSED, 3),
        (FeatureUpdate("f", 4, UpgradeType.UNKNOWN), REFUSED, 3),
        (FeatureUpdate("g", 0, DOWN), REFUSED, None),
        (FeatureUpdate("h", 1, UP), REFUSED, None),
        (FeatureUpdate("x", 1, UP), REFUSED, None),
        (FeatureUpdate("", 1, UP), REFUSED, None),
    ],
)
def test_updates(
    cluster: KazooClient, zookeeper: str, update: FeatureUpdate, code: int, level: int | None
) -> None:
    with ManualController(zookeeper) as controller:
        result = features.update(controller.core, [update])
        assert (result.error, result.message) == (OK, None)
        answer, message = result.features[update.feature]
        assert answer == code
        assert (message is None) == (code == OK)
        finalized = read_json(cluster, paths.FEATURE)["features"]
        assert finalized.get(update.feature) == (None if level is None else {"max_version_level": level})


def test_a_refused_update_does_not_stop_the_others(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        updates = [FeatureUpdate("x", 1, UP), FeatureUpdate("g", 2, UP)]
        result = features.update(controller.core, updates)
        assert {name: code for name, (code, _) in result.features.items()} == {"x": REFUSED, "g": OK}
        assert read_json(cluster, paths.FEATURE)["features"] == {
            "f": {"max_version_level": 3},
            "g": {"max_version_level": 2},
        }


def test_validation_writes_nothing(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        result = features.update(controller.core, [FeatureUpdate("f", 4, UP)], validate_only=True)
        assert result.features == {"f": (OK, None)}
        assert read_json(cluster, paths.FEATURE)["features"] == {"f": {"max_version_level": 3}}


def test_features_are_disabled_below_ibp_2_7(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper, ibp="2.6") as controller:
        result = features.update(controller.core, [FeatureUpdate("f", 4, UP)])
        assert result.error == REFUSED
        assert result.features == {}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (0, UpgradeType.UNKNOWN),
        (1, UP),
        (3, UpgradeType.UNSAFE_DOWNGRADE),
        (9, UpgradeType.UNKNOWN),
    ],
)
def test_upgrade_types(code: int, kind: UpgradeType) -> None:
    assert UpgradeType.of(code) == kind
