"""The import graph of the package: no file stands in a circle, type-only imports included."""

from __future__ import annotations

from collections.abc import Mapping

import grimp


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
