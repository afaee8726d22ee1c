from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan._codec import Brokers, StringColumn
from ctrlchan.errors import InvalidStateError
from ctrlchan.state import Broker, Endpoint, SecurityProtocol, broker_at, brokers_from
from ctrlchan.state.brokers import brokers_list, format_host_port, parse_host_port
from ctrlchan.topic_names import check_name, id_from_text, id_to_text, invalid_names, why_invalid
from tests.unit.state.helpers import small_state

ENDPOINTS = st.builds(
    Endpoint,
    st.text("ABC", min_size=1, max_size=3),
    st.sampled_from(SecurityProtocol),
    st.text(min_size=1, max_size=5),
    st.integers(0, 65_535),
)
BROKERS = st.lists(
    st.builds(
        Broker,
        st.integers(0, 2**31 - 1),
        st.integers(-1, 2**63 - 1),
        st.lists(ENDPOINTS, max_size=3).map(tuple),
        st.none() | st.sampled_from(["", "rack", "räck"]),
    ),
    unique_by=lambda broker: broker.id,
    max_size=5,
)


@given(BROKERS)
def test_brokers_round_trip(brokers: list[Broker]) -> None:
    columns = brokers_from(brokers)
    assert columns.epochs.dtype == np.int64
    assert brokers_list(columns) == brokers
    assert brokers_from(columns) is columns
    for row, broker in enumerate(brokers):
        assert broker_at(columns, row) == broker


@pytest.mark.parametrize(
    ("brokers", "reason"),
    [
        ([Broker(1), Broker(2), Broker(1)], "broker 1 is listed twice"),
        ([Broker(-1)], "broker id -1 is not in"),
        ([Broker(2**31)], "broker id 2147483648 is not in"),
        (
            [Broker(1, 0, (Endpoint("P", SecurityProtocol.SSL, "h", 65_536),))],
            "broker 1: port 65536 is not in",
        ),
        ([Broker(1, 2**63)], "broker 1: epoch 9223372036854775808 is not an int64"),
        (
            [Broker(3), Broker(4, rack="r" * 32_768)],
            f"broker 4: rack '{'r' * 60}…' has 32768 bytes, more than the 32767 of a string in a request",
        ),
        (
            [Broker(4, 0, (Endpoint("P", SecurityProtocol.SSL, "ä" * 20_000, 1),))],
            f"broker 4: host '{'ä' * 60}…' has 40000 bytes, more than the 32767 of a string in a request",
        ),
        (
            [Broker(4, 0, (Endpoint("L" * 40_000, SecurityProtocol.SSL, "h", 1),))],
            f"broker 4: listener '{'L' * 60}…' has 40000 bytes, more than the 32767",
        ),
        (
            [Broker(4, 0, (Endpoint("P", SecurityProtocol.SSL, "h\ud800", 1),))],
            r"broker 4: host 'h\ud800' has half of a surrogate pair, which is no character",
        ),
    ],
)
def test_brokers_that_cannot_be(brokers: list[Broker], reason: str) -> None:
    with pytest.raises(InvalidStateError, match=re.escape(reason)):
        brokers_from(brokers)


def test_a_refused_broker_leaves_the_state_as_it_was() -> None:
    state = small_state()
    before = state.brokers
    for change in (state.set_brokers, state.add_brokers, state.set_announced):
        with pytest.raises(InvalidStateError, match="broker 9: rack"):
            change([Broker(9, rack="r" * 40_000)])
    assert state.brokers is before


@pytest.mark.parametrize("name", ["racks", "hosts", "listeners"])
def test_columns_whose_texts_are_too_long(name: str) -> None:
    endpoints = tuple(Endpoint("P", SecurityProtocol.SSL, "h", port) for port in (1, 2))
    columns = brokers_from([Broker(1, 0, endpoints, "r"), Broker(2, 0, endpoints, "r")])
    names = (
        "ids", "epochs", "racks", "endpoint_starts", "endpoint_lengths",
        "ports", "hosts", "listeners", "security_protocols",
    )  # fmt: skip
    fields = {one: getattr(columns, one) for one in names}
    fields[name] = StringColumn.from_strings([*fields[name].to_list()[:-1], "x" * 40_000])
    wrong = Brokers(**fields)
    with pytest.raises(InvalidStateError, match=f"broker 2: {name[:-1]} has 40000 bytes"):
        brokers_from(wrong)


@pytest.mark.parametrize("size", [32_767, 0])
def test_the_longest_texts_are_sent(size: int) -> None:
    text = "x" * size
    columns = brokers_from([Broker(1, 0, (Endpoint(text, SecurityProtocol.SSL, text, 1),), text)])
    assert broker_at(columns, 0).rack == text


def test_security_protocols_by_name() -> None:
    assert SecurityProtocol.of(" sasl_ssl ") is SecurityProtocol.SASL_SSL
    with pytest.raises(InvalidStateError, match="'TLS' is no security protocol"):
        SecurityProtocol.of("TLS")


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("h:1", ("h", 1)), ("[::1]:9092", ("::1", 9092)), ("a.b.c:65535", ("a.b.c", 65_535))],
)
def test_host_and_port(text: str, parsed: tuple[str, int]) -> None:
    assert parse_host_port(text) == parsed
    assert format_host_port(*parsed) == text


@pytest.mark.parametrize("text", ["", "h", "h:", ":1", "h:65536", "h:-1", "h:1x", "::1:9092", "h:²"])
def test_what_is_no_host_and_port(text: str) -> None:
    with pytest.raises(InvalidStateError):
        parse_host_port(text)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        (".", "'.' or '..'"),
        ("..", "'.' or '..'"),
        ("x" * 250, "250 bytes"),
        ("a/b", "character other than"),
        ("tøpic", "character other than"),
        ("a b", "character other than"),
    ],
)
def test_names_kafka_refuses(name: str, reason: str) -> None:
    assert reason in (why_invalid(name) or "")
    with pytest.raises(InvalidStateError, match=re.escape(reason)):
        check_name(name)


@given(
    st.lists(
        st.sampled_from(["a", ".", "..", "...", "A-b_c.9", "x y", "", "é", "x" * 249, "x" * 250]) | st.text()
    )
)
def test_invalid_names_agrees_with_why_invalid(names: list[str]) -> None:
    encoded = [name.encode(errors="replace") for name in names]
    column = StringColumn.from_strings(encoded)
    assert invalid_names(column).tolist() == [i for i, name in enumerate(encoded) if why_invalid(name)]


@given(st.binary(min_size=16, max_size=16))
def test_topic_ids_as_text(topic_id: bytes) -> None:
    text = id_to_text(topic_id)
    assert len(text) == 22
    assert id_from_text(text) == topic_id


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 23, "!" * 22, "é" * 22, "A" * 21 + "+"])
def test_what_is_no_topic_id(text: str) -> None:
    with pytest.raises(InvalidStateError, match="is not a topic id"):
        id_from_text(text)
