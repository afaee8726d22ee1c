"""Which names of settings a broker that stores records takes, and which ones are arguments instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ctrlchan.config import table
from ctrlchan.config.without_effect import WITHOUT_EFFECT
from ctrlchan.errors import ConfigError

__all__ = ["check_arguments", "names_own_classes", "names_without_effect", "nearest_name"]

#: Settings that are arguments of ``EmbeddedBroker`` and ``EmbeddedCluster``.
_ARGUMENTS: Final[Mapping[str, str]] = {
    table.ADVERTISED_LISTENERS.name: "advertised_listeners",
    table.BROKER_ID.name: "id, first_id",
    table.BROKER_RACK.name: "rack, racks",
    table.INTER_BROKER_LISTENER_NAME.name: "listener",
    table.LISTENERS.name: "host, port, more_listeners",
    table.LOG_DIR.name: "log_dir",
    table.LOG_DIRS.name: "log_dir",
    table.NODE_ID.name: "id, first_id",
    table.ZOOKEEPER_CONNECT.name: "zookeeper",
}
#: That one listener may have for itself, beside those that secure it.
_OF_LISTENERS: Final = (table.MAX_CONNECTIONS.name, table.MAX_CONNECTION_CREATION_RATE.name)


_OWN_CLASSES: Final = (
    table.ALTER_CONFIG_POLICY_CLASS_NAME.name,
    table.AUTHORIZER_CLASS_NAME.name,
    table.CLIENT_QUOTA_CALLBACK_CLASS.name,
    table.CREATE_TOPIC_POLICY_CLASS_NAME.name,
    table.REPLICA_SELECTOR_CLASS.name,
)
_KAFKA_PACKAGES: Final = ("kafka.", "org.apache.kafka.")


def names_without_effect(names: Iterable[str]) -> list[str]:
    """Return the names that a broker does not take, because nothing reads or shows them."""
    return [name for name in names if not _has_effect(name)]


def _has_effect(name: str) -> bool:
    if name in table.BROKERS or name in table.UNSHOWN or table.secures_listener(name):
        return True
    if name in table.CONTROLLERS or name in WITHOUT_EFFECT:
        # A broker describes them, and says of the latter that they have no effect.
        return True
    return table.without_listener(name) in _OF_LISTENERS


def names_own_classes(settings: Mapping[str, str]) -> bool:
    """Return whether the user has a class of his own: an authorizer, a policy, and so on."""
    return any(
        value.strip() and not value.strip().startswith(_KAFKA_PACKAGES)
        for name, value in settings.items()
        if name in _OWN_CLASSES or f".{name}".endswith(f".{table.PRINCIPAL_BUILDER_CLASS}")
    )


def nearest_name(name: str, likeness: float = 0.0) -> str | None:
    """Return the most alike name that a broker takes. ``likeness``: None below it; 1: it is the same name."""
    from difflib import get_close_matches

    nearest = get_close_matches(name, (*table.BROKERS, *table.SECURITY), n=1, cutoff=likeness)
    return nearest[0] if nearest else None


def check_arguments(configs: Mapping[str, str]) -> None:
    """Raise ConfigError for a setting of an embedded broker that is an argument."""
    for name in configs:
        if name in _ARGUMENTS:
            raise ConfigError(f"{name}: is set by arguments ({_ARGUMENTS[name]})")
