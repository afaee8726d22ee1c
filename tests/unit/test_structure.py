"""The import graph of the package, type-only imports included; and what jobs of Spark do not use."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import grimp

import ctrlchan

#: What a session of Spark Connect does not have, and the files that use it in other sessions only.
OF_A_JVM: Final = {"sparkContext", "rdd", "_jvm", "_jsc", "_jdf", "_jsparkSession"}
WITH_A_JVM: Final = {"jvm.py", "remote.py", "executors.py", "progress.py"}


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


def test_no_file_stands_in_an_import_circle() -> None:
    graph = grimp.build_graph("ctrlchan", exclude_type_checking_imports=False, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 100
    assert circles(imports) == []


def test_jobs_use_nothing_that_a_session_of_spark_connect_does_not_have() -> None:
    package = Path(ctrlchan.__file__).parent
    found = {
        (file.name, node.attr)
        for folder in ("pipeline", "cli/pipeline")
        for file in (package / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in OF_A_JVM
    }
    assert {name for name, _ in found} == WITH_A_JVM
