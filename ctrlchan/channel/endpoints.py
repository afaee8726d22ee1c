"""Chooses the endpoints of brokers that a request contains, as columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import Brokers, LiveLeaders, StringColumn
from ctrlchan.errors import IllegalStateError

__all__ = ["live_leaders", "plaintext_only"]

Int32 = npt.NDArray[np.int32]

_PLAINTEXT = 0


def live_leaders(brokers: Brokers, leaders: Int32, listener: str) -> LiveLeaders:
    """Return the brokers with these ids, with host and port of their endpoint for ``listener``.

    ``leaders``: int32, any length and order; unknown ids are ignored. Raise IllegalStateError for a broker
    without such an endpoint (Kafka's BrokerEndPointNotAvailable).
    """
    chosen = np.flatnonzero(np.isin(brokers.ids, leaders))
    endpoints = _endpoints_of(brokers, chosen, listener)
    return LiveLeaders(brokers.ids[chosen], _strings_at(brokers.hosts, endpoints), brokers.ports[endpoints])


def plaintext_only(brokers: Brokers) -> Brokers:
    """Return all brokers, each with only its endpoint for the listener PLAINTEXT.

    UpdateMetadata v0 has no other endpoint. Raise IllegalStateError for a broker without one.
    """
    endpoints = _endpoints_of(brokers, np.arange(len(brokers)), "PLAINTEXT")
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


def _endpoints_of(brokers: Brokers, rows: npt.NDArray[np.intp], listener: str) -> npt.NDArray[np.intp]:
    """Return the endpoint row of each of these brokers for ``listener``."""
    wanted = listener.encode()
    found = np.empty(len(rows), dtype=np.intp)
    for position, row in enumerate(rows.tolist()):
        first = int(brokers.endpoint_starts[row])
        for endpoint in range(first, first + int(brokers.endpoint_lengths[row])):
            if brokers.listeners[endpoint] == wanted:
                found[position] = endpoint
                break
        else:
            raise IllegalStateError(f"broker {brokers.ids[row]} has no endpoint for listener {listener}")
    return found


def _strings_at(strings: StringColumn, rows: npt.NDArray[np.intp]) -> StringColumn:
    return StringColumn(strings.starts[rows], strings.lengths[rows], strings.data)
