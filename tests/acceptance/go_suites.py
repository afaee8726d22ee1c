"""Suites of tests of Go modules: their sources, fetched once, and where they may run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

__all__ = ["fetch_module", "needs_network_namespaces", "run_go"]

_FETCH_SECONDS: Final = 300
_BUILD_SECONDS: Final = 1200

#: For tests whose addresses are in the code of others.
needs_network_namespaces: Final = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None,
    reason="network namespaces need root, util-linux and iproute2",
)


def fetch_module(module: str, folder: Path) -> None:
    """Copy the sources of a module, ``PATH@VERSION``, into a folder. Raises OSError, SubprocessError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    downloaded = subprocess.run(
        ["go", "mod", "download", "-json", module], capture_output=True, check=True, timeout=_FETCH_SECONDS
    )
    source = json.loads(downloaded.stdout)["Dir"]
    shutil.copytree(source, folder, copy_function=shutil.copyfile, dirs_exist_ok=True)
    # Go keeps its sources read-only.
    for parent, _, _ in os.walk(folder):
        os.chmod(parent, 0o755)


def run_go(folder: Path, *words: str, environment: Mapping[str, str] = os.environ) -> None:
    """Run a command of Go in a folder. Raises OSError, SubprocessError."""
    subprocess.run(
        ["go", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        check=True,
        timeout=_BUILD_SECONDS,
    )
