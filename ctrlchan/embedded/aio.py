"""What waits in an EmbeddedCluster, for asyncio: start and calls run on threads of the loop's executor."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ctrlchan.embedded.calls import SECONDS, ClusterCalls, Isolation

if TYPE_CHECKING:
    from ctrlchan.embedded.batches import Header
    from ctrlchan.embedded.groups import ConsumerGroup
    from ctrlchan.embedded.records import TopicRecord
    from ctrlchan.embedded.transactions import Transaction
    from ctrlchan.launch.configs import ConfigValue
    from ctrlchan.state import Broker

__all__ = ["AsyncCalls", "StartingCluster"]

Cluster = TypeVar("Cluster", bound=ClusterCalls)


class StartingCluster(Generic[Cluster]):
    """A cluster that starts while the loop goes on: with ``async with``, which closes it, or ``await``.

    A cluster whose start is cancelled is closed as soon as it has started.
    """

    def __init__(self, start: Callable[[], Cluster]) -> None:
        self._start = start
        self._cluster: Cluster | None = None

    def __await__(self) -> Generator[Any, None, Cluster]:
        return self._started().__await__()

    async def __aenter__(self) -> Cluster:
        self._cluster = await self._started()
        return self._cluster

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._cluster is not None
        await asyncio.to_thread(self._cluster.close)

    async def _started(self) -> Cluster:
        starting = asyncio.get_running_loop().run_in_executor(None, self._start)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_close)
            raise


def _close(started: asyncio.Future[Any]) -> None:
    """Close a cluster that nobody waits for, without holding the loop up."""
    if not started.cancelled() and started.exception() is None:
        threading.Thread(target=started.result().close, name="close-cluster").start()


class AsyncCalls:
    """The attribute ``aio`` of an EmbeddedCluster: methods of the same names, arguments and errors.

    A call that is cancelled goes on in its thread.
    """

    def __init__(self, cluster: ClusterCalls) -> None:
        self._cluster = cluster

    async def create_topic(
        self,
        topic: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        *,
        configs: Mapping[str, ConfigValue] | None = None,
        timeout: float = SECONDS,
    ) -> None:
        """Create a topic, and wait until every broker that lives knows its leaders."""
        await asyncio.to_thread(
            self._cluster.create_topic,
            topic,
            partitions,
            replication_factor,
            configs=configs,
            timeout=timeout,
        )

    async def delete_topics(self, *topics: str, timeout: float = SECONDS) -> None:
        """Delete topics, and wait until no broker that lives knows them."""
        await asyncio.to_thread(self._cluster.delete_topics, *topics, timeout=timeout)

    async def produce(
        self,
        topic: str,
        *values: bytes | str | None,
        key: bytes | str | None = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timeout: float = SECONDS,
    ) -> list[TopicRecord]:
        """Append a record for each value, and return them."""
        return await asyncio.to_thread(
            self._cluster.produce,
            topic,
            *values,
            key=key,
            partition=partition,
            headers=headers,
            timeout=timeout,
        )

    async def records(
        self,
        topic: str,
        *,
        isolation: Isolation = "read_uncommitted",
        at_least: int = 0,
        timeout: float = SECONDS,
    ) -> list[TopicRecord]:
        """Return all records of a topic that consumers see, by partition and offset."""
        return await asyncio.to_thread(
            self._cluster.records, topic, isolation=isolation, at_least=at_least, timeout=timeout
        )

    async def groups(self, *, timeout: float = SECONDS) -> list[ConsumerGroup]:
        """Return the consumer groups, by id."""
        return await asyncio.to_thread(self._cluster.groups, timeout=timeout)

    async def transactions(self, *, timeout: float = SECONDS) -> list[Transaction]:
        """Return the transactional ids that the cluster knows, by id."""
        return await asyncio.to_thread(self._cluster.transactions, timeout=timeout)

    async def kill_broker(self, broker_id: int) -> None:
        """Kill the process of this broker with SIGKILL."""
        await asyncio.to_thread(self._cluster.kill_broker, broker_id)

    async def start_broker(self, broker_id: int) -> Broker:
        """Start a killed broker again, on the same ports."""
        return await asyncio.to_thread(self._cluster.start_broker, broker_id)

    async def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Let another in-sync replica lead a partition."""
        await asyncio.to_thread(self._cluster.move_leader, topic, partition, broker_id)

    async def close(self) -> None:
        """End the cluster."""
        await asyncio.to_thread(self._cluster.close)
