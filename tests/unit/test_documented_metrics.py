"""Metrics have the names that the guides give them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from prometheus_client.core import Metric

from ctrlchan import ControllerChannelManager, EmbeddedBroker
from ctrlchan.channel.observability.metrics import ChannelMetrics
from ctrlchan.controller.status.metrics import ControllerMetrics
from tests.fault.channels import config, peers
from tests.fault.requests import update

GUIDES: Final = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))
#: A name; with ``...`` behind it, the beginning of several names.
NAME: Final = re.compile(
    r"`((?:kafka_(?:cluster_partition|controller|coordinator|log|network|server)|ctrlchan_(?:channel|controller))"
    r"_\w*)((?:\.\.\.|…)?)`"
)


def names_of(families: Iterable[Metric]) -> set[str]:
    """Return the names of families and of their samples."""
    return {
        name for family in families for name in (family.name, *(sample.name for sample in family.samples))
    }


def exported_names(log_dir: Path) -> set[str]:
    """Return the names of all metrics of a channel that has sent something, a controller and a broker."""
    metrics = ChannelMetrics()
    with peers(1) as brokers, ControllerChannelManager(config(), 7, metrics=metrics) as channel:
        channel.startup([peer.broker for peer in brokers])
        channel.wait(channel.send_requests([1], update(0)), 60)
        names = names_of(metrics.collect())
    with EmbeddedBroker(1, log_dir=log_dir) as broker:
        names |= names_of(broker.metrics.collect())
    return names | names_of(ControllerMetrics().collect())


def test_metrics_have_the_names_that_the_guides_give_them(tmp_path: Path) -> None:
    exported = exported_names(tmp_path)
    named = [(guide.name, *found) for guide in GUIDES for found in NAME.findall(guide.read_text())]
    assert named
    assert not [guide.name for guide in GUIDES if "`..._" in guide.read_text()]
    for guide, name, more in named:
        if more:
            assert any(one.startswith(name) for one in exported), (guide, name)
        else:
            assert name in exported, (guide, name)
