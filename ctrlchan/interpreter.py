"""What a process of our own in a new Python interpreter is given: a command line, and descriptors."""

from __future__ import annotations

import fcntl
import gc
import os
import resource
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Final

__all__ = [
    "ONE_BLAS_THREAD",
    "above_standard",
    "child_command",
    "import_kio",
    "keep_out_of_collections",
    "raise_descriptor_limit",
]

_LAST_STANDARD: Final = 2

#: A variable of the environment and its value, to be set before NumPy is imported in a process of our own:
#: its OpenBLAS starts a thread for each core, which takes a quarter of a broker's start, and we need none.
ONE_BLAS_THREAD: Final = ("OPENBLAS_NUM_THREADS", "1")


def child_command(module: str, *arguments: str) -> list[str]:
    """Return a command that runs ``main()`` of the module `module` of this package with `arguments`.

    The child searches modules where this process does, but not in the working directory: a file there, such
    as ``json.py``, would be executed in place of the module that the child wants. The folder that holds this
    package is searched last, so the package is found even when that folder is the working directory.

    The child ignores SIGINT: Ctrl-C in a terminal reaches all its processes, and a parent ends its children.

    The child cannot import Hypothesis: kio would, where it is installed, and that takes longer than all other
    imports of a broker. OpenBLAS has one thread (``ONE_BLAS_THREAD``), unless the environment says more.
    """
    # Nothing is imported before the path is set: `sys` is built in. -P: no entry for the working directory.
    code = (
        f"import sys; sys.path[:] = {_module_path()!r}; "
        f"import os; os.environ.setdefault(*{ONE_BLAS_THREAD!r}); "
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        "sys.modules['hypothesis'] = None; "
        f"from {module} import main; main()"
    )
    return [sys.executable, "-P", "-c", code, *arguments]


def import_kio() -> None:
    """Import kio without Hypothesis, unless this process has imported that.

    kio imports it where it is installed, for strategies of its types. That takes longer than the start of a
    cluster, in a process of pytest more so: pytest rewrites the asserts of Hypothesis.
    """
    hidden = _HiddenHypothesis()
    sys.meta_path.insert(0, hidden)
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        sys.meta_path.remove(hidden)


class _HiddenHypothesis(MetaPathFinder):
    """Lets the thread that has made it find no Hypothesis."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Raise ModuleNotFoundError for Hypothesis; return None for other modules."""
        if name == "hypothesis" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(name, name=name)


def keep_out_of_collections() -> None:
    """Let the garbage collector never look at what exists now: for processes of our own whose start is over.

    A broker has some 50,000 objects of modules. To look through them took a sixth of the processor time in
    which 1,000 members of a group join and sync.
    """
    gc.freeze()


def raise_descriptor_limit() -> None:
    """Let this process open as many files as its hard limit says, as a JVM does."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _module_path() -> list[str]:
    """Return this process's module path without the working directory, and the folder of this package."""
    try:
        working_directory = os.path.realpath(os.getcwd())
    except FileNotFoundError:  # it has been deleted, so nothing can be imported from it
        working_directory = ""
    path = [entry for entry in sys.path if entry and os.path.realpath(entry) != working_directory]
    package_folder = str(Path(__file__).resolve().parents[1])
    return path if package_folder in path else [*path, package_folder]


def above_standard(fd: int) -> int:
    """Return `fd`, or a copy of it with a higher number where it is one of the standard descriptors.

    A process that was started with a closed standard descriptor gets its number for the next file it opens.
    Such a file must not be taken for standard input or output, here or in a child. `fd` is closed if copied.
    """
    if fd > _LAST_STANDARD:
        return fd
    copy = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LAST_STANDARD + 1)
    os.close(fd)
    return copy
