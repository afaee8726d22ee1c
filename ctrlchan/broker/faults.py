"""Faults: what a test wants to go wrong in a broker. A broker without faults does not look here.

A fault hits requests of one API, all of them or those that name a topic or a partition. It answers with an
error, delays the answer, or closes the connection; as often as is wanted.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from ctrlchan.errors import ConfigError, ErrorCode

__all__ = ["FOREVER", "Fault", "FaultTarget", "Faults", "NamedBy"]

#: ``times`` of a fault that never ends by itself.
FOREVER: Final = -1

#: Returns whether a request names a topic and a partition (None: any).
NamedBy = Callable[[str, int | None], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to requests of ``api`` (Kafka's name) that name ``topic`` and ``partition``, if given.

    One of ``error`` (Kafka's code), ``seconds`` (a delay) and ``disconnect``. ``times``: how many requests it
    hits, ``FOREVER``: every one. Raises ConfigError for values that cannot be.
    """

    api: str
    topic: str | None = None
    partition: int | None = None
    error: int = 0
    seconds: float = 0.0
    disconnect: bool = False
    times: int = 1

    def __post_init__(self) -> None:
        if self.partition is not None and self.topic is None:
            raise ConfigError("a fault of a partition needs its topic")
        # An infinite time and NaN cannot be waited for.
        if not 0 <= self.seconds < inf:
            raise ConfigError(f"a delay of {self.seconds} seconds")
        if not isinstance(self.times, int) or (self.times != FOREVER and self.times < 1):
            raise ConfigError(f"a fault that hits {self.times} requests")


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

    def take(self, api: str, names: NamedBy) -> Fault | None:
        """Return the fault that hits a request, or None.

        ``names``: asked where a fault has a topic.
        """
        with self._lock:
            for place, (fault, left) in enumerate(self._faults):
                if fault.api != api or (fault.topic is not None and not names(fault.topic, fault.partition)):
                    continue
                if left == 1:
                    del self._faults[place]
                    self._changed()
                elif left > 1:
                    self._faults[place] = (fault, left - 1)
                return fault
        return None

    def _changed(self) -> None:
        self.active = bool(self._faults)
        self._on_change(frozenset(fault.api for fault, _ in self._faults))


class FaultTarget:
    """A broker to which faults can be given.

    ``api``: Kafka's name, such as "Produce". ``topic``, ``partition``: requests that name them; None: any.
    A fault of a request that names several partitions is one of all of them. ``times``: how many requests it
    hits; ``FOREVER`` (-1): every one, until ``clear_faults``. All methods raise ConfigError for values that
    cannot be.
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
    ) -> None:
        """Answer requests with an error of Kafka: its code or its name, such as "NOT_LEADER_OR_FOLLOWER"."""
        if error is None:
            raise ConfigError('fail needs an error of Kafka, such as error="NOT_LEADER_OR_FOLLOWER"')
        code = _code(error)
        self._change_faults(Fault(api=_api(api), topic=topic, partition=partition, error=code, times=times))

    def delay(
        self,
        api: str,
        seconds: float,
        topic: str | None = None,
        partition: int | None = None,
        times: int = 1,
    ) -> None:
        """Handle requests so many seconds later. Only their own connections wait."""
        self._change_faults(
            Fault(api=_api(api), topic=topic, partition=partition, seconds=seconds, times=times)
        )

    def disconnect(
        self, api: str, topic: str | None = None, partition: int | None = None, times: int = 1
    ) -> None:
        """Close the connections of requests in the place of an answer."""
        self._change_faults(
            Fault(api=_api(api), topic=topic, partition=partition, disconnect=True, times=times)
        )

    def clear_faults(self) -> None:
        """End all faults of this broker."""
        self._change_faults(None)


def _api(name: str) -> str:
    """Return the name of an API. Raises ConfigError."""
    # Imported here: a broker without faults does not need it.
    from ctrlchan.server.api_names import api_names

    if name not in api_names():
        raise ConfigError(f"Kafka has no API {name!r}")
    return name


def _code(error: int | str) -> int:
    """Return the code of an error. Raises ConfigError."""
    from kio.schema.errors import ErrorCode as KioError

    try:
        code = int((KioError[error.lower()] if isinstance(error, str) else KioError(error)).value)
    except (KeyError, ValueError):
        raise ConfigError(f"Kafka has no error {error!r}") from None
    if code == ErrorCode.NONE:
        raise ConfigError(f"{error!r} is no error")
    return code
