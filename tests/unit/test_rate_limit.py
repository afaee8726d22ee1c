"""LogRateLimit: which lines are written."""

from __future__ import annotations

from ctrlchan.rate_limit import LogRateLimit

SECOND = 1_000_000_000


def test_a_few_lines_at_once_then_one_in_ten_seconds() -> None:
    limit = LogRateLimit()
    assert [limit.admit(1, SECOND) for _ in range(7)] == [""] * 5 + [None] * 2
    assert limit.admit(2, SECOND) == ""
    assert limit.admit(1, 10 * SECOND) is None
    assert limit.admit(1, 11 * SECOND) == " (3 more since the last such line)"
    assert limit.admit(1, 12 * SECOND) is None
    assert [limit.admit(1, 1000 * SECOND) for _ in range(7)] == [
        " (1 more since the last such line)",
        *[""] * 4,
        *[None] * 2,
    ]


def test_an_unimportant_line_is_written_after_ten_minutes() -> None:
    limit = LogRateLimit()
    assert limit.admit(1, SECOND) == ""
    assert limit.admit(1, 300 * SECOND, important=False) is None
    assert limit.admit(1, 602 * SECOND, important=False) == " (1 more since the last such line)"
