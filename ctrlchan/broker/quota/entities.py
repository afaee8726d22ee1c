"""QuotaEntities: the quotas in ZooKeeper, parsed and given to the parts of a broker that apply them.

A value that cannot be parsed, and a node that cannot be read, change nothing: the entity keeps the quota that
it had, and an error names the node. Kafka's handlers of changes: ``QuotaConfigHandler``, ``IpConfigHandler``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from types import MappingProxyType
from typing import Final, TypeAlias

from ctrlchan.broker.quota._client_quotas import ClientQuotas
from ctrlchan.broker.quota.callback import AskedQuotas
from ctrlchan.server.client_quotas import LARGEST, USER_KEYS, keys_of
from ctrlchan.text import quoted
from ctrlchan.zookeeper.quotas import QuotaEntity, node_of

__all__ = ["IpRates", "QuotaEntities"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

#: Address as ZooKeeper has it, None for the default -> connections in a second.
IpRates: TypeAlias = Mapping[str | None, int]
_Values: TypeAlias = Mapping[str, float]
_ParsedValues: TypeAlias = dict[str, float]

_IP_KEY: Final = "connection_creation_rate"
_NO_VALUES: Final[_Values] = MappingProxyType({})


class QuotaEntities:
    """The quotas of one broker. One thread changes them.

    ``set_ip_rates``: is given the rates of addresses when they have changed.
    """

    def __init__(
        self, broker_id: int, quotas: ClientQuotas | AskedQuotas, set_ip_rates: Callable[[IpRates], object]
    ) -> None:
        self._broker_id = broker_id
        self._quotas = quotas
        self._set_ip_rates = set_ip_rates
        self._values: dict[QuotaEntity, _Values] = {}

    def replace_all(
        self, configs: Mapping[QuotaEntity, Mapping[str, str]], malformed: Mapping[QuotaEntity, str]
    ) -> None:
        """Take the configurations of all entities. ``malformed``: why those of an entity cannot be read."""
        former = self._values
        self._values = {entity: self._parsed(entity, config, former) for entity, config in configs.items()}
        for entity, reason in malformed.items():
            self._keep(entity, reason)
            if entity in former:
                self._values[entity] = former[entity]
        self._give()

    def replace(
        self, configs: Mapping[QuotaEntity, Mapping[str, str]], malformed: Mapping[QuotaEntity, str]
    ) -> None:
        """Take the configurations of some entities in the same way."""
        for entity, config in configs.items():
            self._values[entity] = self._parsed(entity, config, self._values)
        for entity, reason in malformed.items():
            self._keep(entity, reason)
        self._give()

    def _give(self) -> None:
        self._values = {entity: values for entity, values in self._values.items() if values}
        limits: list[tuple[str | None, str | None, Sequence[float | None]]] = []
        rates: dict[str | None, int] = {}
        for entity, values in self._values.items():
            names = dict(entity)
            if "ip" in names:
                rates[names["ip"]] = int(values[_IP_KEY])
                continue
            bounds = [values.get(key) for key in USER_KEYS]
            limits.append((_part(names, "user"), _part(names, "client-id"), bounds))
        self._quotas.set_limits(limits)
        self._set_ip_rates(rates)

    def _parsed(
        self, entity: QuotaEntity, config: Mapping[str, str], former: Mapping[QuotaEntity, _Values]
    ) -> _Values:
        """Return the quotas of an entity. What else it has, such as SCRAM credentials, is not looked at."""
        values: _ParsedValues = {}
        kept = former.get(entity, _NO_VALUES)
        for key, kind in keys_of(entity).items():
            if key not in config:
                continue
            try:
                values[key] = _number(kind, config[key])
            except ValueError:
                self._keep(entity, f"{node_of(entity)}: {key} is {quoted(config[key])}, which is no quota")
                if key in kept:
                    values[key] = kept[key]
        return values

    def _keep(self, entity: QuotaEntity, reason: str) -> None:
        stays = "the former quota stays" if entity in self._values else "there is no quota"
        _LOG.error("broker %d: %s: %s", self._broker_id, reason, stays)


def _part(names: Mapping[str, str | None], kind: str) -> str | None:
    """Return a name as ClientQuotas has it: None for no such part, "" for the default."""
    return (names[kind] or "") if kind in names else None


def _number(kind: str, text: str) -> float:
    """Return the value of a quota of this type. Raises ValueError."""
    if kind == "DOUBLE":
        value = float(text)
        if not isfinite(value):
            raise ValueError
        return value
    number = int(text)
    if not -LARGEST["LONG"] - 1 <= number <= LARGEST[kind]:
        raise ValueError
    return number
