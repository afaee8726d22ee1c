"""The metrics of a broker: a file for each area, and none is forgotten."""

from __future__ import annotations

import pkgutil
from types import SimpleNamespace
from typing import Any

import ctrlchan.broker.metrics
from ctrlchan.broker.metrics import collector, selectors

#: What areas share, and what collects them.
OTHERS = {"collector", "families"}


def test_each_file_of_the_room_is_collected() -> None:
    files = {module.name for module in pkgutil.iter_modules(ctrlchan.broker.metrics.__path__)}
    areas = [area.__name__.rpartition(".")[2] for area in collector._AREAS]
    assert len(areas) > 1
    assert sorted(areas) == sorted(files - OTHERS)


def test_delegation_tokens_are_counted_where_there_are_any() -> None:
    def found(tokens: Any) -> list[float]:
        server: Any = SimpleNamespace(
            node=SimpleNamespace(broker=SimpleNamespace(endpoints=())),
            server=SimpleNamespace(counters=lambda: ((), ())),
            core=SimpleNamespace(tokens=tokens),
        )
        families = selectors.collect(server)
        name = "ctrlchan_broker_delegation_tokens"
        return [sample.value for family in families for sample in family.samples if sample.name == name]

    assert found(SimpleNamespace(count=2)) == [2]
    assert found(None) == []
