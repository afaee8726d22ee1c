"""``inter.broker.protocol.version`` (IBP) and a broker's ApiVersions -> request versions.

Kafka's controller fixes the version of a control request by its IBP and asks no broker:
``request_versions``. A controller that asks takes the highest version both sides have and that the IBP
allows: ``RequestVersions.within``.

Sources: ``org.apache.kafka.server.common.MetadataVersion`` for the names and their order,
``kafka.controller.AbstractControllerBrokerRequestBatch`` for the request versions (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from ctrlchan._codec import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from ctrlchan.errors import ConfigError, UnsupportedVersionError

__all__ = ["API_NAMES", "IBP_NAMES", "RequestVersions", "request_versions"]

# The last internal version of each release that ZooKeeper mode knows, oldest first; -1: the release has
# no internal versions and its own name is the only one.
_RELEASES: Final = (
    ("0.8.0", -1), ("0.8.1", -1), ("0.8.2", -1), ("0.9.0", -1),
    ("0.10.0", 1), ("0.10.1", 2), ("0.10.2", 0), ("0.11.0", 2),
    ("1.0", 0), ("1.1", 0),
    ("2.0", 1), ("2.1", 2), ("2.2", 1), ("2.3", 1), ("2.4", 1), ("2.5", 0), ("2.6", 0), ("2.7", 2),
    ("2.8", 1), ("3.0", 1), ("3.1", 0), ("3.2", 0), ("3.3", 3), ("3.4", 0), ("3.5", 2), ("3.6", 2),
    ("3.7", 4), ("3.8", 0), ("3.9", 0),
)  # fmt: skip

#: Every full IBP name, oldest first: ``0.8.0`` ... ``2.8-IV1`` ... ``3.9-IV0``.
IBP_NAMES: Final[tuple[str, ...]] = tuple(
    name
    for release, last in _RELEASES
    for name in ([release] if last < 0 else [f"{release}-IV{iv}" for iv in range(last + 1)])
)

_ORDER: Final = {name: order for order, name in enumerate(IBP_NAMES)}
# A release alone means its last internal version.
_ORDER_OF: Final = _ORDER | {
    release: _ORDER[release if last < 0 else f"{release}-IV{last}"] for release, last in _RELEASES
}

# For each API, the IBP that begins a version, from version 1 on; everything older sends version 0.
_LEADER_AND_ISR_FROM: Final = ("1.0-IV0", "2.2-IV0", "2.4-IV0", "2.4-IV1", "2.8-IV1", "3.2-IV0", "3.4-IV0")
_UPDATE_METADATA_FROM: Final = (
    "0.9.0", "0.10.0-IV1", "0.10.2-IV0", "1.0-IV0", "2.2-IV0", "2.4-IV1", "2.8-IV1", "3.4-IV0",
)  # fmt: skip
_STOP_REPLICA_FROM: Final = ("2.2-IV0", "2.4-IV1", "2.6-IV0", "3.4-IV0")

#: Kafka's names of the three control APIs, as ``kafka-clients`` writes them in logs and errors.
API_NAMES: Final[Mapping[int, str]] = {
    LEADER_AND_ISR: "LeaderAndIsr",
    STOP_REPLICA: "StopReplica",
    UPDATE_METADATA: "UpdateMetadata",
}


@dataclass(frozen=True, slots=True)
class RequestVersions:
    """The version of each control request that a broker is sent."""

    leader_and_isr: int
    update_metadata: int
    stop_replica: int

    def for_api(self, api_key: int) -> int:
        """The version of one of the three control APIs (KeyError for any other key)."""
        if api_key == UPDATE_METADATA:
            return self.update_metadata
        if api_key == LEADER_AND_ISR:
            return self.leader_and_isr
        if api_key == STOP_REPLICA:
            return self.stop_replica
        raise KeyError(api_key)

    def within(self, ranges: Mapping[int, tuple[int, int]]) -> RequestVersions:
        """The highest versions that a broker has too.

        ``ranges``: api key -> (lowest, highest) of the broker's ApiVersions response; these versions are
        the cap. Raises UnsupportedVersionError when an API has no common version, or is missing.
        """
        return RequestVersions(
            leader_and_isr=self.common(LEADER_AND_ISR, ranges),
            update_metadata=self.common(UPDATE_METADATA, ranges),
            stop_replica=self.common(STOP_REPLICA, ranges),
        )

    def common(self, api_key: int, ranges: Mapping[int, tuple[int, int]]) -> int:
        """``within`` for one API."""
        cap = self.for_api(api_key)
        lowest, highest = ranges.get(api_key, (0, -1))
        version = min(cap, highest)
        if version < max(lowest, 0):
            theirs = f"has {lowest} to {highest}" if highest >= 0 else "does not have this API"
            raise UnsupportedVersionError(
                f"no common version: 0 to {cap} can be sent, the broker {theirs}",
                api=API_NAMES[api_key],
                version=cap,
            )
        return version


def request_versions(ibp: str) -> RequestVersions:
    """The request versions Kafka's controller sends at this ``inter.broker.protocol.version``.

    ``ibp`` is a full name (``2.8-IV1``), a release (``2.8``: its last internal version) or a longer
    version, of which Kafka reads the first three numbers below 1.0 (``0.10.2.1`` is ``0.10.2``) and the
    first two from there on (``2.8.2`` is ``2.8``). Raises ConfigError for anything else.
    """
    order = _order(ibp)
    return RequestVersions(
        leader_and_isr=_version_at(order, _LEADER_AND_ISR_FROM),
        update_metadata=_version_at(order, _UPDATE_METADATA_FROM),
        stop_replica=_version_at(order, _STOP_REPLICA_FROM),
    )


def _version_at(order: int, begins: tuple[str, ...]) -> int:
    return sum(order >= _ORDER[name] for name in begins)


def _order(ibp: str) -> int:
    numbers = ibp.split(".")
    counted = 3 if ibp.startswith("0.") else 2
    order = _ORDER_OF.get(".".join(numbers[:counted]))
    if order is None:
        nearest = get_close_matches(ibp, _ORDER_OF, n=3)
        hint = f"the nearest are {', '.join(nearest)}" if nearest else "the names go from 0.8.0 to 3.9-IV0"
        raise ConfigError(f"inter_broker_protocol: {ibp!r} is not a Kafka version of ZooKeeper mode; {hint}")
    return order
