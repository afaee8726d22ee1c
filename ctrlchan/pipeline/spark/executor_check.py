"""The task of ``ctrlchan pipeline check``: says what is missing on an executor, which may be ctrlchan itself.

Its source is sent with the task (``spark/executors.py``), so it imports only what comes with Python.
"""

from __future__ import annotations

import importlib
import os
import platform
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["PROBE", "examine"]

#: Module and the package that has it.
_MODULES = {"numpy": "numpy", "pyarrow": "pyarrow", "pandas": "pandas", "ctrlchan._codec": "ctrlchan"}
_CONNECT_SECONDS = 5.0
#: The file that the driver puts into each folder.
PROBE = "ctrlchan-check"


def examine(
    version: str, storage: Sequence[str], listeners: Sequence[tuple[str, int]], seconds: float
) -> dict[str, Any]:
    """Return a description of this executor: its machine, folder and Python, and what is missing.

    ``version``: of the driver's ctrlchan. ``storage``: folders in which the driver has put a file.
    ``listeners``: addresses of brokers. The task takes ``seconds`` at least: so every executor gets one.
    """
    ends = time.monotonic() + seconds
    problems = [*_packages(version), *_folders(storage), *_listeners(listeners)]
    time.sleep(max(0.0, ends - time.monotonic()))
    return {
        "host": socket.gethostname(),
        "folder": os.getcwd(),
        "python": platform.python_version(),
        "problems": problems,
    }


def _packages(version: str) -> Iterator[str]:
    missing = []
    for module, package in _MODULES.items():
        try:
            importlib.import_module(module)
        except ImportError as problem:
            absent = isinstance(problem, ModuleNotFoundError)
            missing.append(package if absent else f"{package} ({problem})")
    if missing:
        yield (
            f"no {', '.join(missing)}: make a package by `ctrlchan pipeline package` with the same platform "
            "and Python, and give it to each job by --package"
        )
        return
    import ctrlchan

    if ctrlchan.__version__ != version:
        yield f"ctrlchan {ctrlchan.__version__}, but the driver has {version}: use a package of the driver's"


def _folders(folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        if "://" in folder:
            yield from _store(folder)
            continue
        remedy = "mount the same file system there, or use a URL of a store that all machines reach"
        try:
            with open(os.path.join(folder, PROBE), "rb"):
                pass
            path = os.path.join(folder, f"{PROBE}-{socket.gethostname()}-{os.getpid()}")
            with open(path, "xb"):
                pass
            os.unlink(path)
        except FileNotFoundError:
            yield f"{folder} is not the driver's folder of this name: {remedy}"
        except OSError as problem:
            yield f"{folder}: {problem.strerror}: let the user of the executors write there"


def _store(url: str) -> Iterator[str]:
    try:
        from ctrlchan.errors import ConfigError
        from ctrlchan.storage import path_of, write_new
    except ImportError:
        # ``_packages`` says what is missing.
        return
    try:
        folder = path_of(url)
        (folder / PROBE).read_bytes()
        own = folder / f"{PROBE}-{socket.gethostname()}-{os.getpid()}"
        write_new(own, b"")
        own.unlink()
    except (OSError, ConfigError) as problem:
        yield f"{problem}: give the executors the address and the credentials that the driver has"


def _listeners(listeners: Sequence[tuple[str, int]]) -> Iterator[str]:
    for host, port in listeners:
        try:
            socket.create_connection((host, port), _CONNECT_SECONDS).close()
        except OSError as problem:
            yield (
                f"no connection to the broker {host}:{port} ({problem.strerror or problem}): let the "
                "executors through to it, or let it advertise an address that they reach"
            )
