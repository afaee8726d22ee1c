"""Tests of the column classes: accepted and refused arrays, and reading them back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ctrlchan._codec import Brokers, ListColumn, LiveLeaders, Partitions, StringColumn, Topics
from ctrlchan.errors import EncodeError


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


def test_strings_are_kept_as_utf8_and_null_as_none() -> None:
    column = StringColumn.from_strings(["a", b"bc", None, "", "größe"])
    assert len(column) == 5
    assert [column[i] for i in range(5)] == [b"a", b"bc", None, b"", "größe".encode()]
    assert column.to_list() == ["a", "bc", None, "", "größe"]
    assert (column[-1], column[-5]) == ("größe".encode(), b"a")
    assert column.lengths.tolist() == [1, 2, -1, 0, 7]


def test_strings_may_be_anywhere_in_their_data() -> None:
    column = StringColumn(ints(3, 0, 0), ints(3, 3, 6), np.frombuffer(b"abcdef", np.uint8))
    assert column.to_list() == ["def", "abc", "abcdef"]


def test_bytes_that_are_not_text_become_replacement_characters() -> None:
    assert StringColumn.from_strings([b"a\xff"]).to_list() == ["a\ufffd"]


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(EncodeError, match="UTF-8"):
        StringColumn.from_strings(["\ud800"])


@pytest.mark.parametrize("column", [StringColumn.from_strings(["a"]), ListColumn.from_lists([[1]])], ids=repr)
def test_a_row_that_does_not_exist(column: StringColumn | ListColumn) -> None:
    for index in (1, -2, 2**40):
        with pytest.raises(IndexError):
            column[index]


@pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, 4), (3, 1), (2**31 - 1, 2**31 - 1)])
def test_a_string_or_list_outside_its_buffer(start: int, length: int) -> None:
    with pytest.raises(EncodeError, match="outside"):
        StringColumn(ints(start), ints(length), np.zeros(3, np.uint8))[0]
    with pytest.raises(EncodeError, match="outside"):
        ListColumn(ints(start), ints(length), ints(1, 2, 3))[0]


def test_a_list_of_negative_length() -> None:
    with pytest.raises(EncodeError, match="outside"):
        ListColumn(ints(0), ints(-1), ints(1))[0]


def test_lists_may_share_values_overlap_and_leave_gaps() -> None:
    column = ListColumn(ints(2, 0, 1, 4), ints(2, 3, 0, 0), ints(1, 2, 3, 4))
    assert column.to_lists() == [[3, 4], [1, 2, 3], [], []]
    assert np.shares_memory(column[0], column.values)


def test_lists_of_arrow_offsets() -> None:
    offsets = ints(0, 2, 2, 5)
    column = ListColumn(offsets[:-1], np.diff(offsets), ints(1, 2, 3, 4, 5))
    assert column.to_lists() == [[1, 2], [], [3, 4, 5]]


def test_lists_from_lists() -> None:
    column = ListColumn.from_lists([[1, -2], [], (3,), [2**31 - 1]])
    assert column.to_lists() == [[1, -2], [], [3], [2**31 - 1]]
    assert ListColumn.from_lists([]).to_lists() == []
    with pytest.raises(EncodeError, match="does not fit int32"):
        ListColumn.from_lists([[2**31]])


def test_a_column_of_the_right_dtype_is_not_copied() -> None:
    ids, ports = ints(1, 2), ints(3, 4)
    ids.flags.writeable = False
    leaders = LiveLeaders(ids, StringColumn.from_strings(["a", "b"]), ports)
    assert leaders.ids is ids
    assert leaders.ports is ports


def test_other_integers_are_converted_when_nothing_is_lost() -> None:
    hosts = StringColumn.from_strings(["a", "b"])
    leaders = LiveLeaders(np.array([1, 2], np.int64), hosts, np.array([3, 4, 5, 6], ">i4")[::2])
    assert leaders.ids.dtype == leaders.ports.dtype == np.int32
    assert (leaders.ids.tolist(), leaders.ports.tolist()) == ([1, 2], [3, 5])
    with pytest.raises(EncodeError, match="does not fit int32") as caught:
        LiveLeaders(np.array([1, 2**31]), hosts, ints(3, 4))
    assert caught.value.field == "ids"
    for other in (np.array([1.0, 2.0]), np.array(["1", "2"])):
        with pytest.raises(TypeError, match="expected int32"):
            LiveLeaders(other, hosts, ints(3, 4))


NAMES = StringColumn.from_strings(["a", "b"])
LISTS = ListColumn.from_lists([[1], [2]])
NO_LISTS = ListColumn.from_lists([])
TWO = ints(1, 2)
ONE = ints(1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: StringColumn(TWO, ONE, np.zeros(3, np.uint8)),
        lambda: ListColumn(TWO, ONE, TWO),
        lambda: Topics(NAMES, np.zeros((1, 16), np.uint8)),
        lambda: Topics(NAMES, np.zeros((2, 15), np.uint8)),
        lambda: Topics(NAMES, np.zeros(32, np.uint8)),
        lambda: Topics(NAMES, None, np.zeros(1, np.uint8)),
        lambda: Partitions(TWO, TWO, TWO, TWO, TWO, TWO, ONE, LISTS, LISTS),
        lambda: Partitions(TWO, ONE, TWO, TWO, TWO, TWO, TWO, LISTS, LISTS),
        lambda: Partitions(TWO, TWO, TWO, TWO, TWO, TWO, TWO, LISTS, ListColumn.from_lists([[1]])),
        lambda: Partitions(
            TWO, TWO, TWO, TWO, TWO, TWO, TWO, LISTS, LISTS, None, None, ListColumn.from_lists([])
        ),
        lambda: Brokers(TWO, None, StringColumn.from_strings([]), TWO, TWO, TWO, NAMES, NAMES, TWO),
        lambda: Brokers(TWO, np.zeros(1, np.int64), NAMES, TWO, TWO, TWO, NAMES, NAMES, TWO),
        lambda: Brokers(TWO, None, NAMES, TWO, ONE, TWO, NAMES, NAMES, TWO),
        lambda: Brokers(TWO, None, NAMES, TWO, TWO, ONE, NAMES, NAMES, TWO),
        lambda: LiveLeaders(TWO, NAMES, ONE),
        lambda: LiveLeaders(ONE, NAMES, ONE),
    ],
)
def test_columns_that_differ_in_length(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"rows|lengths|shape|flags|ids,"):
        make()


def test_omitted_columns_have_defaults() -> None:
    assert Topics(NAMES).ids.tolist() == [[0] * 16] * 2
    assert Topics(NAMES).deleting is None
    partitions = Partitions(TWO, TWO, TWO, TWO, TWO, TWO, TWO, LISTS, LISTS)
    assert (partitions.adding, partitions.removing, partitions.offline) == (None, None, None)
    none = StringColumn.from_strings([])
    brokers = Brokers(TWO, None, NAMES, ints(0, 0), ints(0, 0), ints(), none, none, ints())
    assert brokers.epochs.tolist() == [-1, -1]
    assert (len(Topics(NAMES)), len(partitions), len(brokers)) == (2, 2, 2)
