"""One life of a cluster for tests, with confluent-kafka as its client: what each step takes."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from time import monotonic, perf_counter
from typing import Final, NamedTuple

import psutil
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from bench.memory import cpu_seconds, pss_mib, settle
from bench.testing.candidates import Cluster
from ctrlchan.memory import MIB

__all__ = ["Life", "live", "warm_up"]

_TOPIC: Final = "first"
_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05


class Life(NamedTuple):
    """Milliseconds from nothing to each step, and of the stop; MiB of all processes of the idle cluster.

    ``ready``: a client has the metadata of all brokers. ``acknowledged``: the first record of a topic that
    its producer creates. ``read``: that record by a consumer with a new group. ``memory``: of a cluster in
    this process, what this process has grown by; children included. ``processor``: seconds of processor time
    until the record is read, the client's included.
    """

    ready: float
    acknowledged: float
    read: float
    stop: float
    memory: float
    processor: float


def warm_up() -> None:
    """Let this process load all that a client needs, so that no cluster's figures contain it."""
    settings = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    producer = Producer(settings)
    producer.poll(0)
    consumer = Consumer(settings | {"group.id": "none"})
    consumer.poll(0)
    consumer.close()


def live(start: Callable[[], Cluster], brokers: int) -> Life:
    """Start a cluster, write a record, read it, measure its memory, and stop the cluster."""
    before = _own_memory()
    used_before = cpu_seconds(os.getpid())
    began = perf_counter()
    cluster = start()
    try:
        producer = cluster.producer()
        _wait_for_metadata(producer, brokers)
        ready = perf_counter() - began
        _produce(producer)
        acknowledged = perf_counter() - began
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([_TOPIC])
        _first_record(consumer)
        read = perf_counter() - began
        processor = cpu_seconds(os.getpid()) - used_before
        consumer.close()
        del consumer, producer
        gc.collect()
        settle(os.getpid())
        memory = _own_memory() - before + sum(pss_mib(pid) for pid in cluster.pids)
    finally:
        began = perf_counter()
        cluster.close()
        stop = perf_counter() - began
    return Life(ready * 1e3, acknowledged * 1e3, read * 1e3, stop * 1e3, memory, processor)


def _own_memory() -> float:
    return float(psutil.Process().memory_full_info().pss) / MIB


def _wait_for_metadata(producer: Producer, brokers: int) -> None:
    deadline = monotonic() + _SECONDS
    while len(producer.list_topics(timeout=_SECONDS).brokers) < brokers:
        if monotonic() > deadline:
            raise TimeoutError(f"no metadata of {brokers} brokers")


def _produce(producer: Producer) -> None:
    failed: list[KafkaError | None] = []
    producer.produce(_TOPIC, b"1", on_delivery=lambda error, _: failed.append(error))
    producer.flush(_SECONDS)
    if failed != [None]:
        raise RuntimeError(f"the record was not acknowledged: {[*map(str, failed)]}")


def _first_record(consumer: Consumer) -> Message:
    deadline = monotonic() + _SECONDS
    while monotonic() < deadline:
        message = consumer.poll(_POLL_SECONDS)
        if message is None:
            continue
        error = message.error()
        if error is None:
            return message
        if not error.retriable() and error.code() != error.UNKNOWN_TOPIC_OR_PART:
            raise KafkaException(error)
    raise TimeoutError("no record was read")
