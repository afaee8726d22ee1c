"""Metrics of the transaction coordinator, of markers, and of the verification of transactions.

Source: ``TransactionStateManager``, ``TransactionMarkerChannelManager``, ``AddPartitionsToTxnManager`` (Kafka
3.9). Kafka's rates are counters here, and its histograms sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily, Metric, SummaryMetricFamily

from ctrlchan.broker.metrics.families import counter, gauge

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer

__all__ = ["collect"]

_COORDINATOR: Final = "kafka_server_transaction_coordinator_metrics"
_MARKERS: Final = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
_VERIFICATION: Final = "kafka_server_addpartitionstotxnmanager"


def collect(server: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics as of now."""
    transactions = server.core.transactions
    figures = transactions.coordinator.figures()
    text = "Milliseconds in which a partition of __transaction_state was loaded, of the last 30 seconds"
    yield gauge(f"{_COORDINATOR}_partition_load_time_max", f"{text}: the longest", figures.load_time_max)
    yield gauge(f"{_COORDINATOR}_partition_load_time_avg", f"{text}: on average", figures.load_time_avg)
    states = GaugeMetricFamily(
        f"{_COORDINATOR}_transactional_ids", "Transactional ids of this coordinator", labels=("state",)
    )
    for state, count in figures.transactional_ids.items():
        states.add_metric((state,), count)
    yield states
    yield counter(
        f"{_COORDINATOR}_late_ends",
        "EndTxn requests that were refused: of connections older than the one that began the transaction",
        figures.late_ends,
    )
    yield gauge(
        f"{_MARKERS}_unknowndestinationqueuesize",
        "Markers for partitions whose leader is not known",
        transactions.markers.unknown_destinations,
    )
    yield gauge(
        f"{_MARKERS}_logappendretryqueuesize",
        "Transactions with all markers whose end is not in __transaction_state yet",
        figures.unfinished_appends,
    )
    verifier = transactions.verifier
    yield counter(f"{_VERIFICATION}_verificationfailures", "Partitions that were refused", verifier.failures)
    yield SummaryMetricFamily(
        f"{_VERIFICATION}_verificationtimems",
        "Milliseconds that verifications of transactions took",
        count_value=verifier.answers,
        sum_value=verifier.answer_ms,
    )
