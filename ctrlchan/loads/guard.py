"""The guard: which cluster is loaded, and topics and groups of this run alone."""

from __future__ import annotations

import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ctrlchan.errors import ConfigError, CtrlchanError

__all__ = ["PREFIX", "OwnNames", "Target", "check_cluster", "find_cluster", "find_runs", "new_run"]

PREFIX: Final = "ctrlchan-bench-"
#: A topic or group of a run, and the run's name.
_RUN: Final = re.compile(rf"({PREFIX}[0-9a-f]{{8}})-")
#: Seconds for a request to the cluster.
_SECONDS: Final = 30.0
_PAUSE: Final = 0.05
#: Topics that are deleted by one request.
_AT_ONCE: Final = 500
#: Errors of a partition whose leader has moved since the client asked, which asks once then.
_LEADER_MOVES: Final = frozenset(
    {
        "FENCED_LEADER_EPOCH",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "OFFSET_NOT_AVAILABLE",
        "UNKNOWN_LEADER_EPOCH",
    }
)
#: Settings of producers and consumers, which a client for administration warns of.
_NOT_OF_ADMINS: Final = frozenset(
    {
        "acks",
        "linger.ms",
        "batch.size",
        "compression.type",
        "enable.idempotence",
        "queue.buffering.max.messages",
    }
)


class Target(NamedTuple):
    """A cluster as a client sees it."""

    cluster_id: str
    brokers: dict[int, str]
    topics: int


def new_run() -> str:
    """Return a name for one run, which no other run has."""
    return PREFIX + secrets.token_hex(4)


def admin_client(client: Mapping[str, Any]) -> Any:
    """Return a client for administration, which logs nothing. Raises ConfigError for a wrong setting."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    wanted = {name: value for name, value in client.items() if name not in _NOT_OF_ADMINS}
    try:
        return AdminClient({"log_level": 0, **wanted})
    except KafkaException as problem:
        raise ConfigError(f"settings of the client: {problem.args[0].str()}") from None


def find_cluster(client: Mapping[str, Any], *, timeout: float = _SECONDS) -> Target:
    """Ask the cluster who it is. Raises CtrlchanError if it does not answer, or tells no cluster id."""
    from confluent_kafka import KafkaException

    problems: list[str] = []
    admin = admin_client({**client, "error_cb": lambda problem: problems.append(problem.str())})
    try:
        seen = admin.list_topics(timeout=timeout)
    except KafkaException as problem:
        reason = f" ({problems[0]})" if problems else ""
        raise CtrlchanError(
            f"no answer from {client.get('bootstrap.servers')}: {problem.args[0].str()}{reason}"
        ) from None
    if not seen.cluster_id:
        raise CtrlchanError("the brokers tell no cluster id, so nobody can say which cluster this is")
    brokers = {one.id: f"{one.host}:{one.port}" for one in seen.brokers.values()}
    return Target(seen.cluster_id, dict(sorted(brokers.items())), len(seen.topics))


def check_cluster(client: Mapping[str, Any], cluster_id: str) -> None:
    """Raise CtrlchanError unless the cluster that the client reaches has this id."""
    found = find_cluster(client).cluster_id
    if found != cluster_id:
        raise CtrlchanError(
            f"this is cluster {found}, and cluster {cluster_id} was to be loaded: nothing is done"
        )


def find_runs(client: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Return each run of which the cluster has something, with the numbers of its topics and groups."""
    admin = admin_client(client)
    topics, groups = (
        Counter(run[1] for run in map(_RUN.match, names) if run is not None)
        for names in (admin.list_topics(timeout=_SECONDS).topics, _groups(admin))
    )
    return {run: (topics[run], groups[run]) for run in sorted(topics | groups)}


def _groups(admin: Any) -> list[str]:
    """Return the ids of all groups. Raises CtrlchanError, also where a broker does not answer."""
    from confluent_kafka import KafkaException

    try:
        listed = admin.list_consumer_groups(request_timeout=_SECONDS).result(_SECONDS * 2)
    except KafkaException as problem:
        raise CtrlchanError(f"groups: {problem.args[0].str()}") from None
    if listed.errors:
        raise CtrlchanError(f"groups: {listed.errors[0].args[0].str()}")
    return [one.group_id for one in listed.valid]


class OwnNames:
    """The topics and groups of one run: makes them, and deletes them at the end.

    All have the run's name at the beginning; nothing else is ever deleted. Raises CtrlchanError.
    """

    def __init__(self, client: Mapping[str, Any], run: str) -> None:
        if not run.startswith(PREFIX) or run == PREFIX:
            raise ConfigError(f"{run!r} is no name of a run")
        self.run = run
        self._admin = admin_client(client)

    def create_topic(self, name: str, partitions: int, replication: int) -> None:
        """Create a topic, and wait until its partitions have leaders. ``replication`` -1: the cluster's."""
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        self._check(name)
        wanted = NewTopic(name, partitions, replication)
        self._do(f"topic {name}", self._admin.create_topics([wanted], operation_timeout=_SECONDS)[name])

        def has_leaders() -> bool:
            found = self._admin.list_topics(name, timeout=_SECONDS).topics[name].partitions
            return len(found) == partitions and all(one.leader >= 0 for one in found.values())

        self._wait(has_leaders, f"topic {name} has no leaders")

    def wait_until_in_sync(self, name: str) -> None:
        """Wait until each partition of a topic has a leader, and all its replicas are in sync."""

        def is_in_sync() -> bool:
            found = self._admin.list_topics(name, timeout=_SECONDS).topics[name].partitions.values()
            return all(one.leader >= 0 and len(one.isrs) == len(one.replicas) for one in found)

        self._wait(is_in_sync, f"topic {name} has replicas that are not in sync")

    def topics(self) -> list[str]:
        """Return the topics of this run that the cluster has."""
        return sorted(name for name in self._admin.list_topics(timeout=_SECONDS).topics if self._is_own(name))

    def groups(self) -> list[str]:
        """Return the groups of this run that the cluster has."""
        return sorted(name for name in _groups(self._admin) if self._is_own(name))

    def offsets(self, name: str) -> tuple[int, int]:
        """Return the records of a topic: the sums of its partitions' first and last offsets.

        Waits while leaders move. Raises CtrlchanError for any other error.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        specs: Any = OffsetSpec
        sums: list[int] = []

        def are_known() -> bool:
            try:
                sums[:] = [self._sum_of_offsets(name, spec) for spec in (specs.earliest(), specs.latest())]
            except KafkaException as problem:
                if problem.args[0].name() not in _LEADER_MOVES:
                    raise CtrlchanError(f"topic {name}: {problem.args[0].str()}") from None
                return False
            return True

        self._wait(are_known, f"topic {name} has leaders that do not answer")
        return sums[0], sums[1]

    def _sum_of_offsets(self, name: str, spec: Any) -> int:
        """Return the sum of an offset of each partition. Raises KafkaException."""
        from confluent_kafka import TopicPartition

        numbers = self._admin.list_topics(name, timeout=_SECONDS).topics[name].partitions
        asked = self._admin.list_offsets({TopicPartition(name, number): spec for number in numbers})
        return sum(future.result(_SECONDS).offset for future in asked.values())

    def delete(self, groups: Sequence[str] = ()) -> None:
        """Delete what this run has made, and wait until clients see it no more."""
        from confluent_kafka import KafkaException

        for name in groups:
            self._check(name)
        # Topics first, so that no member has anything to do.
        names = self.topics()
        for first in range(0, len(names), _AT_ONCE):
            some = names[first : first + _AT_ONCE]
            for name, future in self._admin.delete_topics(some, operation_timeout=_SECONDS).items():
                self._do(f"topic {name}", future, {"UNKNOWN_TOPIC_OR_PART"})
        self._wait(lambda: not self.topics(), f"topics {self.run}… are still there")
        if groups:
            try:
                deleted = self._admin.delete_consumer_groups(list(groups))
            except KafkaException as problem:
                raise CtrlchanError(f"groups {self.run}…: {problem.args[0].str()}") from None
            for name, future in deleted.items():
                self._do(f"group {name}", future, {"GROUP_ID_NOT_FOUND"})

    def _is_own(self, name: str) -> bool:
        return name.startswith(f"{self.run}-")

    def _check(self, name: str) -> None:
        if not self._is_own(name):
            raise ConfigError(f"{name!r} does not belong to {self.run}")

    def _do(self, what: str, future: Any, ignored: Collection[str] = ()) -> None:
        from confluent_kafka import KafkaException

        try:
            future.result(_SECONDS * 2)
        except KafkaException as problem:
            if problem.args[0].name() not in ignored:
                raise CtrlchanError(f"{what}: {problem.args[0].str()}") from None

    def _wait(self, is_so: Callable[[], bool], problem: str) -> None:
        deadline = time.monotonic() + _SECONDS * 2
        while not is_so():
            if time.monotonic() > deadline:
                raise CtrlchanError(f"{problem} after {_SECONDS * 2:g} s")
            time.sleep(_PAUSE)
