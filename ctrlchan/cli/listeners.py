"""The option ``--listener`` of commands that make up a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ctrlchan.state import SecurityProtocol

__all__ = ["Listeners", "parse_listeners"]

Listeners = Annotated[
    list[str] | None,
    typer.Option(
        "--listener",
        metavar="NAME[:PROTOCOL]",
        help="A listener of every broker (may be repeated); without PROTOCOL the name is one.",
        show_default="PLAINTEXT",
    ),
]


def parse_listeners(given: list[str] | None) -> tuple[tuple[str, SecurityProtocol], ...]:
    """Return name and protocol of each listener. Raises InvalidStateError."""
    from ctrlchan.state.brokers import SecurityProtocol

    found = []
    for text in given or ["PLAINTEXT"]:
        name, colon, protocol = text.partition(":")
        found.append((name.upper(), SecurityProtocol.of(protocol if colon else name)))
    return tuple(found)
