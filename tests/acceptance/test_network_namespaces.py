"""A cluster and a client on two hosts: network namespaces, as containers have them, joined by one cable.

The client reaches the cluster at its advertised address alone. Needs root and iproute2.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.kafka.processes import Reaper

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and iproute2"
)

ADDRESS, CLIENT_ADDRESS = "10.77.0.1", "10.77.0.2"
PORT = 29092

CLIENT = """
import json, sys
from confluent_kafka import Consumer, Producer

servers = {"bootstrap.servers": sys.argv[1]}
failed = []
producer = Producer(servers | {"message.timeout.ms": 20_000})

def delivered(error, message):
    if error is not None:
        failed.append(str(error))

for number in range(30):
    producer.produce("orders", str(number).encode(), on_delivery=delivered)
producer.flush(30)
brokers = producer.list_topics(timeout=10).brokers.values()
consumer = Consumer(servers | {"group.id": "shop", "auto.offset.reset": "earliest"})
consumer.subscribe(["orders"])
records = consumer.consume(30, timeout=30)
consumer.close()
print(json.dumps({
    "failed": failed,
    "brokers": sorted(f"{broker.host}:{broker.port}" for broker in brokers),
    "records": sorted(int(record.value()) for record in records if not record.error()),
}))
"""


class Hosts(NamedTuple):
    """Two network namespaces, by name."""

    cluster: str
    client: str


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    names = Hosts(f"cluster-{os.getpid()}", f"client-{os.getpid()}")
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip(
            "-n",
            names.cluster,
            "link",
            "add",
            "cable",
            "type",
            "veth",
            "peer",
            "cable",
            "netns",
            names.client,
        )
        for name, address in zip(names, (ADDRESS, CLIENT_ADDRESS), strict=True):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=30)


@pytest.fixture
def cluster(hosts: Hosts) -> Iterator[dict[str, Any]]:
    """What the command prints: a cluster with one listener for its own host and one for others."""
    reaper = Reaper()
    command = [
        sys.executable,
        "-m",
        "ctrlchan",
        "cluster",
        "--brokers",
        "3",
        "--json",
        "--topic",
        "orders:6:3",
    ]
    command += ["--listener", f"DOCKER=0.0.0.0:{PORT}", "--advertised", f"DOCKER={ADDRESS}:{PORT}"]
    process = subprocess.Popen(["ip", "netns", "exec", hosts.cluster, *command], stdout=subprocess.PIPE)
    reaper.add(process.pid)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.communicate(timeout=60)
        reaper.remove(process.pid)
        reaper.close()


def ask(host: str, servers: str) -> dict[str, Any]:
    command = ["ip", "netns", "exec", host, sys.executable, "-c", CLIENT, servers]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def test_a_client_of_another_host_uses_the_advertised_address(hosts: Hosts, cluster: dict[str, Any]) -> None:
    answer = ask(hosts.client, f"{ADDRESS}:{PORT}")
    assert answer == {
        "failed": [],
        "brokers": [f"{ADDRESS}:{PORT + number}" for number in range(3)],
        "records": list(range(30)),
    }


def test_a_client_of_the_same_host_uses_loopback(hosts: Hosts, cluster: dict[str, Any]) -> None:
    answer = ask(hosts.cluster, cluster["bootstrap_servers"])
    assert not answer["failed"]
    assert all(broker.startswith(("127.0.0.1:", "localhost:")) for broker in answer["brokers"])
    assert answer["records"] == list(range(30))
