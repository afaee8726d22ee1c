"""Setting: one row of the table of settings, with the type, the default and the range of its values.

Source: ``ConfigDef`` and ``DynamicBrokerConfig`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ctrlchan.config.values import (
    parse_boolean,
    parse_double,
    parse_int,
    parse_list,
    parse_long,
    parse_short,
    parse_string,
)

__all__ = [
    "BOOLEAN",
    "CLASS",
    "DOUBLE",
    "INT",
    "LIST",
    "LONG",
    "PASSWORD",
    "SHORT",
    "STRING",
    "ConfigType",
    "Scope",
    "Setting",
    "Type",
]

T = TypeVar("T")


class ConfigType(IntEnum):
    """``DescribeConfigsResponse.ConfigType``."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Scope(Enum):
    """Whose value of a broker setting can be changed while brokers run (``DynamicBrokerConfig``, KIP-226)."""

    READ_ONLY = "nobody's"
    #: That of one broker.
    PER_BROKER = "one broker's"
    #: That of one broker, and that of all brokers.
    CLUSTER_WIDE = "all brokers'"


class Type(NamedTuple, Generic[T]):
    """A type of values. ``parse``: takes the name, the text, and the row with what is allowed.

    It raises ConfigError.
    """

    code: ConfigType
    parse: Callable[[str, str, Setting[Any]], T]


BOOLEAN: Final = Type(ConfigType.BOOLEAN, lambda name, text, _: parse_boolean(name, text))
STRING: Final = Type(ConfigType.STRING, lambda name, text, row: parse_string(name, text, row.choices))
INT: Final = Type(ConfigType.INT, lambda name, text, row: parse_int(name, text, row.least, row.most))
SHORT: Final = Type(ConfigType.SHORT, lambda name, text, row: parse_short(name, text, row.least, row.most))
LONG: Final = Type(ConfigType.LONG, lambda name, text, row: parse_long(name, text, row.least, row.most))
DOUBLE: Final = Type(ConfigType.DOUBLE, lambda name, text, row: parse_double(name, text, row.least, row.most))
LIST: Final = Type(ConfigType.LIST, lambda name, text, row: parse_list(name, text, row.choices))
#: The name of a class.
CLASS: Final = Type(ConfigType.CLASS, lambda name, text, row: parse_string(name, text, row.choices))
#: A text that nobody is shown.
PASSWORD: Final = Type(ConfigType.PASSWORD, lambda name, text, _: parse_string(name, text))


class Setting(NamedTuple, Generic[T]):
    """A setting under Kafka's name.

    ``default``: as Kafka shows it, or None. ``here``: the default of our brokers where it is
    another one. ``least``, ``most``, ``choices``: the allowed numbers, the allowed words. ``check``: called
    with name and value, raises ConfigError for values that these do not describe. ``scope``: of a broker
    setting. ``per_listener``: ``listener.name.NAME.`` may stand before the name. ``behind``: of a topic
    setting, the broker settings that give its default, each with its unit in that of the topic setting. The
    first one that is set counts.
    """

    name: str
    type: Type[T]
    default: str | None = None
    here: str | None = None
    least: int | None = None
    most: int | None = None
    choices: Sequence[str] | None = None
    check: Callable[[str, T], object] | None = None
    scope: Scope = Scope.READ_ONLY
    per_listener: bool = False
    behind: tuple[tuple[Setting[Any], int], ...] = ()

    def parse(self, text: str, name: str | None = None) -> T:
        """Return the value of a text. ``name``: with the prefix of a listener, for the error.

        Raises ConfigError.
        """
        name = name or self.name
        value = self.type.parse(name, text, self)
        if self.check is not None:
            self.check(name, value)
        return value

    def of(self, configs: Mapping[str, str]) -> T:
        """Return the value that configs have under Kafka's names, or the default. Raises ConfigError."""
        text = configs.get(self.name)
        return self.value if text is None else self.parse(text)

    @property
    def value(self) -> T:
        """The default. Raises KeyError for a setting without one."""
        text = self.default if self.here is None else self.here
        if text is None:
            raise KeyError(self.name)
        return self.parse(text)

    @property
    def is_dynamic(self) -> bool:
        """Whether the value of a broker can be changed while it runs."""
        return self.scope is not Scope.READ_ONLY

    def __str__(self) -> str:
        return self.name
