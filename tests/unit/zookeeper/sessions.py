"""Sessions and columns for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn
from ctrlchan.zookeeper.cluster import ClusterNodes
from ctrlchan.zookeeper.session import ZooKeeperSession
from ctrlchan.zookeeper.settings import ZooKeeperSettings
from ctrlchan.zookeeper.values import PartitionStateColumns
from tests.fault.proxy import Proxy
from tests.kafka.waiting import wait_until

Int32 = npt.NDArray[np.int32]


@contextmanager
def session(connect: str, *, session_timeout: float = 10.0, **more: Any) -> Iterator[ZooKeeperSession]:
    """A connected session."""
    made = ZooKeeperSession(ZooKeeperSettings(connect=connect, session_timeout=session_timeout), **more)
    made.start(20)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def away(proxy: Proxy, one: ZooKeeperSession) -> Iterator[None]:
    """Cut the connection of a session, which comes back within its session at the end of the block."""
    before = one.session_id
    proxy.stop_listening()
    proxy.drop_connections()
    wait_until(lambda: not one.is_connected, what="the connection is lost")
    yield
    proxy.listen()
    assert one.wait_until_connected(20)
    assert one.session_id == before


@contextmanager
def elected(connect: str, broker_id: int = 1000) -> Iterator[ClusterNodes]:
    """The nodes of a cluster whose controller is this one."""
    with session(connect) as one:
        nodes = ClusterNodes(one)
        nodes.create_persistent_nodes()
        nodes.become_controller(broker_id, 1)
        yield nodes


def int32(*values: int) -> Int32:
    return np.array(values, np.int32)


def states(
    count: int, leader_epoch: int = 0, isr: Sequence[Sequence[int]] | None = None
) -> PartitionStateColumns:
    """States of ``count`` partitions that differ from row to row."""
    rows = np.arange(count, dtype=np.int32)
    return PartitionStateColumns(
        leader=rows % 3 + 1,
        leader_epoch=np.full(count, leader_epoch, np.int32),
        controller_epoch=np.full(count, 7, np.int32),
        recovery_state=(rows % 2).astype(np.int32),
        isr=ListColumn.from_lists(isr or [list(range(1, 1 + row % 4)) for row in range(count)]),
    )


def rows_of(columns: PartitionStateColumns) -> list[tuple[int, int, int, int, list[int]]]:
    """Every row as Python values."""
    return list(
        zip(
            columns.leader.tolist(),
            columns.leader_epoch.tolist(),
            columns.controller_epoch.tolist(),
            columns.recovery_state.tolist(),
            columns.isr.to_lists(),
            strict=True,
        )
    )
