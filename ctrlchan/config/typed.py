"""TypedSettings: the settings of one part of the program as attributes, each read from a row of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple, Self, TypeVar, overload

from ctrlchan.config.setting import Setting

__all__ = ["SettingField", "TypedSettings", "fields_of", "value_of"]

T = TypeVar("T")
R = TypeVar("R")


@overload
def value_of(setting: Setting[T]) -> T: ...
@overload
def value_of(setting: Setting[T], convert: Callable[[T], R]) -> R: ...
def value_of(setting: Setting[T], convert: Callable[[T], Any] | None = None) -> Any:
    """Return a field of ``TypedSettings`` that has the value of a setting, and by default its default.

    ``convert``: returns the field's value for that of the setting, for another unit or type.
    """
    value = setting.value
    return field(
        default=value if convert is None else convert(value),
        metadata={"setting": setting, "convert": convert},
    )


@dataclass(frozen=True, slots=True)
class TypedSettings:
    """Frozen dataclasses inherit from this; their fields are made by ``value_of``, or are no settings."""

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> Self:
        """Return the settings that configs have under Kafka's names, and the defaults of the others.

        Raises ConfigError.
        """
        return cls().with_configs(configs)

    def with_configs(self, configs: Mapping[str, str]) -> Self:
        """Return this with the values of configs under Kafka's names. Raises ConfigError.

        Names that no field reads are left out.
        """
        known = {one.setting.name: one.setting for one in fields_of(type(self))}
        return self.with_values(
            {known[name]: known[name].parse(text) for name, text in configs.items() if name in known}
        )

    def with_values(self, values: Mapping[Setting[Any], Any]) -> Self:
        """Return this with other values of settings. Raises ConfigError where they contradict each other."""
        changes: dict[str, Any] = {}
        for name, setting, convert in fields_of(type(self)):
            if setting in values:
                changes[name] = values[setting] if convert is None else convert(values[setting])
        return replace(self, **changes) if changes else self


class SettingField(NamedTuple):
    """A field of typed settings: its name, its setting, and what makes its value of the setting's."""

    name: str
    setting: Setting[Any]
    convert: Callable[[Any], Any] | None


_fields: Final[dict[type[TypedSettings], tuple[SettingField, ...]]] = {}


def fields_of(part: type[TypedSettings]) -> tuple[SettingField, ...]:
    """Return the fields of a class that have a setting."""
    if part not in _fields:
        _fields[part] = tuple(
            SettingField(one.name, one.metadata["setting"], one.metadata["convert"])
            for one in fields(part)
            if "setting" in one.metadata
        )
    return _fields[part]
