"""Metrics: Prometheus reads the counts of the outcomes, and no series of removed brokers."""

from __future__ import annotations

import gc
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from math import isnan
from time import monotonic_ns

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ctrlchan.channel import ControllerChannelManager, Outcome
from ctrlchan.channel.observability.counters import EDGES, TIMES, Key, OutcomeCounters, quantile
from ctrlchan.channel.observability.metrics import ChannelMetrics
from tests.fault.channels import config, eventually, peers
from tests.fault.peer import Peer, answer, hang_up
from tests.fault.requests import leader_and_isr, stop_replica, update
from tests.unit.journal.chunks import chunk_of

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples_of(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(metrics: ChannelMetrics) -> Samples:
    registry = CollectorRegistry()
    registry.register(metrics)
    return samples_of(generate_latest(registry).decode())


def of(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


@contextmanager
def measured(brokers: list[Peer]) -> Iterator[tuple[ControllerChannelManager, ChannelMetrics]]:
    metrics = ChannelMetrics()
    with ControllerChannelManager(config(), 7, metrics=metrics) as channel:
        channel.startup([peer.broker for peer in brokers])
        yield channel, metrics


def test_counts_are_those_of_the_outcomes() -> None:
    with peers(2) as brokers, measured(brokers) as (channel, metrics):
        brokers[0].script += [answer(31), hang_up, answer(77)]
        sent = []
        for number in range(200):
            for request in (leader_and_isr(number), update(number), stop_replica(number)):
                sent += channel.send_requests([1, 2], request)
        outcomes = channel.wait(sent, 60)
        samples = scrape(metrics)
        described = channel.describe()["brokers"]
    names = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata"}
    requests: Counter[tuple[int, str, str]] = Counter()
    sums: Counter[tuple[str, int, str]] = Counter()
    for outcome in outcomes:
        api = names[outcome.api_key]
        requests[outcome.broker_id, api, outcome.kind.value] += 1
        sums["bytes", outcome.broker_id, api] += outcome.bytes
        sums["attempts", outcome.broker_id, api] += outcome.attempts
    for (broker_id, api, kind), count in requests.items():
        labels = {"broker_id": str(broker_id), "api": api}
        assert of(samples, "ctrlchan_channel_requests_total", **labels, outcome=kind) == count
        assert described[broker_id]["apis"][api]["outcomes"][kind] == count
    for (what, broker_id, api), total in sums.items():
        name = f"ctrlchan_channel_{what}_total"
        assert of(samples, name, broker_id=str(broker_id), api=api) == total
        assert described[broker_id]["apis"][api][what] == total
    counted = [key for key in samples if key[0] == "ctrlchan_channel_requests_total"]
    assert len(counted) == len(requests)
    assert of(samples, "ctrlchan_channel_outcomes_total", outcome="acknowledged") == sum(
        outcome.kind.value == "acknowledged" for outcome in outcomes
    )
    errors = {dict(labels)["error"] for name, labels in samples if name == "ctrlchan_channel_errors_total"}
    assert errors == {"CLUSTER_AUTHORIZATION_FAILED", "STALE_BROKER_EPOCH"}
    assert "closed the connection" in next(
        dict(labels)["error"] for name, labels in samples if name == "ctrlchan_channel_last_error_info"
    )


def seconds_of(outcome: Outcome, name: str) -> float:
    ends = {
        "queue": (outcome.enqueued_ns, outcome.first_byte_ns),
        "send": (outcome.first_byte_ns, outcome.last_byte_ns),
        "remote": (outcome.last_byte_ns, outcome.response_ns),
    }
    begin, end = ends[name]
    return (end - begin) / 1e9


def test_histograms_hold_the_times_of_the_outcomes() -> None:
    with peers(1) as brokers, measured(brokers) as (channel, metrics):
        outcomes = channel.wait(
            [channel.send_request(1, update(number, size=9000)) for number in range(500)], 60
        )
        samples = scrape(metrics)
    labels = {"broker_id": "1", "api": "UpdateMetadata"}
    for name in ("queue", "send", "remote"):
        times = np.array([seconds_of(outcome, name) for outcome in outcomes])
        metric = f"ctrlchan_channel_{name}_seconds"
        assert of(samples, f"{metric}_count", **labels) == 500
        assert of(samples, f"{metric}_sum", **labels) == pytest.approx(times.sum())
        for edge in EDGES:
            assert of(samples, f"{metric}_bucket", **labels, le=str(edge)) == np.count_nonzero(times <= edge)
        assert of(samples, f"{metric}_bucket", **labels, le="+Inf") == 500
    assert of(samples, "ctrlchan_channel_encode_seconds_count", **labels) == 500
    kafka = "kafka_controller_controllerchannelmanager_requestrateandqueuetimems"
    assert of(samples, f"{kafka}_count", broker_id="1") == 500
    queue = np.array([seconds_of(outcome, "queue") for outcome in outcomes]) * 1e3
    # A request leaves the queue when the response before it has come, then its first byte is written.
    assert 0 < of(samples, f"{kafka}_sum", broker_id="1") <= queue.sum()
    median = of(samples, kafka, broker_id="1", quantile="0.5")
    # In the same bucket.
    assert np.searchsorted(EDGES, median / 1e3) == pytest.approx(
        np.searchsorted(EDGES, np.median(queue) / 1e3), abs=1
    )


def test_a_stuck_request_is_in_the_metrics() -> None:
    with peers(2) as brokers, measured(brokers) as (channel, metrics):
        brokers[0].gate.clear()
        begun = monotonic_ns()
        sent = [
            channel.send_request(1, request)
            for request in (leader_and_isr(0), update(1), update(2, size=500))
        ]
        eventually(lambda: scrape_of(channel, 1, "state") == "connected")
        described = channel.describe()["brokers"][1]
        samples = scrape(metrics)
        age = of(samples, "ctrlchan_channel_oldest_request_age_seconds", broker_id="1")
        assert 0 < age <= (monotonic_ns() - begun) / 1e9
        # Kafka's: the request in flight has left the queue and is in its timer.
        assert of(samples, "kafka_controller_controllerchannelmanager_queuesize", broker_id="1") == 2
        assert of(samples, "kafka_controller_controllerchannelmanager_queuesize", broker_id="2") == 0
        assert of(samples, "kafka_controller_controllerchannelmanager_totalqueuesize") == 2
        timer = "kafka_controller_controllerchannelmanager_requestrateandqueuetimems"
        assert of(samples, f"{timer}_count", broker_id="1") == 1
        assert of(samples, f"{timer}_count", broker_id="2") == 0
        assert of(samples, "ctrlchan_channel_senders") == 1
        assert of(samples, "ctrlchan_channel_shared_memory_bytes") > 0
        assert of(samples, "ctrlchan_channel_state", state="running") == 1
        head = described["head"]
        assert (head["api"], head["version"], head["rows"]) == ("LeaderAndIsr", 7, 1)
        assert head["bytes"] == sent[0].request.size
        assert head["age"] == described["oldest_age"] > 0
        updates = described["apis"]["UpdateMetadata"]
        assert (updates["unfinished"], described["apis"]["LeaderAndIsr"]["unfinished"]) == (2, 1)
        assert updates["unfinished_bytes"] == sent[1].request.size + sent[2].request.size
        assert 0 < updates["oldest_age"] <= head["age"]
        brokers[0].gate.set()
        channel.wait(sent, 30)
        idle = channel.describe()["brokers"][1]
        assert (idle["head"], idle["oldest_age"]) == (None, 0.0)
        assert idle["apis"]["UpdateMetadata"]["unfinished"] == 0
        assert idle["apis"]["UpdateMetadata"]["requests"] == 2


def scrape_of(channel: ControllerChannelManager, broker_id: int, name: str) -> object:
    return channel.describe()["brokers"][broker_id][name]


def test_the_series_of_a_removed_broker_end() -> None:
    with peers(2) as brokers, measured(brokers) as (channel, metrics):
        channel.wait(channel.send_requests([1, 2, 9], update()), 30)
        assert {"1", "2"} == brokers_in(scrape(metrics))
        channel.remove_broker(1)
        samples = scrape(metrics)
        assert brokers_in(samples) == {"2"}
        assert of(samples, "ctrlchan_channel_outcomes_total", outcome="acknowledged") == 2
        assert of(samples, "ctrlchan_channel_outcomes_total", outcome="broker gone") == 1
        channel.startup([brokers[0].broker])
        channel.wait([channel.send_request(1, update())], 30)
        labels = {"broker_id": "1", "api": "UpdateMetadata", "outcome": "acknowledged"}
        assert of(scrape(metrics), "ctrlchan_channel_requests_total", **labels) == 1
    # The channel is closed: the series that are left have no broker.
    assert brokers_in(scrape(metrics)) == set()


def brokers_in(samples: Samples) -> set[str]:
    return {dict(labels)["broker_id"] for _, labels in samples if "broker_id" in dict(labels)}


def test_metrics_without_a_channel_are_empty() -> None:
    metrics = ChannelMetrics()
    assert scrape(metrics) == {}
    channel = ControllerChannelManager(config(), 7, metrics=metrics)
    assert of(scrape(metrics), "ctrlchan_channel_state", state="new") == 1
    del channel
    gc.collect()
    assert scrape(metrics) == {}


def test_metrics_are_served_over_http() -> None:
    with (
        peers(1) as brokers,
        measured(brokers) as (channel, metrics),
        metrics.serve() as server,
    ):
        channel.wait([channel.send_request(1, update())], 30)
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answered:
            samples = samples_of(answered.read().decode())
    assert of(samples, "kafka_controller_controllerchannelmanager_queuesize", broker_id="1") == 0


outcome_rows = st.lists(
    st.fixed_dictionaries(
        {
            "broker": st.integers(0, 4),
            "api": st.sampled_from([4, 5, 6]),
            "bytes": st.integers(0, 10**6),
            "merged": st.just(1),
            "attempts": st.integers(0, 3),
            "kind": st.sampled_from([0, 2]),
            "error_code": st.sampled_from([0, 11, 77]),
            "enqueued": st.just(1),
            "first_byte": st.integers(1, 10**10),
            "response": st.sampled_from([0, 2 * 10**10]),
        }
    ),
    min_size=1,
    max_size=60,
)


@given(st.lists(outcome_rows, min_size=1, max_size=4), st.sets(st.integers(0, 4)))
def test_counters_are_the_sums_of_their_rows(chunks: list[list[dict[str, int]]], kept: set[int]) -> None:
    counters = OutcomeCounters()
    for rows in chunks:
        counters.add(chunk_of(rows))
    assert sum(counters.kinds.values()) == sum(map(len, chunks))
    counters.keep(kept)
    # Free rows are used again.
    for rows in chunks:
        counters.add(chunk_of(rows))
    every = [row for rows in chunks for row in rows]
    queue = TIMES.index("queue")
    assert set(counters.rows) == {Key(row["broker"], row["api"]) for row in every}
    for key, at in counters.rows.items():
        mine = [row for row in every if (row["broker"], row["api"]) == key]
        times = 2 if key.broker_id in kept else 1
        assert counters.requests[at] == times * len(mine)
        assert counters.bytes[at] == times * sum(row["bytes"] for row in mine if row["attempts"])
        assert counters.attempts[at] == times * sum(row["attempts"] for row in mine)
        spent = np.array([row["first_byte"] - 1 for row in mine if row["response"]]) / 1e9
        assert counters.buckets[queue][at].sum() == times * len(spent)
        assert counters.sums[queue][at] == pytest.approx(times * spent.sum())
        for number, edge in enumerate(EDGES):
            below = counters.buckets[queue][at][: number + 1].sum()
            assert below == times * np.count_nonzero(spent <= edge)
        for kind, text in ((0, "acknowledged"), (2, "fenced")):
            assert counters.outcomes[key, text] == times * sum(row["kind"] == kind for row in mine)
        for code, name in ((11, "STALE_CONTROLLER_EPOCH"), (77, "STALE_BROKER_EPOCH")):
            assert counters.errors[key, name] == times * sum(row["error_code"] == code for row in mine)


def test_bytes_of_merged_requests_count_once_and_unsent_ones_do_not_count() -> None:
    row = {"broker": 1, "api": 6, "bytes": 1000, "merged": 3, "attempts": 2}
    counters = OutcomeCounters()
    for count in (1, 2):
        counters.add(chunk_of([row] * count))
    counters.add(chunk_of([row | {"attempts": 0, "merged": 1}]))
    assert counters.bytes[counters.rows[Key(1, 6)]] == 1000


def test_quantiles_lie_within_their_buckets() -> None:
    buckets = np.zeros(len(EDGES) + 1, dtype=np.int64)
    assert isnan(quantile(buckets, 0.5))
    buckets[1] = 4
    assert quantile(buckets, 0.5) == pytest.approx((EDGES[0] + EDGES[1]) / 2)
    buckets[-1] = 96
    assert quantile(buckets, 0.5) == EDGES[-1]
