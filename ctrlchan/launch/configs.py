"""Settings of brokers as programs give them: texts, numbers, true and false, under Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping

from ctrlchan.config.names import check_arguments, names_without_effect, nearest_name
from ctrlchan.errors import ConfigError

__all__ = ["ConfigValue", "check_names", "config_text", "config_texts"]

#: A value of a setting: ``True`` is "true", a number its digits.
ConfigValue = str | int | float


def config_texts(configs: Mapping[str, ConfigValue] | None) -> dict[str, str]:
    """Return the settings as texts.

    Raises ConfigError for a name that no broker acts on, with the nearest one, for a setting that is an
    argument, and for a value of another type.
    """
    texts = {name: config_text(name, value) for name, value in (configs or {}).items()}
    check_names(texts)
    check_arguments(texts)
    return texts


def check_names(names: Mapping[str, str]) -> None:
    """Raise ConfigError for the first name that no broker acts on; the message has the nearest one."""
    for name in names_without_effect(names):
        nearest = nearest_name(name)
        raise ConfigError(
            f"{name}: a broker here does not act on a setting of this name; the nearest is {nearest}"
        )


def config_text(name: str, value: ConfigValue) -> str:
    """Return a value as a text. Raises ConfigError for one of another type."""
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
    raise ConfigError(f"{name}: {value!r} is not a text, a number, true or false")
