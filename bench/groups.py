"""Measures the processor time of a Heartbeat and of an OffsetCommit, from a frame to its answer.

Command: ``python -m bench.groups``. The broker has no socket; offsets are appended to a log in a folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from ctrlchan.broker.handlers.table import GROUP_APIS
from ctrlchan.server.request_handler import RequestHandler
from tests.unit.broker.groups.group_broker import GROUP, KEYS, TOPIC, GroupBroker, group_broker, part
from tests.unit.broker.local_broker import client_frame
from tests.unit.server.contexts import LOCAL_CLIENT

_ROUNDS: Final = 9
_REQUESTS: Final = 1_000


def microseconds(send: Callable[[], object]) -> float:
    """Return the processor time of a call: the least of all rounds."""
    figures = []
    for _ in range(_ROUNDS):
        began = time.thread_time_ns()
        for _ in range(_REQUESTS):
            send()
        figures.append((time.thread_time_ns() - began) / _REQUESTS / 1_000)
    return min(figures)


def frames(joined: Any) -> dict[str, bytes]:
    """Return the requests of a member by what they are."""
    who = {"group_id": GROUP, "member_id": joined.member_id, "group_instance_id": None}
    partition = part(
        "OffsetCommit",
        9,
        "OffsetCommitRequestPartition",
        partition_index=0,
        committed_offset=5,
        committed_leader_epoch=2,
        committed_metadata="note",
    )
    topic = part("OffsetCommit", 9, "OffsetCommitRequestTopic", name=TOPIC, partitions=(partition,))
    generation = joined.generation_id
    return {
        "Heartbeat v4": client_frame(KEYS["Heartbeat"], 4, generation_id=generation, **who),
        "OffsetCommit v9, one partition": client_frame(
            KEYS["OffsetCommit"], 9, generation_id_or_member_epoch=generation, topics=(topic,), **who
        ),
    }


def run(broker: GroupBroker) -> None:
    """Print the figures."""
    joined = broker.stable()
    handler = RequestHandler(broker.core, {api.key: api for api in GROUP_APIS}, broker.core.lock)
    for what, frame in frames(joined).items():
        answer = handler.serve(frame, LOCAL_CLIENT)
        assert answer
        assert not isinstance(answer, Future)
        print(f"{what}: {microseconds(lambda: handler.serve(frame, LOCAL_CLIENT)):.1f} µs")  # noqa: B023


if __name__ == "__main__":
    with TemporaryDirectory() as folder, group_broker(Path(folder)) as broker:
        run(broker)
