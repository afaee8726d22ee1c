"""What counts depend on, and which of it chooses the baseline.

Counts of the same code differ with the compiler of the extensions, with the interpreter, and with the
instructions that the processor has. valgrind shows programs a processor of its own: 3.19 has AVX2 where the
machine has it, and never AVX-512.
"""

from __future__ import annotations

import platform
import re
import ssl
import sysconfig
from pathlib import Path
from typing import Final

import numpy

from bench.instructions import marks
from ctrlchan import _codec
from ctrlchan.server._openssl import OpenSslError, openssl_version

__all__ = ["compiler_of", "differences", "kind_of", "of_this_process"]

_GCC: Final = re.compile(rb"GCC: \([^)]*\) \d+\.[0-9.]+")
_CLANG: Final = re.compile(rb"clang version \d+\.[0-9.]+")


def of_this_process() -> dict[str, str]:
    """Return all that is known to change counts, as a process under valgrind sees it."""
    return {
        "compiler": compiler_of(Path(_codec.__file__).read_bytes()),
        "python": f"{platform.python_version()}, {_build_of_python()}",
        "machine": platform.machine(),
        "cpu": marks.cpu_features(),
        "libc": " ".join(platform.libc_ver()),
        "numpy": numpy.__version__,
        "openssl": _openssl(),
    }


def compiler_of(extension: bytes) -> str:
    """Return the compiler that has made an extension, as its file says: "gcc 12.2.0"."""
    for name, found in (("gcc", _GCC.search(extension)), ("clang", _CLANG.search(extension))):
        if found is not None:
            return f"{name} {found[0].split()[-1].decode()}"
    return "unknown"


def kind_of(environment: dict[str, str]) -> str:
    """Return which baseline fits: one for each major version of the compiler, interpreter, and machine."""
    compiler = environment["compiler"].split(".")[0]
    vectors = "with AVX2" if "avx2" in environment["cpu"].split() else "without AVX2"
    machine = environment["machine"]
    if machine == "x86_64":
        machine += f" {vectors}"
    return f"{compiler}; Python {environment['python']}; {machine}"


def differences(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return a line for each thing that is not as it was."""
    return [
        f"{name}: the baseline has {before.get(name, 'none')}, this is {value}"
        for name, value in now.items()
        if before.get(name) != value
    ]


def _build_of_python() -> str:
    """Return whether the interpreter was compiled with a profile: that changes a fifth of its counts."""
    options = sysconfig.get_config_var("CONFIG_ARGS") or ""
    return "with PGO" if "--enable-optimizations" in options else "without PGO"


def _openssl() -> str:
    try:
        return openssl_version()
    except OpenSslError:
        return f"{ssl.OPENSSL_VERSION} (Python's)"
