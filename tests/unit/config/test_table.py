"""The table of settings: a name stands there and nowhere else, and what has an effect is read by someone."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

import ctrlchan
import ctrlchan.broker.config
from ctrlchan.broker.config.parts import server_settings
from ctrlchan.channel import ChannelConfig
from ctrlchan.channel import properties as channel_properties
from ctrlchan.config import table
from ctrlchan.config.setting import Setting
from ctrlchan.config.typed import TypedSettings, fields_of
from ctrlchan.controller.settings import properties as controller_properties
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.errors import ConfigError
from ctrlchan.server.socket_server import SocketServerSettings

PACKAGE: Final = Path(ctrlchan.__file__).parent
TABLE: Final = PACKAGE / "config" / "table.py"
#: Names that are also something else, and where.
ALLOWED: Final = {
    # A key of meta.properties, which is another file than server.properties.
    ("broker/log/checkpoints.py", "broker.id"),
    ("broker/log/dump.py", "broker.id"),
    # The reason why these have no effect.
    ("config/without_effect.py", "log.message.format.version"),
    ("config/without_effect.py", "metric.reporters"),
}
#: Where clients get settings under librdkafka's names: some are also a broker's.
OF_CLIENTS: Final = re.compile(r"loads/|cli/bench/options\.py")
#: A word, too: arguments, keys of JSON.
WORD: Final = "listeners"

ROWS: Final = (
    *table.TOPICS.values(),
    *table.BROKERS.values(),
    *table.UNSHOWN.values(),
    *table.DYNAMIC.values(),
    *table.SECURITY.values(),
    *table.CONTROLLERS.values(),
)
NAMES: Final = {row.name for row in ROWS}
#: Python name -> row.
NAMED: Final = {name: value for name, value in vars(table).items() if isinstance(value, Setting)}


@cache
def sources() -> dict[Path, str]:
    """Return the text of each file but the table."""
    return {
        path: path.read_text()
        for path in sorted(PACKAGE.rglob("*.p*"))
        if path.suffix in (".py", ".pyx", ".pxi", ".pxd") and path != TABLE
    }


def texts_of(path: Path, source: str) -> Iterator[str]:
    """Yield the quoted texts of a file."""
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
    else:
        yield from re.findall(r"""["']([^"'\n]*)["']""", source)


def test_a_name_is_quoted_in_the_table_alone() -> None:
    found = {
        (str(path.relative_to(PACKAGE)), text)
        for path, source in sources().items()
        for text in texts_of(path, source)
        if text in NAMES and text != WORD and not OF_CLIENTS.match(str(path.relative_to(PACKAGE)))
    }
    assert found == ALLOWED


def test_a_name_stands_in_one_row() -> None:
    rows = [row for name, rows in vars(table).items() if name.endswith("_rows") for row in rows]
    counts = Counter(row.name for row in rows)
    assert counts.most_common(1)[0][1] == 1
    twins = {row.behind[0][0].name for row in table.TOPICS.values() if len(row.behind) == 1}
    # Some settings of topics have their name from the setting of brokers.
    assert twins & counts.keys() <= table.TOPICS.keys()
    assert twins | counts.keys() == NAMES


def test_a_python_name_is_that_of_the_setting() -> None:
    assert {name: row.name for name, row in NAMED.items()} == {
        row.name.upper().replace(".", "_"): row.name for row in NAMED.values()
    }


def test_each_row_with_a_python_name_is_read_by_someone() -> None:
    read = {
        name
        for source in sources().values()
        for name in re.findall(r"\b(?:table\.)?([A-Z][A-Z0-9_]+)\b", source)
    }
    through_topics = {broker for row in table.TOPICS.values() for broker, _ in row.behind}
    unread = {name for name, row in NAMED.items() if name not in read and row not in through_topics}
    assert unread == set()


def test_each_other_row_is_described_only() -> None:
    statements = [node.value for node in ast.parse(TABLE.read_text()).body if isinstance(node, ast.Expr)]
    calls = [ast.unparse(node.func) for node in statements if isinstance(node, ast.Call)]
    assert len(calls) > 5
    assert set(calls) == {"_described_only"}
    rows = [row for name, rows in vars(table).items() if name.endswith("_rows") for row in rows]
    assert len(rows) == len(calls) + len(NAMED)


def test_the_socket_server_has_the_defaults_of_the_table() -> None:
    assert server_settings({}) == SocketServerSettings()


def typed_settings() -> list[type[TypedSettings]]:
    """Return all classes of typed settings."""
    for module in pkgutil.iter_modules(ctrlchan.broker.config.__path__, "ctrlchan.broker.config."):
        importlib.import_module(module.name)
    # A class with slots has a twin without, which nothing uses.
    return [one for one in TypedSettings.__subclasses__() if "__slots__" in vars(one)]


def test_each_field_of_typed_settings_is_read_by_someone() -> None:
    room = PACKAGE / "broker" / "config"
    parts = typed_settings()
    assert len(parts) > 5
    own = "\n".join(source for path, source in sources().items() if path.parent == room)
    others = "\n".join(source for path, source in sources().items() if path.parent != room)
    unread = [
        f"{part.__name__}.{one.name}"
        for part in parts
        for one in fields_of(part)
        if f".{one.name}" not in others and f"self.{one.name}" not in own
    ]
    assert unread == []


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_default_is_an_allowed_value(row: Setting[Any]) -> None:
    if row.default is None:
        with pytest.raises(KeyError):
            assert row.value
    else:
        row.parse(row.default)
        assert row.of({}) == row.value


@pytest.mark.parametrize(
    ("config", "arguments"),
    [(ChannelConfig, channel_properties._PLAIN), (ControllerConfig, controller_properties._PLAIN)],
)
def test_a_controller_has_the_defaults_of_the_table(config: Any, arguments: Any) -> None:
    defaults = {one.name: one.default for one in fields(config) if one.default is not MISSING}
    compared = 0
    for row, (argument, convert) in arguments.items():
        if row.default is not None and argument in defaults:
            value = row.value if convert is None else convert(row.value)
            # 3.9 is short for 3.9-IV0.
            assert defaults[argument] in (value, str(value).removesuffix("-IV0")), row.name
            compared += 1
    assert compared >= 5


def test_a_setting_is_read_from_configs() -> None:
    assert table.NUM_IO_THREADS.of({}) == 8
    assert table.NUM_IO_THREADS.of({"num.io.threads": " 3 "}) == 3
    with pytest.raises(ConfigError, match=r"Invalid value 0 for configuration num\.io\.threads"):
        table.NUM_IO_THREADS.of({"num.io.threads": "0"})
    # The default here, and the one that Kafka shows.
    assert (table.NUM_NETWORK_THREADS.of({}), table.NUM_NETWORK_THREADS.default) == (1, "3")
