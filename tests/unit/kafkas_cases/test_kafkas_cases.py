"""The lists of Kafka's unit cases name tests that there are, or a reason."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

FOLDER: Final = Path(__file__).parent
TESTS: Final = FOLDER.parents[1]
LISTS: Final[dict[str, dict[str, Any]]] = {
    file.stem: tomllib.loads(file.read_text()) for file in sorted(FOLDER.glob("*.toml"))
}
CLASSES: Final = [(area, name) for area, lists in LISTS.items() for name in lists["methods"]]
NAME: Final = re.compile(r"^(?:async )?def (\w+)\(|^(\w+) = ", re.MULTILINE)


@cache
def names_in(file: str) -> frozenset[str]:
    """Return the names of the tests in a file below ``tests``."""
    return frozenset(one[1] or one[2] for one in NAME.finditer((TESTS / file).read_text()))


@pytest.mark.parametrize("area", LISTS)
def test_all_cases_are_listed(area: str) -> None:
    lists = dict(LISTS[area])
    assert lists.pop("methods") == {name: len(cases) for name, cases in lists.items()}


@pytest.mark.parametrize(("area", "name"), CLASSES)
def test_each_case_has_tests_or_a_reason(area: str, name: str) -> None:
    for case, tests in LISTS[area][name].items():
        if isinstance(tests, str):
            assert tests.startswith("left out: "), case
            continue
        assert tests, case
        for test in tests:
            file, _, function = test.partition("::")
            assert function in names_in(file), f"{case}: there is no {test}"
