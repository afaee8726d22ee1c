"""The controller's view: what the server says of it, and what a browser shows, also of hostile texts."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver import Chrome

from ctrlchan._codec import ListColumn
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.machines.states import PartitionState
from ctrlchan.controller.status.metrics import ControllerMetrics
from ctrlchan.page.server import PageServer
from tests.browser import driven_chromium, in_a_browser, pixels, set_window, take_picture
from tests.kafka.waiting import wait_until
from tests.unit.controller.local_controller import LocalController, local_controller
from tests.unit.page.serving import Client, serving

EVIL = "<script>document.title='evil'</script>\"&"


@contextmanager
def busy_controller() -> Iterator[LocalController]:
    """Yield a controller with an offline partition, a reassignment, and a topic to delete."""
    with local_controller() as controller:
        context = controller.context

        def change(_: object) -> None:
            context.partition_states[0] = PartitionState.OFFLINE
            context.state.update(np.array([0]), leader=np.array([-1], np.int32), isr=[[2]])
            context.state.update(np.array([2]), adding=ListColumn.from_lists([[2]]))
            context.queue_topic_deletion(["c"])
            context.topics_ineligible.add("c")

        controller.loop.call(ControllerState.TOPIC_CHANGE, change).result(10)
        yield controller


def test_the_server_has_the_status_and_metrics() -> None:
    metrics = ControllerMetrics()
    with busy_controller() as controller:
        metrics.attach(controller.loop, lambda: controller.core)
        with PageServer(controller.describe, metrics) as server:
            client = Client(server)
            status = client.get("/status.json")
            assert status.headers["Content-Type"] == "application/json; charset=utf-8"
            assert status.value["figures"]["offline_partitions"] == 1
            assert status.value["now"] >= status.value["at"]
            exposed = client.get("/metrics").body.decode()
    assert "\nkafka_controller_kafkacontroller_offlinepartitionscount 1.0\n" in exposed


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with driven_chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


def show(driver: Chrome, status: dict[str, Any]) -> str:
    """Return the text of the page for this status; the browser has no complaint about the page."""
    set_window(driver, 1280, 1600)
    with serving(None, lambda: copy.deepcopy(status)) as client:
        driver.get(client.url)
        read = "return document.querySelector('h1') && document.body.innerText"
        text: str = wait_until(
            lambda: driver.execute_script(read),
            what="the page is shown",
        )
    complaints = driver.get_log("browser")
    # The server may have ended while the page asks again.
    assert [one for one in complaints if "ERR_CONNECTION" not in one["message"]] == []
    return text


def described() -> dict[str, Any]:
    with busy_controller() as controller:
        return controller.describe()


@in_a_browser
def test_what_the_controller_is_doing(driver: Chrome) -> None:
    text = show(driver, described() | {"recent": [{"at": 1_700_000_000.0, "text": "elected"}]})
    assert driver.title == "Controller 1000: active – Kafka cluster"
    # Nothing of a cluster is asked for.
    assert "Topics\n" not in text
    assert "Controller 1000 active" in text
    assert "Controller epoch 7 since 2023-11-1" in text
    assert "ZooKeeper localhost:2181/kafka: answered 0.3 s ago" in text
    assert "\n1\noffline\n" in text
    for heading in ("Brokers", "Offline partitions", "Reassignments", "Topics to delete", "Events"):
        assert f"\n{heading}\n" in text
    assert "PLAINTEXT://host3:9092" in text
    assert "a-0\t1, 2\t\t\t2\tnone" in text
    assert "a-2\t3, 1\t2\t" in text
    assert "c\tineligible\t0 of 2" in text
    assert "\telected" in text


@in_a_browser
def test_nodes_in_memory_are_not_called_zookeeper(driver: Chrome) -> None:
    status = described()
    text = show(driver, status | {"zookeeper": status["zookeeper"] | {"in_memory": True}})
    assert "Nodes in memory: answered 0.3 s ago" in text
    assert "ZooKeeper" not in text


@in_a_browser
def test_an_idle_controller_has_no_empty_tables(driver: Chrome) -> None:
    with local_controller() as controller:
        text = show(driver, controller.describe())
    assert "\nBrokers\n" in text
    for heading in ("Offline partitions", "Reassignments", "Topics to delete", "Events"):
        assert heading not in text


@in_a_browser
def test_a_process_that_is_not_the_controller_names_it(driver: Chrome) -> None:
    with local_controller() as controller:
        controller.core, controller.active_controller_id = None, 3
        text = show(driver, controller.describe())
    assert "not the controller" in text
    assert "The controller is 3" in text
    assert "Broker" not in text


@in_a_browser
def test_what_is_wrong_is_in_colour(driver: Chrome) -> None:
    status = described()
    status["brokers"][0] |= {"connection": "left out", "last_error": "no listener"}
    status |= {
        "refusal": "a migration",
        "malformed": {"topics": {"/brokers/topics/x": "no JSON"}},
        "busy": True,
    }
    text = show(driver, status)
    assert "This controller may not be elected: a migration" in text
    assert "The event loop is busy: the cluster as it was " in text
    assert "/brokers/topics/x\tno JSON" in text
    bad = driver.execute_script(
        "return Array.from(document.querySelectorAll('main .bad'), (one) => one.innerText)"
    )
    assert {"no listener", "no JSON", "1", "This controller may not be elected: a migration"} <= set(bad)


@in_a_browser
def test_every_text_is_text(driver: Chrome) -> None:
    """Also those that no controller has today."""
    status = described() | {
        "recent": [{"at": 0.0, "text": "a"}],
        "refusal": "a",
        "malformed": {"a": {"a": "a"}},
    }
    text = show(driver, _with_evil_texts(status))
    assert text.count(EVIL) >= 15
    assert driver.title == "Controller 1000: active – Kafka cluster"
    scripts = "return document.querySelectorAll('body script').length"
    assert driver.execute_script(scripts) == 0


def _with_evil_texts(value: Any) -> Any:
    match value:
        case str():
            return EVIL
        case dict():
            return {key: _with_evil_texts(one) for key, one in value.items()}
        case list():
            return [_with_evil_texts(one) for one in value]
    return value


@in_a_browser
@pytest.mark.parametrize("dark", [False, True])
def test_a_picture(driver: Chrome, tmp_path: Path, dark: bool) -> None:
    show(driver, described())
    set_window(driver, 1280, 1600, dark=dark)
    take_picture(driver, tmp_path / "page.png")
    brightness = pixels(tmp_path / "page.png", None)
    assert (brightness.mean() < 128) == dark
    assert len(np.unique(brightness)) > 50
