"""Options of a command from the fields of configuration classes (``ctrlchan.pipeline.settings``).

::

    @with_options
    def frames(source: ..., config: FramesConfig, run: RunOptions) -> None:

The command line has an option for each setting of ``FramesConfig`` and of ``RunOptions``, in their order; the
function gets the configurations made of their values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from ctrlchan.pipeline.settings import Setting, settings_of

__all__ = ["with_options"]

#: Words for values of a type in help texts.
_WORDS = {str: "TEXT", int: "NUMBER", float: "NUMBER", Path: "PATH"}


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with an option in place of each setting of its configurations.

    A configuration is made before the command runs: a wrong value is an error before Spark starts.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(hints[name]):
            parameters += _parameters(hints[name])
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))

    def run(**given: Any) -> None:
        values = {
            name: _made(hint, given) if is_dataclass(hint) else given[name]
            for name, hint in hints.items()
            if name != "return"
        }
        command(**values)

    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _parameters(configuration: Any, without: Sequence[str] = ()) -> list[inspect.Parameter]:
    by_name = {one.name: one for one in fields(configuration)}
    found = []
    for name, kind, setting in settings_of(configuration):
        if name in without:
            continue
        if is_dataclass(kind):
            found += _parameters(kind, setting.without)
        else:
            found.append(_parameter(by_name[name], kind, setting))
    return found


def _parameter(field: Field[Any], kind: Any, setting: Setting) -> inspect.Parameter:
    given, optional = _typed(kind, setting)
    required = field.default is MISSING and field.default_factory is MISSING
    # What is not given keeps the default of its field. Lists have no default value that a help text shows.
    default = field.default if isinstance(field.default, (str, int, float, Path)) else None
    described: dict[str, Any] = {
        "metavar": None if setting.argument else setting.value or _words(given),
        "help": setting.help,
        "show_default": setting.default or (default is not None and not isinstance(default, bool)),
    }
    if given is Path:
        described |= {
            "exists": setting.exists,
            "file_okay": setting.value != "FOLDER",
            "dir_okay": setting.value != "FILE",
        }
    if given in (int, float):
        described["min"] = setting.minimum
    info = typer.Argument(**described) if setting.argument else typer.Option(*setting.names, **described)
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else default,
        annotation=Annotated[given if required or not optional else given | None, info],
    )


def _words(given: Any) -> str | None:
    """Return the word for the option's value, or None for typer's own (choices) or none (a switch)."""
    return "TEXT" if given == list[str] else _WORDS.get(given)


def _typed(kind: Any, setting: Setting) -> tuple[Any, bool]:
    """Return (type of the option's value, whether the default may be None)."""
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    origins = [get_origin(part) or part for part in parts]
    if any(origin in (Sequence, Mapping) for origin in origins):
        return (list[str] if setting.repeated else str), True
    if setting.parse is not None:
        return str, True
    if Path in origins:
        # Folders may be URLs, which a Path would damage.
        return Path if setting.value == "FILE" or str not in origins else str, type(None) in origins
    return next(part for part in parts if part is not type(None)), type(None) in origins


def _made(configuration: Any, given: Mapping[str, Any], without: Sequence[str] = ()) -> Any:
    """Return the configuration; what is not given has the default of its field."""
    values = {}
    for name, kind, setting in settings_of(configuration):
        if name in without:
            continue
        if is_dataclass(kind):
            values[name] = _made(kind, given, setting.without)
        elif given[name] is not None and given[name] != []:
            values[name] = _parsed(name, kind, setting, given[name])
    return configuration(**values)


def _parsed(name: str, kind: Any, setting: Setting, value: Any) -> Any:
    try:
        if not isinstance(value, list):
            return value if setting.parse is None else setting.parse(value)
        parsed = value if setting.parse is None else [setting.parse(one) for one in value]
    except ValueError as problem:
        option = setting.names[0] if setting.names else f"--{name.replace('_', '-')}"
        raise typer.BadParameter(str(problem), param_hint=option) from None
    return dict(parsed) if get_origin(kind) is Mapping else tuple(parsed)
