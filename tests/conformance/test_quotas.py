"""Throttle times of random requests under random quotas, beside Kafka's own managers on the same clock."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final
from urllib.parse import quote

import pytest

from ctrlchan.broker.quota._client_quotas import ClientQuotas, QuotaType
from ctrlchan.broker.quota._replication_quota import ReplicationQuota
from tests.conformance.java_process import JavaProcess
from tests.kafka.requirement import require_kafka
from tests.simulation._operating_system import SimulatedClock

USERS: Final = ("ANONYMOUS", "alice", "CN=bob, O=ä/b")
CLIENTS: Final = ("", "app", "an app/1", "other")
#: Of levels that are set together: each alone decides in another way which sensor a client has.
LEVELS: Final = (("user",), ("client",), ("both",), ("user", "client"), ("both", "user", "client"))
STEPS_MS: Final = (0, 0, 0, 1, 7, 100, 999, 1000, 1001, 3_500, 11_000, 40_000)
REQUESTS: Final = 800
#: What a bound may be, by QuotaType.
BOUNDS: Final = (
    (None, 0, 1, 500, 10**6),
    (None, 0, 1, 333, 10**7),
    (None, 0.5, 12.5, 200),
    (None, 0.3, 1, 20),
)
VALUES: Final = ((0, 1, 700, 10**5, 10**8), (44, 9_999, 10**7), (1, 10**5, 10**8, 3 * 10**9), (1, 3, 50))

OVERFLOW: Final = 2**31 - 1

Entities = dict[tuple[str | None, str | None], tuple[float | None, ...]]


def word(name: str | None) -> str:
    return "-" if name is None else quote(name, safe="") or "<default>"


def an_entity(random: Random, level: str) -> tuple[str | None, str | None]:
    user = random.choice(["", *USERS]) if level != "client" else None
    client = random.choice(["", *CLIENTS[1:]]) if level != "user" else None
    return user, client


@pytest.fixture(scope="module")
def process() -> Iterator[JavaProcess]:
    """Kafka's own classes; skipped without Java or Maven, failed in CI."""
    require_kafka()
    process = JavaProcess("QuotaOracle", "StoppedTime")
    yield process
    process.close()


@pytest.mark.parametrize("levels", LEVELS, ids="-".join)
def test_throttle_times(process: JavaProcess, levels: tuple[str, ...]) -> None:
    random = Random(str(levels))
    clock = SimulatedClock(1_000_000)
    quotas = ClientQuotas(clock=clock)
    entities: Entities = {}
    throttled = 0
    process.ask("begin")
    for number in range(REQUESTS):
        if number % 50 == 0:
            entity = an_entity(random, random.choice(levels))
            bounds = tuple(random.choice(some) for some in BOUNDS)
            if number and random.random() < 0.2:
                bounds = (None,) * 4
            entities[entity] = bounds
            texts = ["-" if bound is None else repr(float(bound)) for bound in bounds]
            process.ask("\t".join(["limit", *map(word, entity), *texts]))
            quotas.set_limits([(*names, list(values)) for names, values in entities.items()])
        clock.advance(random.choice(STEPS_MS) * 1_000_000)
        user, client = random.choice(USERS), random.choice(CLIENTS)
        ours, question = one_request(random, quotas, clock.now_ms, user, client)
        theirs = int(process.ask(question))
        if ours < OVERFLOW:
            # -1 is a time without end, which throttles nobody.
            assert ours == max(0, theirs), f"request {number}: {question}"
        throttled += ours > 0
    assert throttled > 20


def one_request(random: Random, quotas: ClientQuotas, now_ms: int, user: str, client: str) -> tuple[int, str]:
    """Charge a request; return what came of it, and the question for Kafka."""
    number, client_id = quotas.user_number(user), client.encode()
    kind = random.choice(("produce", "fetch", "request", "window", "strict", "permissive"))
    if kind == "window":
        return quotas.fetch_limit(number, client_id), "\t".join([kind, quote(user), quote(client)])
    at = {"produce": 0, "fetch": 1, "request": 2}.get(kind, 3)
    value = random.choice(VALUES[at])
    question = "\t".join([kind, str(now_ms), quote(user), quote(client), str(value)])
    if kind == "request":
        return quotas.charge_request(number, client_id, value), question
    if at < QuotaType.REQUEST:
        ours = quotas.charge_request(number, client_id, 0, is_exempt=True, quota_type=at, size=value)
        return ours, question
    return quotas.mutate(number, client_id, value, is_strict=kind == "strict"), question


def test_replication(process: JavaProcess) -> None:
    """Whether a replication quota is exceeded, and its rate, after each of many steps."""
    random = Random("replication")
    clock = SimulatedClock(1_000_000)
    quota = ReplicationQuota(clock=clock)
    seen = set()
    process.ask("begin")
    for number in range(REQUESTS):
        if random.random() < 0.05:
            bound = random.choice((None, 0, 1, 1_000, 10**6))
            quota.limit(bound)
            process.ask(f"bound\t{'-' if bound is None else bound}")
        clock.advance(random.choice(STEPS_MS) * 1_000_000)
        size = random.choice((0, 1, 999, 10**5, 10**7))
        quota.record(size)
        is_exceeded, rate = process.ask(f"replicate\t{clock.now_ms}\t{size}").split()
        assert (quota.is_exceeded, quota.byte_rate) == (is_exceeded == "true", float(rate)), number
        seen.add(is_exceeded)
    assert seen == {"true", "false"}
