"""The cluster as ZooKeeper has it: registrations, ISRs, epochs, what waits to be done."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from ctrlchan.zookeeper import nodes, paths

__all__ = ["ClusterView", "NotSeenError", "PartitionView", "TopicView"]

#: Seconds of the session, and for an answer.
_SESSION: Final = 10.0
_PATIENCE: Final = 10.0


class NotSeenError(Exception):
    """ZooKeeper cannot be asked now."""


class PartitionView(NamedTuple):
    """State and assignment of a partition. ``version``: of the state's node, the partition epoch."""

    replicas: list[int]
    state: nodes.PartitionState
    version: int


class TopicView(NamedTuple):
    """A topic. ``partitions``: those that have a state. ``is_moving``: a reassignment is under way."""

    topic_id: bytes | None
    partitions: dict[int, PartitionView]
    is_moving: bool


class ClusterView:
    """A ZooKeeper client of the run. Every method raises NotSeenError where ZooKeeper does not answer."""

    def __init__(self, address: str) -> None:
        self._client: Any = KazooClient(hosts=address, timeout=_SESSION, connection_retry={"max_tries": -1})

    def start(self) -> None:
        self._client.start(60.0)

    def close(self) -> None:
        with suppress(KazooException, KazooTimeoutError):
            self._client.stop()
        self._client.close()

    def broker_ids(self) -> set[int]:
        """Return the ids of the registered brokers."""
        return {int(one) for one in self._children(paths.BROKER_IDS)}

    def topics(self) -> list[str]:
        return self._children(paths.TOPICS)

    def topics_in_deletion(self) -> list[str]:
        return self._children(paths.DELETED_TOPICS)

    def topic(self, name: str) -> TopicView:
        """Return a topic; one that is not there has no partitions."""
        found = self._get(paths.topic(name))
        if found is None:
            return TopicView(None, {}, False)
        parsed = nodes.parse_topic(found[0])
        views = {}
        for one in parsed.assignments:
            state = self._get(paths.partition_state(name, one.partition))
            if state is not None:
                parsed_state = nodes.parse_partition_state(state[0])
                views[one.partition] = PartitionView(one.replicas, parsed_state, state[1].version)
        is_moving = any(one.adding or one.removing for one in parsed.assignments)
        return TopicView(parsed.topic_id, views, is_moving)

    def controller_epoch(self) -> int:
        found = self._get(paths.CONTROLLER_EPOCH)
        return -1 if found is None else nodes.parse_controller_epoch(found[0])

    def controller_id(self) -> int | None:
        """Return the id in ``/controller``, None: there is none. Raises NotSeenError."""
        found = self._get(paths.CONTROLLER)
        return None if found is None else nodes.parse_controller(found[0])

    def move_controller(self) -> None:
        """Delete ``/controller``: the next one is elected."""
        self._ask(self._client.delete_async(paths.CONTROLLER))

    def out_of_sync(self) -> list[str]:
        """Return what is not as at rest: ISRs that are not whole, moves and deletions under way."""
        lines = [f"{topic} waits for its deletion" for topic in self.topics_in_deletion()]
        for name in self.topics():
            topic = self.topic(name)
            if topic.is_moving:
                lines.append(f"{name} is reassigned")
            lines += [
                f"{name}-{number}: leader {view.state.leader}, ISR {view.state.isr} of {view.replicas}"
                for number, view in topic.partitions.items()
                if set(view.state.isr) != set(view.replicas) or view.state.leader < 0
            ]
        return lines

    def _children(self, path: str) -> list[str]:
        return sorted(self._ask(self._client.get_children_async(path)) or [])

    def _get(self, path: str) -> tuple[bytes, Any] | None:
        found: tuple[bytes, Any] | None = self._ask(self._client.get_async(path))
        return found

    def _ask(self, asked: Any) -> Any:
        """Return the answer, None where there is no node."""
        try:
            return asked.get(timeout=_PATIENCE)
        except NoNodeError:
            return None
        except (KazooException, KazooTimeoutError) as error:
            raise NotSeenError(repr(error)) from error
