"""Outcomes of a real channel as journal rows, also when its process is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from ctrlchan import EmbeddedCluster
from ctrlchan.channel import ControllerChannelManager, ControlRequest, Outcome
from ctrlchan.channel.observability.metrics import ChannelMetrics
from ctrlchan.journal import Journal, journal_files, read_journal
from tests.fault.channels import MODES, config, eventually, peers
from tests.fault.peer import Peer, answer, hang_up
from tests.fault.requests import leader_and_isr, stop_replica, update
from tests.unit.channel.bodies import PlainUpdate, shared_body_of

#: Columns that are fields of an Outcome too; the times follow.
FIELDS = (
    "broker",
    "api",
    "version",
    "correlation_id",
    "controller_epoch",
    "bytes",
    "rows",
    "attempts",
    "outcome",
    "error_code",
    "detail",
)
TIMES = ("enqueue_ns", "first_byte_ns", "last_byte_ns", "response_ns", "end_ns")


def fields_of(outcome: Outcome) -> tuple[Any, ...]:
    return (
        outcome.broker_id,
        outcome.api_key,
        outcome.version,
        None if outcome.correlation_id == -1 else outcome.correlation_id,
        outcome.request.controller_epoch,
        outcome.bytes,
        outcome.rows,
        outcome.attempts,
        outcome.kind.value,
        outcome.error_code,
        outcome.detail,
        outcome.enqueued_ns,
        outcome.first_byte_ns or None,
        outcome.last_byte_ns or None,
        outcome.response_ns or None,
        outcome.completed_ns,
    )


def key(fields: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(map(repr, fields))


@pytest.mark.parametrize("senders", MODES)
def test_rows_have_the_fields_of_their_outcomes(tmp_path: Path, senders: str | int) -> None:
    with (
        peers(3) as brokers,
        Journal(tmp_path, flush_interval=0.02) as journal,
        ControllerChannelManager(config(senders=senders), 7, journal=journal) as channel,
    ):
        brokers[0].script += [answer(31), answer(), hang_up]
        brokers[1].script += [answer(77), answer(partition_errors=[0, 3])]
        channel.startup([peer.broker for peer in brokers])
        called: list[Outcome] = []
        sent = channel.send_requests([1, 2], update(1, version=6))
        for number in range(300):
            for request in (leader_and_isr(number), update(number), stop_replica(number, size=900)):
                callback = called.append if number % 3 == 0 else None
                sent += channel.send_requests([1, 2, 3, 99], request, callback)
        outcomes = channel.wait(sent, 60)
        assert journal.flush()
        assert channel.describe()["journal"]["written_rows"] == len(sent)
        epochs = {peer.broker.id: peer.epoch for peer in brokers}
    rows = read_journal(tmp_path).to_pylist()
    written = [tuple(row[name] for name in (*FIELDS, *TIMES)) for row in rows]
    assert sorted(written, key=key) == sorted(map(fields_of, outcomes), key=key)
    assert [row["sequence"] for row in rows] == list(range(len(sent)))
    assert len({row["channel"] for row in rows}) == 1
    assert sum(row["callback_ns"] is not None for row in rows) == len(called) == 100 * 3 * 4
    for row in rows:
        answered = row["response_ns"] is not None
        assert row["broker_epoch"] == (epochs[row["broker"]] if answered else None)
        assert (
            row["encode_ns"] <= row["enqueue_ns"] <= row["end_ns"] <= (row["callback_ns"] or monotonic_ns())
        )
        assert row["encoding_ns"] > 0
        assert (row["merged"], row["state_version"]) == (1, None)


def test_the_row_of_a_ready_frame_has_its_dataset_and_its_number(tmp_path: Path) -> None:
    with (
        peers(2) as brokers,
        Journal(tmp_path) as journal,
        ControllerChannelManager(config(), 7, journal=journal) as channel,
    ):
        channel.startup([peer.broker for peer in brokers])
        sent = channel.send_requests([1, 2], update(1))
        for number in range(3):
            request = update(number)
            request.origin = ("frames of today", number)
            sent += channel.send_requests([1, 2], request)
        channel.wait(sent, 60)
        assert journal.flush()
    rows = read_journal(tmp_path).to_pylist()
    for broker in (1, 2):
        origins = [(row["dataset"], row["frame"]) for row in rows if row["broker"] == broker]
        assert origins == [(None, None), *(("frames of today", number) for number in range(3))]


def test_the_rows_of_merged_requests_count_them(tmp_path: Path) -> None:
    metrics = ChannelMetrics()
    with (
        peers(1) as [peer],
        Journal(tmp_path) as journal,
        ControllerChannelManager(config(), 7, journal=journal, metrics=metrics) as channel,
    ):
        channel.startup([peer.broker])
        peer.gate.clear()
        shared_bodies = [
            shared_body_of(PlainUpdate(8, {"topic": (1, {0: 1})}, value=value)) for value in range(100)
        ]
        sent = [
            channel.send_request(1, ControlRequest(shared_body, 7, rows=shared_body.rows))
            for shared_body in shared_bodies
        ]
        peer.gate.set()
        outcomes = channel.wait(sent, 10)
        registry = CollectorRegistry()
        registry.register(metrics)
        coalesced = registry.get_sample_value("ctrlchan_channel_coalesced_requests_total", {"broker_id": "1"})
        assert coalesced == channel.describe()["coalesced_requests"] > 0
        made = registry.get_sample_value("ctrlchan_channel_merged_requests_total")
        assert made == channel.describe()["merged_requests"] >= 1
    rows = read_journal(tmp_path).to_pylist()
    assert [row["merged"] for row in rows] == [outcome.merged for outcome in outcomes]
    assert max(row["merged"] for row in rows) > 1
    # Requests that were merged have one correlation id.
    assert len({row["correlation_id"] for row in rows}) == len(peer.received)


def test_a_split_request_is_one_row(tmp_path: Path) -> None:
    with (
        peers(1) as [peer],
        Journal(tmp_path) as journal,
        ControllerChannelManager(config(max_request_bytes=2000), 7, journal=journal) as channel,
    ):
        channel.startup([peer.broker])
        shared_body = shared_body_of(PlainUpdate(8, {"topic": (1, dict.fromkeys(range(200), 1))}))
        [outcome] = channel.wait(
            [channel.send_request(1, ControlRequest(shared_body, 7, rows=shared_body.rows))], 10
        )
        assert len(peer.received) > 1
    [row] = read_journal(tmp_path).to_pylist()
    assert (row["rows"], row["bytes"], row["outcome"]) == (200, outcome.bytes, "acknowledged")
    assert row["encoding_ns"] > 0
    assert row["encode_ns"] <= row["enqueue_ns"]


def test_the_state_version_of_a_request_is_in_its_row(tmp_path: Path) -> None:
    with (
        peers(1) as [peer],
        Journal(tmp_path) as journal,
        ControllerChannelManager(config(), 7, journal=journal) as channel,
    ):
        channel.startup([peer.broker])
        request = update()
        request.state_version = 2**40
        channel.wait([channel.send_request(1, request)], 10)
    assert read_journal(tmp_path)["state_version"].to_pylist() == [2**40]


def test_an_outcome_that_cannot_be_recorded_stops_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        peers(1) as [peer],
        Journal(tmp_path) as journal,
        ControllerChannelManager(config(), 7, journal=journal) as channel,
    ):
        channel.startup([peer.broker])
        sent = []
        for number in range(4):
            request = update(number)
            request.state_version = number if number % 2 else "none"  # type: ignore[assignment]
            sent.append(channel.send_request(1, request))
        assert {outcome.kind.value for outcome in channel.wait(sent, 10)} == {"acknowledged"}
    assert read_journal(tmp_path)["state_version"].to_pylist() == [1, 3]
    [record] = [record for record in caplog.records if "could not be recorded" in record.message]
    assert record.exc_info is not None


def test_requests_that_end_with_their_channel_are_written(tmp_path: Path) -> None:
    with peers(1) as [peer], Journal(tmp_path) as journal:
        with ControllerChannelManager(config(), 7, journal=journal) as channel:
            channel.startup([peer.broker])
            peer.gate.clear()
            for number in range(200):
                channel.send_request(1, update(number, size=100_000))
            channel.remove_broker(1)
            channel.startup([peer.broker])
            channel.send_request(1, update(500))
        peer.gate.set()
        journal.flush()
        rows = read_journal(tmp_path).to_pylist()
    assert {row["outcome"] for row in rows} == {"broker gone"}
    assert [row["detail"] for row in rows] == ["the broker was removed"] * 200 + ["the channel was shut down"]


def test_rows_have_the_broker_epoch_of_their_generation(tmp_path: Path) -> None:
    with (
        peers(1) as [peer],
        Journal(tmp_path) as journal,
        ControllerChannelManager(config(), 7, journal=journal) as channel,
    ):
        for _ in range(3):
            channel.startup([peer.broker])
            channel.wait([channel.send_request(1, update())], 10)
            peer.epoch += 1
    assert read_journal(tmp_path)["broker_epoch"].to_pylist() == [1001, 1002, 1003]


def test_two_channels_write_one_journal(tmp_path: Path) -> None:
    with peers(1) as [peer], Journal(tmp_path) as journal:
        for _ in range(2):
            with ControllerChannelManager(config(), 7, journal=journal) as channel:
                channel.startup([peer.broker])
                channel.wait([channel.send_request(1, update(number)) for number in range(5)], 10)
    rows = read_journal(tmp_path).to_pylist()
    assert [row["sequence"] for row in rows] == [*range(5), *range(5)]
    assert len({row["channel"] for row in rows}) == 2


_ENDLESS = """
import json, sys
from time import monotonic_ns
from ctrlchan import Broker, Endpoint, SecurityProtocol
from ctrlchan.channel import ControllerChannelManager
from ctrlchan.journal import Journal
from tests.fault.channels import config
from tests.fault.requests import update

path, ports = sys.argv[1], json.loads(sys.argv[2])
endpoints = [Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", port) for port in ports]
brokers = [Broker(id=number, endpoints=(endpoint,)) for number, endpoint in enumerate(endpoints)]
ids = range(len(brokers))
with Journal(path, flush_interval=0.1) as journal:
    with ControllerChannelManager(config(), 7, journal=journal) as channel:
        channel.startup(brokers)
        done = 0
        while True:
            sent = [one for number in range(20) for one in channel.send_requests(ids, update(number))]
            channel.wait(sent, 30)
            done += len(sent)
            print(done, monotonic_ns(), flush=True)
"""

#: Seconds for which the process runs, and the nanoseconds a row may take until it is in a file: the interval,
#: writing, and the load of the machine.
_LIFE = 2.0
_SLACK_NS = 1_000_000_000


def test_a_killed_process_loses_at_most_the_rows_of_an_interval(tmp_path: Path) -> None:
    with peers(2) as brokers:
        process = subprocess.Popen(
            [sys.executable, "-c", _ENDLESS, str(tmp_path), json.dumps([port_of(peer) for peer in brokers])],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            printed: list[tuple[int, int]] = []
            deadline = monotonic() + 30
            while (
                not printed
                or printed[-1][1] - printed[0][1] < _LIFE * 1e9
                or len(journal_files(tmp_path)) < 4
            ):
                assert monotonic() < deadline
                printed.append(parse(process.stdout.readline()))
                if len(printed) % 100 == 0:
                    # It can be read while it is written.
                    read_journal(tmp_path)
        finally:
            process.kill()
            killed = monotonic_ns()
            printed += [parse(line) for line in process.stdout.read().splitlines() if line.count(" ") == 1]
            process.wait()
            process.stdout.close()
    rows = read_journal(tmp_path)
    numbers = rows["sequence"].to_pylist()
    assert numbers == list(range(len(numbers)))
    old_enough = max(done for done, at in printed if at < killed - _SLACK_NS)
    assert len(numbers) >= old_enough


def parse(line: str) -> tuple[int, int]:
    done, at = line.split()
    return int(done), int(at)


def port_of(peer: Peer) -> int:
    [endpoint] = peer.broker.endpoints
    return endpoint.port


def test_a_journal_of_a_push_to_embedded_brokers(tmp_path: Path) -> None:
    from ctrlchan import ClusterState, ControllerBrokerRequestBatch

    with EmbeddedCluster(count=2, log_dir=None) as cluster, Journal(tmp_path) as journal:
        state = ClusterState.empty(controller_id=0, controller_epoch=7)
        state.set_brokers(cluster.brokers)
        state.add_topic("topic", {0: [1, 2], 1: [2, 1]})
        state.update(state.rows_of_topic("topic"), leader=[1, 2], leader_epoch=0, isr=[[1, 2], [2, 1]])
        with ControllerChannelManager(config(), 7, journal=journal) as channel:
            channel.startup(state.brokers)
            batch = ControllerBrokerRequestBatch(channel, state)
            batch.new_batch()
            batch.add_leader_and_isr([1, 2], "all", is_new=True)
            outcomes = channel.wait(batch.send_requests_to_brokers(7), 30)
    rows = read_journal(tmp_path).to_pylist()
    assert sorted((row["broker"], row["api"], row["rows"], row["outcome"]) for row in rows) == sorted(
        (outcome.broker_id, outcome.api_key, outcome.rows, outcome.kind.value) for outcome in outcomes
    )
    eventually(lambda: not any(file.name.endswith(".tmp") for file in tmp_path.iterdir()))
