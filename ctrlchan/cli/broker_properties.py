"""A broker's ``server.properties`` as settings of an embedded broker."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, Final, NamedTuple

from ctrlchan.broker.config.listener_configs import control_plane_problem
from ctrlchan.broker.log.manager import read_identity
from ctrlchan.config import table
from ctrlchan.config.names import names_own_classes, names_without_effect
from ctrlchan.config.properties_file import PropertiesFile
from ctrlchan.errors import ConfigError
from ctrlchan.launch.broker_ids import generate_broker_id
from ctrlchan.server.listener_settings import listener_settings
from ctrlchan.state import Endpoint
from ctrlchan.zookeeper.client import check_servers

__all__ = ["BrokerProperties", "read_broker_properties"]

#: What a file has that are arguments of BrokerConfig, or of its registration.
_ARGUMENTS: Final = {
    row.name
    for row in (
        table.BROKER_ID,
        table.BROKER_RACK,
        table.LOG_DIR,
        table.LOG_DIRS,
        table.NODE_ID,
        table.ZOOKEEPER_CONNECT,
    )
}


class BrokerProperties(NamedTuple):
    """``settings``: arguments for BrokerConfig. ``session_timeout``: of ZooKeeper, in seconds.
    ``without_effect``: keys that this broker does not act on."""

    settings: dict[str, Any]
    zookeeper: str | None
    session_timeout: float | None
    without_effect: list[str]


def read_broker_properties(
    source: str | PathLike[str], broker_id: int | None = None, log_dir: str | None = None
) -> BrokerProperties:
    """Return the settings in a file; the given id and folder count before those of the file.

    Without an id that of the log directories is taken, or else one is generated in ZooKeeper. Raises
    ConfigError with file, line and key.
    """
    file = PropertiesFile.read(source)
    listeners = listener_settings(file, table.LISTENERS.default)
    given: tuple[Endpoint, ...] = listeners["listeners"]
    advertised: tuple[Endpoint, ...] = listeners.get("advertised_listeners", ())
    listener = _listener_of_brokers(file, given)
    _check_control_plane(file, [*(advertised or given)], listener)
    log_dirs = [log_dir] if log_dir is not None else _log_dirs(file)
    settings: dict[str, Any] = {
        "host": listener.host,
        "port": listener.port,
        "listener": listener.listener,
        "more_listeners": [(one.listener, one.host, one.port) for one in given if one != listener],
        "advertised": {one.listener: (one.host, one.port) for one in advertised},
        "rack": file.value(table.BROKER_RACK.name),
        "log_dirs": log_dirs,
    }
    zookeeper = file.value(table.ZOOKEEPER_CONNECT.name)
    if zookeeper is not None:
        check_servers(zookeeper)
    # A class of the user's own may have any settings.
    has_own_classes = names_own_classes({name: entry.value for name, entry in file.entries.items()})
    without_effect = [] if has_own_classes else names_without_effect(file.entries)
    settings["configs"] = {
        key: value
        for key in file.entries
        if key not in without_effect and key not in _ARGUMENTS and (value := file.value(key)) is not None
    }
    if broker_id is None:
        broker_id = _broker_id(file, log_dirs)
    if broker_id is None:
        if zookeeper is None:
            raise ConfigError(f"{file.name}: {table.BROKER_ID} is not set, and no log directory has one")
        broker_id = generate_broker_id(zookeeper, settings["configs"], _highest_reserved(file))
    settings["id"] = broker_id
    return BrokerProperties(settings, zookeeper, _session_timeout(file), without_effect)


def _session_timeout(file: PropertiesFile) -> float | None:
    milliseconds = file.read_setting(table.ZOOKEEPER_SESSION_TIMEOUT_MS)
    return None if milliseconds is None else milliseconds / 1000


def _listener_of_brokers(file: PropertiesFile, given: Sequence[Endpoint]) -> Endpoint:
    """Return the listener that other brokers and the controller connect to. Raises ConfigError.

    A file with one listener need not name it, other than for Kafka.
    """
    wanted = file.inter_broker_listener()
    for endpoint in given:
        if endpoint.listener == wanted:
            return endpoint
    if len(given) > 1 or file.value(table.INTER_BROKER_LISTENER_NAME.name) is not None:
        file.refuse(table.INTER_BROKER_LISTENER_NAME.name, f"{wanted!r} is none of the listeners")
    return given[0]


def _check_control_plane(file: PropertiesFile, known: Sequence[Endpoint], of_brokers: Endpoint) -> None:
    """Raise ConfigError for a listener of the controller that is none, or that of brokers (KIP-291)."""
    key = table.CONTROL_PLANE_LISTENER_NAME.name
    name = file.value(key)
    if name is None:
        return
    if why := control_plane_problem(name, [one.listener for one in known], of_brokers.listener):
        file.refuse(key, why)


def _log_dirs(file: PropertiesFile) -> list[str]:
    text = file.value(table.LOG_DIRS.name) or file.value(table.LOG_DIR.name) or table.LOG_DIR.value
    return [part for part in table.LOG_DIRS.parse(text) if part]


def _highest_reserved(file: PropertiesFile) -> int:
    """Return the highest id that people choose; generated ones are above it."""
    reserved = file.read_setting(table.RESERVED_BROKER_MAX_ID)
    return table.RESERVED_BROKER_MAX_ID.value if reserved is None else reserved


def _broker_id(file: PropertiesFile, log_dirs: list[str]) -> int | None:
    """Return the id of the file, or that of the log directories, or None if one is to be generated."""
    broker_id = file.read_setting(table.BROKER_ID)
    node_id = file.read_setting(table.NODE_ID)
    if broker_id is None:
        broker_id = node_id
    elif node_id is not None and node_id != broker_id:
        file.refuse(table.NODE_ID.name, f"must be the same as {table.BROKER_ID}, which is {broker_id}")
    generates = file.read_setting(table.BROKER_ID_GENERATION_ENABLE) is not False
    if broker_id is not None and broker_id >= 0:
        most = _highest_reserved(file)
        if generates and broker_id > most:
            file.refuse(
                table.BROKER_ID.name,
                f"must be greater than or equal to -1 and not greater than {table.RESERVED_BROKER_MAX_ID} "
                f"({most}), unless {table.BROKER_ID_GENERATION_ENABLE} is false",
            )
        return broker_id
    identity = read_identity(log_dirs)
    if identity is not None and identity.broker_id is not None:
        return identity.broker_id
    if not generates:
        raise ConfigError(f"{file.name}: {table.BROKER_ID} is not set, and no log directory has one")
    return None
