"""Counted nouns in sentences: ``1 request``, ``2,000 requests``, ``an UpdateMetadata``."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["counted", "form", "of_brokers", "with_article"]

#: Ids that a sentence lists.
_LISTED = 20


def counted(count: int, noun: str) -> str:
    """Return a number and a regular noun, in its plural unless the number is 1."""
    return f"{count:,} {noun}{form(count, '', 's')}"


def form(count: int, one: str, many: str) -> str:
    """Return the form of a word that goes with a number, such as ``has`` or ``have``."""
    return one if count == 1 else many


def with_article(name: str) -> str:
    """Return a name with ``a`` or ``an``."""
    return f"{'an' if name[:1].upper() in set('AEIOU') else 'a'} {name}"


def of_brokers(ids: Sequence[int]) -> str:
    """Return ``Broker 3`` or ``Brokers 3, 5 and 9 more``."""
    more = f" and {len(ids) - _LISTED} more" if len(ids) > _LISTED else ""
    return f"{form(len(ids), 'Broker', 'Brokers')} {', '.join(map(str, ids[:_LISTED]))}{more}"
