"""Faults: what a test wants to go wrong in a broker. A broker without faults does not look here.

A fault hits requests of one API, all of them or those that name a topic or a partition. It answers with an
error, delays the request, or closes the connection; as often as is wanted. With ``after`` the request is
handled first, and the fault hits its answer: the client does not know what has happened.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Final

from ctrlchan.errors import ConfigError, ErrorCode

__all__ = ["FOREVER", "Fault", "FaultTarget", "Faults", "NamedBy"]

#: ``times`` of a fault that never ends by itself.
FOREVER: Final = -1

#: Processors answer them, and handler threads cannot.
_WITHOUT_EFFECT: Final = frozenset({"Fetch"})

#: Returns whether a request names a topic and a partition. None as partition stands for any.
NamedBy = Callable[[str, int | None], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to requests of ``api`` (Kafka's name) that name ``topic`` and ``partition``, if given.

    One of ``error`` (Kafka's code), ``seconds`` (a delay) and ``disconnect``. ``times``: how many requests it
    hits, ``FOREVER``: every one. ``after``: the request has its effect, and the fault hits the answer.
    Raises ConfigError for values that cannot be.
    """

    api: str
    topic: str | None = None
    partition: int | None = None
    error: int = 0
    seconds: float = 0.0
    disconnect: bool = False
    times: int = 1
    after: bool = False

    def __post_init__(self) -> None:
        if self.partition is not None and self.topic is None:
            raise ConfigError("a fault of a partition needs its topic")
        # An infinite time and NaN cannot be waited for.
        if not 0 <= self.seconds < inf:
            raise ConfigError(f"a delay of {self.seconds} seconds")
        if not isinstance(self.times, int) or (self.times != FOREVER and self.times < 1):
            raise ConfigError(f"a fault that hits {self.times} requests")
        if self.after and self.api in _WITHOUT_EFFECT:
            raise ConfigError(f"{self.api} has no effect before its answer")


class Faults:
    """The faults of one broker. All methods are thread-safe.

    ``on_change``: called with the APIs that have faults when these may have changed.
    """

    def __init__(self, on_change: Callable[[frozenset[str]], object] = lambda _: None) -> None:
        self._lock = threading.Lock()
        self._faults: list[tuple[Fault, int]] = []
        self._on_change = on_change
        #: Whether there is any; read without the lock.
        self.active = False

    def add(self, fault: Fault) -> None:
        """Let a fault hit requests from now on, after those that were added before."""
        with self._lock:
            self._faults.append((fault, fault.times))
            self._changed()

    def clear(self) -> None:
        """End all faults."""
        with self._lock:
            self._faults.clear()
            self._changed()

    def take(self, api: str, names: NamedBy, *, after: bool | None = None) -> Fault | None:
        """Return the fault that hits a request, or None.

        ``names``: asked where a fault has a topic. ``after``: what the fault must have there; None: anything.
        """
        with self._lock:
            for place, (fault, left) in enumerate(self._faults):
                if not _hits(fault, api, names) or after not in (None, fault.after):
                    continue
                if left == 1:
                    del self._faults[place]
                    self._changed()
                elif left > 1:
                    self._faults[place] = (fault, left - 1)
                return fault
        return None

    def hits_answer(self, api: str, names: NamedBy) -> bool:
        """Return whether a fault with ``after`` hits a request, and do not take it."""
        with self._lock:
            return any(fault.after and _hits(fault, api, names) for fault, _ in self._faults)

    def _changed(self) -> None:
        self.active = bool(self._faults)
        self._on_change(frozenset(fault.api for fault, _ in self._faults))


def _hits(fault: Fault, api: str, names: NamedBy) -> bool:
    return fault.api == api and (fault.topic is None or names(fault.topic, fault.partition))


class FaultTarget:
    """A broker to which faults can be given.

    - ``api``: Kafka's name, such as "Produce".
    - ``topic``, ``partition``: the fault hits requests that name them; None stands for any. A fault of a
      request that names several partitions is one of all of them.
    - ``times``: how many requests it hits; ``FOREVER`` (-1) is every one, until ``clear_faults``.
    - ``after``: requests have their effect first, and the fault hits their answers; not of Fetch.

    All methods raise ConfigError for values that cannot be.
    """

    @abstractmethod
    def _change_faults(self, fault: Fault | None) -> None:
        """Add a fault; None ends all faults."""

    def fail(
        self,
        api: str,
        topic: str | None = None,
        partition: int | None = None,
        error: int | str | None = None,
        times: int = 1,
        after: bool = False,
    ) -> None:
        """Answer requests with an error of Kafka: its code or its name, such as "NOT_LEADER_OR_FOLLOWER"."""
        if error is None:
            raise ConfigError('fail needs an error of Kafka, such as error="NOT_LEADER_OR_FOLLOWER"')
        code = _code(error)
        self._change_faults(
            Fault(api=_api(api), topic=topic, partition=partition, error=code, times=times, after=after)
        )

    def delay(
        self,
        api: str,
        seconds: float,
        topic: str | None = None,
        partition: int | None = None,
        times: int = 1,
        after: bool = False,
    ) -> None:
        """Handle requests so many seconds later. Only their own connections wait."""
        self._change_faults(
            Fault(api=_api(api), topic=topic, partition=partition, seconds=seconds, times=times, after=after)
        )

    def disconnect(
        self,
        api: str,
        topic: str | None = None,
        partition: int | None = None,
        times: int = 1,
        after: bool = False,
    ) -> None:
        """Close the connections of requests in the place of an answer."""
        self._change_faults(
            Fault(api=_api(api), topic=topic, partition=partition, disconnect=True, times=times, after=after)
        )

    def clear_faults(self) -> None:
        """End all faults of this broker."""
        self._change_faults(None)


def _api(name: str) -> str:
    """Return the name of an API. Raises ConfigError."""
    # Imported here: a broker without faults does not need it.
    from ctrlchan.server.api_names import api_names

    if name not in api_names():
        raise ConfigError(f"Kafka has no API {name!r}{_nearest(name, api_names())}")
    return name


def _code(error: int | str) -> int:
    """Return the code of an error. Raises ConfigError."""
    from kio.schema.errors import ErrorCode as KioError

    try:
        code = int((KioError[error.lower()] if isinstance(error, str) else KioError(error)).value)
    except (KeyError, ValueError):
        nearest = _nearest(str(error), [one.name.upper() for one in KioError])
        raise ConfigError(f"Kafka has no error {error!r}{nearest}") from None
    if code == ErrorCode.NONE:
        raise ConfigError(f"{error!r} is no error")
    return code


def _nearest(name: str, names: Iterable[str]) -> str:
    """Return the end of a message: the nearest of the names, if one is like the given name."""
    from difflib import get_close_matches

    lower = {one.lower(): one for one in names}
    found = get_close_matches(name.lower(), lower, n=1)
    return f": is {lower[found[0]]} meant?" if found else ""
