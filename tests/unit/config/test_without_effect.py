"""Settings that nothing acts on: each is known, checked, explained, and refused where it asks for more."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from ctrlchan.config import table
from ctrlchan.config.names import names_without_effect
from ctrlchan.config.setting import Setting
from ctrlchan.config.without_effect import WITHOUT_EFFECT, refuse_unserved, warnings_of
from ctrlchan.errors import ConfigError

ROOT = Path(__file__).parents[3]


def test_none_has_a_row_that_somebody_reads() -> None:
    read = {row.name for name, row in vars(table).items() if isinstance(row, Setting) and name.isupper()}
    assert not WITHOUT_EFFECT.keys() & read
    assert not names_without_effect(WITHOUT_EFFECT)


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_the_default_is_taken_in_silence(name: str) -> None:
    default = WITHOUT_EFFECT[name].setting.default
    if default is not None:
        refuse_unserved({name: default})
        assert not warnings_of({name: default})


def test_another_value_is_named() -> None:
    configs = {"metrics.num.samples": "3", "num.partitions": "2", "early.start.listeners": "X"}
    refuse_unserved(configs)
    assert [line.split(" has no effect: ")[0] for line in warnings_of(configs)] == [
        "metrics.num.samples",
        "early.start.listeners",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("process.roles", "broker"),
        ("remote.log.storage.system.enable", "true"),
        ("group.coordinator.rebalance.protocols", "classic,consumer"),
        ("zookeeper.metadata.migration.enable", "TRUE"),
        ("metrics.num.samples", "0"),
        ("telemetry.max.bytes", "many"),
    ],
)
def test_what_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        refuse_unserved({name: value})


def test_the_page_has_them() -> None:
    """``python tools/settings_table.py`` writes it."""
    path = ROOT / "tools" / "settings_table.py"
    spec = importlib.util.spec_from_file_location("settings_table", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page()
