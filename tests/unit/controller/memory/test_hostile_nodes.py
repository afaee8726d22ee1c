"""Nodes that nobody could have written harm only what they belong to: the controller works for all others.

Twice each: the nodes are there at a failover, and they come while the controller is active. One cluster has
them all; `make acceptance` has a cluster for each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ctrlchan.zookeeper import nodes, paths
from tests.kafka.waiting import wait_until
from tests.unit.controller.real_cluster import TIMEOUT, RealCluster

LONG = "x" * 40_000
#: 32,766 characters, and more bytes than a string of Kafka holds.
LONG_IN_BYTES = "ä" * 32_766
HALF = "\ud800"
#: JSON texts of numbers that are no int32.
NUMBERS = (
    "2147483648",
    "-2147483649",
    "9223372036854775808",
    "1e400",
    "NaN",
    "1.0",
    "true",
    '"1"',
    "null",
    "[]",
)
TOO_LONG = r" has \d+ bytes, more than the 32767 of a string in a request"


class Hostile(NamedTuple):
    """Nodes by path, and what the log says of each (a regular expression), None: nothing."""

    nodes: Mapping[str, bytes]
    logged: str | None


def registration(**fields: Any) -> bytes:
    given = {
        "version": 5,
        "host": "localhost",
        "port": 9092,
        "jmx_port": -1,
        "endpoints": ["PLAINTEXT://localhost:9092"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "features": {},
    }
    return json.dumps(given | fields).encode()


def registered(logged: str, broker_id: object = 7, **fields: Any) -> Hostile:
    return Hostile({paths.broker(str(broker_id)): registration(**fields)}, logged)


def topic(logged: str | None, partitions: str = '{"0":[1]}', name: str = "bad", more: str = "") -> Hostile:
    return Hostile({paths.topic(name): f'{{"version":3,"partitions":{partitions}{more}}}'.encode()}, logged)


def state(logged: str, **fields: str) -> Hostile:
    given = {"version": "1", "leader": "1", "leader_epoch": "0", "controller_epoch": "1", "isr": "[1]"}
    data = ",".join(f'"{name}":{value}' for name, value in (given | fields).items())
    return Hostile(
        {
            paths.topic("bad"): b'{"version":3,"partitions":{"0":[1]}}',
            paths.partition_state("bad", 0): f"{{{data}}}".encode(),
        },
        logged,
    )


CASES: dict[str, Hostile] = {
    "a long host": registered(f"/7 is left out: host .*{TOO_LONG}", endpoints=[f"PLAINTEXT://{LONG}:9092"]),
    "a host that is long in bytes": registered(
        f"/7 is left out: host .*{TOO_LONG}", endpoints=[f"PLAINTEXT://{LONG_IN_BYTES}:9092"]
    ),
    "a long host of version 1": Hostile(
        {paths.broker(7): json.dumps({"version": 1, "host": LONG, "port": 9092}).encode()},
        f"/7 is left out: host .*{TOO_LONG}",
    ),
    "a long rack": registered(f"/7 is left out: rack .*{TOO_LONG}", rack=LONG),
    "a long listener": registered(
        f"/7 is left out: listener .*{TOO_LONG}",
        endpoints=[f"{LONG}://localhost:9092"],
        listener_security_protocol_map={LONG: "PLAINTEXT"},
    ),
    "a long security protocol": registered(
        "/7 is left out: listener .* has no security protocol",
        listener_security_protocol_map={"PLAINTEXT": LONG},
    ),
    "a half pair in a host": registered(
        "/7 is left out: .*no endpoint", endpoints=[f"PLAINTEXT://{HALF}:9092"]
    ),
    "a half pair in a rack": registered("/7 is left out: rack is .*not a text", rack=HALF),
    "a half pair in a listener": registered(
        "/7 is left out: .*no endpoint", endpoints=[f"{HALF}://localhost:9092"]
    ),
    "a half pair in a feature": registered("/7 is left out: feature .* no character", features={HALF: {}}),
    "a rack that is no text": registered("/7 is left out: rack is .1., not a text", rack=1),
    "a port above 65535": registered("/7 is left out: port 70000", endpoints=["PLAINTEXT://localhost:70000"]),
    "a port below 0": registered("/7 is left out: .*no endpoint", endpoints=["PLAINTEXT://localhost:-5"]),
    "a broker id above int32": registered("/2147483648 is left out", broker_id=2**31),
    "a broker id below 0": registered("/-1 is left out", broker_id=-1),
    "a broker id in other digits": registered("/٣ is left out", broker_id="٣"),
    "a long topic name": topic("249", name="t" * 250),
    "a topic name of other characters": topic("a character other than", name="bäd"),
    "a partition above int32": topic("/bad is left out", '{"2147483648":[1]}'),
    "a partition that is no number": topic("/bad is left out", '{"0":[1],"x":[1]}'),
    **{f"the replica {one}": topic("/bad is left out", f'{{"0":[{one}]}}') for one in NUMBERS},
    "a replica below 0": topic("/bad is left out", '{"0":[-1]}'),
    **{
        f"the {name} {one}": topic("/bad is left out", more=f',"{name}":{{"0":[{one}]}}')
        for one in NUMBERS[:2]
        for name in ("adding_replicas", "removing_replicas")
    },
    "a topic id that is none": topic("/bad is left out: .*topic id", more=',"topic_id":"x"'),
    "a topic id that is a half pair": topic("/bad is left out", more=',"topic_id":"\\ud800"'),
    **{
        f"the {name} {one}": state("bad-0 is left out", **{name: one})
        for one in NUMBERS
        if one != "null"
        for name in ("leader", "leader_epoch", "controller_epoch", "leader_recovery_state")
    },
    "a leader below -2": state("bad-0 is left out", leader="-7"),
    "a leader epoch below -1": state("bad-0 is left out", leader_epoch="-7"),
    "an unknown recovery state": state("bad-0 is left out", leader_recovery_state="7"),
    **{f"the isr {one}": state("bad-0 is left out", isr=f"[{one}]") for one in NUMBERS},
    "a broker below 0 in the isr": state("bad-0 is left out", isr="[-7]"),
}


#: Topics and partitions that nobody has, in requests that stand in ZooKeeper.
UNKNOWN = (
    f'"topic":"{LONG}","partition":0',
    '"topic":"\\ud800","partition":0',
    '"topic":1,"partition":0',
    '"topic":"bad\\u0000/..","partition":0',
    *(f'"topic":"good","partition":{one}' for one in (*NUMBERS, "-1", "7")),
)
REQUESTS: dict[str, Hostile] = {
    **{
        f"{what} {one[:60]}": Hostile(
            {path: f'{{"version":1,"partitions":[{{{one},"replicas":[1]}}]}}'.encode()}, None
        )
        for one in UNKNOWN
        for what, path in (
            ("reassignment", paths.REASSIGN_PARTITIONS),
            ("preferred election", paths.PREFERRED_REPLICA_ELECTION),
            ("changed ISR", paths.isr_change_notification("isr_change_0000000000")),
        )
    },
    **{
        f"reassignment to {one}": Hostile(
            {
                paths.REASSIGN_PARTITIONS: (
                    f'{{"version":1,"partitions":[{{"topic":"good","partition":0,"replicas":[{one}]}}]}}'
                ).encode()
            },
            "/admin/reassign_partitions",
        )
        for one in (*NUMBERS, "-1")
    },
    **{
        f"failed log directory of {one}": Hostile(
            {
                paths.log_dir_event_notification("log_dir_event_0000000000"): (
                    f'{{"version":1,"broker":{one},"event":1}}'
                ).encode()
            },
            None,
        )
        for one in (*NUMBERS, "-1", "7")
    },
    **{
        f"deletion of {name[:20]}": Hostile({paths.deleted_topic(name): b""}, None)
        for name in ("t" * 250, LONG, "bäd", "a b")
    },
    **{
        f"changed config {data[:60]}": Hostile(
            {paths.config_change("config_change_9999999999"): data.encode()}, None
        )
        for data in (
            "{",
            f'{{"version":2,"entity_path":"topics/{LONG}"}}',
            '{"version":2,"entity_path":"topics/\\ud800"}',
            '{"version":2,"entity_path":"topics/../.."}',
            '{"version":1e400,"entity_path":"topics/good"}',
        )
    },
    **{
        f"config {data[:60]}": Hostile(
            {
                path: data.encode()
                for path in (paths.topic_config("good"), paths.broker_config(), paths.broker_config(1000))
            },
            None,
        )
        for data in (
            '{"version":1,"config":{"unclean.leader.election.enable":1}}',
            '{"version":1,"config":{"unclean.leader.election.enable":"\\ud800"}}',
            f'{{"version":1,"config":{{"unclean.leader.election.enable":"{LONG}"}}}}',
            f'{{"version":1,"config":{{"{LONG}":"x"}}}}',
            '{"version":1,"config":[]}',
        )
    },
    **{
        f"features {data[:60]}": Hostile({paths.FEATURE: data.encode()}, None)
        for data in (
            "{",
            '{"version":2,"status":1,"features":{"\\ud800":{"max_version_level":1}}}',
            f'{{"version":2,"status":1,"features":{{"{LONG}":{{"max_version_level":1}}}}}}',
            *(
                f'{{"version":2,"status":1,"features":{{"f":{{"max_version_level":{one}}}}}}}'
                for one in NUMBERS
            ),
        )
    },
}


@pytest.fixture
def cluster(zookeeper: str, znodes: KazooClient) -> Iterator[RealCluster]:
    with RealCluster(zookeeper, znodes) as cluster:
        cluster.start_brokers(1)
        cluster.create_topic("good", {0: [1]}, topic_id=bytes.fromhex("00000000000040008000000000000001"))
        yield cluster


def put(cluster: RealCluster, hostile: Hostile) -> None:
    for path, data in hostile.nodes.items():
        try:
            cluster.znodes.set(path, data)
        except NoNodeError:
            cluster.znodes.create(path, data, makepath=True)


def check(
    cluster: RealCluster,
    hostile: Iterable[Hostile],
    caplog: pytest.LogCaptureFixture,
    *,
    later: str = "later",
    epoch: int = 1,
) -> None:
    """The controller works, in its first term, and has said what is wrong. ``later``: a new topic."""
    cluster.wait_seen("good", {0: 1})
    if 2 not in cluster.brokers:
        cluster.start_brokers(2)
    wait_until(
        lambda: sorted(cluster.live_brokers(1)) == [1, 2], timeout=TIMEOUT, what="broker 2 is announced alone"
    )
    cluster.create_topic(later, {0: [2, 1]})
    cluster.wait_seen(later, {0: 2})
    (controller,) = cluster.controllers
    assert controller.epoch == epoch
    assert sorted(cluster.live_brokers(1)) == [1, 2]
    messages = [record.getMessage() for record in caplog.records]
    for logged in [one.logged for one in hostile if one.logged is not None]:
        wanted = re.compile(logged, re.DOTALL)
        found = [message for message in messages if wanted.search(message)]
        assert found, (logged, [message[:300] for message in messages])
        assert all(len(one) < 2_000 for one in found), "a message repeats the whole value"


def side_by_side() -> Iterator[Hostile]:
    """Yield each case with a topic and a broker of its own."""
    for number, hostile in enumerate(CASES.values(), start=100):
        given = {
            re.sub(r"/ids/7$", f"/ids/{number}", path).replace("/topics/bad", f"/topics/bad{number}"): data
            for path, data in hostile.nodes.items()
        }
        logged = (hostile.logged or "").replace("/7 is", f"/{number} is")
        yield Hostile(given, re.sub(r"bad(-0)? is", rf"bad{number}\1 is", logged))


def put_while_active(cluster: RealCluster, hostile: Hostile) -> None:
    for path in hostile.nodes:
        if not path.endswith("/state"):
            continue
        # A broker below 2.7-IV2 changes the state, and reports that.
        name = path.split("/")[3]
        cluster.create_topic(name, {0: [1]})
        cluster.wait_state(name, 0, leader=1)
        cluster.znodes.set(path, hostile.nodes[path])
        report = {"version": 1, "partitions": [{"topic": name, "partition": 0}]}
        cluster.znodes.create(paths.isr_change_notification(), json.dumps(report).encode(), sequence=True)
        return
    put(cluster, hostile)


def test_all_at_a_failover(cluster: RealCluster, caplog: pytest.LogCaptureFixture) -> None:
    cases = list(side_by_side())
    for one in cases:
        put(cluster, one)
    cluster.active_controller()
    check(cluster, cases, caplog)


def test_all_while_the_controller_is_active(cluster: RealCluster, caplog: pytest.LogCaptureFixture) -> None:
    cases = list(side_by_side())
    cluster.active_controller()
    cluster.wait_seen("good", {0: 1})
    for one in cases:
        put_while_active(cluster, one)
    check(cluster, cases, caplog)


@pytest.mark.long  # each alone; test_all_at_a_failover has all in one cluster
@pytest.mark.parametrize("case", CASES)
def test_at_a_failover(cluster: RealCluster, caplog: pytest.LogCaptureFixture, case: str) -> None:
    put(cluster, CASES[case])
    cluster.active_controller()
    check(cluster, [CASES[case]], caplog)


@pytest.mark.long  # each alone; test_all_while_the_controller_is_active has all in one cluster
@pytest.mark.parametrize("case", CASES)
def test_while_the_controller_is_active(
    cluster: RealCluster, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    cluster.active_controller()
    cluster.wait_seen("good", {0: 1})
    put_while_active(cluster, CASES[case])
    check(cluster, [CASES[case]], caplog)


def rounds() -> list[list[Hostile]]:
    """Return the requests in rounds: those of a round are of different nodes."""
    found: list[list[Hostile]] = []
    for one in REQUESTS.values():
        for others in found:
            if not any(one.nodes.keys() & other.nodes.keys() for other in others):
                others.append(one)
                break
        else:
            found.append([one])
    return found


def test_all_requests(cluster: RealCluster, caplog: pytest.LogCaptureFixture) -> None:
    """In rounds, each with a failover: a node has one value at a time."""
    for epoch, requests in enumerate(rounds(), start=1):
        caplog.clear()
        request_and_check(cluster, caplog, requests, epoch)
        cluster.controllers.pop().close()


@pytest.mark.long  # each alone; test_all_requests has all in one cluster
@pytest.mark.parametrize("case", REQUESTS)
def test_requests(cluster: RealCluster, caplog: pytest.LogCaptureFixture, case: str) -> None:
    request_and_check(cluster, caplog, [REQUESTS[case]], 1)


def request_and_check(
    cluster: RealCluster, caplog: pytest.LogCaptureFixture, requests: list[Hostile], epoch: int
) -> None:
    """The nodes are there at a failover and come again; the notifications beside them are processed."""
    for one in requests:
        put(cluster, one)
    cluster.active_controller()
    for one in requests:
        put(cluster, one)
    cluster.wait_seen("good", {0: 1})
    node = cluster.wait_state("good", 0, leader=1)
    changed = nodes.PartitionState(1, node.leader_epoch + 1, node.controller_epoch, [1])
    cluster.znodes.set(paths.partition_state("good", 0), nodes.encode_partition_state(changed))
    report = nodes.encode_partitions([("good", 0)])
    cluster.znodes.create(paths.isr_change_notification(), report, sequence=True)
    wait_until(
        lambda: cluster.seen(1, "good")[0].leader_epoch == changed.leader_epoch,
        timeout=TIMEOUT,
        what="the changed state is announced",
    )
    check(cluster, requests, caplog, later=f"later-{epoch}", epoch=epoch)


@pytest.mark.parametrize(
    "epoch", ["2147483647", "9223372036854775807", "99999999999999999999", "-1", "1.0", "x"]
)
def test_a_controller_epoch_that_cannot_be_raised(
    cluster: RealCluster, caplog: pytest.LogCaptureFixture, epoch: str
) -> None:
    """It belongs to all; the controller names it, and goes on when it is mended."""
    cluster.znodes.create(paths.CONTROLLER_EPOCH, epoch.encode())
    controller = cluster.controller()
    wait_until(
        lambda: "The election failed: /controller_epoch" in caplog.text, timeout=TIMEOUT, what="the error"
    )
    assert not controller.is_active
    cluster.znodes.set(paths.CONTROLLER_EPOCH, b"5")
    controller.wait_until_active(TIMEOUT)
    assert controller.epoch == 6
    cluster.wait_seen("good", {0: 1})
