"""``ctrlchan push`` with metrics while it runs, a journal of its outcomes, and settings of Kafka."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from ctrlchan import ClusterState, EmbeddedCluster
from ctrlchan.journal import read_journal
from tests.fault.channels import eventually, peers
from tests.fault.peer import Peer


def snapshot_of(brokers: list[Peer], folder: Path) -> Path:
    state = ClusterState.empty(controller_id=3, controller_epoch=7)
    state.set_brokers([peer.broker for peer in brokers])
    state.add_topic("topic", {0: [1, 2], 1: [2, 1]})
    state.update(state.rows_of_topic("topic"), leader=[1, 2], leader_epoch=0, isr=[[1, 2], [2, 1]])
    state.write(folder)
    return folder


@contextmanager
def pushing(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    # These peers answer control requests alone, and are not asked for their controller.
    command = [sys.executable, "-m", "ctrlchan", "push", "--take-over", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_metrics_are_served_while_a_broker_is_slow(tmp_path: Path) -> None:
    with peers(2) as brokers:
        brokers[1].gate.clear()
        snapshot, properties = snapshot_of(brokers, tmp_path / "snapshot"), tmp_path / "server.properties"
        # Without a retry, however long this test takes.
        properties.write_text("controller.socket.timeout.ms=600000\nrequest.timeout.ms=600000\n")
        with pushing(snapshot, "--config", properties, "--metrics-port", 0, "--json") as process:
            assert process.stderr is not None
            # On a busy machine lines of progress come first.
            [url] = islice((line.split()[1] for line in process.stderr if line.startswith("metrics: ")), 1)
            assert url.startswith("http://127.0.0.1:")

            def values() -> dict[tuple[str, str], float]:
                with urllib.request.urlopen(url, timeout=60) as answered:
                    text = answered.read().decode()
                return {
                    (sample.name, sample.labels.get("broker_id", "")): sample.value
                    for family in text_string_to_metric_families(text)
                    for sample in family.samples
                }

            ended, in_flight = "ctrlchan_channel_requests_total", "ctrlchan_channel_in_flight_requests"
            eventually(lambda: values().get((ended, "1")) == 1 and values().get((in_flight, "2")) == 1, 60)
            found = values()
            kafka = "kafka_controller_controllerchannelmanager_"
            assert found[f"{kafka}queuesize", "2"] == found[f"{kafka}totalqueuesize", ""] == 0
            assert found[f"{kafka}requestrateandqueuetimems_count", "2"] == 1
            assert found["ctrlchan_channel_oldest_request_age_seconds", "2"] > 0
            assert found[ended, "1"] == 1
            brokers[1].gate.set()
            out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert json.loads(out)["acknowledged"] == 2


def test_a_journal_of_a_push(tmp_path: Path) -> None:
    with peers(2) as brokers:
        snapshot = snapshot_of(brokers, tmp_path / "snapshot")
        with pushing(snapshot, "--journal", tmp_path / "journal", "--rounds", 3) as process:
            process.communicate(timeout=120)
        assert process.returncode == 0
    rows = read_journal(tmp_path / "journal").to_pylist()
    assert sorted(row["broker"] for row in rows) == [1, 1, 1, 2, 2, 2]
    assert {(row["outcome"], row["rows"], row["controller_id"], row["controller_epoch"]) for row in rows} == {
        ("acknowledged", 2, 3, 7)
    }


def test_a_port_that_is_taken_is_an_error(tmp_path: Path) -> None:
    with peers(2) as brokers, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        snapshot = snapshot_of(brokers, tmp_path / "snapshot")
        with pushing(snapshot, "--metrics-port", port) as process:
            _, printed = process.communicate(timeout=120)
        assert process.returncode == 1
        assert printed.splitlines()[-1].startswith(f"error: metrics port {port}: ")


def test_settings_come_from_server_properties_and_options_win(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("broker.id=8\ninter.broker.protocol.version=2.8\nlog.dirs=/var/lib/kafka\n")
    with peers(2) as brokers:
        snapshot = snapshot_of(brokers, tmp_path / "snapshot")
        for options in ([], ["--controller-id", "9", "--ibp", "3.4"]):
            journal = tmp_path / f"journal-{len(options)}"
            with pushing(snapshot, "--config", properties, "--journal", journal, *options) as process:
                process.communicate(timeout=120)
            assert process.returncode == 0
    seen = [
        {
            (row["controller_id"], row["version"])
            for row in read_journal(tmp_path / f"journal-{count}").to_pylist()
        }
        for count in (0, 4)
    ]
    assert seen == [{(8, 7)}, {(9, 8)}]


def test_a_push_to_embedded_brokers_with_journal_and_metrics(tmp_path: Path) -> None:
    with EmbeddedCluster(count=2, log_dir=None) as cluster:
        state = ClusterState.empty(controller_id=0, controller_epoch=7)
        state.set_brokers(cluster.brokers)
        state.write(tmp_path / "snapshot")
        with pushing(
            tmp_path / "snapshot", "--journal", tmp_path / "journal", "--metrics-port", 0
        ) as process:
            process.communicate(timeout=120)
        assert process.returncode == 0
    assert read_journal(tmp_path / "journal").num_rows == 2
