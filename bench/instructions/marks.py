"""What a measured program tells callgrind: which calls are counted, and when counts are written."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

from bench.peers.native import build_library

__all__ = ["begin", "compiled", "counted", "cpu_features", "dump"]

_SOURCE: Final = Path(__file__).with_name("marks.c")


@cache
def _library() -> ctypes.PyDLL:
    library = ctypes.PyDLL(str(compiled()))
    library.counted.argtypes, library.counted.restype = [ctypes.py_object], ctypes.py_object
    library.begin.argtypes, library.begin.restype = [], None
    library.dump.argtypes, library.dump.restype = [ctypes.c_char_p], None
    library.cpu_features.argtypes, library.cpu_features.restype = [], ctypes.c_char_p
    return library


def compiled() -> Path:
    """Compile the library if its source is newer; return its path. Raises CalledProcessError."""
    return build_library(_SOURCE)


def counted(work: Callable[[], object]) -> Any:
    """Call `work`, and count the instructions of this thread meanwhile. Return its result."""
    return _library().counted(work)


def begin() -> None:
    """Follow the program from here on. Nothing is counted yet."""
    _library().begin()


def dump(label: str) -> None:
    """Write what was counted since the last call, under this name."""
    _library().dump(label.encode())


def cpu_features() -> str:
    """Return the extensions of x86-64 that this process may use; under valgrind those that it shows."""
    features: bytes = _library().cpu_features()
    return features.decode().strip()
