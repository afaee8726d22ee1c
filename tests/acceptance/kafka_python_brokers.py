"""A plugin for pytest in kafka-python's own tests: the brokers that they ask for are running already.

It reads from the environment BROKERS, a JSON object with ``ports`` by security protocol, ``ssl_dir`` with the
file ``ca-cert``, and the ``transport`` and ``sasl_mechanism`` of tests that ask for no other ones.
"""

# kafka-python's folder of tests is the package ``test``; it has no types.
# mypy: ignore-errors

from __future__ import annotations

import json
import os
from typing import Any

from kafka import KafkaAdminClient
from test.integration.fixtures import KafkaFixture, client_params

_BROKERS = json.loads(os.environ["BROKERS"])


def _running_broker(
    broker_id: int, *, transport: str | None = None, sasl_mechanism: str | None = None, **others: Any
) -> KafkaFixture:
    """Return a fixture of a broker that nobody needs to start."""
    if transport is None:
        transport, sasl_mechanism = _BROKERS["transport"], _BROKERS["sasl_mechanism"]
    broker = KafkaFixture(
        "localhost",
        _BROKERS["ports"][transport],
        broker_id,
        transport=transport,
        sasl_mechanism=sasl_mechanism,
        partitions=others.get("partitions", 4),
        external=True,
    )
    broker.ssl_dir = _BROKERS["ssl_dir"]
    return broker


def _topic_names(broker: KafkaFixture) -> list[str]:
    """Return what kafka-topics lists, without its files."""
    with KafkaAdminClient(**client_params(broker, "topics")) as admin:
        return admin.list_topics()


KafkaFixture.instance = staticmethod(_running_broker)
KafkaFixture.get_topic_names = _topic_names
