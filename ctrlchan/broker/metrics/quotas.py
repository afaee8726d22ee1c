"""Metrics of quotas: rates, throttle times and tokens of each sensor; the rates of throttled replicas.

Source: ``ClientQuotaManager``, ``ClientRequestQuotaManager``, ``ControllerMutationQuotaManager``,
``ReplicationQuotaManager`` (Kafka 3.9).
A sensor has the user, the client id, or both, as the quotas demand; a name is as ZooKeeper has it. One of a
user's own class has the tags that the class gives it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import isnan
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily, Metric

from ctrlchan.broker.metrics.families import gauge
from ctrlchan.broker.quota._client_quotas import QuotaType
from ctrlchan.zookeeper.paths import sanitized

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer

__all__ = ["collect"]

_SERVER: Final = "kafka_server_"
_SENSOR: Final = ("user", "client_id")
_UNFIT: Final = re.compile(r"^(?=[0-9])|[^a-zA-Z0-9_]")
#: Kafka's group of metrics, its name for the rate, and what that is.
_RATES: Final = {
    QuotaType.PRODUCE: ("produce", "byte_rate", "Bytes of requests in a second"),
    QuotaType.FETCH: ("fetch", "byte_rate", "Bytes of answers in a second"),
    QuotaType.REQUEST: ("request", "request_time", "Percent of the time of a thread"),
    QuotaType.CONTROLLER_MUTATION: ("controllermutation", "mutation_rate", "Mutations in a second"),
}


def collect(server: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics as of now. Until the first quota there is no sensor."""
    quotas, asked = server.core.quotas, server.core.asked_quotas
    rows = [
        (
            kind,
            {"user": sanitized(user), "client_id": client_id}
            if asked is None
            else _labels(asked.tags_of(kind, user)),
            rate,
            throttled,
            tokens,
        )
        for kind, user, client_id, rate, throttled, tokens in quotas.sensors_now()
    ]
    names = _SENSOR if asked is None else sorted({name for _, labels, *_ in rows for name in labels})
    tokens = GaugeMetricFamily(
        f"{_SERVER}controllermutation_tokens", "Mutations that are left before clients wait", labels=names
    )
    for kind, (group, name, text) in _RATES.items():
        rate = GaugeMetricFamily(f"{_SERVER}{group}_{name}", text, labels=names)
        throttled = GaugeMetricFamily(
            f"{_SERVER}{group}_throttle_time", "Average throttle time in milliseconds", labels=names
        )
        for of, found, value, average, left in rows:
            if of != kind:
                continue
            labels = [found.get(name, "") for name in names]
            rate.add_metric(labels, value)
            if not isnan(average):
                throttled.add_metric(labels, average)
            if kind is QuotaType.CONTROLLER_MUTATION:
                tokens.add_metric(labels, left)
        yield rate
        yield throttled
    yield tokens
    yield gauge(
        f"{_SERVER}request_exempt_request_time",
        "Percent of the time of a thread that exempt requests take",
        quotas.exempt_percent,
    )
    for direction, quota in server.core.replication_quotas._asdict().items():
        yield gauge(
            f"{_SERVER}{direction.replace('_', '')}replication_byte_rate",
            f"Bytes of throttled replicas in a second: {direction.replace('_', ' ')}",
            quota.byte_rate,
        )


def _labels(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags as labels: without the characters that names of labels cannot have."""
    return {_UNFIT.sub("_", name): value for name, value in tags.items()}
