"""Quotas of clients that are set, changed, removed: case by case as Kafka's tests of its managers."""

from __future__ import annotations

from typing import Final

import pytest

from ctrlchan.broker.quota._client_quotas import ClientQuotas, QuotaType
from tests.simulation._operating_system import SimulatedClock

MS: Final = 1_000_000
SAMPLES: Final = 11
UNLIMITED: Final = 2**31 - 1

Entity = tuple[str | None, str | None]


class Manager:
    """The quota of one kind, as Kafka has a manager for each: entities are changed one by one."""

    def __init__(self, kind: QuotaType = QuotaType.PRODUCE, samples: int = SAMPLES) -> None:
        self.clock = SimulatedClock(5_000)
        self.kind = kind
        self.samples = samples
        self.quotas = ClientQuotas(samples=samples, mutation_samples=samples, clock=self.clock)
        self.bounds: dict[Entity, float] = {}

    def update(self, user: str | None, client: str | None, bound: float | None) -> None:
        """Set the quota of an entity, or remove it (None). Names are as in ``ClientQuotas.set_limits``."""
        if bound is None:
            del self.bounds[user, client]
        else:
            self.bounds[user, client] = bound
        kinds = range(len(QuotaType))
        self.quotas.set_limits(
            [(*entity, [value if kind == self.kind else None for kind in kinds])
             for entity, value in self.bounds.items()]
        )  # fmt: skip

    def record(self, user: str, client: str, value: float) -> int:
        """Charge bytes, milliseconds of a thread, or strict mutations; return the throttle time."""
        number, client_id = self.quotas.user_number(user), client.encode()
        if self.kind is QuotaType.REQUEST:
            return self.quotas.charge_request(number, client_id, round(value * MS))
        if self.kind is QuotaType.CONTROLLER_MUTATION:
            return self.quotas.mutate(number, client_id, value, is_strict=True)
        return self.quotas.charge_request(
            number, client_id, 0, is_exempt=True, quota_type=self.kind, size=round(value)
        )

    def sleep(self, ms: int) -> None:
        self.clock.advance(ms * MS)

    @property
    def names(self) -> set[tuple[str, str]]:
        return {(user, client) for kind, user, client, *_ in self.quotas.sensors_now() if kind == self.kind}


@pytest.mark.parametrize(
    ("entity", "default", "user"),
    [
        ((None, "p1"), (None, ""), "ANONYMOUS"),
        (("User1", None), ("", None), "User1"),
        (("User1", "p1"), ("", ""), "User1"),
    ],
    ids=["client id", "user", "both"],
)
def test_a_quota_is_changed_and_removed(entity: Entity, default: Entity, user: str) -> None:
    manager = Manager()
    manager.update(*entity, 2000)
    manager.update(entity[0] and "User2", entity[1] and "p2", 4000)
    assert manager.record("RandomUser", "random-client-id", 10**9) == 0
    assert manager.record(user, "p1", 2500 * SAMPLES) > 0
    manager.update(*entity, 3000)
    assert manager.record(user, "p1", 0) == 0
    manager.update(*entity, 500)
    assert manager.record(user, "p1", 0) > 0
    manager.update(*entity, None)
    manager.update(*default, 4000)
    assert manager.record(user, "p1", 1000 * SAMPLES) == 0


def test_the_most_that_one_fetch_may_have_follows_the_windows() -> None:
    manager = Manager(QuotaType.FETCH, samples=4)
    user = manager.quotas.user_number("userA")
    assert manager.quotas.fetch_limit(user, b"client1") == UNLIMITED
    manager.update("", None, 10)
    assert manager.quotas.fetch_limit(user, b"client1") == 30


@pytest.mark.parametrize("entity", [("", None), ("userA", None), ("userA", "client1")])
def test_a_removed_quota_limits_nobody(entity: Entity) -> None:
    manager = Manager()
    assert manager.record("userA", "client1", 1000 * SAMPLES) == 0
    manager.update(*entity, 10)
    assert manager.record("userA", "client1", 1000 * SAMPLES) > 0
    manager.update(*entity, None)
    assert manager.record("userA", "client1", 1000 * SAMPLES) == 0


def test_precedence() -> None:
    manager = Manager()

    def check(user: str, client: str, value: int, *, throttled: bool) -> None:
        assert (manager.record(user, client, value * SAMPLES) > 0) == throttled, (user, client)

    for user, client, bound in (
        ("", None, 1000),
        (None, "", 2000),
        ("", "", 3000),
        ("userA", None, 4000),
        ("userA", "client1", 5000),
        ("userB", None, 6000),
        ("userB", "client1", 7000),
        ("userB", "", 8000),
        ("userC", None, 10000),
        (None, "client1", 9000),
    ):
        manager.update(user, client, bound)
    check("userA", "client1", 4500, throttled=False)
    check("userA", "client2", 4500, throttled=True)
    # A quota of a user is shared by his clients; one of a user with a client id is not.
    check("userA", "client3", 0, throttled=True)
    check("userA", "client1", 0, throttled=False)
    check("userB", "client1", 8000, throttled=True)
    check("userB", "client2", 7000, throttled=False)
    check("userB", "client3", 7000, throttled=False)
    check("userD", "client1", 3500, throttled=True)
    check("userD", "client2", 2500, throttled=False)
    check("userE", "client1", 2500, throttled=False)
    manager.update("", "", None)
    # Another sensor counts now, from nothing.
    check("userD", "client1", 0, throttled=False)
    check("userE", "client4", 1500, throttled=True)
    check("userF", "client4", 800, throttled=False)
    check("userF", "client5", 800, throttled=True)
    manager.update("", None, None)
    check("userF", "client4", 0, throttled=False)
    check("userF", "client5", 0, throttled=False)
    check("userF", "client5", 2500, throttled=True)
    check("userG", "client5", 0, throttled=True)
    manager.update("userA", None, 8000)
    manager.update("userA", "client1", 10000)
    check("userA", "client2", 0, throttled=False)
    check("userA", "client2", 4500, throttled=True)
    check("userA", "client1", 0, throttled=False)
    check("userA", "client1", 6000, throttled=True)
    manager.update("userA", "client1", None)
    check("userA", "client6", 0, throttled=True)
    manager.update("userA", "client6", 11000)
    check("userA", "client6", 8500, throttled=False)
    manager.update("userA", "", 12000)
    manager.update("userA", "client6", None)
    check("userA", "client6", 4000, throttled=True)


def test_a_forgotten_sensor_begins_anew() -> None:
    manager = Manager()
    manager.update(None, "", 500)
    assert manager.record("ANONYMOUS", "client1", 100) == 0
    manager.sleep(3_700_000)
    assert manager.names == set()
    assert manager.record("ANONYMOUS", "client1", 10_000) > 0
    assert manager.names == {("", "client1")}


def test_a_client_id_stays_as_it_is() -> None:
    manager = Manager()
    manager.update(None, "", 500)
    manager.record("ANONYMOUS", "client@#$%", 100)
    assert manager.names == {("", "client@#$%")}


def test_the_time_of_threads_above_the_quota() -> None:
    """One percent is 10 ms in a second; 107.1 ms in 10.5 seconds are 2 percent of the quota too much."""
    manager = Manager(QuotaType.REQUEST)
    manager.update(None, "test-client", 1)
    for _ in range(10):
        assert manager.record("ANONYMOUS", "test-client", 4) == 0
        manager.sleep(1000)
    manager.sleep(500)
    assert manager.record("ANONYMOUS", "test-client", 67.1) == 210
    manager.sleep(210)
    for _ in range(11):
        manager.record("ANONYMOUS", "test-client", 4)
        manager.sleep(1000)
    assert manager.record("ANONYMOUS", "test-client", 0) == 0
    # Nobody waits for longer than one window.
    assert manager.record("ANONYMOUS", "test-client", 500) == 1000
    for _ in range(10):
        manager.sleep(1000)
        assert manager.record("ANONYMOUS", "test-client", 0) == 1000
    manager.sleep(1000)
    assert manager.record("ANONYMOUS", "test-client", 0) == 0


# -- mutations


@pytest.fixture
def mutations() -> Manager:
    """Ten in a second; the bucket holds 100."""
    manager = Manager(QuotaType.CONTROLLER_MUTATION, samples=10)
    manager.update("ANONYMOUS", "test-client", 10)
    return manager


def take(manager: Manager, number: float, *, is_strict: bool) -> int:
    return manager.quotas.mutate(0, b"test-client", number, is_strict=is_strict)


def test_a_strict_quota_refuses_where_the_bucket_is_below_zero(mutations: Manager) -> None:
    assert take(mutations, 90, is_strict=True) == 0
    assert take(mutations, 90, is_strict=True) == 0
    assert take(mutations, 90, is_strict=True) == 8000
    mutations.sleep(5000)
    assert take(mutations, 90, is_strict=True) == 3000


def test_a_permissive_quota_takes_in_any_case(mutations: Manager) -> None:
    assert take(mutations, 90, is_strict=False) == 0
    assert take(mutations, 90, is_strict=False) == 8000
    assert take(mutations, 90, is_strict=False) == 17000
    mutations.sleep(5000)
    assert take(mutations, 0, is_strict=False) == 12000


@pytest.mark.parametrize(("taken", "ms"), [(100, 0), (105, 500), (110, 1000)])
def test_how_long_a_bucket_is_below_zero(mutations: Manager, taken: int, ms: int) -> None:
    take(mutations, taken, is_strict=False)
    assert take(mutations, 0, is_strict=False) == ms


def test_mutations_above_the_quota(mutations: Manager) -> None:
    for _ in range(10):
        assert mutations.record("ANONYMOUS", "test-client", 10) == 0
        mutations.sleep(1000)
    assert mutations.record("ANONYMOUS", "test-client", 110) == 0
    assert mutations.record("ANONYMOUS", "test-client", 110) == 1000
    mutations.sleep(1000)
    assert mutations.record("ANONYMOUS", "test-client", 110) == 0


@pytest.mark.parametrize("is_strict", [True, False])
def test_without_a_quota_mutations_are_not_limited(is_strict: bool) -> None:
    manager = Manager(QuotaType.CONTROLLER_MUTATION)
    for _ in range(3):
        assert take(manager, 10**9, is_strict=is_strict) == 0
