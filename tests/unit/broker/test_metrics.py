"""The metrics of a broker: a file for each area, and none is forgotten."""

from __future__ import annotations

import pkgutil

import ctrlchan.broker.metrics
from ctrlchan.broker.metrics import collector

#: What areas share, and what collects them.
OTHERS = {"collector", "families"}


def test_each_file_of_the_room_is_collected() -> None:
    files = {module.name for module in pkgutil.iter_modules(ctrlchan.broker.metrics.__path__)}
    areas = [area.__name__.rpartition(".")[2] for area in collector._AREAS]
    assert len(areas) > 1
    assert sorted(areas) == sorted(files - OTHERS)
