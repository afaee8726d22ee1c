"""What a machine needs for the parts of an event: measured by ``ctrlchan bench calibrate``, or defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from ctrlchan.errors import ConfigError

__all__ = ["DEFAULT_COSTS", "Costs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds and bytes. The time of an event is the sum of its parts.

    Of every request: ``encode_seconds`` for each partition of a body, which all brokers share;
    ``byte_seconds`` for each byte to each broker, ``cached_byte_seconds`` instead where the bodies fit into a
    cache of the processor; ``request_seconds`` for each request to each broker; ``push_seconds`` once.
    Of a failover besides: ``read_seconds`` for each state node in ZooKeeper, ``failover_partition_seconds``
    for each partition, ``failover_broker_seconds`` for each broker, ``failover_seconds`` once.
    Of other events of the controller: ``write_seconds`` for each state node, ``event_seconds`` once.
    Memory, of all processes together: ``controller_bytes``, and ``controller_partition_bytes`` for each
    partition. ``processors``: of the machine.
    """

    encode_seconds: float
    byte_seconds: float
    cached_byte_seconds: float
    request_seconds: float
    push_seconds: float
    read_seconds: float
    failover_seconds: float
    failover_partition_seconds: float
    failover_broker_seconds: float
    write_seconds: float
    event_seconds: float
    controller_bytes: float
    controller_partition_bytes: float
    processors: int

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Costs:
        """Return the costs of a decoded JSON object. Raises ConfigError, naming a wrong or missing one."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            value = given.get(field.name)
            if (
                not isinstance(value, (int, float))
                or isinstance(value, bool)
                or not 0 <= value < float("inf")
            ):
                raise ConfigError(f"{field.name}: {value!r} is no cost")
            values[field.name] = value
        if values["processors"] < 1 or not values["byte_seconds"]:
            raise ConfigError("processors and byte_seconds have to be above 0")
        return cls(**values)


#: Of an AMD EPYC with two processors, with nodes in memory; rounded.
DEFAULT_COSTS: Final = Costs(
    encode_seconds=6e-9,
    byte_seconds=1.6e-10,
    cached_byte_seconds=1.1e-10,
    request_seconds=4e-6,
    push_seconds=4e-4,
    read_seconds=2.4e-6,
    failover_seconds=0.2,
    failover_partition_seconds=1e-6,
    failover_broker_seconds=5e-4,
    write_seconds=1.2e-5,
    event_seconds=0.05,
    controller_bytes=170e6,
    controller_partition_bytes=350.0,
    processors=2,
)
