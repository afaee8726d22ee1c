"""Sensors of users and client ids on a clock that stands.

The arithmetic is compared with Kafka's own classes in ``tests/conformance/test_quotas.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import pytest

from ctrlchan.broker.quota._client_quotas import ClientQuotas, QuotaType
from tests.simulation._operating_system import SimulatedClock

ANONYMOUS: Final = 0
APP: Final = b"app"
MS, SECOND = 1_000_000, 1_000_000_000
#: The longest time of a throttled request: one window.
LONGEST: Final = 1000

Limits = Mapping[tuple[str | None, str | None], float]


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock(5_000)


@pytest.fixture
def quotas(clock: SimulatedClock) -> ClientQuotas:
    return ClientQuotas(clock=clock)


def limit(quotas: ClientQuotas, limits: Limits, kind: int = QuotaType.PRODUCE) -> None:
    """Replace all quotas by some of one kind."""
    entities = []
    for (user, client), bound in limits.items():
        bounds: list[float | None] = [None] * 4
        bounds[kind] = bound
        entities.append((user, client, bounds))
    quotas.set_limits(list(entities))


def produce(quotas: ClientQuotas, size: int, client: bytes = APP, user: int = ANONYMOUS) -> int:
    return quotas.charge_request(user, client, 0, is_exempt=True, quota_type=QuotaType.PRODUCE, size=size)


def sensors(quotas: ClientQuotas, kind: int = QuotaType.PRODUCE) -> dict[tuple[str, str], float]:
    return {(user, client): rate for of, user, client, rate, _, _ in quotas.sensors_now() if of == kind}


def test_without_quotas_nothing_is_charged(quotas: ClientQuotas) -> None:
    assert not quotas.are_enabled
    assert produce(quotas, 10**12) == 0
    assert quotas.charge_request(ANONYMOUS, APP, 10**12) == 0
    assert quotas.mutate(ANONYMOUS, APP, 10**6, is_strict=True) == 0
    assert quotas.fetch_limit(ANONYMOUS, APP) == 2**31 - 1
    assert quotas.sensors_now() == []


def test_a_rate_that_is_too_high(quotas: ClientQuotas, clock: SimulatedClock) -> None:
    """``ClientQuotaManagerTest.testQuotaViolation``: 6,300 bytes in 10.5 seconds are 600 a second."""
    limit(quotas, {(None, "app"): 500})
    for _ in range(10):
        assert produce(quotas, 400) == 0
        clock.advance(SECOND)
    clock.advance(500 * MS)
    assert produce(quotas, 2300) == 2100
    clock.advance(2100 * MS)
    for _ in range(10):
        produce(quotas, 400)
        clock.advance(SECOND)
    assert produce(quotas, 0) == 0


def test_the_first_request_is_measured_over_ten_seconds(quotas: ClientQuotas) -> None:
    limit(quotas, {(None, "app"): 100})
    assert produce(quotas, 1000) == 0
    assert produce(quotas, 500) == 5000


def test_a_throttled_fetch_does_not_count(quotas: ClientQuotas) -> None:
    limit(quotas, {(None, "app"): 100}, QuotaType.FETCH)

    def fetch(size: int) -> int:
        return quotas.charge_request(ANONYMOUS, APP, 0, is_exempt=True, quota_type=QuotaType.FETCH, size=size)

    assert [fetch(1500), fetch(1500)] == [5000, 5000]
    assert fetch(1000) == 0
    assert fetch(1) > 0


def test_a_fetch_may_have_the_bytes_of_all_windows_but_one(quotas: ClientQuotas) -> None:
    limit(quotas, {(None, "app"): 100}, QuotaType.FETCH)
    assert quotas.fetch_limit(ANONYMOUS, APP) == 1000
    assert quotas.fetch_limit(ANONYMOUS, b"other") == 2**31 - 1
    small = ClientQuotas(samples=3, window_seconds=2)
    limit(small, {("", None): 7}, QuotaType.FETCH)
    assert small.fetch_limit(ANONYMOUS, APP) == 28


def test_the_time_of_threads(quotas: ClientQuotas) -> None:
    """A percent of a second is 10 ms; nobody waits for longer than a window."""
    limit(quotas, {(None, "app"): 1}, QuotaType.REQUEST)
    assert quotas.charge_request(ANONYMOUS, APP, 100 * MS) == 0
    assert quotas.charge_request(ANONYMOUS, APP, 1 * MS) == 100
    assert quotas.charge_request(ANONYMOUS, APP, 3600 * SECOND) == LONGEST


def test_exempt_requests_are_summed_up(quotas: ClientQuotas, clock: SimulatedClock) -> None:
    limit(quotas, {(None, "app"): 0.001}, QuotaType.REQUEST)
    assert quotas.charge_request(ANONYMOUS, APP, 300 * MS, is_exempt=True) == 0
    assert quotas.exempt_percent == pytest.approx(1.0)
    assert sensors(quotas, QuotaType.REQUEST) == {}


def test_mutations_are_taken_from_a_bucket(quotas: ClientQuotas, clock: SimulatedClock) -> None:
    """It is full at the start: 11 seconds of mutations (KIP-599)."""
    limit(quotas, {("", None): 2}, QuotaType.CONTROLLER_MUTATION)

    def take(mutations: float, *, is_strict: bool = True) -> int:
        return quotas.mutate(ANONYMOUS, APP, mutations, is_strict=is_strict)

    assert take(22) == 0
    assert take(10) == 0
    # 10 below zero, 2 each second.
    assert take(1) == 5000
    clock.advance(4 * SECOND)
    assert take(1) == 1000
    assert take(2, is_strict=False) == 2000
    clock.advance(2 * SECOND)
    assert take(1) == 0
    assert take(1) == 500
    # What was taken for nothing is given back.
    assert take(-3) == 0
    assert take(1) == 0
    clock.advance(3600 * SECOND)
    assert [row[5] for row in quotas.sensors_now() if row[0] == QuotaType.CONTROLLER_MUTATION] in ([], [22.0])


#: Entities in Kafka's order of precedence.
PRECEDENCE: Final = (
    ("alice", "app"),
    ("alice", ""),
    ("alice", None),
    ("", "app"),
    ("", ""),
    ("", None),
    (None, "app"),
    (None, ""),
)


@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_the_first_entity_that_matches_has_the_quota(quotas: ClientQuotas, first: int) -> None:
    """All entities that stand before it are there, too, for another user and client id."""
    limits = {
        (user and "bob", client and "other"): 1.0
        for user, client in PRECEDENCE[:first]
        if user != "" and client != ""
    }
    limits |= {entity: 10.0 * (1 + number) for number, entity in enumerate(PRECEDENCE[first:])}
    limit(quotas, limits)
    alice = quotas.user_number("alice")
    assert produce(quotas, 100, user=alice) == 0
    # 200 bytes in 10 seconds are twice the quota of 10.
    assert produce(quotas, 100, user=alice) == 10_000


@pytest.mark.parametrize(
    ("entity", "names"),
    [
        ((None, "app"), ("", "app")),
        ((None, ""), ("", "app")),
        (("", None), ("ANONYMOUS", "")),
        (("", ""), ("ANONYMOUS", "app")),
    ],
)
def test_what_shares_a_sensor(
    quotas: ClientQuotas, entity: tuple[str | None, str | None], names: tuple[str, str]
) -> None:
    limit(quotas, {entity: 10})
    produce(quotas, 100)
    assert sensors(quotas) == {names: 10.0}
    other = quotas.charge_request(ANONYMOUS, b"other", 0, is_exempt=True, quota_type=0, size=100)
    assert (other > 0) == (names[1] == "")


def test_a_changed_quota_counts_what_was_recorded(quotas: ClientQuotas) -> None:
    limit(quotas, {(None, "app"): 1_000})
    assert produce(quotas, 1000) == 0
    limit(quotas, {(None, "app"): 50})
    assert produce(quotas, 0) == 10_000
    limit(quotas, {})
    assert quotas.are_enabled
    assert produce(quotas, 10**9) == 0


def test_a_quota_of_nothing(quotas: ClientQuotas) -> None:
    """Kafka throttles nobody for bytes then, and for one window where that is the longest time."""
    limit(quotas, {(None, "app"): 0})
    assert produce(quotas, 1000) == 0
    limit(quotas, {(None, "app"): 0}, QuotaType.REQUEST)
    assert quotas.charge_request(ANONYMOUS, APP, 1) == LONGEST


def test_idle_sensors_are_forgotten_after_an_hour(quotas: ClientQuotas, clock: SimulatedClock) -> None:
    limit(quotas, {(None, ""): 10})
    produce(quotas, 1, b"one")
    clock.advance(1800 * SECOND)
    produce(quotas, 1, b"two")
    clock.advance(1801 * SECOND)
    assert set(sensors(quotas)) == {("", "two")}
    # The one that is forgotten begins anew.
    produce(quotas, 1, b"one")
    assert set(sensors(quotas)) == {("", "one"), ("", "two")}


def test_the_memory_of_client_ids_has_a_limit(clock: SimulatedClock) -> None:
    """Busy clients keep their sensors; further ones are not charged until idle ones are forgotten."""
    quotas = ClientQuotas(clock=clock, most_bytes=1_000_000)
    limit(quotas, {(None, ""): 1})
    clock.advance(2 * SECOND)
    for number in range(2000):
        produce(quotas, 100, b"client %d" % number)
    known = len(sensors(quotas))
    assert 100 < known < 2000
    assert produce(quotas, 100, b"client 0") > 0
    assert produce(quotas, 100, b"client 1999") == 0
    clock.advance(12 * SECOND)
    assert produce(quotas, 100, b"client 1999") > 0
    assert set(sensors(quotas)) == {("", "client 1999")}
    assert produce(quotas, 100, b"x" * 32_767) > 0


def test_users_keep_their_numbers(quotas: ClientQuotas) -> None:
    numbers = {name: quotas.user_number(name) for name in ["ANONYMOUS", *map(str, range(100)), "ä"]}
    assert numbers["ANONYMOUS"] == ANONYMOUS
    assert len(set(numbers.values())) == 102
    assert all(quotas.user_number(name) == number for name, number in numbers.items())
    limit(quotas, {("ä", None): 1})
    produce(quotas, 1, user=numbers["ä"])
    assert set(sensors(quotas)) == {("ä", "")}


def test_average_throttle_times(quotas: ClientQuotas) -> None:
    limit(quotas, {(None, "app"): 100})
    produce(quotas, 1000)
    [(_, _, _, rate, throttled, _)] = quotas.sensors_now()
    assert rate == 100.0
    assert math.isnan(throttled)
    assert [produce(quotas, 100), produce(quotas, 100)] == [1000, 2000]
    assert quotas.sensors_now()[0][4] == 1500.0
    quotas.note_throttling(QuotaType.PRODUCE, ANONYMOUS, APP, 6000)
    assert quotas.sensors_now()[0][4] == 3000.0


@pytest.mark.parametrize(
    "call",
    [
        lambda quotas: quotas.charge_request(1, APP, 0),
        lambda quotas: quotas.charge_request(-1, APP, 0),
        lambda quotas: quotas.charge_request(0, APP, 0, quota_type=2),
        lambda quotas: quotas.mutate(9, APP, 1, is_strict=True),
        lambda quotas: quotas.fetch_limit(9, APP),
        lambda quotas: quotas.note_throttling(4, 0, APP, 1),
        lambda _quotas: ClientQuotas(samples=0),
        lambda _quotas: ClientQuotas(window_seconds=0),
    ],
)
def test_what_cannot_be(quotas: ClientQuotas, call: Callable[[ClientQuotas], object]) -> None:
    with pytest.raises(ValueError, match=r"user|a rate|a sample"):
        call(quotas)
