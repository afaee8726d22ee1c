"""Measures the processor time of Metadata and UpdateMetadata, from a frame to its answer.

Command: ``python -m bench.metadata``. A cluster of 1,000 topics, with 100 partitions each; no socket. The
broker of UpdateMetadata stores records, so that other threads read what it applies.
"""

from __future__ import annotations

import time
from typing import Any, Final

from ctrlchan.broker.handlers import update_metadata
from ctrlchan.server.apis.metadata import API
from ctrlchan.server.request_handler import RequestHandler
from ctrlchan.state.importing.generate import GeneratorConfig, generate
from tests.unit.broker.cores import broker_core, storing_core
from tests.unit.broker.local_broker import Part, client_frame, control_frame
from tests.unit.server.contexts import LOCAL_CLIENT

_ROUNDS: Final = 7
_METADATA: Final = 3
_VERSION: Final = 12


def microseconds(handler: RequestHandler[Any], frame: bytes, requests: int) -> float:
    """Return the processor time of a request: the least of all rounds."""
    figures = []
    for _ in range(_ROUNDS):
        began = time.thread_time_ns()
        for _ in range(requests):
            handler.serve(frame, LOCAL_CLIENT)
        figures.append((time.thread_time_ns() - began) / requests / 1_000)
    return min(figures)


def main() -> None:
    """Print the figures."""
    core = broker_core(0)
    core.metadata.state = generate(GeneratorConfig())
    handler = RequestHandler(core, {_METADATA: API})
    asked: list[tuple[str, list[str] | None, int]] = [
        ("1 topic", ["topic-0"], 200),
        ("10 topics", [f"topic-{i}" for i in range(10)], 50),
        ("1,000 topics", None, 2),
    ]
    for what, topics, requests in asked:
        frame = client_frame(_METADATA, _VERSION, topics=topics)
        print(f"{what} of 100 partitions: {microseconds(handler, frame, requests):,.0f} µs")
    storing = storing_core(0)
    updated = RequestHandler(storing, {update_metadata.API.key: update_metadata.API})
    every = [Part(f"topic-{topic}", partition) for topic in range(1_000) for partition in range(100)]
    for what, parts, requests in (("all", every, 3), ("one", every[:1], 200)):
        frame = control_frame(update_metadata.API.key, 8, parts)
        print(f"UpdateMetadata of {what}: {microseconds(updated, frame, requests):,.0f} µs")


if __name__ == "__main__":
    main()
