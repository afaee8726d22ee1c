"""DescribeConfigs (32): the configs of topics and of this broker.

``kafka.server.ConfigHelper.handleDescribeConfigsRequest`` of Kafka 3.9 in ZooKeeper mode. Topics have Kafka's
defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from ctrlchan.authorizer.acls import Operation
from ctrlchan.config import table
from ctrlchan.config.described import ConfigSource, DescribedConfig, broker_configs, broker_defaults
from ctrlchan.config.descriptions import description_of
from ctrlchan.config.dynamic import usable
from ctrlchan.config.setting import ConfigType
from ctrlchan.server.access import DESCRIBE_CONFIGS_CLUSTER, DESCRIBE_CONFIGS_TOPIC, Access, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError
from ctrlchan.server.log_levels import described_levels
from ctrlchan.state import Endpoint
from ctrlchan.text import why_unsendable
from ctrlchan.topic_names import why_invalid

__all__ = ["API", "ConfigCore", "describe"]

# ConfigResource.Type
_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS = 2, 4, 8, 16
_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")


class ConfigCore(Protocol):
    """What the API needs of a broker, and of a controller."""

    @property
    def id(self) -> int: ...
    @property
    def endpoints(self) -> tuple[Endpoint, ...]: ...
    @property
    def rack(self) -> str | None: ...
    @property
    def configs(self) -> Mapping[str, str]:
        """Static configs of the broker, by name."""

    def topic_configs(self, name: str) -> Iterable[DescribedConfig] | None:
        """Return the configs of a topic, or None if there is no such topic."""

    def dynamic_configs(self, broker_id: int | None) -> Mapping[str, str]:
        """Return the dynamic configs of this broker, or those of all brokers (None)."""


class _RefusedError(Exception):
    """A resource cannot be described."""

    def __init__(self, error: KioError, reason: str) -> None:
        super().__init__(reason)
        self.error = error


_TOPIC_DENIED = _RefusedError(KioError.topic_authorization_failed, "Topic authorization failed.")
_CLUSTER_DENIED = _RefusedError(KioError.cluster_authorization_failed, "Cluster authorization failed.")


def _is_allowed(access: Access, resource: Any) -> bool:
    """Return whether the configs of a resource may be described."""
    if resource.resource_type == _TOPIC:
        return access.allows(*DESCRIBE_CONFIGS_TOPIC, resource.resource_name)
    return access.allows_cluster(Operation.DESCRIBE_CONFIGS)


def describe(core: ConfigCore, request: Request) -> Reply:
    """Return the answer to a request. Raises DecodeError."""
    messages = ClientMessages("describe_configs", request.version)
    body = messages.decode(request)
    with_synonyms = getattr(body, "include_synonyms", False)
    with_documentation = getattr(body, "include_documentation", False)
    unknown = [
        resource.resource_type
        for resource in body.resources
        if resource.resource_type not in (_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS)
    ]
    denied = [] if unknown else [one for one in body.resources if not _is_allowed(request.access, one)]
    results = []
    # Denied resources last, as Kafka.
    for resource in [*(one for one in body.resources if one not in denied), *denied]:
        configs: Iterable[DescribedConfig] = ()
        # Without an error Kafka sends an empty message, not null.
        error, text = KioError.none, ""
        try:
            if unknown:
                # Kafka cannot authorize such a request, and refuses every resource of it.
                raise _RefusedError(KioError.invalid_request, f"resource type {unknown[0]} is not supported")
            if resource in denied:
                is_topic = resource.resource_type == _TOPIC
                raise _TOPIC_DENIED if is_topic else _CLUSTER_DENIED
            configs = tuple(_configs(core, resource.resource_type, resource.resource_name))
            _check_sendable(configs)
        except _RefusedError as refused:
            configs, error, text = (), refused.error, str(refused)
        results.append(
            messages.part(
                "DescribeConfigsResult",
                error_code=error,
                error_message=text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=tuple(
                    _entry(messages, config, with_synonyms, with_documentation)
                    for config in configs
                    if not resource.configuration_keys or config.name in resource.configuration_keys
                ),
            )
        )
    return Reply(messages.response(results=tuple(results)))


API = Api(
    key=32,
    name="DescribeConfigs",
    lowest=0,
    highest=4,
    flexible_from=4,
    handle=describe,
    needs=asks(DESCRIBE_CONFIGS_TOPIC, DESCRIBE_CONFIGS_CLUSTER),
)


def _configs(core: ConfigCore, kind: int, name: str) -> Iterable[DescribedConfig]:
    """Return the configs of one resource. Raises _RefusedError."""
    if kind == _TOPIC:
        reason = why_invalid(name)
        if reason is not None:
            raise _RefusedError(KioError.invalid_topic_exception, f"Topic name is invalid: {reason}")
        configs = core.topic_configs(name)
        if configs is None:
            raise _RefusedError(KioError.unknown_topic_or_partition, "")
        return configs
    if kind == _BROKER:
        if not name:
            return broker_defaults(_dynamic(core, None))
        _check_is_this_broker(core, name)
        return broker_configs(_static_configs(core), _dynamic(core, core.id), _dynamic(core, None))
    if kind == _BROKER_LOGGER:
        if not name:
            raise _RefusedError(KioError.invalid_request, "Broker id must not be empty")
        _check_is_this_broker(core, name)
        return described_levels()
    raise _RefusedError(KioError.invalid_request, "Client metrics are only supported in KRaft mode")


def _dynamic(core: ConfigCore, broker_id: int | None) -> Mapping[str, str]:
    """Return the dynamic configs that count, of this broker or of all brokers (None)."""
    return usable(core.dynamic_configs(broker_id), per_broker=broker_id is not None)[0]


def _check_sendable(configs: Iterable[DescribedConfig]) -> None:
    """Raise _RefusedError for a config from ZooKeeper that no response can carry."""
    for config in configs:
        for value in (config.value, *(value for _, value, _ in config.synonyms)):
            if value is not None and (why := why_unsendable(value)) is not None:
                raise _RefusedError(KioError.invalid_config, f"The value of {config.name} {why}")


def _check_is_this_broker(core: ConfigCore, name: str) -> None:
    """Raise _RefusedError when `name` is not this broker's id."""
    if _INTEGER.fullmatch(name) is None:
        raise _RefusedError(KioError.invalid_request, f"Broker id must be an integer, but it is: {name}")
    if int(name) != core.id:
        raise _RefusedError(
            KioError.invalid_request, f"Unexpected broker id, expected {core.id}, but received {name}"
        )


def _static_configs(core: ConfigCore) -> dict[str, str]:
    listeners = ",".join(map(str, core.endpoints))
    protocols = ",".join(f"{one.listener}:{one.security_protocol.name}" for one in core.endpoints)
    configs = {
        table.ADVERTISED_LISTENERS.name: listeners,
        # A topic exists when a controller makes it.
        table.AUTO_CREATE_TOPICS_ENABLE.name: "false",
        table.BROKER_ID.name: str(core.id),
        table.LISTENER_SECURITY_PROTOCOL_MAP.name: protocols,
        table.LISTENERS.name: listeners,
        table.NODE_ID.name: str(core.id),
        **core.configs,
    }
    if core.rack is not None:
        configs[table.BROKER_RACK.name] = core.rack
    return configs


def _entry(
    messages: ClientMessages, config: DescribedConfig, with_synonyms: bool, with_documentation: bool
) -> Any:
    is_level = config.source is ConfigSource.DYNAMIC_BROKER_LOGGER
    # A name that the resource does not know may be one of another kind.
    is_described = with_documentation and config.type is not ConfigType.UNKNOWN
    fields: dict[str, Any] = {
        "name": config.name,
        "value": config.value,
        "read_only": config.read_only,
        "is_default": False,  # v0; Kafka sets it for no config
        "config_source": config.source,
        "is_sensitive": config.is_sensitive,
        "config_type": config.type,
        # Kafka's loggers have an empty text, whoever asks.
        "documentation": "" if is_level else description_of(config.name) if is_described else None,
        "synonyms": (),
    }
    if with_synonyms:
        fields["synonyms"] = tuple(
            messages.part("DescribeConfigsSynonym", name=name, value=value, source=source)
            for name, value, source in config.synonyms
        )
    return messages.part("DescribeConfigsResourceResult", **fields)
