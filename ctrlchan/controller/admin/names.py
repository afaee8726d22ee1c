"""Names of new topics: which are allowed, and which collide.

Metrics have '_' where a topic's name has '.', so two names that differ in nothing else may not exist
together. Source: ``org.apache.kafka.common.internals.Topic`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Iterable

from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.topic_names import MAX_NAME_LENGTH, why_invalid

__all__ = ["INTERNAL_METADATA_TOPIC", "Collisions", "check_new_name", "may_collide"]

#: The topic of KRaft's log, which no client may create.
INTERNAL_METADATA_TOPIC = "__cluster_metadata"


def check_new_name(name: str) -> None:
    """Raise KafkaError (INVALID_TOPIC_EXCEPTION), with Kafka's message, for a name that is not allowed."""
    if why_invalid(name) is None:
        return
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    else:
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


class Collisions:
    """The names of existing topics, by what their metrics are called."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names: dict[str, list[str]] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Note a topic that exists from now on."""
        if may_collide(name):
            self._names.setdefault(_in_metrics(name), []).append(name)

    def check(self, name: str) -> None:
        """Raise KafkaError (INVALID_TOPIC_EXCEPTION) when the name collides with another topic's."""
        found = self._names.get(_in_metrics(name), ()) if may_collide(name) else ()
        others = [other for other in found if other != name]
        if others:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topics: {', '.join(others)}",
            )


def may_collide(name: str) -> bool:
    """Return whether the name has a character that metrics replace."""
    return "." in name or "_" in name


def _in_metrics(name: str) -> str:
    return name.replace(".", "_")
