"""Tests that a report finds planted divergence, with partition and reason, and none elsewhere.

Each case has its own broker and channel, so that one report covers all cases.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from ctrlchan.pipeline import Report, ReportConfig, report
from ctrlchan.pipeline.jobs.report.divergence import with_counts
from ctrlchan.state import Broker, ClusterState, Endpoint, SecurityProtocol
from tests.spark.conftest import small_inputs
from tests.spark.planted import STATE, Planted, unfinished

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Version -> the partitions of topic ``orders`` that it changed. Partitions 0 to 9 are of version 0; 9 has no
#: leadership.
CHANGES: Final = {1: [3], 2: [4, 5], 3: [6], 4: [7], 5: [8]}
#: The partitions with leadership.
EVERYTHING: Final = range(9)
NEWEST: Final = max(CHANGES)

#: Partition -> (reason, whether it is certain).
Stale = dict[int, tuple[str, bool]]
#: Adds rows of broker ``b`` and returns the stale partitions to be found.
Case = Callable[[Planted, int], Stale]
CASES: Final[list[Case]] = []


def case(function: Case) -> Case:
    CASES.append(function)
    return function


def certainly(reason: str, partitions: list[int] | range) -> Stale:
    return dict.fromkeys(partitions, (reason, True))


def perhaps(reason: str, partitions: list[int] | range) -> Stale:
    return dict.fromkeys(partitions, (reason, False))


def all_changes(planted: Planted, b: int, but: tuple[int, ...] = (), **values: Any) -> None:
    """Add a request with everything, then one for each change."""
    planted.full(b, **values)
    for version, names in CHANGES.items():
        if version not in but:
            planted.add(b, version, names=names, **values)


# -- nothing is stale


@case
def each_change_was_acknowledged(planted: Planted, b: int) -> Stale:
    all_changes(planted, b)
    planted.write()
    return {}


@case
def one_push_of_everything(planted: Planted, b: int) -> Stale:
    planted.full(b, version=NEWEST)
    planted.write()
    return {}


@case
def failed_partitions_were_sent_again(planted: Planted, b: int) -> Stale:
    all_changes(planted, b, but=(2,))
    planted.add(b, 2, names=[4, 5], outcome="refused", error_code=31)
    planted.add(b, 2, names=[4])
    planted.add(b, 5, names=[5, 8])
    planted.write()
    return {}


@case
def failed_partitions_were_in_a_push_of_everything(planted: Planted, b: int) -> Stale:
    all_changes(planted, b, outcome="broker gone")
    planted.full(b, version=NEWEST)
    planted.write()
    return {}


@case
def ranges_follow_one_another(planted: Planted, b: int) -> Stale:
    planted.full(b)
    planted.add(b, 2, from_version=0, merged=3)
    planted.add(b, 4, from_version=1)
    planted.add(b, 5, from_version=4, names=[8])
    planted.write()
    return {}


@case
def a_failed_request_removes_nothing(planted: Planted, b: int) -> Stale:
    all_changes(planted, b)
    planted.add(b, NEWEST, from_version=-1, outcome="refused", error_code=-1)
    planted.write()
    return {}


@case
def two_controllers_of_one_state(planted: Planted, b: int) -> Stale:
    """The second controller continued from a snapshot."""
    planted.full(b)
    planted.add(b, 1, names=[3])
    planted.write()
    later = Planted(planted.path, channel=f"{planted.channel}-later")
    for version in (2, 3, 4, 5):
        later.add(b, version, names=CHANGES[version], controller_epoch=8, generation=b + 700)
    later.write()
    return {}


@case
def it_restarted_and_was_sent_all(planted: Planted, b: int) -> Stale:
    all_changes(planted, b)
    planted.full(b, version=NEWEST, broker_epoch=2, generation=b + 500)
    planted.write()
    return {}


@case
def a_waiting_request_has_ended_since(planted: Planted, b: int) -> Stale:
    all_changes(planted, b, but=(5,))
    planted.add(b, 5, names=[8], enqueue_ns=50 * 10**9)
    planted.write(closed=False, waiting={b: (unfinished(5, [8]),)})
    return {}


@case
def the_acknowledged_version_is_newer_than_the_snapshot(planted: Planted, b: int) -> Stale:
    all_changes(planted, b, but=(5,))
    planted.add(b, NEWEST + 3, names=[8])
    planted.write()
    return {}


# -- something failed or waits


@case
def some_were_refused(planted: Planted, b: int) -> Stale:
    all_changes(planted, b, but=(2, 4))
    planted.add(b, 2, names=[4, 5], outcome="refused", error_code=31)
    planted.add(b, 4, names=[7], outcome="broker gone", error_code=0)
    planted.write()
    return certainly("refused", [4, 5]) | certainly("broker gone", [7])


@case
def one_of_two_was_sent_again(planted: Planted, b: int) -> Stale:
    all_changes(planted, b, but=(2,))
    planted.add(b, 2, names=[4, 5], outcome="refused", error_code=31)
    planted.add(b, NEWEST, names=[5])
    planted.write()
    return certainly("refused", [4])


@case
def it_acknowledged_an_older_version(planted: Planted, b: int) -> Stale:
    all_changes(planted, b, but=(4,))
    planted.add(b, 2, names=[7])
    planted.add(b, 4, names=[7], outcome="too large")
    planted.write()
    return certainly("too large", [7])


@case
def two_requests_wait(planted: Planted, b: int) -> Stale:
    all_changes(planted, b, but=(4, 5))
    planted.write(closed=False, waiting={b: (unfinished(4, [7]), unfinished(5, [8]))})
    return certainly("waiting", [7, 8])


@case
def a_push_of_everything_waits_behind_a_failure(planted: Planted, b: int) -> Stale:
    planted.full(b)
    planted.add(b, 1, names=[3], outcome="refused", error_code=31)
    planted.write(closed=False, waiting={b: (unfinished(NEWEST, from_version=-1),)})
    return certainly("waiting", range(3, 9))


@case
def a_range_failed_before_later_ranges(planted: Planted, b: int) -> Stale:
    planted.full(b)
    planted.add(b, 2, from_version=0, outcome="refused", error_code=-1)
    planted.add(b, 5, from_version=2)
    planted.write()
    return certainly("refused", [3, 4, 5])


# -- another process


@case
def it_has_another_epoch(planted: Planted, b: int) -> Stale:
    planted.full(b, version=NEWEST)
    planted.write(generations={b: (b, 2)})
    return certainly("restarted", EVERYTHING)


@case
def its_channel_has_another_generation(planted: Planted, b: int) -> Stale:
    planted.full(b, version=NEWEST)
    planted.write(generations={b: (b + 500, 1)})
    return certainly("restarted", EVERYTHING)


@case
def the_broker_called_its_epoch_stale(planted: Planted, b: int) -> Stale:
    all_changes(planted, b, but=(5,))
    planted.add(b, 5, names=[8], outcome="fenced", error_code=77)
    planted.write()
    return certainly("restarted", range(8)) | certainly("fenced", [8])


@case
def it_restarted_and_was_sent_a_part(planted: Planted, b: int) -> Stale:
    planted.full(b, version=4)
    planted.add(b, 5, names=[8, 1], broker_epoch=2, generation=b + 500)
    planted.write()
    return certainly("restarted", [0, *range(2, 8)])


@case
def the_snapshot_has_a_later_epoch(planted: Planted, b: int) -> Stale:
    planted.full(b, version=NEWEST)
    planted.write()
    return certainly("restarted", EVERYTHING)


# -- nothing was sent


@case
def two_changes_were_not_sent(planted: Planted, b: int) -> Stale:
    all_changes(planted, b, but=(2, 5))
    planted.add(b, 5, names=[])
    planted.write()
    return certainly("not sent", [4, 5, 8])


@case
def nothing_of_this_state_was_sent(planted: Planted, b: int) -> Stale:
    planted.full(b, version=NEWEST, state_id="another")
    planted.write()
    return certainly("no request", EVERYTHING)


@case
def a_range_was_left_out(planted: Planted, b: int) -> Stale:
    planted.full(b)
    planted.add(b, 2, from_version=0)
    planted.add(b, 5, from_version=3)
    planted.write()
    return certainly("not sent", [6])


# -- uncertain results


@case
def it_obeys_another_controller(planted: Planted, b: int) -> Stale:
    all_changes(planted, b, but=(5,))
    planted.add(b, 5, names=[8], outcome="fenced", error_code=11)
    planted.write()
    return perhaps("another controller", [8])


@case
def an_acknowledged_request_has_no_list(planted: Planted, b: int) -> Stale:
    all_changes(planted, b, but=(2, 5))
    planted.add(b, 3, rows=900)
    planted.add(b, 4, names=[7])
    planted.write()
    return perhaps("not listed", [4, 5]) | certainly("not sent", [8])


@case
def its_channel_has_not_closed(planted: Planted, b: int) -> Stale:
    """Requests before the last one that has ended would have ended before it."""
    all_changes(planted, b, but=(1, 5))
    planted.write(closed=False)
    return certainly("not sent", [3]) | perhaps("not sent", [8])


@case
def outcomes_of_its_channel_are_lost(planted: Planted, b: int) -> Stale:
    all_changes(planted, b, but=(1, 5))
    planted.add(b, 5, names=[8], outcome="refused", error_code=31)
    planted.write(outcomes=len(planted.rows) + 3)
    return perhaps("not sent", [3]) | perhaps("refused", [8])


NEVER_SEEN: Final = len(CASES) + 1
LATER_EPOCH: Final = CASES.index(the_snapshot_has_a_later_epoch) + 1


@dataclass
class World:
    """A journal of all cases. ``expected``: by broker; broker 1 is the first case."""

    journal: Path
    snapshot: Path
    expected: dict[int, Stale] = field(default_factory=dict)


def state_of(brokers: int) -> ClusterState:
    state = ClusterState.empty("planted", 0, 7)
    endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "host", 9092)
    ids = range(1, brokers + 1)
    state.set_brokers(Broker(one, 2 if one == LATER_EPOCH else 1, (endpoint,)) for one in ids)
    state.add_topic("orders", {number: [1, 2, 3] for number in range(10)}, leader=1, leader_epoch=0)
    state.update(9, leader_epoch=-1)
    assert state.changes.version == 0
    state.changes.id = STATE
    for version, rows in CHANGES.items():
        state.update(rows, leader=2, leader_epoch=version)
    return state


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("divergence")
    made = World(folder / "journal", folder / "snapshot")
    state_of(NEVER_SEEN).write(made.snapshot)
    for broker, plant in enumerate(CASES, start=1):
        made.expected[broker] = plant(Planted(made.journal, channel=f"channel-{broker}"), broker)
    made.expected[NEVER_SEEN] = perhaps("no request", EVERYTHING)
    return made


def stale_of(made: Report) -> dict[int, Stale]:
    assert made.divergence is not None
    found: dict[int, Stale] = {}
    for row in made.divergence.partitions.collect():
        assert row["topic"] == "orders"
        assert row["partition"] not in found.get(row["broker"], {})
        found.setdefault(row["broker"], {})[row["partition"]] = (row["reason"], row["certain"])
    return found


@dataclass
class Reported:
    """The report of all cases."""

    report: Report
    stale: dict[int, Stale]
    brokers: dict[int, Any]


@pytest.fixture(scope="module")
def reported(spark: SparkSession, world: World) -> Reported:
    made = report(spark, ReportConfig(journal=world.journal, snapshot=world.snapshot))
    assert made.divergence is not None
    brokers = {row["broker"]: row for row in with_counts(made.divergence).collect()}
    return Reported(made, stale_of(made), brokers)


@pytest.mark.parametrize(
    "broker", range(1, NEVER_SEEN + 1), ids=[*(one.__name__ for one in CASES), "never_seen"]
)
def test_stale_partitions_against_a_snapshot(world: World, reported: Reported, broker: int) -> None:
    expected = world.expected[broker]
    assert reported.stale.get(broker, {}) == expected
    row = reported.brokers[broker]
    assert row["stale"] == sum(certain for _, certain in expected.values())
    assert row["uncertain"] == len(expected) - row["stale"]
    if expected:
        assert row["reason"] in {reason for reason, _ in expected.values()}


def test_rows_have_version_error_and_time(world: World, reported: Reported) -> None:
    assert reported.report.divergence is not None
    rows = {(row["broker"], row["partition"]): row for row in reported.report.divergence.partitions.collect()}
    refused = rows[CASES.index(some_were_refused) + 1, 4]
    assert (refused["row_version"], refused["acknowledged_version"], refused["error_code"]) == (2, None, 31)
    older = rows[CASES.index(it_acknowledged_an_older_version) + 1, 7]
    assert (older["row_version"], older["acknowledged_version"]) == (4, 2)
    waits = CASES.index(two_requests_wait) + 1
    first, second = rows[waits, 7], rows[waits, 8]
    assert (first["attempts"], first["detail"]) == (3, "connecting failed (Connection refused)")
    assert (second["attempts"], second["detail"]) == (0, "")
    assert first["since"].second == reported.brokers[waits]["oldest_at"].second == 50
    assert reported.brokers[waits]["last_error"] == "connecting failed (Connection refused)"


def test_versions_that_brokers_have(world: World, reported: Reported) -> None:
    def known(one: Case) -> int:
        return int(reported.brokers[CASES.index(one) + 1]["known_version"])

    assert known(one_push_of_everything) == NEWEST
    assert known(ranges_follow_one_another) == NEWEST
    assert known(each_change_was_acknowledged) == 0
    assert known(a_range_was_left_out) == 2
    assert known(it_has_another_epoch) == -1
    [waiting] = [row for row in reported.report.waiting.collect() if row["from_version"] == -1]
    assert waiting["broker"] == CASES.index(a_push_of_everything_waits_behind_a_failure) + 1
    ended = CASES.index(a_waiting_request_has_ended_since) + 1
    assert ended not in {row["broker"] for row in reported.report.waiting.collect()}


def test_channels_and_lost_outcomes(world: World, reported: Reported) -> None:
    rows = {row["channel"]: row for row in reported.report.channels.collect()}
    assert len(rows) == len(CASES) + 1
    lossy = f"channel-{CASES.index(outcomes_of_its_channel_are_lost) + 1}"
    assert {name: row["lost"] for name, row in rows.items() if row["lost"]} == {lossy: 3}
    assert sum(not row["closed"] for row in rows.values()) == 4


def test_the_driver_finds_what_tasks_find(spark: SparkSession, world: World, reported: Reported) -> None:
    expected = tables_of(reported.report)
    with small_inputs(spark):
        found = tables_of(report(spark, ReportConfig(journal=world.journal, snapshot=world.snapshot)))
    for name, rows in expected.items():
        assert found[name] == rows, name


def tables_of(made: Report) -> dict[str, list[dict[str, Any]]]:
    """The rows of all tables of a report, in one order."""
    assert made.divergence is not None
    tables = {name: getattr(made, name) for name in ("figures", "errors", "series", "channels", "waiting")}
    tables |= {"divergence": made.divergence.partitions, "brokers": with_counts(made.divergence)}
    return {
        name: sorted(table.toArrow().to_pylist(), key=lambda row: json.dumps(row, default=str))
        for name, table in tables.items()
    }


def test_failed_requests_are_found_without_a_snapshot(spark: SparkSession, world: World) -> None:
    found = stale_of(report(spark, ReportConfig(journal=world.journal)))
    named = {
        some_were_refused: {4, 5, 7},
        one_of_two_was_sent_again: {4},
        it_acknowledged_an_older_version: {7},
        two_requests_wait: {7, 8},
        a_push_of_everything_waits_behind_a_failure: {3},
        the_broker_called_its_epoch_stale: {8},
        it_obeys_another_controller: {8},
        outcomes_of_its_channel_are_lost: {8},
    }
    assert {broker: set(partitions) for broker, partitions in found.items()} == {
        CASES.index(one) + 1: partitions for one, partitions in named.items()
    }


@pytest.mark.parametrize("why", ["other state", "older journal", "older snapshot"])
def test_the_reason_is_given_if_nothing_can_be_compared(
    spark: SparkSession, tmp_path: Path, why: str
) -> None:
    planted, folder = Planted(tmp_path / "journal"), tmp_path / "snapshot"
    state_of(3).write(folder)
    planted.full(1, 2, 3, state_id={"other state": "another", "older journal": None}.get(why, STATE))
    if why == "older snapshot":
        cluster = json.loads((folder / "cluster.json").read_text())
        del cluster["state_id"]
        (folder / "cluster.json").write_text(json.dumps(cluster))
    found = report(spark, ReportConfig(journal=planted.write(), snapshot=folder))
    assert found.divergence is None
    words = (
        "the snapshot has no versions" if why == "older snapshot" else "no request of the snapshot's state"
    )
    assert words in found.about["not_compared"]


def test_an_older_list_of_live_brokers(spark: SparkSession, tmp_path: Path) -> None:
    planted, state = Planted(tmp_path / "journal"), state_of(3)
    planted.full(1, 2, 3, version=NEWEST)
    state.add_brokers([Broker(4, 1, state.broker(1).endpoints)])
    planted.add(1, state.changes.version, names=[])
    state.write(tmp_path / "snapshot")
    found = report(spark, ReportConfig(journal=planted.write(), snapshot=tmp_path / "snapshot")).divergence
    assert found is not None
    lists = {row["broker"]: row["live_brokers_stale"] for row in found.brokers.collect()}
    assert lists == {1: False, 2: True, 3: True, 4: True}
