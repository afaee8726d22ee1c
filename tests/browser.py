"""Chromium without a window, for tests that look at a page, and for those that click in it."""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

from tests.kafka.requirement import kafka_is_required

__all__ = [
    "chromium",
    "driven_chromium",
    "in_a_browser",
    "in_chromium",
    "pixels",
    "set_window",
    "take_picture",
]

#: The program; None: there is none.
CHROMIUM: Final = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
#: The program that lets tests click; None: there is none.
CHROMEDRIVER: Final = shutil.which("chromedriver")

#: Marks of tests that look at a page, and of those that click in it. In CI they fail without a browser.
in_chromium: Final = pytest.mark.skipif(
    CHROMIUM is None and not kafka_is_required(), reason="there is no Chromium or Chrome"
)
in_a_browser: Final = pytest.mark.skipif(
    (CHROMIUM is None or CHROMEDRIVER is None) and not kafka_is_required(),
    reason="there is no Chromium with its chromedriver",
)

_OPTIONS: Final = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
#: It asks nobody on the network for anything by itself.
_ALONE: Final = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def chromium(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it. What pages log is on standard error, with ``CONSOLE`` in each line."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *_OPTIONS, "--enable-logging=stderr"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120, check=True)


@contextmanager
def driven_chromium(profile: Path) -> Iterator[Chrome]:
    """Yield a browser that tests control. ``profile``: an empty folder of its own."""
    assert CHROMIUM is not None
    assert CHROMEDRIVER is not None, "there is no chromedriver"
    options = ChromeOptions()
    options.binary_location = CHROMIUM
    for one in (*_OPTIONS, *_ALONE, f"--user-data-dir={profile}"):
        options.add_argument(one)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(CHROMEDRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def set_window(driver: Chrome, width: int, height: int, *, dark: bool = False) -> None:
    """Give pages a window of this size, also one that is narrower than a browser's smallest."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def take_picture(driver: Chrome, file: Path) -> None:
    """Write a picture of the whole page."""
    answer = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
    file.write_bytes(base64.b64decode(answer["data"]))


def pixels(picture: Path, size: tuple[int, int] | None = (1280, 1600)) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the brightness of each pixel of a picture of this width and height; None: of any."""
    with Image.open(picture) as image:
        assert size is None or image.size == size
        return np.asarray(image.convert("L"))
