"""Chromium without a window, for tests that look at a page."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

__all__ = ["CHROMIUM", "chromium", "pixels"]

#: The program; None: there is none.
CHROMIUM: Final = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


def chromium(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it. What pages log is on standard error, with ``CONSOLE`` in each line."""
    assert CHROMIUM is not None
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--enable-logging=stderr",
    ]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120, check=True)


def pixels(picture: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the brightness of each pixel of a picture of 1280 by 1600."""
    with Image.open(picture) as image:
        assert image.size == (1280, 1600)
        return np.asarray(image.convert("L"))
