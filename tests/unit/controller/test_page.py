"""The web page of a controller: what it shows, what it escapes, and how a browser shows it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ctrlchan._codec import ListColumn
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.machines.states import PartitionState
from ctrlchan.controller.status.metrics import ControllerMetrics
from ctrlchan.controller.status.page import status_page
from ctrlchan.controller.status.status_server import StatusServer
from ctrlchan.errors import ConfigError
from tests.browser import CHROMIUM, chromium, pixels
from tests.unit.controller.local_controller import LocalController, local_controller

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


def read(url: str) -> tuple[str, Any]:
    """Return (body, headers)."""
    with urllib.request.urlopen(url, timeout=10) as answered:
        return answered.read().decode(), answered.headers


def test_the_page_has_what_the_controller_is_doing() -> None:
    with busy_controller() as controller:
        page = status_page(controller.describe() | {"recent": [{"at": 1_700_000_000.0, "text": "elected"}]})
    assert "<title>Controller 1000: active</title>" in page
    assert "Controller epoch 7 since 2023-11-14 22:13:20 · cluster test" in page
    assert "ZooKeeper localhost:2181/kafka: answered 0.2 s ago" in page
    assert '<div class="figure"><b><span class="bad">1</span></b><span>offline</span></div>' in page
    for heading in ("Brokers", "Offline partitions", "Reassignments", "Topics to delete", "Events"):
        assert f"<h2>{heading}</h2>" in page
    assert "<td>PLAINTEXT://host3:9092</td>" in page
    assert "<td>a-0</td><td>1, 2</td><td></td><td></td><td>2</td><td>none</td>" in page
    assert "<td>a-2</td><td>3, 1</td><td>2</td>" in page
    assert '<td>c</td><td class="warn">ineligible</td><td>0 of 2</td>' in page
    assert "<td>2023-11-14 22:13:20</td><td>elected</td>" in page


def test_an_idle_controller_has_no_empty_tables() -> None:
    with local_controller() as controller:
        page = status_page(controller.describe())
    assert "<h2>Brokers</h2>" in page
    for heading in ("Offline partitions", "Reassignments", "Topics to delete", "Events"):
        assert heading not in page


def test_a_process_that_is_not_the_controller_names_it() -> None:
    with local_controller() as controller:
        controller.core, controller.active_controller_id = None, 3
        page = status_page(controller.describe())
    assert "not the controller" in page
    assert "The controller is 3" in page
    assert "<table>" not in page


def test_what_is_wrong_is_in_colour() -> None:
    with busy_controller() as controller:
        status = controller.describe()
    status["brokers"][0] |= {"connection": "left out", "last_error": "no listener"}
    status |= {"refusal": "a migration", "malformed": {"topics": {"/brokers/topics/x": "no JSON"}}}
    page = status_page(status)
    assert '<td class="bad">no listener</td>' in page
    assert "<p class=bad>This controller may not be elected: a migration</p>" in page
    assert '<td>/brokers/topics/x</td><td class="bad">no JSON</td>' in page


def test_every_text_is_escaped() -> None:
    """Also those that no controller has today."""
    with busy_controller() as controller:
        status = controller.describe()
    page = status_page(_with_evil_texts(status) | {"recent": [{"at": 0.0, "text": EVIL}]})
    assert page.count("&lt;script&gt;document.title=") >= 15
    assert "<script>" not in page
    assert "http://" not in page.replace(EVIL, "")


def _with_evil_texts(value: Any) -> Any:
    match value:
        case str():
            return EVIL
        case dict():
            return {key: _with_evil_texts(one) for key, one in value.items()}
        case list():
            return [_with_evil_texts(one) for one in value]
    return value


def test_the_server_has_a_page_json_and_metrics() -> None:
    metrics = ControllerMetrics()
    with busy_controller() as controller:
        metrics.attach(controller.loop, lambda: controller.core)
        with StatusServer(controller.describe, metrics) as server:
            root = f"http://127.0.0.1:{server.port}"
            page, headers = read(f"{root}/")
            assert headers["Content-Type"] == "text/html; charset=utf-8"
            assert "default-src 'none'" in headers["Content-Security-Policy"]
            assert "<h2>Brokers</h2>" in page
            status, headers = read(f"{root}/status.json")
            assert headers["Content-Type"] == "application/json; charset=utf-8"
            assert json.loads(status)["figures"]["offline_partitions"] == 1
            exposed, _ = read(f"{root}/metrics")
            assert "\nkafka_controller_kafkacontroller_offlinepartitionscount 1.0\n" in exposed
            for path, method, expected in (("/nothing", "GET", 404), ("/", "POST", 405)):
                request = urllib.request.Request(root + path, method=method)
                with pytest.raises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(request, timeout=10)
                assert refused.value.code == expected
                refused.value.close()
            with pytest.raises(ConfigError, match=rf"metrics port {server.port}: Address already in use"):
                StatusServer(controller.describe, metrics, server.port)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium or Chrome to show the page")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_the_page(tmp_path: Path, scheme: str) -> None:
    picture = tmp_path / "page.png"
    colours = f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"
    with busy_controller() as controller, StatusServer(controller.describe, ControllerMetrics()) as server:
        url = f"http://127.0.0.1:{server.port}/"
        shown = chromium(colours, "--window-size=1280,1600", f"--screenshot={picture}", url)
        seen = chromium(colours, "--dump-dom", url).stdout
    assert [line for line in shown.stderr.splitlines() if "CONSOLE" in line] == []
    assert "<title>Controller 1000: active</title>" in seen
    assert seen.count("<table>") == 4
    brightness = pixels(picture)
    assert (brightness.mean() > 128) == (scheme == "light")
    assert len(np.unique(brightness)) > 50
