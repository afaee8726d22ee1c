"""The list of Kafka's unit cases about transactions names tests that there are, or a reason."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = Path(__file__).parent
#: Methods of Kafka 3.9's classes.
CASES: Final = {
    "TransactionCoordinatorTest": 65,
    "TransactionStateManagerTest": 35,
    "TransactionMetadataTest": 22,
    "TransactionMarkerChannelManagerTest": 12,
    "TransactionMarkerRequestCompletionHandlerTest": 19,
    "TransactionLogTest": 9,
    "TransactionCoordinatorConcurrencyTest": 11,
    "AddPartitionsToTxnManagerTest": 5,
    "ProducerStateManagerTest": 54,
    "TransactionIndexTest": 11,
}
LIST: Final = tomllib.loads((FOLDER / "kafkas_transaction_cases.toml").read_text())


def test_all_cases_are_listed() -> None:
    assert {name: len(cases) for name, cases in LIST.items()} == CASES


@pytest.mark.parametrize("name", CASES)
def test_each_case_has_tests_or_a_reason(name: str) -> None:
    for case, tests in LIST[name].items():
        if isinstance(tests, str):
            assert tests.startswith("left out: "), case
            continue
        assert tests, case
        for test in tests:
            file, _, function = test.partition("::")
            defined = re.search(
                rf"^(def {function}\(|{function} = )", (FOLDER / file).read_text(), re.MULTILINE
            )
            assert defined, f"{case}: there is no {test}"
