"""Facts of Kafka's protocol, stated once: API keys, sentinels, security protocols, request versions.

Kafka's controller fixes the version of a control request by its ``inter.broker.protocol.version`` (IBP) and
asks no broker: ``request_versions``. A controller that asks takes the highest version that both sides have
and that the IBP allows: ``RequestVersions.within``.

Sources: ``org.apache.kafka.server.common.MetadataVersion`` for the names and their order,
``kafka.controller.AbstractControllerBrokerRequestBatch`` for the request versions (Kafka 3.9).

Importable without NumPy: the errors, which the codec defines, are imported where they are raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

__all__ = [
    "API_NAMES",
    "DELETE_PER_PARTITION_SINCE",
    "EPOCH_DURING_DELETE",
    "IBP_NAMES",
    "LEADER_AND_ISR",
    "LEADER_AND_ISR_IDS_SINCE",
    "LEADER_DURING_DELETE",
    "LISTENER_NAMES_SINCE",
    "NO_BROKER_EPOCH",
    "NO_EPOCH",
    "NO_LEADER",
    "RECOVERY_STATE_SINCE",
    "SECURITY_PROTOCOLS",
    "STOP_REPLICA",
    "UPDATE_METADATA",
    "UPDATE_METADATA_TOPICS_SINCE",
    "RequestVersions",
    "SecurityProtocol",
    "ibp_at_least",
    "request_versions",
]

# The keys of the three control APIs (``_codec`` has the same, a test compares them).
LEADER_AND_ISR: Final = 4
STOP_REPLICA: Final = 5
UPDATE_METADATA: Final = 6

#: ``leader`` of a partition that has none (``LeaderAndIsr.NO_LEADER``).
NO_LEADER: Final = -1
#: ``leader`` of a partition that is being deleted (``LeaderAndIsr.LEADER_DURING_DELETE``).
LEADER_DURING_DELETE: Final = -2
#: The leader epoch of a partition that never had a leader (``LeaderAndIsr.NO_EPOCH``).
NO_EPOCH: Final = -1
#: The leader epoch while the topic is queued for deletion (``LeaderAndIsr.EPOCH_DURING_DELETE``).
EPOCH_DURING_DELETE: Final = -2
#: A broker epoch that is not known (``AbstractControlRequest.UNKNOWN_BROKER_EPOCH``).
NO_BROKER_EPOCH: Final = -1

#: StopReplica: the first version that says of each partition, and not once for all, whether to delete it.
DELETE_PER_PARTITION_SINCE: Final = 3
#: LeaderAndIsr: the first version whose response names topics by id.
LEADER_AND_ISR_IDS_SINCE: Final = 5
#: LeaderAndIsr: the first version with the leader recovery state.
RECOVERY_STATE_SINCE: Final = 6
#: UpdateMetadata: the first version with listener names.
LISTENER_NAMES_SINCE: Final = 3
#: UpdateMetadata: the first version that groups partitions by topic.
UPDATE_METADATA_TOPICS_SINCE: Final = 5


class SecurityProtocol(IntEnum):
    """The security protocol of an endpoint; the value is the int16 of the wire format.

    Source: ``org.apache.kafka.common.security.auth.SecurityProtocol``.
    """

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)

    @classmethod
    def of(cls, name: str) -> SecurityProtocol:
        """Return the protocol of this name, in upper or lower case. Raises InvalidStateError."""
        from ctrlchan.errors import InvalidStateError

        try:
            return cls[name.strip().upper()]
        except KeyError:
            known = ", ".join(protocol.name for protocol in cls)
            raise InvalidStateError(f"{name!r} is no security protocol (one of {known})") from None


#: The int16 of each security protocol by its name.
SECURITY_PROTOCOLS: Final = {protocol.name: protocol.value for protocol in SecurityProtocol}

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
            from ctrlchan.errors import UnsupportedVersionError

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


def ibp_at_least(ibp: str, least: str) -> bool:
    """Return whether ``ibp`` is the version ``least`` or a later one. Raises ConfigError for other texts."""
    return _order(ibp) >= _order(least)


def _version_at(order: int, begins: tuple[str, ...]) -> int:
    return sum(order >= _ORDER[name] for name in begins)


def _order(ibp: str) -> int:
    numbers = ibp.split(".")
    counted = 3 if ibp.startswith("0.") else 2
    order = _ORDER_OF.get(".".join(numbers[:counted]))
    if order is None:
        from difflib import get_close_matches

        from ctrlchan.errors import ConfigError

        nearest = get_close_matches(ibp, _ORDER_OF, n=3)
        hint = f"the nearest are {', '.join(nearest)}" if nearest else "the names go from 0.8.0 to 3.9-IV0"
        raise ConfigError(f"inter_broker_protocol: {ibp!r} is not a Kafka version of ZooKeeper mode; {hint}")
    return order
