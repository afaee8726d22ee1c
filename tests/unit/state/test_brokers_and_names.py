from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan._codec import StringColumn
from ctrlchan.errors import InvalidStateError
from ctrlchan.state import Broker, Endpoint, SecurityProtocol, broker_at, brokers_from
from ctrlchan.state.brokers import brokers_list, format_host_port, parse_host_port
from ctrlchan.topic_names import check_name, id_from_text, id_to_text, invalid_names, why_invalid

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
    ],
)
def test_brokers_that_cannot_be(brokers: list[Broker], reason: str) -> None:
    with pytest.raises(InvalidStateError, match=re.escape(reason)):
        brokers_from(brokers)


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
