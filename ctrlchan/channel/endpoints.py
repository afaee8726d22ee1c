"""Chooses the endpoints of brokers that a request contains, as columns."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import Brokers, LiveLeaders, StringColumn
from ctrlchan.channel.listeners import ListenerRule
from ctrlchan.errors import IllegalStateError

__all__ = ["live_leaders", "plaintext_only", "require_endpoints"]

Int32 = npt.NDArray[np.int32]

_PLAINTEXT = 0


def live_leaders(brokers: Brokers, leaders: Int32, rule: ListenerRule) -> tuple[LiveLeaders, list[int]]:
    """Return the brokers with these ids, with host and port of their endpoint by ``rule``.

    ``leaders``: int32, any length and order; unknown ids are ignored. The list: ids of brokers that were left
    out, because they have no such endpoint.
    """
    chosen = np.flatnonzero(np.isin(brokers.ids, leaders))
    endpoints = _endpoints_of(brokers, rule)[chosen]
    found = endpoints >= 0
    left_out: list[int] = []
    if not found.all():
        left_out = brokers.ids[chosen[~found]].tolist()
        chosen, endpoints = chosen[found], endpoints[found]
    found_leaders = LiveLeaders(
        brokers.ids[chosen], _strings_at(brokers.hosts, endpoints), brokers.ports[endpoints]
    )
    return found_leaders, left_out


def require_endpoints(left_out: list[int], listener: str) -> None:
    """Raise IllegalStateError if brokers were left out (Kafka's BrokerEndPointNotAvailable)."""
    if left_out:
        raise IllegalStateError(f"broker {left_out[0]} has no endpoint for listener {listener}")


def plaintext_only(brokers: Brokers) -> Brokers:
    """Return all brokers, each with only its endpoint for the listener PLAINTEXT.

    UpdateMetadata v0 has no other endpoint. Raise IllegalStateError for a broker without one.
    """
    endpoints = _endpoints_of(brokers, ListenerRule("PLAINTEXT"))
    require_endpoints(brokers.ids[endpoints < 0].tolist(), "PLAINTEXT")
    return Brokers(
        ids=brokers.ids,
        epochs=brokers.epochs,
        racks=brokers.racks,
        endpoint_starts=np.arange(len(brokers), dtype=np.int32),
        endpoint_lengths=np.ones(len(brokers), dtype=np.int32),
        ports=brokers.ports[endpoints],
        hosts=_strings_at(brokers.hosts, endpoints),
        listeners=_strings_at(brokers.listeners, endpoints),
        # As in Kafka the listener's name decides, whatever protocol it is mapped to.
        security_protocols=np.full(len(brokers), _PLAINTEXT, dtype=np.int32),
    )


@lru_cache(maxsize=4)
def _endpoints_of(brokers: Brokers, rule: ListenerRule) -> npt.NDArray[np.intp]:
    """Return the endpoint row of each broker; -1: it has none that fits.

    Kept for the next call: a controller sends a request to each broker, and a state replaces its brokers
    whenever one of them changes.
    """
    found = np.empty(len(brokers), dtype=np.intp)
    for row in range(len(brokers)):
        first = int(brokers.endpoint_starts[row])
        numbers = range(first, first + int(brokers.endpoint_lengths[row]))
        chosen = rule.choose(
            ((brokers.listeners[i] or b"").decode(errors="replace"), int(brokers.security_protocols[i]))
            for i in numbers
        )
        found[row] = -1 if chosen is None else numbers[chosen]
    return found


def _strings_at(strings: StringColumn, rows: npt.NDArray[np.intp]) -> StringColumn:
    return StringColumn(strings.starts[rows], strings.lengths[rows], strings.data)
