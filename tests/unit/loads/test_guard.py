"""The guard: no cluster that the user has not named, and nothing but the run's own topics."""

from __future__ import annotations

import importlib.util
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from ctrlchan import EmbeddedCluster
from ctrlchan.cli import main
from ctrlchan.errors import ConfigError, CtrlchanError
from ctrlchan.loads.guard import OwnNames, check_cluster, find_cluster, new_run
from tests.unit.loads.conftest import own_topics, topics_of

SHORT = ["--seconds", "0.2", "--warmup", "0", "--rate", "20"]


def refusal(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(["bench", "produce", *words, *SHORT])
    assert end.value.code == 1
    return capfd.readouterr().err


def test_no_cluster_is_loaded_by_default(capfd: pytest.CaptureFixture[str]) -> None:
    assert "which cluster?" in refusal(capfd)
    assert "which cluster?" in refusal(capfd, "--embedded", "1", "-b", "localhost:9092")


def test_what_is_missing_is_said_before_anything_is_loaded(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "no such folder" in refusal(capfd, "--embedded", "1", "--json", str(tmp_path / "none" / "r.json"))
    found = importlib.util.find_spec
    for module in ("hdrh", "confluent_kafka"):
        with monkeypatch.context() as patch:
            patch.setattr(
                importlib.util, "find_spec", lambda name, m=module: None if name == m else found(name)
            )
            assert "pip install 'ctrlchan[bench]'" in refusal(capfd, "--embedded", "1")


def test_without_a_terminal_the_cluster_id_is_needed(
    cluster: EmbeddedCluster,
    cluster_id: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        said = refusal(capfd, "-b", cluster.bootstrap_servers)
    assert cluster_id in said
    assert "give --cluster-id" in said
    assert own_topics(cluster) == []


def test_another_cluster_id_is_refused(
    cluster: EmbeddedCluster, cluster_id: str, capfd: pytest.CaptureFixture[str]
) -> None:
    said = refusal(capfd, "-b", cluster.bootstrap_servers, "--cluster-id", "other")
    assert f"this is cluster {cluster_id}" in said
    assert "not other: nothing is done" in said
    assert own_topics(cluster) == []


def test_a_cluster_that_does_not_answer(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctrlchan.loads.guard.find_cluster.__kwdefaults__", {"timeout": 1.0})
    assert "no answer from 127.0.0.1:1" in refusal(capfd, "-b", "127.0.0.1:1", "--cluster-id", "x")


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 130)])
def test_on_a_terminal_the_user_is_asked(
    cluster: EmbeddedCluster, cluster_id: str, answer: str, status: int
) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "ctrlchan", "bench", "produce", "-b", cluster.bootstrap_servers, *SHORT]
    child = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.close(theirs)
    os.write(ours, answer.encode())
    out, err = child.communicate(timeout=60)
    os.close(ours)
    assert child.returncode == status, err
    assert f"Load cluster {cluster_id} (2 brokers" in err
    assert ("produce" in out) == (status == 0)
    assert own_topics(cluster) == []


def test_a_worker_that_reaches_another_cluster_does_nothing(
    cluster: EmbeddedCluster, cluster_id: str
) -> None:
    client = {"bootstrap.servers": cluster.bootstrap_servers}
    check_cluster(client, cluster_id)
    with pytest.raises(CtrlchanError, match="cluster other was to be loaded: nothing is done"):
        check_cluster(client, "other")


def test_only_the_runs_own_topics_are_made_and_deleted(cluster: EmbeddedCluster, users_own: str) -> None:
    client: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap_servers}
    run, other = new_run(), new_run()
    assert run != other
    own, others = OwnNames(client, run), OwnNames(client, other)
    for name in ("orders", f"{run}", f"{other}-records", "ctrlchan-bench-"):
        with pytest.raises(ConfigError):
            own.create_topic(name, 1, 1)
        with pytest.raises(ConfigError):
            own.delete([name])
    own.create_topic(f"{run}-records", 3, 1)
    others.create_topic(f"{other}-records", 1, 1)
    assert own.topics() == [f"{run}-records"]
    own.delete()
    assert own_topics(cluster) == [f"{other}-records"]
    others.delete()
    assert users_own in topics_of(cluster)
    for wrong in ("", "orders", "ctrlchan-bench-"):
        with pytest.raises(ConfigError):
            OwnNames(client, wrong)


def test_a_topic_that_exists_is_not_used(cluster: EmbeddedCluster) -> None:
    own = OwnNames({"bootstrap.servers": cluster.bootstrap_servers}, new_run())
    own.create_topic(f"{own.run}-records", 1, 1)
    with pytest.raises(CtrlchanError, match="already exists"):
        own.create_topic(f"{own.run}-records", 1, 1)
    own.delete()


def test_a_secured_cluster_is_loaded_with_the_users_settings(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with EmbeddedCluster(2, security="SASL_PLAINTEXT", users={"alice": "secret"}) as secured:
        client = secured.client_settings("confluent", user="alice")
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in client.items()))
        target = find_cluster(client)
        where = ["-b", client["bootstrap.servers"], "--cluster-id", target.cluster_id, "--config", str(file)]
        for kind, operation in (("produce", "produce"), ("leaders", "move")):
            result = tmp_path / f"{kind}.json"
            words = ["--seconds", "1", "--warmup", "0", "--rate", "24", "--replication", "2"]
            with pytest.raises(SystemExit) as end:
                main(["bench", kind, *where, *words, "--json", str(result)])
            printed = capfd.readouterr()
            assert end.value.code == 0, printed.err
            written = result.read_text()
            assert json.loads(written)["operations"][operation]["items"] == 24
            assert "secret" not in printed.out + printed.err + written


def test_offsets_are_asked_for_again_while_leaders_move(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = OwnNames({"bootstrap.servers": cluster.bootstrap_servers}, new_run())
    topic = f"{own.run}-records"
    own.create_topic(topic, 2, 1)
    ask, codes = own._sum_of_offsets, [KafkaError.FENCED_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION]

    def fails_first(name: str, spec: Any) -> int:
        if codes:
            raise KafkaException(KafkaError(codes.pop()))
        return ask(name, spec)

    monkeypatch.setattr(own, "_sum_of_offsets", fails_first)
    assert own.offsets(topic) == (0, 0)
    assert codes == []
    codes.append(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(CtrlchanError, match=rf"topic {topic}: Broker: Topic authorization failed"):
        own.offsets(topic)
    own.delete()
