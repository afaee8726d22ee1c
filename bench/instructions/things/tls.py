"""Records of TLS 1.3: one that comes in with a Produce, and one that goes out with a Fetch, of 15 KB each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.instructions.broker import TOPIC, Client, connected_securely, serving
from bench.instructions.measured import Measured, in_groups
from bench.instructions.requests import batch_of, check, check_fetched, fetch, produce
from ctrlchan.embedded.certificates import Certificates

__all__ = ["opened"]

#: With its request it is in one record, which has at most 16 KiB.
_BATCH: Final = batch_of(140)
_AT_ONCE: Final = 3
_REPETITIONS: Final = 60


@contextmanager
def opened() -> Iterator[dict[str, Measured]]:
    """Start a broker with a listener of TLS, and connect to it."""
    with TemporaryDirectory() as folder:
        certificates = Certificates(Path(folder))
        configs = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SSL",
            "ssl.keystore.location": certificates.issue("broker", ["localhost"]),
        }
        with (
            serving(configs) as broker,
            connected_securely(broker, Path(certificates.ca_file)) as client,
        ):
            yield {
                "TLS record in (Produce)": Measured(partial(_produce, client), _REPETITIONS),
                "TLS record out (Fetch)": Measured(partial(_fetch, client), _REPETITIONS),
            }


def _produce(client: Client, times: int) -> None:
    for count in in_groups(times, _AT_ONCE):
        for answer in client.measure([produce(TOPIC, _BATCH)] * count):
            check(answer, TOPIC)


def _fetch(client: Client, times: int) -> None:
    for count in in_groups(times, _AT_ONCE):
        for answer in client.measure([fetch(TOPIC, 0, len(_BATCH))] * count):
            check_fetched(answer, TOPIC, len(_BATCH))
