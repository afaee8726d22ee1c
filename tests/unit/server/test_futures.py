"""Futures of what is done when others have ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from ctrlchan.server.futures import then

SOON = 30.0


def ended(value: int) -> Future[int]:
    future: Future[int] = Future()
    future.set_result(value)
    return future


def test_a_result_and_a_future_of_it() -> None:
    first: Future[int] = Future()
    second: Future[int] = Future()
    plain = then(first, lambda value: value + 1)
    later = then(first, lambda _: second)
    assert not plain.done()
    first.set_result(1)
    assert plain.result(0) == 2
    assert not later.done()
    second.set_result(5)
    assert later.result(0) == 5


@pytest.mark.parametrize("where", ["first", "function", "second"])
def test_an_exception_is_that_of_the_future(where: str) -> None:
    first: Future[int] = Future()
    second: Future[int] = Future()
    second.set_exception(ValueError("second"))

    def function(_: int) -> Future[int]:
        if where == "function":
            raise ValueError("function")
        return second

    result = then(first, function)
    if where == "first":
        first.set_exception(ValueError("first"))
    else:
        first.set_result(1)
    with pytest.raises(ValueError, match=where):
        result.result(0)


def test_an_executor_calls_the_function() -> None:
    with ThreadPoolExecutor(1, thread_name_prefix="replies") as executor:
        name: Callable[[int], str] = lambda _: threading.current_thread().name  # noqa: E731
        assert then(ended(1), name, executor).result(SOON).startswith("replies")
    with pytest.raises(RuntimeError, match="shutdown"):
        then(ended(1), name, executor).result(0)


def test_nobody_can_cancel_it() -> None:
    """Who waits gives up; what was asked for is done to its end."""
    first: Future[int] = Future()
    result = then(first, lambda value: value)
    assert not result.cancel()
    first.set_result(1)
    assert result.result(0) == 1
