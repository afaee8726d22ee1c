"""Quotas that a user's own class decides on: ``client.quota.callback.class``.

``org.apache.kafka.server.quota.ClientQuotaCallback`` of Kafka 3.9, and how ``ClientQuotaManager`` asks it.
"""

from __future__ import annotations

import json
import logging
import math
import os
import select
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

from ctrlchan.broker.quota._client_quotas import ClientQuotas, QuotaType
from ctrlchan.config import table
from ctrlchan.config.classes import instance_of
from ctrlchan.rate_limit import LogRateLimit
from ctrlchan.security.principals import Principal

if TYPE_CHECKING:
    from ctrlchan._codec import Int32

__all__ = [
    "AskedQuotas",
    "ClientQuotaCallback",
    "ClusterMetadata",
    "Tags",
    "make_quota_callback",
    "number_of",
]

logger: Final = logging.getLogger("ctrlchan.broker")

_Result = TypeVar("_Result")

#: Name -> value. Clients with the same tags share a quota, and metrics have them.
Tags: TypeAlias = Mapping[str, str]
#: User and client id of a quota in ZooKeeper: None where it does not have the part, "" for its default.
_Entity: TypeAlias = tuple[str | None, str | None]

#: Seconds from one look at the flag of the class, and at the metadata, to the next.
_INTERVAL: Final = 0.1
#: Seconds until a class that has raised an exception is asked again.
_PAUSE: Final = 1.0
#: Seconds that a call of the class may go on after the end.
_LAST_CALL: Final = 10.0
_NO_TAGS: Final[Tags] = MappingProxyType({})


class ClusterMetadata(Protocol):
    """The topics of the cluster, as the controller has sent them."""

    def topic_names(self) -> list[str]:
        """Return the names of all topics, without those that are being deleted."""

    def partitions_of(self, topic: str) -> Int32:
        """Return the numbers of a topic's partitions (int32); none for an unknown topic."""

    def leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return broker id (-1: none) and epoch of a leader; None for an unknown partition."""


class ClientQuotaCallback(ABC):
    """Decides which clients share a quota, and how large it is. Any thread may call it, several at a time.

    A broker makes one without arguments, calls ``configure`` once before it serves requests, and ``close`` at
    its end. A user's own class is a subclass; ``client.quota.callback.class`` names it as
    ``package.module.Class``. docs/own-classes.md has an example.
    """

    def configure(self, configs: Mapping[str, str]) -> None:  # noqa: B027  (may be left out)
        """Take the settings of the broker, under Kafka's names. Raises ConfigError."""

    @abstractmethod
    def tags(self, quota_type: QuotaType, principal: Principal, client_id: str) -> Tags:
        """Return the tags of a client; clients with the same ones share a quota.

        It is remembered until a quota changes or ``is_reset_required``.
        """

    @abstractmethod
    def limit(self, quota_type: QuotaType, tags: Tags) -> float | None:
        """Return the quota that belongs to tags, in the unit of the type; None for none.

        Bytes a second for PRODUCE and FETCH, percent of the time of a thread for REQUEST, changed partitions
        a second for CONTROLLER_MUTATION.
        """

    def update_quota(  # noqa: B027  (may be left out)
        self, quota_type: QuotaType, user: str | None, client_id: str | None, value: float
    ) -> None:
        """Take a quota that a client of the broker has set.

        ``user``, ``client_id``: None where the quota does not have the part, "" for the default of it.
        """

    def remove_quota(  # noqa: B027  (may be left out)
        self, quota_type: QuotaType, user: str | None, client_id: str | None
    ) -> None:
        """Forget such a quota."""

    def update_cluster(self, metadata: ClusterMetadata) -> bool:
        """Take the cluster's metadata, which have changed; return whether limits have changed with them."""
        return False

    def is_reset_required(self, quota_type: QuotaType) -> bool:
        """Return whether tags or limits have changed since the last call. Asked ten times a second."""
        return False

    def close(self) -> None:  # noqa: B027  (may be left out)
        """Give threads and connections back."""


def make_quota_callback(configs: Mapping[str, str]) -> ClientQuotaCallback | None:
    """Return the class's object, configured; None if none is named. Raises ConfigError."""
    setting = table.CLIENT_QUOTA_CALLBACK_CLASS
    class_name = configs.get(setting.name, "").strip()
    if not class_name:
        return None
    callback = instance_of(setting.name, class_name, ClientQuotaCallback)  # type: ignore[type-abstract]
    callback.configure(configs)
    return callback


def number_of(quotas: ClientQuotas, asked: AskedQuotas | None, principal: Principal) -> int:
    """Return the number of a principal: for a user's own class another one than that of the same name."""
    return quotas.user_number(principal.name) if asked is None else asked.number_user(principal)


class AskedQuotas:
    """Asks the user's class for the sensors and limits of ``ClientQuotas``. It owns a thread and the class.

    ``metadata``: returns the current metadata, another object after each change.
    """

    def __init__(
        self,
        broker_id: int,
        quotas: ClientQuotas,
        callback: ClientQuotaCallback,
        metadata: Callable[[], ClusterMetadata],
    ) -> None:
        self._broker_id = broker_id
        self._quotas = quotas
        self._callback = callback
        self._metadata = metadata
        self._seen = metadata()
        self._failures = LogRateLimit()
        #: When the class is asked again after an exception; None: there was none.
        self._again: float | None = None
        #: Number of a user -> who it is. Set before a request of that user is charged.
        self._principals: dict[int, Principal] = {0: Principal.user("ANONYMOUS")}
        #: Kind of quota, name of a sensor -> its tags.
        self._tags: dict[tuple[int, str], Tags] = {}
        #: What ``update_quota`` has got.
        self._values: dict[tuple[QuotaType, _Entity], float] = {}
        #: Rises before all limits are asked for again: an answer of before is not kept.
        self._round = 0
        self._lock = threading.Lock()
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_out, False)
        os.set_blocking(self._wake_in, False)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"quota-callback-{broker_id}", daemon=True)

    def start(self) -> None:
        """Let the class decide on quotas from now on."""
        self._quotas.ask_python(self._assign, self._wake_in)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and close the class. No processor may run any more."""
        self._ended.set()
        os.write(self._wake_in, b"\0")
        self._thread.join(_LAST_CALL)
        if self._thread.is_alive():
            # It has the pipe and the class.
            logger.error(
                "broker %d: the quota callback has not returned after %.0f s", self._broker_id, _LAST_CALL
            )
            return
        self._quotas.ask_python(self._assign, -1)
        os.close(self._wake_out)
        os.close(self._wake_in)
        try:
            self._callback.close()
        except Exception:
            logger.exception("broker %d: the quota callback could not be closed", self._broker_id)

    def number_user(self, principal: Principal) -> int:
        """Return the number of a principal: two with one name have two."""
        number = self._quotas.user_number(str(principal))
        self._principals[number] = principal
        return number

    def tags_of(self, quota_type: int, name: str) -> Tags:
        """Return the tags of a sensor, for its metrics."""
        return self._tags.get((quota_type, name), _NO_TAGS)

    def set_limits(self, entities: Sequence[tuple[str | None, str | None, Sequence[float | None]]]) -> None:
        """Tell the class which quotas there are in ZooKeeper now, as ``ClientQuotas.set_limits``."""
        values = {
            (kind, (user, client)): bound
            for user, client, bounds in entities
            for kind, bound in zip(QuotaType, bounds, strict=True)
            if bound is not None
        }
        with self._lock:
            former, self._values = self._values, values
        changed = [(key, value) for key, value in values.items() if former.get(key) != value]
        removed = [key for key in former if key not in values]
        for (kind, entity), value in changed:
            self._try("update_quota", self._callback.update_quota, kind, *entity, value)
        for kind, entity in removed:
            self._try("remove_quota", self._callback.remove_quota, kind, *entity)
        if changed or removed:
            self._ask_all()

    # -- the thread

    def _run(self) -> None:
        while not self._ended.is_set():
            select.select([self._wake_out], [], [], _INTERVAL)
            try:
                while os.read(self._wake_out, 512):
                    pass
            except BlockingIOError:
                pass
            for one in self._quotas.take_unknown():
                self._assign(*one)
            self._look_for_changes()

    def _look_for_changes(self) -> None:
        # All kinds are asked, so that the class can take its flags back.
        flags = [self._try("is_reset_required", self._callback.is_reset_required, kind) for kind in QuotaType]
        is_changed = any(flags)
        metadata = self._metadata()
        if metadata is not self._seen:
            self._seen = metadata
            updated = self._try("update_cluster", self._callback.update_cluster, metadata)
            is_changed = bool(updated) or is_changed
        if self._again is not None and time.monotonic() >= self._again:
            self._again = None
            is_changed = True
        if is_changed:
            self._ask_all()

    def _ask_all(self) -> None:
        """Ask for all limits again, and for the tags of each client with its next request."""
        known = {(kind, user) for kind, user, *_ in self._quotas.sensors_now()}
        with self._lock:
            self._round += 1
            self._tags = {key: tags for key, tags in self._tags.items() if key in known}
            asked = list(self._tags.items())
        self._quotas.ask_again()
        self._quotas.set_bounds({(kind, name): self._limit(kind, tags) for (kind, name), tags in asked})

    def _assign(self, user: int, client_id: bytes, quota_type: int) -> None:
        """Ask the class for the sensor of a client, and for its limit."""
        kind = QuotaType(quota_type)
        principal, client = self._principals[user], client_id.decode(errors="replace")
        begun = -1
        while begun != self._round:
            begun = self._round
            tags = self._try("tags", self._tags_now, kind, principal, client)
            if tags is None:
                tags = _NO_TAGS
            # Clients choose parts of it, and none may have the name of another one.
            name = json.dumps(sorted(tags.items()))
            with self._lock:
                self._tags[kind, name] = tags
            self._quotas.assign(user, client_id, kind, name, self._limit(kind, tags))

    def _tags_now(self, kind: QuotaType, principal: Principal, client: str) -> Tags:
        return {str(name): str(value) for name, value in self._callback.tags(kind, principal, client).items()}

    def _limit(self, kind: int, tags: Tags) -> float | None:
        return self._try("limit", self._limit_now, QuotaType(kind), tags)

    def _limit_now(self, kind: QuotaType, tags: Tags) -> float | None:
        limit = self._callback.limit(kind, tags)
        if limit is not None and math.isnan(limit):
            raise ValueError(f"the limit of {dict(tags)} is no number")
        return None if limit is None else float(limit)

    def _try(self, what: str, call: Callable[..., _Result], *arguments: object) -> _Result | None:
        """Call the class; return None after an exception, and ask for all again a second later.

        ``what``: for the log.
        """
        try:
            return call(*arguments)
        except Exception:
            self._again = time.monotonic() + _PAUSE
            left_out = self._failures.admit(0, time.monotonic_ns())
            if left_out is not None:
                logger.exception(
                    "broker %d: the quota callback failed in %s: no limit for a second%s",
                    self._broker_id,
                    what,
                    left_out,
                )
            return None
