"""``topics``: topics that are created and deleted, many by one request."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from ctrlchan.loads.guard import admin_client
from ctrlchan.loads.load import Load
from ctrlchan.loads.result import Operation
from ctrlchan.loads.worker import Worker

__all__ = ["TopicsLoad"]

_SECONDS: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class TopicsLoad(Load):
    """``batch`` topics in each request; the rate counts topics. What is created is deleted at once."""

    kind: ClassVar[str] = "topics"

    batch: int

    @property
    def needs_topic(self) -> bool:
        return False

    def work(self, worker: Worker) -> None:
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        admin = admin_client(worker.settings)
        create, delete = worker.operation("create"), worker.operation("delete")
        worker.start()
        for number, due in enumerate(worker.due(time.sleep, each=self.batch)):
            names = [f"{self.run}-{worker.number}-{number}-{place}" for place in range(self.batch)]
            wanted = [NewTopic(name, self.partitions, self.replication) for name in names]
            asked = admin.create_topics(wanted, operation_timeout=_SECONDS, request_timeout=_SECONDS)
            created = _count(worker, create, due, asked)
            if created:
                begun = time.monotonic()
                asked = admin.delete_topics(created, operation_timeout=_SECONDS, request_timeout=_SECONDS)
                _count(worker, delete, begun, asked)


def _count(worker: Worker, operation: Operation, due: float, asked: Mapping[str, Future[Any]]) -> list[str]:
    """Wait for the answer to one request and count it; return the topics without an error."""
    from confluent_kafka import KafkaException

    done = []
    for name, future in asked.items():
        try:
            future.result(2 * _SECONDS)
            done.append(name)
        except KafkaException as problem:
            worker.failed(operation, problem.args[0].name())
    if done:
        worker.ended(operation, due, items=len(done))
    return done
