"""``ctrlchan plan``: the table, JSON, snapshots, and costs of another machine."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ctrlchan.calibration.costs_file import Calibration, costs_path, read_calibration, write_calibration
from ctrlchan.cli import main
from ctrlchan.errors import ConfigError
from ctrlchan.planning.costs import DEFAULT_COSTS
from ctrlchan.planning.shape import Shape
from ctrlchan.state import Broker, ClusterState

SMALL = ("--partitions", "2000", "--brokers", "6")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Return (exit status, standard output, standard error)."""
    with pytest.raises(SystemExit) as ended:
        main(["plan", *arguments])
    printed = capfd.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, printed.out, printed.err


def planned(capfd: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    status, out, _ = run(capfd, *arguments, "--json")
    assert status == 0
    plan: dict[str, Any] = json.loads(out)
    return plan


def event(plan: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in plan["events"] if one["name"] == name)
    return found


def test_the_table_has_every_event_and_an_answer(capfd: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capfd, *SMALL)
    assert status == 0
    for name in (
        "full push",
        "difference push: one topic",
        "failover",
        "death of a broker",
        "rolling restart",
    ):
        assert name in out
    assert "one machine is enough" in out
    assert "ctrlchan bench calibrate" in err
    assert "defaults" in out


def test_too_large_a_cluster_names_dispatch(capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capfd, *SMALL, "--nic", "0.001", "--within", "1")
    assert "not enough" in out
    assert "ctrlchan pipeline dispatch" in out
    _, out, _ = run(capfd, *SMALL, "--within", "0.01")
    assert "more machines do not help" in out
    assert "dispatch" not in out


def test_a_snapshot_has_the_bytes_of_its_shape(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Shape(partitions=2_000, brokers=6).state().write(tmp_path / "snapshot")
    of_snapshot = planned(capfd, "--snapshot", str(tmp_path / "snapshot"))
    of_shape = planned(capfd, *SMALL)
    assert of_snapshot["events"] == of_shape["events"]
    assert of_shape["partitions"] == 2_000


def test_options_change_the_bytes(capfd: pytest.CaptureFixture[str]) -> None:
    plain = event(planned(capfd, *SMALL), "full push")["bytes"]
    for options in (
        ("--topic-name-length", "40"),
        ("--racks", "3"),
        ("--listener", "A:SSL", "--listener", "PLAINTEXT"),
        ("--host", "b.a"),
        ("--ibp", "2.8"),
        ("--replication", "2"),
        ("--partitions-per-topic", "10"),
    ):
        assert event(planned(capfd, *SMALL, *options), "full push")["bytes"] != plain, options


def test_measured_costs_are_used_and_named(capfd: pytest.CaptureFixture[str]) -> None:
    costs = {**asdict(DEFAULT_COSTS), "failover_seconds": 3.0}
    write_calibration(Calibration.now(DEFAULT_COSTS.of(costs), with_server=True))
    found = planned(capfd, *SMALL)
    assert event(found, "failover")["seconds"] > 3
    assert found["costs"]["machine"] == platform.node()
    assert found["costs"]["zookeeper"] == "a server"
    _, out, err = run(capfd, *SMALL)
    assert "warning" not in err
    assert f"measured on {platform.node()}" in out
    assert event(planned(capfd, *SMALL, "--costs", "defaults"), "failover")["seconds"] < 3


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"machine": "another"}, "measured on the machine another"),
        ({"version": "0.0.1"}, "measured with ctrlchan 0.0.1"),
        ({"costs": {}}, "encode_seconds"),
        ({"date": None, "costs": None}, "no measured costs"),
    ],
)
def test_costs_of_something_else_are_refused(
    capfd: pytest.CaptureFixture[str], changed: dict[str, Any], reason: str
) -> None:
    path = write_calibration(Calibration.now(DEFAULT_COSTS, with_server=False))
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    status, _, err = run(capfd, *SMALL)
    assert status == 1
    assert reason in err
    assert "run ctrlchan bench calibrate again" in err
    assert run(capfd, *SMALL, "--costs", "defaults")[0] == 0


def test_a_damaged_file_is_refused() -> None:
    path = write_calibration(Calibration.now(DEFAULT_COSTS, with_server=False))
    path.write_text("{")
    with pytest.raises(ConfigError, match="no measured costs"):
        read_calibration()


def test_costs_are_read_as_they_were_written(cache: Path) -> None:
    assert read_calibration() is None
    calibration = Calibration.now(DEFAULT_COSTS, with_server=False)
    assert write_calibration(calibration) == costs_path() == cache / "ctrlchan" / "costs.json"
    assert read_calibration() == calibration


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "--snapshot"),
        (("--partitions", "10"), "--brokers"),
        (("--snapshot", "x", "--brokers", "3"), "--brokers"),
        ((*SMALL, "--listener", "A:NOTHING"), "NOTHING"),
        ((*SMALL, "--costs", "other"), "--costs"),
        ((*SMALL, "--host", ""), "host"),
        ((*SMALL, "--nic", "inf"), "--nic"),
        ((*SMALL, "--nic", "nan"), "nan"),
    ],
)
def test_wrong_usage_is_one_line(
    capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], named: str
) -> None:
    status, _, err = run(capfd, *arguments)
    assert status == 2
    line = err.splitlines()[-1]
    assert line.startswith("error: ")
    assert named in line


@pytest.mark.parametrize("arguments", [(*SMALL, "--replication", "7"), (*SMALL, "--ibp", "99")])
def test_a_cluster_that_cannot_be_is_one_line(
    capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    status, _, err = run(capfd, *arguments)
    assert status == 1
    assert err.splitlines()[-1].startswith("error: ")


def test_a_snapshot_without_addresses_is_planned(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    state = Shape(partitions=20, brokers=3, partitions_per_topic=10).state()
    state.set_brokers([Broker(one, -1, ()) for one in state.broker_ids.tolist()])
    state.write(tmp_path / "described")
    assert event(planned(capfd, "--snapshot", str(tmp_path / "described")), "failover")["requests"] == 9


def test_dead_brokers_of_a_snapshot_are_sent_nothing(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    state = Shape(partitions=200, brokers=4, partitions_per_topic=10).state()
    state.remove_brokers([2])
    state.write(tmp_path / "snapshot")
    found = planned(capfd, "--snapshot", str(tmp_path / "snapshot"))
    assert event(found, "full push")["requests"] == 3
    # The leaders of the dead broker move, and it leaves the ISRs of others.
    assert event(found, "failover")["state_nodes_written"] > 100


def test_a_snapshot_without_brokers_is_refused(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ClusterState.empty().write(tmp_path / "empty")
    status, _, err = run(capfd, "--snapshot", str(tmp_path / "empty"))
    assert status == 1
    assert "brokers and partitions" in err
