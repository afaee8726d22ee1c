"""The page of the benchmarks: whole, without network, true to the raw results, in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.support.ui import WebDriverWait

from bench.measures.measure import number
from bench.measures.suites import measures_of
from bench.page.page import page_of
from tests.browser import driven_chromium, in_a_browser, set_window

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "benchmarks.html"
RESULTS: Final[list[dict[str, Any]]] = json.loads((ROOT / "bench" / "results.json").read_text())
NAMES: Final = [result["name"] for result in RESULTS]


def script_of(page: str, name: str) -> Any:
    [text] = re.findall(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def test_the_committed_page_has_the_committed_results() -> None:
    page = PAGE.read_text()
    assert script_of(page, "results") == RESULTS, "run python -m bench.page"
    ids = {one.id for result in RESULTS for one in measures_of(result)}
    assert ids - set(re.findall(r'<tbody id="([^"]+)"', page)) == set()


def test_each_suite_has_its_charts_and_says_where_it_was_measured() -> None:
    page = page_of(RESULTS)
    plots = script_of(page, "plots")
    assert set(re.findall(r'class="chart" id="([^"]+)"', page)) == set(plots)
    for result in RESULTS:
        section = page.split(f'<h2 id="suite-{result["name"]}">')[1].split("</section>")[0]
        assert f'id="chart-{result["name"]}-1' in section
        for key in ("date", "commit", "machine", "versions"):
            assert result[key] in section
    assert re.findall(r'(?:src|href)="(?:https?:)?//', page.split("<script>")[0]) == []


def test_a_suite_that_nobody_has_described() -> None:
    figures = {"a figure <b>": ["µs", {"ours": [1.0, 2.0], "kafka": [30.0]}], "none": ["ms", {"ours": [0.0]}]}
    sizes = {"ours": {"1": [1.0], "100": [10.0]}, "kafka": {"1": [5.0], "100": [500.0]}}
    question = {"question": "memory", "unit": "KiB", "per": "groups", "sides": sizes}
    gave_up = {
        "question": "time",
        "unit": "s",
        "per": "groups",
        "sides": {},
        "gave_up": {"kafka": {"9": "no"}},
    }
    facts = dict.fromkeys(("date", "commit", "machine", "versions", "command"), "")
    page = page_of([{"name": "some_new", **facts, "benchmarks": [{"figures": figures}, question, gave_up]}])
    assert '<h2 id="suite-some_new">Some new</h2>' in page
    assert 'id="some-new-a-figure-b"' in page
    assert "a figure &lt;b&gt;" in page
    assert "<h3>Time, µs</h3>" in page
    assert re.search(r"Kafka / ours 20\.0\s+\(30\.0\)", page)
    slopes = re.findall(r'<td>(ours|Kafka 3\.9\.1)</td><td class="n">2</td>\s*<td class="n">(.*?)</td>', page)
    assert slopes == [("ours", "0.50"), ("Kafka 3.9.1", "1.00")]
    assert "gave up: no" in page


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with driven_chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


@in_a_browser
@pytest.mark.parametrize(("width", "dark"), [(1100, False), (360, True)], ids=["wide", "phone, dark"])
def test_the_page_in_a_browser_without_network(browser: Chrome, width: int, dark: bool) -> None:
    browser.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    set_window(browser, width, 800, dark=dark)
    browser.get(PAGE.as_uri())
    for name in NAMES:
        chart = f"[id^='chart-{name}-1']"
        browser.execute_script(f'document.querySelector("{chart}").scrollIntoView()')
        target = f'const one = document.querySelector("{chart}"); '
        drawn = f"{target} return one.ariaBusy === 'false' && one.firstChild.offsetHeight > 80"
        WebDriverWait(browser, 60).until(lambda of, drawn=drawn: of.execute_script(drawn))
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    [ground] = re.findall(
        r"\d+", browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    )[:1]
    assert (int(ground) < 50) == dark
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []


@in_a_browser
def test_a_link_to_a_row_opens_its_table_with_the_ratio(browser: Chrome) -> None:
    [push] = [result for result in RESULTS if result["name"] == "push"]
    [one] = [one for one in push["benchmarks"] if (one["partitions"], one["brokers"]) == (100_000, 30)]
    ours, kafka = one["ms"]["ours"], one["ms"]["kafka"]
    browser.get(f"{PAGE.as_uri()}?row#push-full-push-100000-to-30")
    row = "document.querySelector('#push-full-push-100000-to-30 [data-side=kafka]')"
    text = browser.execute_script(f"return {row}.innerText")
    assert text.split()[-5:] == [
        "Kafka", "/", "ours", number(median(kafka) / median(ours)), f"({number(min(kafka) / min(ours))})",
    ]  # fmt: skip
    assert browser.execute_script(f"return {row}.checkVisibility()")
    raw = "return fetch(document.getElementById('raw').href).then((answer) => answer.json())"
    assert browser.execute_script(raw) == RESULTS
