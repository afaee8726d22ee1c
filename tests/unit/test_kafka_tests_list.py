"""The list of Kafka's own tests: each deviation from it is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka_tests.expectations import ClassExpectation, Outcome, read

PASSED, FAILED, CANNOT = Outcome.PASSED, Outcome.FAILED, Outcome.CANNOT
EXPECTED = ClassExpectation(frozenset({"runs"}), {"looks": "a reason"}, {"breaks": "a reason"})
AS_LISTED = {"runs": PASSED, "breaks": FAILED}


def test_the_list_can_be_read_and_gives_reasons() -> None:
    listed = read()
    assert listed.classes
    for name, one in listed.classes.items():
        assert one.runs or one.fails, name
        assert all([*one.cannot.values(), *one.fails.values()]), name
    assert all(listed.left_out.values())
    assert not listed.left_out.keys() & listed.classes.keys()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"looks": CANNOT}, []),
        ({"runs": FAILED}, ["runs: failed, but the list says that it passes"]),
        ({"runs": Outcome.ABORTED}, ["runs: aborted, but the list says that it passes"]),
        ({"breaks": PASSED}, ["breaks: passed, but the list says that it fails"]),
        ({"looks": PASSED}, ["looks: passed, but the list says that it cannot run"]),
        ({"new": PASSED}, ["new: passed, and it is not in the list"]),
    ],
)
def test_what_differs_from_the_list_is_said(changes: dict[str, Outcome], words: list[str]) -> None:
    assert list(EXPECTED.differences({**AS_LISTED, **changes}, frozenset())) == words


def test_a_method_that_did_not_run_is_said_unless_others_were_chosen() -> None:
    assert list(EXPECTED.differences({"runs": PASSED}, frozenset())) == [
        "breaks: is in the list, but did not run"
    ]
    assert list(EXPECTED.differences({"runs": PASSED}, frozenset({"runs"}))) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('["a.B"]\nrun = ["x"]', r"a.B: unknown keys \['run'\]"),
        ('["a.B"]\nruns = ["x"]\n["a.B".fails]\nx = "why"', "a.B: methods stand in it twice"),
    ],
)
def test_a_wrong_list_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "list.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        read(path)
