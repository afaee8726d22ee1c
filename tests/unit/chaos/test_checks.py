"""Each guarantee is violated once: its check must find it, and nothing else."""

from __future__ import annotations

from tests.chaos import checks
from tests.chaos.checks import Batch, Commit, CommittedRead, Monotonic
from tests.chaos.records import Log, Numbers, Record, read_value, value_of

PARTITION = ("t", 3)
PRODUCER, OTHER = 1, 2


def sent(acknowledged: dict[int, int], count: int = 4) -> Numbers:
    """Return what a producer knows. ``acknowledged``: number -> offset."""
    numbers = Numbers()
    for expected in range(count):
        assert numbers.add() == expected
    for number, offset in acknowledged.items():
        numbers.acknowledge(number, offset)
    return numbers


def log(*records: tuple[int, int], first: int = 0) -> Log:
    """Return a log of (producer, number)."""
    return [Record(offset, *record) for offset, record in enumerate(records, first)]


GOOD = log((PRODUCER, 0), (OTHER, 0), (PRODUCER, 1), (PRODUCER, 2), (OTHER, 1))
KNOWN = sent({0: 0, 1: 2, 2: 3})


def violations(numbers: Numbers, found: Log) -> list[str]:
    return [
        *checks.lost(PARTITION, PRODUCER, numbers, found),
        *checks.moved(PARTITION, PRODUCER, numbers, found),
        *checks.doubled(PARTITION, PRODUCER, found),
        *checks.disordered(PARTITION, PRODUCER, numbers, found),
    ]


def test_a_good_log_has_no_violation() -> None:
    # Number 3 was not acknowledged: it may be there or not.
    assert violations(KNOWN, GOOD) == []
    assert violations(KNOWN, [*GOOD, Record(5, PRODUCER, 3)]) == []
    # As a duplicate of itself.
    assert violations(sent({0: -1}), GOOD) == []
    assert KNOWN.open() == 1
    # It was given up, and may be there or not.
    refused = sent({0: 0, 1: 2, 2: 3})
    refused.refuse(3)
    assert refused.open() == 0
    assert violations(refused, GOOD) == violations(refused, [*GOOD, Record(5, PRODUCER, 3)]) == []


def test_a_value_is_read_back() -> None:
    assert read_value(value_of(7, 2**40, b"padding")) == (7, 2**40)


def test_an_acknowledged_record_is_lost() -> None:
    without = [record for record in GOOD if (record.producer, record.number) != (PRODUCER, 1)]
    assert checks.lost(PARTITION, PRODUCER, KNOWN, without) == ["t-3: record 1:1 is lost"]
    assert checks.lost(PARTITION, PRODUCER, sent({0: -1}, 1), log((OTHER, 0))) == ["t-3: record 1:0 is lost"]


def test_a_record_is_at_another_offset() -> None:
    shifted = [record._replace(offset=record.offset + 1) for record in GOOD]
    assert len(checks.moved(PARTITION, PRODUCER, KNOWN, shifted)) == 3
    assert checks.moved(PARTITION, PRODUCER, sent({0: 9}), GOOD) == ["t-3: record 1:0 is not at 9, but None"]


def test_a_record_is_there_twice() -> None:
    twice = [*GOOD, Record(5, PRODUCER, 1)]
    assert checks.doubled(PARTITION, PRODUCER, twice) == ["t-3: record 1:1 is there 2 times"]
    # The first one counts.
    assert checks.disordered(PARTITION, PRODUCER, KNOWN, twice) == []


def test_records_are_in_another_order() -> None:
    found = log((PRODUCER, 0), (PRODUCER, 2), (OTHER, 0), (PRODUCER, 1))
    assert checks.disordered(PARTITION, PRODUCER, KNOWN, found) == ["t-3: record 1:1 is behind 2"]
    # The producer that has sent it is given up, and its last request came late.
    refused = sent({0: 0, 2: 1})
    refused.refuse(1)
    assert checks.disordered(PARTITION, PRODUCER, refused, found) == []


def test_only_some_of_many_violations_are_shown() -> None:
    numbers = sent(dict.fromkeys(range(100), -1), 100)
    assert checks.lost(PARTITION, PRODUCER, numbers, [])[-1] == "… and 95 more"


def test_a_reader_skips_a_record() -> None:
    assert checks.skipped(PARTITION, bytes([1] * 5), GOOD, "a reader") == []
    assert checks.skipped(PARTITION, bytes([1, 0, 1, 1]), GOOD, "a reader") == [
        "t-3: a reader skipped offset 1",
        "t-3: a reader skipped offset 4",
    ]


def test_a_committed_offset_goes_back() -> None:
    commits = [Commit("g", PARTITION, 10, 1.0), Commit("g", PARTITION, 20, 2.0)]
    good = [
        CommittedRead("g", PARTITION, 10, 1.5),
        # The commit was on its way.
        CommittedRead("g", PARTITION, 10, 1.9),
        CommittedRead("g", PARTITION, 25, 2.5),
        # Another group.
        CommittedRead("other", PARTITION, 1, 3.0),
    ]
    assert checks.offsets_that_went_back(commits, good) == []
    below = CommittedRead("g", PARTITION, 10, 2.1)
    assert checks.offsets_that_went_back(commits, [below]) == ["group g, t-3: committed offset 10 after 20"]
    # Below what was read before, whoever committed it.
    back = CommittedRead("g", PARTITION, 24, 2.6)
    assert checks.offsets_that_went_back(commits, [*good, back]) == [
        "group g, t-3: committed offset 24 after 25"
    ]


def test_a_number_goes_back() -> None:
    epochs = Monotonic()
    assert [*epochs.check("a", 3), *epochs.check("a", 3), *epochs.check("a", 5), *epochs.check("b", 1)] == []
    assert epochs.check("a", 4) == ["a went back from 5 to 4"]


def batches(*parts: tuple[int, int, str]) -> list[Batch]:
    return [Batch(offset, epoch, content.encode()) for offset, epoch, content in parts]


def test_replicas_differ() -> None:
    whole = batches((0, 0, "a"), (5, 0, "b"), (9, 1, "c"))
    assert checks.replicas_that_differ(PARTITION, {"x": whole, "y": whole, "z": whole}) == []
    # Older segments may be deleted on one of them.
    assert checks.replicas_that_differ(PARTITION, {"x": whole, "y": whole[1:]}) == []
    changed = batches((0, 0, "a"), (5, 0, "B"), (9, 1, "c"))
    assert len(checks.replicas_that_differ(PARTITION, {"x": whole, "y": changed})) == 1
    other_epoch = batches((0, 0, "a"), (5, 1, "b"), (9, 1, "c"))
    (line,) = checks.replicas_that_differ(PARTITION, {"x": whole, "y": other_epoch})
    assert "batch 1 at 5 of epoch 0" in line
    assert "batch 1 at 5 of epoch 1" in line
    (line,) = checks.replicas_that_differ(PARTITION, {"x": whole, "y": whole[:2]})
    assert line.endswith("y has no batch 2")
    (line,) = checks.replicas_that_differ(PARTITION, {"x": whole, "y": []})
    assert line.endswith("y has no batch 0")
    assert checks.replicas_that_differ(PARTITION, {}) == ["t-3: no replica has a log"]
