"""The command line of a child process that runs a function of this package in a new Python interpreter."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["child_command"]


def child_command(module: str, *arguments: str) -> list[str]:
    """Return a command that runs ``main()`` of the module `module` of this package with `arguments`.

    The child searches modules where this process does, but not in the working directory: a file there, such
    as ``json.py``, would be executed in place of the module that the child wants. The folder that holds this
    package is searched last, so the package is found even when that folder is the working directory.
    """
    # Nothing is imported before the path is set: `sys` is built in. -P: no entry for the working directory.
    code = f"import sys; sys.path[:] = {_module_path()!r}; from {module} import main; main()"
    return [sys.executable, "-P", "-c", code, *arguments]


def _module_path() -> list[str]:
    """Return this process's module path without the working directory, and the folder of this package."""
    try:
        working_directory = os.path.realpath(os.getcwd())
    except FileNotFoundError:  # it has been deleted, so nothing can be imported from it
        working_directory = ""
    path = [entry for entry in sys.path if entry and os.path.realpath(entry) != working_directory]
    package_folder = str(Path(__file__).resolve().parents[1])
    return path if package_folder in path else [*path, package_folder]
