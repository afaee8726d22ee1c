"""Settings of a job: each is declared once, as a field of the job's configuration class.

::

    tasks: Annotated[int | None, Setting("Tasks that make frames.", minimum=1, default="4 a core")] = None

``check_settings`` validates the values of a configuration; ``ctrlchan.cli.pipeline.options`` makes an option
of the command line of each such field. A field without a ``Setting`` is for programs only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

__all__ = ["Setting", "check_settings", "name_and_value", "settings_of"]


@dataclass(frozen=True)
class Setting:
    """Describes one field of a configuration.

    - ``help``: what the setting does, in one or two sentences.
    - ``value``: word for the value in the help text, as FOLDER, SECONDS or NAME=VALUE; empty: chosen by type.
      A path with the word FILE is one of this machine; any other path may be a URL.
    - ``minimum``: lowest value.
    - ``default``: what the default stands for, in words, where its value does not say so.
    - ``names``: on the command line, as ``("--api",)``; empty: the field's name.
    - ``argument``: positional on the command line.
    - ``exists``: the path must exist.
    - ``parse``: makes a value of the option's text; raises ValueError for text that is none. Of a Mapping it
      makes (key, value).
    - ``repeated``: the option may be given several times, one element each; otherwise ``parse`` makes the
      whole list of one text.
    - ``without``: for a field that is a configuration itself: those of its fields that are not settings here.
    """

    help: str = ""
    value: str = ""
    minimum: float | None = None
    default: str = ""
    names: tuple[str, ...] = ()
    argument: bool = False
    exists: bool = False
    parse: Callable[[str], Any] | None = None
    repeated: bool = True
    without: tuple[str, ...] = ()


def name_and_value(text: str) -> tuple[str, str]:
    """Return both sides of NAME=VALUE, for ``Setting.parse``. Raises ValueError for other text."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"{text!r} is not NAME=VALUE")
    return name.strip(), value.strip()


def settings_of(configuration: type) -> Iterator[tuple[str, Any, Setting]]:
    """Yield (name, type, setting) of each field that has a ``Setting``, in the order of the fields."""
    hints = get_type_hints(configuration, include_extras=True)
    for one in fields(configuration):
        for extra in getattr(hints[one.name], "__metadata__", ()):
            if isinstance(extra, Setting):
                yield one.name, hints[one.name].__origin__, extra


def check_settings(configuration: Any) -> None:
    """Raise ConfigError if a value is below its minimum."""
    for name, _, setting in settings_of(type(configuration)):
        value = getattr(configuration, name)
        if setting.minimum is not None and value is not None and not value >= setting.minimum:
            # It loads the codec and NumPy, which a help text does not need.
            from ctrlchan.errors import ConfigError

            raise ConfigError(f"{name}: {value} is below {setting.minimum:g}")
