"""The page in a browser: what it shows and changes, what stays while it refreshes, and what others cannot."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import numpy as np
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

from tests.browser import chromium, driven_chromium, in_a_browser, pixels, set_window, take_picture
from tests.kafka.waiting import wait_until
from tests.unit.page.conftest import ClusterPage
from tests.unit.page.serving import Client

pytestmark = in_a_browser

SCRIPT = "<img src=x onerror=\"document.title='evil'\"><script>document.title='evil'</script>"
TABLES = "table tbody tr"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with driven_chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def browser(driver: Chrome, cluster_page: ClusterPage) -> Iterator[Browser]:
    set_window(driver, 1280, 900)
    driver.get("about:blank")
    driver.get_log("browser")
    browser = Browser(driver, cluster_page.client)
    yield browser
    assert browser.complaints() == []


class Browser:
    """A browser on the page."""

    def __init__(self, driver: Chrome, client: Client) -> None:
        self.driver = driver
        self.client = client

    def open(self, address: str, title: str) -> None:
        """Open a view, and wait until its title is there."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.client.url}#/{address}")
        wait_until(lambda: self.text("h1").startswith(title), what=f"the title {title}")

    def find(self, selector: str) -> list[WebElement]:
        found: list[WebElement] = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return found

    def text(self, selector: str) -> str:
        """Return the text of the first such element, empty when there is none."""
        found: str = self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        return found

    def texts(self, selector: str) -> list[str]:
        found: list[str] = self.run(
            "return Array.from(document.querySelectorAll(arguments[0]), (one) => one.innerText)", selector
        )
        return found

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def click(self, selector: str, text: str = "") -> None:
        """Click the first such element with this text, as soon as it is there."""
        self.wait(lambda: self.one(selector, text)).click()

    def one(self, selector: str, text: str) -> WebElement | None:
        return next((one for one in self.find(selector) if text in one.text), None)

    def fill(self, name: str, text: str) -> None:
        field = self.driver.find_element(By.NAME, name)
        field.clear()
        field.send_keys(text)

    def wait(self, condition: Callable[[], Any]) -> Any:
        return wait_until(condition, what=f"a change of the page, which shows:\n{self.text('body')}")

    def refreshed(self) -> None:
        """Wait until the page has asked two times more: then one question began after this call."""
        script = "return performance.getEntriesByType('resource').filter((one) => one.responseEnd).length"
        before = self.run(script)
        self.wait(lambda: self.run(script) >= before + 2)

    def complaints(self) -> list[str]:
        """Return what the browser says of the page: errors, and refusals of its content policy."""
        lines = self.driver.get_log("browser")
        return [one["message"] for one in lines if "Failed to load resource" not in one["message"]]


def create(client: Client, topic: str, **more: Any) -> None:
    assert client.post("/api/topics", {"topic": topic, "replicas": 1, **more}).status == 200


def produce(client: Client, topic: str, value: str, **more: Any) -> None:
    assert client.post("/api/messages", {"topic": topic, "value": {"text": value}, **more}).status == 200


def test_from_an_empty_cluster_to_a_message_and_back(browser: Browser) -> None:
    browser.open("topics", "Topics")
    browser.wait(lambda: browser.find("#filter"))[0].send_keys("by-hand")
    browser.wait(lambda: "No topic has this text" in browser.text("main"))
    browser.click("summary", "Create a topic")
    browser.fill("topic", "by-hand")
    browser.fill("partitions", "2")
    browser.fill("configs", "retention.ms=60000\nnonsense")
    browser.click("button.main")
    browser.wait(lambda: browser.text(".outcome") == "The config “nonsense” has no form name=value.")
    browser.fill("configs", "retention.ms=60000")
    browser.click("button.main")
    browser.wait(lambda: browser.text(".outcome") == "Topic by-hand is created.")
    browser.click("td a", "by-hand")
    browser.wait(lambda: "There is no message yet." in browser.text("main"))
    assert "kcat -b 127.0.0.1:" in browser.text("main pre")
    browser.click(".tabs a", "Produce")
    browser.wait(lambda: browser.find("[name=value]"))
    browser.fill("key", "k")
    browser.fill("value", "{not json")
    Select(browser.find("[name=value-kind]")[0]).select_by_visible_text("JSON")
    browser.click("button", "Add a header")
    browser.fill("header-name", "trace")
    browser.fill("header-value", "7")
    browser.click("button.main")
    browser.wait(lambda: browser.text(".outcome").startswith("The value is not JSON: "))
    browser.fill("value", '{"id": 12345678901234567890, "of": [1, {}]}')
    browser.click("button.main")
    browser.wait(lambda: browser.text(".outcome").startswith("Written to partition "))
    browser.click(".tabs a", "Messages")
    browser.click("button.open")
    details = browser.wait(lambda: browser.text("tr.wide"))
    # Numbers are as they were written, and not as JavaScript would round them.
    assert '{\n  "id": 12345678901234567890,\n  "of": [\n    1,\n    {}\n  ]\n}' in details
    assert "trace: 7" in details
    browser.click(".tabs a", "Configs")
    browser.wait(lambda: browser.texts("tbody tr")[:1] == ["retention.ms\t60000\ttopic"])
    browser.click(".tabs a", "Partitions")
    browser.wait(lambda: len(browser.find(TABLES)) == 2)
    browser.click("button.danger", "Delete topic")
    browser.fill("name", "another")
    browser.click("dialog button.danger")
    browser.wait(lambda: browser.text("dialog .outcome") == "This is not the name of the topic.")
    browser.fill("name", "by-hand")
    browser.click("dialog button.danger")
    browser.wait(lambda: browser.text("h1") == "Topics")
    assert browser.client.get("/api/topic?topic=by-hand").status == 404


def test_what_data_say_is_text(browser: Browser) -> None:
    client = browser.client
    create(client, "evil")
    script = {"text": SCRIPT}
    produce(client, "evil", SCRIPT, key=script, headers=[{"name": SCRIPT, "value": script}])
    produce(client, "evil", "\u202eright to left\x00\x1b[31m")
    browser.open("topics/evil", "evil")
    browser.wait(lambda: len(browser.find("button.open")) == 2)
    for one in browser.find("button.open"):
        one.click()
    details = browser.wait(lambda: len(found := browser.texts("tr.wide")) == 2 and "".join(found))
    assert details.count(SCRIPT) == 4
    Select(browser.find("form select")[-1]).select_by_visible_text("text")
    # Signs that turn the text around or colour a terminal are shown as what they are.
    browser.wait(lambda: "\\u202eright to left␀␛[31m" in browser.texts("tr.wide pre"))
    assert browser.find("main img, main script") == []
    browser.open(f"groups/{SCRIPT.replace('/', '%2F')}", "")
    browser.wait(lambda: "There is no such group" in browser.text("#problem"))
    assert browser.driver.title != "evil"
    assert browser.find("main img, main script") == []


def test_binary_data_are_hex(browser: Browser) -> None:
    create(browser.client, "binary")
    value = {"hex": bytes(range(0, 256, 8)).hex()}
    sent = {"topic": "binary", "key": {"hex": "00ff01"}, "value": value}
    assert browser.client.post("/api/messages", sent).status == 200
    browser.open("topics/binary", "binary")
    browser.wait(lambda: browser.text("td.key") == "00 ff 01")
    browser.click("button.open")
    dump = browser.wait(lambda: browser.texts("tr.wide pre"))[-1]
    first = "000000  00 08 10 18 20 28 30 38 40 48 50 58 60 68 70 78  .... (08@HPX`hpx"
    assert dump.splitlines()[0] == first


def test_more_bytes_come_on_demand(browser: Browser) -> None:
    create(browser.client, "long")
    produce(browser.client, "long", "x" * 10_000)
    browser.open("topics/long", "long")
    browser.click("button.open")
    browser.wait(lambda: "only the first 2.0 KiB of 9.8 KiB are shown" in browser.text("tr.wide"))
    browser.click("tr.wide button", "Load more bytes")
    browser.wait(lambda: "x" * 10_000 in browser.texts("tr.wide pre"))
    assert "only the first" not in browser.text("tr.wide")


def test_what_the_user_does_stays_while_the_page_refreshes(browser: Browser) -> None:
    client = browser.client
    create(client, "live")
    for number in range(60):
        produce(client, "live", f"message {number}")
    browser.open("topics/live", "live")
    browser.wait(lambda: len(browser.find(TABLES)) == 50)
    browser.find("button.open")[10].click()
    browser.wait(lambda: "message 49" in browser.text("tr.wide pre"))
    field = browser.find("input[name=partition]")[0]
    field.send_keys("0")
    top = "return document.querySelector('tr.wide').getBoundingClientRect().top"
    place = browser.run(f"scrollTo(0, 700); {top}")
    produce(client, "live", "the next one")
    browser.wait(lambda: "the next one" in browser.text("td.value"))
    browser.refreshed()
    assert field.get_attribute("value") == "0"
    assert browser.run("return document.activeElement.name") == "partition"
    assert "message 49" in browser.text("tr.wide pre")
    # The rows above have grown by one, and the browser keeps in place what the user looks at.
    assert abs(browser.run(top) - place) < 5
    assert browser.run("return scrollY") > 600
    browser.click("#live")
    shown = browser.texts("td.value")
    produce(client, "live", "after the end of live")
    assert browser.texts("td.value") == shown
    browser.click("#live")
    browser.wait(lambda: "after the end of live" in browser.text("td.value"))


def test_messages_by_offset_and_by_page(browser: Browser) -> None:
    create(browser.client, "walk")
    for number in range(45):
        produce(browser.client, "walk", f"<{number}>")
    browser.open("topics/walk", "walk")
    Select(browser.wait(lambda: browser.find("select[name=from]"))[0]).select_by_visible_text("an offset")
    browser.wait(lambda: browser.find("[name=offset]"))
    browser.fill("offset", "5")
    Select(browser.find("select[name=limit]")[0]).select_by_visible_text("20")
    browser.click("button.main")
    browser.wait(lambda: browser.texts("td.value")[:1] == ["<5>"])
    assert len(browser.find(TABLES)) == 20
    browser.click("a.button", "Next messages")
    browser.wait(lambda: browser.texts("td.value")[:1] == ["<25>"])
    assert browser.texts("td.value")[-1] == "<44>"
    assert browser.one("a.button", "Next messages") is None
    browser.driver.back()
    browser.wait(lambda: browser.texts("td.value")[:1] == ["<5>"])


def test_a_group_and_its_lag(browser: Browser, cluster_page: ClusterPage) -> None:
    create(browser.client, "consumed")
    for number in range(5):
        produce(browser.client, "consumed", str(number))
    servers = cluster_page.cluster.bootstrap_servers
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "billing/eu"})
    try:
        consumer.commit(offsets=[confluent_kafka.TopicPartition("consumed", 0, 2)], asynchronous=False)
    finally:
        consumer.close()
    browser.open("groups", "Consumer groups")
    browser.click("td a", "billing/eu")
    browser.wait(lambda: browser.text("h1") == "billing/eu")
    assert "lag 3" in browser.text("main")
    assert browser.texts("td") == ["consumed", "0", "2", "5", "3", ""]


def test_an_error_is_shown_and_goes(browser: Browser, cluster_page: ClusterPage) -> None:
    browser.driver.get(f"{browser.client.url}#/topics/appears-later")
    browser.wait(lambda: "There is no such topic" in browser.text("#problem"))
    create(browser.client, "appears-later")
    browser.wait(lambda: browser.text("h1") == "appears-later")
    assert browser.text("#problem") == ""


def test_the_keyboard_is_enough(browser: Browser) -> None:
    create(browser.client, "keyboard")
    produce(browser.client, "keyboard", "found")
    browser.open("topics", "Topics")

    def active() -> WebElement:
        return browser.driver.switch_to.active_element

    def press_until(key: str, condition: Callable[[], bool]) -> None:
        for _ in range(100):
            if condition():
                return
            active().send_keys(key)
        raise AssertionError(f"not reached by {key!r}: {active().text}")

    press_until(Keys.TAB, lambda: active().text == "keyboard")
    active().send_keys(Keys.ENTER)
    browser.wait(lambda: browser.text("h1") == "keyboard")
    # It begins at the title of the new view, so the next keys do not begin at the page's top.
    browser.wait(lambda: active().tag_name == "h1")
    press_until(Keys.TAB, lambda: active().get_attribute("class") == "open")
    active().send_keys(Keys.ENTER)
    browser.wait(lambda: "found" in browser.text("tr.wide pre"))
    unnamed = browser.run(
        "return Array.from(document.querySelectorAll('input,select,textarea,button'))"
        ".filter((one) => !one.labels?.length && !one.getAttribute('aria-label') && !one.innerText)"
        ".map((one) => one.outerHTML)"
    )
    assert unnamed == []


VIEWS = {
    "topics": ("topics", "Topics"),
    "messages": ("topics/pictures", "pictures"),
    "partitions": ("topics/pictures/partitions", "pictures"),
    "produce": ("topics/pictures/produce", "pictures"),
    "configs": ("topics/pictures/configs", "pictures"),
    "groups": ("groups", "Consumer groups"),
    "group": ("groups/pictures", "pictures"),
    "controller": ("controller", "Controller 1000"),
}


@pytest.fixture(scope="module")
def pictured(cluster_page: ClusterPage) -> None:
    """Fill a topic with what is hard to show, and commit offsets of a group."""
    client = cluster_page.client
    create(client, "pictures", partitions=3)
    for number in range(12):
        order = {"id": number, "customer": "Ada Lovelace", "lines": [{"sku": "A-7", "n": 2}]}
        produce(client, "pictures", json.dumps(order), key={"text": f"customer-{number % 5}"})
    produce(client, "pictures", "x" * 5_000, key={"text": "k" * 300})
    produce(client, "pictures", SCRIPT)
    for value in ({"hex": bytes(range(256)).hex()}, None):
        client.post("/api/messages", {"topic": "pictures", "key": {"text": "last"}, "value": value})
    servers = cluster_page.cluster.bootstrap_servers
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "pictures"})
    try:
        offsets = [confluent_kafka.TopicPartition("pictures", number, 1) for number in range(3)]
        consumer.commit(offsets=offsets, asynchronous=False)
    finally:
        consumer.close()


@pytest.mark.usefixtures("pictured")
@pytest.mark.parametrize("view", VIEWS)
def test_each_view_fits_into_its_window(browser: Browser, tmp_path: Path, view: str) -> None:
    brightness = {}
    for name, width, height, dark in (
        ("large", 1280, 900, False),
        ("small", 360, 800, False),
        ("dark", 1280, 900, True),
        ("small-dark", 360, 800, True),
    ):
        set_window(browser.driver, width, height, dark=dark)
        browser.open(*VIEWS[view])
        for one in browser.find("button.open")[:3]:
            one.click()
        picture = tmp_path / f"{view}-{name}.png"
        take_picture(browser.driver, picture)
        seen = pixels(picture, None)
        brightness[name] = seen.mean()
        assert len(np.unique(seen)) > 30
        assert browser.run("return document.documentElement.scrollWidth") <= width
        # Nothing hangs out of what is around it, unless that scrolls.
        outside = browser.run(
            "return Array.from(document.querySelectorAll('main *, header *'))"
            ".filter((one) => one.getBoundingClientRect().right > innerWidth + 1)"
            ".filter((one) => !one.closest('.scroll, pre'))"
            ".map((one) => one.outerHTML)"
        )
        assert outside == [], name
    assert min(brightness["large"], brightness["small"]) > 128
    assert max(brightness["dark"], brightness["small-dark"]) < 128


# -- the page of another site, in the same browser

ATTACK = """
<!DOCTYPE html><title>attack</title><body><script type="module">
const results = {};
const target = new URLSearchParams(location.search).get("target");
const json = { "Content-Type": "application/json" };
const body = JSON.stringify({ topic: "attacked" });
async function attempt(name, path, options) {
  try {
    const response = await fetch(target + path, options);
    results[name] = response.type === "opaque" ? "opaque" : `${response.status} ${await response.text()}`;
  } catch (error) {
    results[name] = "failed";
  }
}
for (const path of ["", "api/topics", "api/views", "api/messages?topic=secret", "status.json", "metrics"]) {
  await attempt(`read ${path}`, path, {});
  await attempt(`read without CORS ${path}`, path, { mode: "no-cors" });
}
for (const path of ["api/topics", "api/topics/delete", "api/messages"]) {
  await attempt(`json ${path}`, path, { method: "POST", headers: json, body });
  await attempt(`text ${path}`, path, { method: "POST", mode: "no-cors", body });
  await attempt(`beacon type ${path}`, path, {
    method: "POST", mode: "no-cors", body: new Blob([body], { type: "text/plain" }),
  });
  navigator.sendBeacon(target + path, body);
}
const frame = document.createElement("iframe");
frame.name = "frame";
document.body.append(frame);
for (const kind of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
  const form = document.createElement("form");
  Object.assign(form, { method: "post", action: `${target}api/topics`, enctype: kind, target: "frame" });
  const field = document.createElement("input");
  Object.assign(field, { name: '{"topic":"attacked","x":"', value: '"}' });
  form.append(field);
  document.body.append(form);
  const loaded = new Promise((done) => { frame.onload = done; });
  form.submit();
  await loaded;
}
for (const [tag, attribute, path] of [
  ["script", "src", "main.js"], ["script", "src", "api/views"], ["img", "src", "api/topics"],
  ["link", "href", "page.css"], ["iframe", "src", ""],
]) {
  const element = document.createElement(tag);
  if (tag === "link") element.rel = "stylesheet";
  const ended = new Promise((done) => {
    element.onload = () => done("loaded");
    element.onerror = () => done("failed");
  });
  element[attribute] = target + path;
  document.body.append(element);
  results[`${tag} ${path}`] = await ended;
  if (tag === "iframe") {
    try {
      results.frame = element.contentDocument === null ? "failed" : "read";
    } catch {
      results.frame = "failed";
    }
  }
}
window.results = results;
</script></body>
"""


@pytest.fixture
def attacker() -> Iterator[int]:
    """A web server of somebody else, on another port and thus of another origin."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(ATTACK.encode())

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


#: Names that lead to this machine: of another site, and of the same one on another port.
@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_a_page_of_another_site_reads_and_changes_nothing(
    driver: Chrome, cluster_page: ClusterPage, attacker: int, name: str
) -> None:
    client = cluster_page.client
    if client.get("/api/topic?topic=secret").status == 404:
        create(client, "secret")
        produce(client, "secret", "the secret")
    before = client.get("/api/topics").value["topics"]
    driver.get(f"http://{name}:{attacker}/?target={client.url}")
    results = wait_until(
        lambda: driver.execute_script("return window.results"),
        what="the attack has ended",
    )
    driver.get_log("browser")
    loaded = {what for what, result in results.items() if result != "failed"}
    # The frame has an empty page of the browser's, which cannot be read either.
    assert loaded <= {"iframe "}, results
    assert client.get("/api/topics").value["topics"] == before


def test_a_name_that_leads_here_is_not_the_page(tmp_path: Path, cluster_page: ClusterPage) -> None:
    """DNS rebinding: the browser takes evil.example for the page's own origin, and the server does not."""
    rule = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    url = f"http://evil.example:{cluster_page.client.port}"
    for path in ("/", "/api/views", "/api/topics", "/status.json"):
        seen = chromium(f"--user-data-dir={tmp_path}", rule, "--dump-dom", url + path).stdout
        assert "this name is not the page" in seen
        assert "bootstrap" not in seen
