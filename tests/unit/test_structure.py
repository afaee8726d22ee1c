"""The import graph of the package, type-only imports included; and what jobs of Spark do not use.

import-linter reads Python files alone. Here imports and cimports of Cython sources count, too.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import grimp
import pytest

import ctrlchan

PACKAGE: Final = Path(ctrlchan.__file__).parent
SETTINGS: Final = PACKAGE.parent / "pyproject.toml"

#: What a session of Spark Connect does not have, and the files that use it in other sessions only.
OF_A_JVM: Final = {"sparkContext", "rdd", "_jvm", "_jsc", "_jdf", "_jsparkSession"}
WITH_A_JVM: Final = {"jvm.py", "remote.py", "executors.py", "progress.py"}


_INCLUDE: Final = re.compile(r'^include "(.+)"$', re.MULTILINE)
_FROM: Final = re.compile(r"^[ \t]*from (ctrlchan[\w.]*) c?import \(?([^()#]+?)(?:\)|#|$)", re.MULTILINE)


def _cython_files() -> dict[str, list[Path]]:
    """Return the files of each Cython module: its sources and those that they include."""
    files: dict[str, list[Path]] = {}
    for path in sorted(PACKAGE.rglob("*.p[xy][xd]")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        included = [path.parent / name for name in _INCLUDE.findall(path.read_text())]
        files.setdefault(".".join(parts), []).extend((path, *included))
    return files


def _python_imports(path: Path) -> Iterator[tuple[str, list[str]]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module, [alias.name for alias in node.names]


def _cython_imports(path: Path) -> Iterator[tuple[str, list[str]]]:
    for module, names in _FROM.findall(path.read_text()):
        yield module, names.replace(",", " ").split()


@cache
def imports_with_cython() -> Mapping[str, set[str]]:
    """Return what each module imports, Cython modules and their cimports included."""
    graph = grimp.build_graph("ctrlchan", exclude_type_checking_imports=False, cache_dir=None)
    cython = _cython_files()
    modules = set(graph.modules) | set(cython)
    imports: dict[str, set[str]] = {module: set() for module in modules}
    for module in graph.modules:
        imports[module] |= graph.find_modules_directly_imported_by(module)
    found = [(module, _cython_imports(path)) for module, paths in cython.items() for path in paths]
    for module in graph.modules:
        path = (PACKAGE.parent / module.replace(".", "/")).with_suffix(".py")
        if path.exists():
            found.append((module, _python_imports(path)))
    for module, imported in found:
        for source, names in imported:
            of_module = {f"{source}.{name}" for name in names} & modules or {source} & modules
            imports[module] |= of_module - {module}
    return imports


def _layers() -> list[Any]:
    with SETTINGS.open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    return [
        pytest.param(contract.get("containers", [""])[0], contract["layers"], id=contract["name"])
        for contract in contracts
        if contract["type"] == "layers"
    ]


def against_the_arrows(container: str, layers: list[str], imports: Mapping[str, set[str]]) -> list[str]:
    """Return the imports of an upper layer by a lower one, and those between the rooms of one layer."""
    place = {
        f"{container}.{room}" if container else room: (depth, room)
        for depth, layer in enumerate(layers)
        for room in layer.split(" | ")
    }
    levels = {name.count(".") + 1 for name in place}

    def place_of(module: str) -> tuple[int, str] | None:
        parts = module.split(".")
        found = (place.get(".".join(parts[:level])) for level in levels)
        return next((one for one in found if one is not None), None)

    wrong = []
    for module, imported in imports.items():
        for other in imported:
            of, to = place_of(module), place_of(other)
            if of and to and of != to and of[0] >= to[0]:
                wrong.append(f"{module} -> {other}")
    return sorted(wrong)


def circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that reach one another, by removing all that stand in none."""
    left = {module: set(imported) for module, imported in imports.items()}
    shrunk = True
    while shrunk:
        imported_by_any = set().union(*left.values())
        alone = {module for module in left if not left[module] or module not in imported_by_any}
        shrunk = bool(alone)
        left = {module: imported - alone for module, imported in left.items() if module not in alone}
    return [[module, *sorted(imported)] for module, imported in sorted(left.items())]


def test_a_circle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}
    assert circles(graph) == [["b", "c"], ["c", "b"]]


def test_imports_of_cython_sources_are_found() -> None:
    imports = imports_with_cython()
    # A cimport of a source, of a file that it includes, and an import by a Python file.
    assert "ctrlchan.broker.log._segments" in imports["ctrlchan.broker.log._log"]
    assert "ctrlchan._c.atomics" in imports["ctrlchan.broker.handlers._fetch"]
    assert "ctrlchan.broker.replica._partitions" in imports["ctrlchan.broker.replica.replica_manager"]


def test_no_file_stands_in_an_import_circle() -> None:
    imports = imports_with_cython()
    assert len(imports) > 500
    assert circles(imports) == []


def test_an_import_against_the_arrows_is_found() -> None:
    imports = {"p.a.x": {"p.b", "p.c.y"}, "p.b": {"p.c", "p.a.x"}, "p.c.y": {"p.c.z", "p.d"}, "p.d": set()}
    assert against_the_arrows("p", ["a | b", "c", "d"], imports) == ["p.a.x -> p.b", "p.b -> p.a.x"]
    assert against_the_arrows("", ["p.c", "p.a", "p.d"], imports) == ["p.a.x -> p.c.y"]


@pytest.mark.parametrize(("container", "layers"), _layers())
def test_cython_sources_keep_the_arrows(container: str, layers: list[str]) -> None:
    imports = imports_with_cython()
    cython = set(_cython_files())
    of_cython = {
        module: imported if module in cython else imported & cython for module, imported in imports.items()
    }
    assert against_the_arrows(container, layers, of_cython) == []


def test_jobs_use_nothing_that_a_session_of_spark_connect_does_not_have() -> None:
    found = {
        (file.name, node.attr)
        for folder in ("pipeline", "cli/pipeline")
        for file in (PACKAGE / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in OF_A_JVM
    }
    assert {name for name, _ in found} == WITH_A_JVM
