"""Limits of connections on a stopped clock, case by case as Kafka's ConnectionQuotasTest."""

from __future__ import annotations

import pytest

from ctrlchan.server._connection_quotas import Admission, ConnectionQuotas
from tests.unit.server.connecting import (
    ADMIN,
    EXTERNAL,
    IPS,
    KNOWN,
    LISTENERS,
    REPLICATION,
    UNKNOWN,
    UNLIMITED,
    Connecting,
    packed,
)


@pytest.fixture
def connecting() -> Connecting:
    return Connecting()


def test_the_end_of_a_connection_that_there_is_not(connecting: Connecting) -> None:
    with pytest.raises(ValueError, match="the address has no connection"):
        connecting.quotas.release(EXTERNAL, UNKNOWN)
    with pytest.raises(ValueError, match="listener 3: there is none"):
        connecting.quotas.arrive(3)


def test_by_default_nothing_is_limited(connecting: Connecting) -> None:
    connecting.run(*(connecting.acceptor(listener, 10_000) for listener in LISTENERS))
    assert not connecting.waited
    assert connecting.all_open() == [10_000] * 3
    # The protected listener is no part of the rate of the server.
    assert connecting.rates() == [20_000, 10_000, 10_000, 10_000]
    for listener in LISTENERS:
        connecting.release(listener)
    assert connecting.all_open() == [9_999] * 3


def test_connections_of_an_address(connecting: Connecting) -> None:
    connecting.quotas.limit_ips(17, [(KNOWN, 18)])
    connecting.accept(EXTERNAL, 17)
    assert connecting.quotas.admit(EXTERNAL, IPS[EXTERNAL]) == (Admission.TOO_MANY_OF_IP, 17)
    # It is one limit for all listeners.
    assert connecting.quotas.admit(REPLICATION, IPS[EXTERNAL]) == (Admission.TOO_MANY_OF_IP, 17)
    assert connecting.open(EXTERNAL) == 17
    connecting.accept(EXTERNAL, 18, ip=KNOWN)
    assert connecting.quotas.admit(EXTERNAL, KNOWN) == (Admission.TOO_MANY_OF_IP, 18)
    assert not connecting.refused
    connecting.release(EXTERNAL, 2)
    connecting.accept(EXTERNAL, 2)
    assert connecting.open(EXTERNAL) == 17


def test_connections_of_the_server(connecting: Connecting) -> None:
    connecting.limit(most=800)
    connecting.accept(EXTERNAL, 800)
    assert connecting.quotas.excess == 0
    waiting = connecting.stuck(EXTERNAL)
    connecting.release(EXTERNAL)
    assert connecting.goes_on(waiting)
    assert connecting.open(EXTERNAL) == 800
    # The protected listener goes over the limit.
    connecting.accept(REPLICATION, 1)
    assert connecting.quotas.excess == 1
    waiting = connecting.stuck(ADMIN)
    connecting.accept(REPLICATION, 1)
    assert connecting.quotas.excess == 2
    connecting.release(EXTERNAL, 2)
    assert not connecting.goes_on(waiting)
    assert connecting.quotas.release(EXTERNAL, IPS[EXTERNAL])
    assert connecting.goes_on(waiting)
    assert connecting.quotas.excess == 0


def test_connections_of_a_listener(connecting: Connecting) -> None:
    connecting.limit(most=800, own_most=200)
    for listener in LISTENERS:
        connecting.accept(listener, 200)
    assert connecting.quotas.excess == 0
    # The protected one, too.
    waiting = [connecting.stuck(listener) for listener in LISTENERS]
    for listener in LISTENERS:
        connecting.release(listener)
    assert all(map(connecting.goes_on, waiting))
    assert connecting.all_open() == [200] * 3


def test_the_only_listener_is_not_protected() -> None:
    quotas = ConnectionQuotas(1, protected=0)
    quotas.limit(1, UNLIMITED, [(UNLIMITED, UNLIMITED)])
    assert quotas.admit(0, KNOWN) == (Admission.ADMITTED, UNLIMITED)
    assert quotas.admit(0, KNOWN)[0] is Admission.NO_SLOT


def test_a_limit_below_the_open_connections_is_exceeded(connecting: Connecting) -> None:
    connecting.accept(EXTERNAL, 10)
    connecting.limit(most=7)
    assert connecting.quotas.excess == 3
    connecting.limit(most=10)
    assert connecting.quotas.excess == 0


def test_a_rate_below_the_limits(connecting: Connecting) -> None:
    """40 in a second on each listener: together below the rate of the server."""
    connecting.limit(rate=125)
    connecting.run(*(connecting.acceptor(listener, 200, 25) for listener in LISTENERS))
    assert not connecting.waited
    assert connecting.all_open() == [200] * 3


def test_a_rate_below_the_limits_of_listeners(connecting: Connecting) -> None:
    connecting.limit(rate=125, own_rate=50)
    connecting.run(*(connecting.acceptor(listener, 200, 25) for listener in LISTENERS))
    assert not connecting.waited
    assert connecting.all_open() == [200] * 3


def test_a_rate_above_that_of_the_server(connecting: Connecting) -> None:
    connecting.limit(rate=90, own_rate=UNLIMITED)
    began = connecting.clock.now_ms
    connecting.run(*(connecting.acceptor(listener, 400, 10) for listener in LISTENERS))
    assert connecting.waited.keys() == {EXTERNAL, ADMIN}
    assert connecting.all_open() == [400] * 3
    assert 800 / connecting.seconds(began) == pytest.approx(90, abs=5)
    assert max(connecting.wait_times) <= 1000
    external, admin, replication = connecting.average_waits()
    assert external > 0
    assert admin > 0
    assert replication == 0


def test_a_rate_above_those_of_listeners(connecting: Connecting) -> None:
    connecting.limit(rate=125, own_rate=30)
    began = connecting.clock.now_ms
    connecting.run(*(connecting.acceptor(listener, 600, 25) for listener in LISTENERS))
    assert 600 / connecting.seconds(began) == pytest.approx(30, abs=2)
    assert all(connecting.waited[listener] > 0 for listener in LISTENERS)
    assert all(connecting.average_waits())
    assert connecting.all_open() == [600] * 3


def test_the_rate_of_the_server_changes(connecting: Connecting) -> None:
    connecting.accept(EXTERNAL, 400, 5)
    assert not connecting.waited
    connecting.clock.advance(3 * 10**9)
    connecting.limit(rate=50)
    began = connecting.clock.now_ms
    connecting.accept(EXTERNAL, 400, 5)
    assert connecting.waited[EXTERNAL] > 0
    # The first window is free.
    assert 400 / connecting.seconds(began) == pytest.approx(50, abs=10)


def test_the_rate_of_a_listener_changes(connecting: Connecting) -> None:
    connecting.limit(own_rate=20)
    connecting.limit()
    connecting.accept(EXTERNAL, 1_000)
    assert not connecting.waited
    connecting.clock.advance(3 * 10**9)
    connecting.limit(own_rate=10)
    began = connecting.clock.now_ms
    connecting.accept(EXTERNAL, 200, 5)
    assert 200 / connecting.seconds(began) == pytest.approx(10, abs=1)
    assert connecting.waited[EXTERNAL] > 0


def test_numbers_and_rates_together(connecting: Connecting) -> None:
    connecting.limit(most=350, rate=25)
    began = connecting.clock.now_ms
    connecting.accept(EXTERNAL, 350, 10)
    assert 350 / connecting.seconds(began) == pytest.approx(25, abs=2)
    waiting = connecting.acceptor(EXTERNAL, 1)
    wait_ms = next(waiting)
    assert 0 < wait_ms <= 1000
    assert not connecting.goes_on(waiting)
    connecting.release(EXTERNAL)
    assert connecting.goes_on(waiting)
    assert connecting.open(EXTERNAL) == 350


def test_a_rate_of_0_waits_for_one_window() -> None:
    connecting = Connecting(samples=11)
    connecting.limit(rate=0, own_rate=UNLIMITED)
    assert connecting.quotas.arrive(EXTERNAL) == 1000
    assert connecting.quotas.arrive(REPLICATION) == 0


def test_an_address_below_its_rate(connecting: Connecting) -> None:
    connecting.quotas.limit_ip_rates(UNLIMITED, [(IPS[EXTERNAL], 30)])
    began = connecting.clock.now_ms
    connecting.accept(EXTERNAL, 200, 40)
    assert 200 / connecting.seconds(began) == 25
    began = connecting.clock.now_ms
    connecting.accept(ADMIN, 200, 20)
    assert 200 / connecting.seconds(began) == 50
    assert not connecting.waited
    assert not connecting.refused
    assert connecting.average_closes() == [0, 0, 0]
    # Only an address with a limit has a rate.
    assert [ip for ip, _ in connecting.quotas.ip_rates_now()] == [IPS[EXTERNAL]]


def test_an_address_above_its_rate(connecting: Connecting) -> None:
    connecting.quotas.limit_ip_rates(UNLIMITED, [(IPS[EXTERNAL], 20)])
    connecting.accept(EXTERNAL, 80, 25)
    assert connecting.open(EXTERNAL) / 2 == pytest.approx(20, abs=1)
    assert connecting.average_closes()[EXTERNAL] > 0
    connecting.quotas.limit_ip_rates(20, [(IPS[EXTERNAL], 20)])
    assert connecting.average_closes()[ADMIN] == 0
    connecting.accept(ADMIN, 80, 25)
    assert connecting.open(ADMIN) / 2 == pytest.approx(20, abs=1)
    assert connecting.average_closes()[ADMIN] > 0
    assert connecting.average_closes()[REPLICATION] == 0
    # An acceptor waits for no address.
    assert not connecting.waited
    assert connecting.refused.keys() == {(EXTERNAL, Admission.IP_THROTTLED), (ADMIN, Admission.IP_THROTTLED)}


def test_rates_of_addresses_and_of_a_listener(connecting: Connecting) -> None:
    """One address uses up its rate; the other one finds that of the listener used up."""
    connecting.quotas.limit_ip_rates(25, [])
    connecting.limit(own_rate=35)
    connecting.accept(EXTERNAL, 35, ip=KNOWN)
    assert connecting.refused == {(EXTERNAL, Admission.IP_THROTTLED): 10}
    connecting.refused.clear()
    connecting.accept(EXTERNAL, 35, ip=UNKNOWN)
    assert connecting.waited[EXTERNAL] > 0
    assert not connecting.refused


@pytest.mark.parametrize("listener", [EXTERNAL, REPLICATION])
def test_a_refused_connection_is_in_no_rate(connecting: Connecting, listener: int) -> None:
    connecting.quotas.limit_ip_rates(UNLIMITED, [(IPS[listener], 0)])
    connecting.accept(listener, 1)
    assert connecting.refused == {(listener, Admission.IP_THROTTLED): 1}
    assert connecting.rates() == [0, 0, 0, 0]
    assert connecting.quotas.ip_rates_now() == [(IPS[listener], 0)]
    assert connecting.all_open() == [0, 0, 0]


def test_the_rate_of_an_address_changes(connecting: Connecting) -> None:
    external, admin = IPS[EXTERNAL], IPS[ADMIN]
    connecting.quotas.limit_ip_rates(UNLIMITED, [(external, 20)])
    connecting.accept(EXTERNAL, 40)
    assert connecting.open(EXTERNAL) == 20
    connecting.quotas.limit_ip_rates(UNLIMITED, [(external, 30)])
    connecting.accept(EXTERNAL, 40)
    assert connecting.open(EXTERNAL) == 30
    connecting.quotas.limit_ip_rates(UNLIMITED, [])
    connecting.accept(EXTERNAL, 40)
    assert connecting.open(EXTERNAL) == 70
    connecting.accept(ADMIN, 40)
    assert connecting.open(ADMIN) == 40
    # A rate begins with the limit: what has come before is not in it.
    connecting.quotas.limit_ip_rates(20, [(external, 1000)])
    connecting.accept(ADMIN, 40)
    assert connecting.open(ADMIN) == 60
    assert sorted(connecting.quotas.ip_rates_now()) == [(external, 30), (admin, 20)]
    assert not connecting.waited


def test_addresses_find_their_limits_among_many(connecting: Connecting) -> None:
    rows = [(packed(f"10.0.{number // 250}.{number % 250}"), number) for number in range(1, 1_000)]
    connecting.quotas.limit_ips(UNLIMITED, rows[::-1])
    for ip, most in (rows[0], rows[500], rows[998]):
        connecting.accept(EXTERNAL, most, ip=ip)
        assert connecting.quotas.admit(EXTERNAL, ip) == (Admission.TOO_MANY_OF_IP, most)
    assert connecting.quotas.admit(EXTERNAL, packed("::1")) == (Admission.ADMITTED, UNLIMITED)


def test_an_address_is_forgotten_after_an_hour(connecting: Connecting) -> None:
    connecting.quotas.limit_ip_rates(20, [])
    connecting.accept(EXTERNAL, 1)
    connecting.clock.advance(3600 * 10**9)
    assert connecting.quotas.ip_rates_now() == [(IPS[EXTERNAL], 0)]
    connecting.clock.advance(31 * 10**9)
    assert connecting.quotas.ip_rates_now() == []


def test_the_memory_of_addresses_is_bounded(connecting: Connecting) -> None:
    """Where there is none, further addresses are not limited; it is free again when they are idle."""
    quotas = connecting.quotas
    quotas.limit_ip_rates(0, [])
    refused = 0
    for number in range(200_000):
        ip = number.to_bytes(16, "big")
        admission, _ = quotas.admit(EXTERNAL, ip)
        if admission is Admission.ADMITTED:
            break
        refused += 1
    assert 10_000 < refused < 150_000
    connecting.clock.advance(4 * 10**9)
    assert quotas.admit(EXTERNAL, KNOWN)[0] is Admission.IP_THROTTLED
    assert len(quotas.ip_rates_now()) == 1
