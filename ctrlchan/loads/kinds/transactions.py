"""``transactions``: records in transactions, which are committed, or some of them aborted."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from ctrlchan.loads.kinds.produce import put, values_of
from ctrlchan.loads.load import Load
from ctrlchan.loads.worker import Worker

__all__ = ["TransactionsLoad"]

_SECONDS: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class TransactionsLoad(Load):
    """``records`` in each transaction, of which one of ``abort_every`` is aborted, 0: none.

    The rate counts transactions.
    ``transaction`` lasts from when it was due until it is committed, ``commit`` is the commit alone, with the
    wait for its records' acknowledgements.
    """

    kind: ClassVar[str] = "transactions"

    size: int
    records: int
    abort_every: int

    def work(self, worker: Worker) -> None:
        from confluent_kafka import KafkaException, Producer

        settings = {**worker.settings, "transactional.id": f"{self.run}-{worker.number}"}
        producer = Producer({"log_level": 0, **settings})
        producer.init_transactions(_SECONDS)
        producer.list_topics(self.topic, timeout=_SECONDS)
        transaction = worker.operation("transaction")
        values = values_of(self.size)
        worker.operation("commit")
        worker.start()
        for number, due in enumerate(worker.due(producer.poll), 1):
            is_aborted = self.abort_every > 0 and number % self.abort_every == 0
            try:
                producer.begin_transaction()
                if not all(
                    put(worker, producer, self.topic, values[place % len(values)])
                    for place in range(self.records)
                ):
                    producer.abort_transaction(_SECONDS)
                    return
                self._end(worker, producer, due, is_aborted)
            except KafkaException as problem:
                if not problem.args[0].txn_requires_abort():
                    raise
                worker.failed(transaction, problem.args[0].name())
                producer.abort_transaction(_SECONDS)

    def _end(self, worker: Worker, producer: Any, due: float, is_aborted: bool) -> None:
        if is_aborted:
            # An abort drops what is not sent yet, and then it aborts nothing.
            worker.drain(producer)
            begun = time.monotonic()
            producer.abort_transaction(_SECONDS)
            worker.ended(worker.operation("abort"), begun, items=self.records)
            return
        begun = time.monotonic()
        producer.commit_transaction(_SECONDS)
        size = self.records * self.size
        worker.ended(worker.operation("commit"), begun, items=self.records, size=size)
        worker.ended(worker.operation("transaction"), due, items=self.records, size=size)
