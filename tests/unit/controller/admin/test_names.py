"""Names of new topics: Kafka's messages, and collisions."""

from __future__ import annotations

import pytest

from ctrlchan.controller.admin.names import Collisions, check_new_name
from ctrlchan.errors import ErrorCode, KafkaError

LEGAL = "one or more characters other than ASCII alphanumerics, '.', '_' and '-'"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a" * 250, f"the length of '{'a' * 250}' is longer than the max allowed length 249"),
        ("a b", f"'a b' contains {LEGAL}"),
        ("ä", f"'ä' contains {LEGAL}"),
        ("a/b", f"'a/b' contains {LEGAL}"),
    ],
)
def test_names_that_are_not_allowed(name: str, reason: str) -> None:
    with pytest.raises(KafkaError) as raised:
        check_new_name(name)
    assert raised.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert raised.value.message == f"Topic name is invalid: {reason}"


@pytest.mark.parametrize("name", ["a", "a" * 249, "a.b_c-D9", "...", "__consumer_offsets"])
def test_names_that_are_allowed(name: str) -> None:
    check_new_name(name)


def test_names_that_collide() -> None:
    collisions = Collisions(["a.b", "plain", "c_d"])
    for name in ("a_b", "c.d"):
        with pytest.raises(KafkaError) as raised:
            collisions.check(name)
        assert raised.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(KafkaError, match=r"^Topic 'a_b' collides with existing topics: a\.b$"):
        collisions.check("a_b")
    for name in ("a.b", "plain", "ab", "a-b"):
        collisions.check(name)
    collisions.add("x_y")
    with pytest.raises(KafkaError):
        collisions.check("x.y")
