"""Runs one worker of a load, from the check of the cluster to the result."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ctrlchan.errors import CtrlchanError
from ctrlchan.loads.guard import check_cluster
from ctrlchan.loads.load import Load
from ctrlchan.loads.result import Result
from ctrlchan.loads.worker import Worker

__all__ = ["run_worker"]


def run_worker(
    load: Load,
    number: int,
    *,
    wait_for_start: Callable[[], object] = lambda: None,
    report: Callable[[dict[str, int]], object] = lambda done: None,
    stopped: threading.Event | None = None,
) -> Result:
    """Be one worker of a load, and return what it has done. Raises CtrlchanError."""
    from confluent_kafka import KafkaException

    worker = Worker(
        number,
        {**load.client, "client.id": f"{load.run}-{number}"},
        rate=load.rate / load.clients,
        warmup=load.warmup,
        seconds=load.seconds,
        wait_for_start=wait_for_start,
        report=report,
        stopped=stopped or threading.Event(),
    )
    try:
        check_cluster(worker.settings, load.cluster_id)
        load.work(worker)
    except KafkaException as problem:
        reason = problem.args[0].str() if problem.args else problem
        raise CtrlchanError(f"client {number} of the load: {reason}") from None
    return worker.result()
