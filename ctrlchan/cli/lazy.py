"""Groups of commands whose modules are imported when a command runs or shows its own help."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

__all__ = ["LazyCommand", "lazy_group"]


class LazyCommand(NamedTuple):
    """Where a command is, ``module:name`` of a function or a Typer, and its line in the help of its group."""

    place: str
    summary: str

    def load(self, name: str) -> Any:
        """Import the command and return what Typer makes of it."""
        module, _, attribute = self.place.partition(":")
        found = getattr(import_module(module), attribute)
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        alone.command(name)(found)
        return typer.main.get_command(alone)


def lazy_group(commands: Mapping[str, LazyCommand]) -> type[TyperGroup]:
    """Return a class for ``typer.Typer(cls=...)``: a group that has these commands, too."""

    class LazyGroup(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return [*commands, *super().list_commands(ctx)]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name in commands:
                return commands[cmd_name].load(cmd_name)
            return super().get_command(ctx, cmd_name)

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            with formatter.section("Commands"):
                formatter.write_dl([(name, command.summary) for name, command in commands.items()])

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            # Typer suggests the nearest of these names after a wrong one.
            self.commands = {**dict.fromkeys(commands), **self.commands}  # type: ignore[dict-item]
            return super().resolve_command(ctx, args)

    return LazyGroup
