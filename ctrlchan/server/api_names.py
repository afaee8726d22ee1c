"""Kafka's names of its API keys."""

from __future__ import annotations

from kio.schema.index import api_key_map

__all__ = ["api_name", "api_names", "camel_case"]


def api_name(key: int) -> str:
    """Return Kafka's name of an API key, such as "ListOffsets"."""
    return camel_case(api_key_map.get(key, "unknown"))


def api_names() -> frozenset[str]:
    """Return Kafka's names of all API keys."""
    return frozenset(map(camel_case, api_key_map.values()))


def camel_case(name: str) -> str:
    """Return kio's name of a message, such as "list_offsets", as Kafka writes it."""
    return "".join(map(str.capitalize, name.split("_")))
