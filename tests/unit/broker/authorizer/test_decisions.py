"""What processors remember of the authorizer's decisions."""

from __future__ import annotations

import threading

from ctrlchan.broker._decisions import Allowed, Decisions, Subject

NAME, READ, WRITE = int(Subject.TOPIC_NAME), int(Allowed.MAY_READ), int(Allowed.MAY_WRITE)


def test_decisions_of_a_former_version_are_not_added() -> None:
    decisions = Decisions()
    before = decisions.version
    assert decisions.grant(1, before, [(NAME, b"a", READ), (NAME, b"a", WRITE), (NAME, b"b", READ)])
    assert len(decisions) == 2
    decisions.forget()
    assert len(decisions) == 0
    assert not decisions.grant(1, before, [(NAME, b"a", READ)])
    assert not decisions.grant(1, before, [])
    assert len(decisions) == 0
    assert decisions.grant(1, decisions.version, [])


def test_identities_are_never_used_for_others() -> None:
    decisions = Decisions(most_identities=2)
    first = decisions.identity_of("User:a", "h")
    assert first > 0
    assert decisions.identity_of("User:a", "h") == first
    numbers = {decisions.identity_of(f"User:{number}", "h") for number in range(10)}
    assert len(numbers) == 10
    assert first not in numbers
    assert decisions.identity_of("User:a", "h") not in numbers | {first}


def test_a_bounded_number_is_kept() -> None:
    decisions = Decisions(most=100)
    version = decisions.version
    added = 0
    for number in range(150):
        if decisions.grant(1, decisions.version, [(NAME, str(number).encode(), READ)]):
            added += 1
    assert len(decisions) <= 100
    assert decisions.version > version
    assert added >= 149


def test_threads_that_add_and_forget() -> None:
    decisions = Decisions()

    def add(identity: int) -> None:
        for number in range(2_000):
            decisions.grant(identity, decisions.version, [(NAME, str(number).encode(), READ)])

    threads = [threading.Thread(target=add, args=[identity]) for identity in range(1, 4)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        decisions.forget()
    for thread in threads:
        thread.join()
    decisions.forget()
    assert len(decisions) == 0
