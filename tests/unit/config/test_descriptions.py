"""Each setting has a sentence that says what it does."""

from __future__ import annotations

import pytest

from ctrlchan.config import table
from ctrlchan.config.descriptions import _TEXT, description_of
from ctrlchan.config.without_effect import WITHOUT_EFFECT

ROWS = (
    table.TOPICS,
    table.BROKERS,
    table.UNSHOWN,
    table.DYNAMIC,
    table.CONTROLLERS,
    table.SECURITY,
    WITHOUT_EFFECT,
)
NAMES = sorted({name for rows in ROWS for name in rows})


@pytest.mark.parametrize("name", NAMES)
def test_a_sentence(name: str) -> None:
    text = description_of(name)
    assert text is not None
    assert text.endswith(".")
    assert text[0].isupper()


def test_no_line_is_left_over() -> None:
    names = [line.partition(": ")[0] for line in _TEXT.splitlines() if line]
    assert len(set(names)) == len(names)
    assert set(names) <= set(NAMES)


def test_of_one_listener_and_of_none() -> None:
    assert description_of("listener.name.x.max.connections") == description_of("max.connections")
    assert description_of("no.such.setting") is None
