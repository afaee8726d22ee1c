"""What a cluster guarantees, compared with what was seen: functions that return violations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.chaos.records import Log, Numbers, Partition

__all__ = [
    "Batch",
    "Commit",
    "CommittedRead",
    "Monotonic",
    "disordered",
    "doubled",
    "lost",
    "moved",
    "offsets_that_went_back",
    "replicas_that_differ",
    "skipped",
]

#: Lines of one kind of violation that are shown.
_SHOWN = 5


def _limited(lines: list[str]) -> list[str]:
    return lines if len(lines) <= _SHOWN else [*lines[:_SHOWN], f"… and {len(lines) - _SHOWN} more"]


def lost(partition: Partition, producer: int, numbers: Numbers, log: Log) -> list[str]:
    """Find acknowledged records that cannot be read."""
    found = {record.number for record in log if record.producer == producer}
    missing = [number for number, _ in numbers.acknowledged() if number not in found]
    return _limited([f"{_name(partition)}: record {producer}:{number} is lost" for number in missing])


def moved(partition: Partition, producer: int, numbers: Numbers, log: Log) -> list[str]:
    """Find acknowledged records that are not at the offset that the producer was given."""
    at = {record.offset: record for record in log}
    lines = []
    for number, offset in numbers.acknowledged():
        record = at.get(offset)
        if offset != Numbers.WITHOUT_OFFSET and (
            record is None or (record.producer, record.number) != (producer, number)
        ):
            lines.append(f"{_name(partition)}: record {producer}:{number} is not at {offset}, but {record}")
    return _limited(lines)


def doubled(partition: Partition, producer: int, log: Log) -> list[str]:
    """Find records of an idempotent producer that can be read more than once."""
    times = Counter(record.number for record in log if record.producer == producer)
    return _limited(
        [
            f"{_name(partition)}: record {producer}:{number} is there {count} times"
            for number, count in times.items()
            if count > 1
        ]
    )


def disordered(partition: Partition, producer: int, numbers: Numbers, log: Log) -> list[str]:
    """Find acknowledged records behind a later one. Of records that are there twice the first counts."""
    acknowledged = {number for number, _ in numbers.acknowledged()}
    lines: list[str] = []
    seen: set[int] = set()
    newest = -1
    for record in log:
        if record.producer != producer or record.number in seen or record.number not in acknowledged:
            continue
        seen.add(record.number)
        if record.number < newest:
            lines.append(f"{_name(partition)}: record {producer}:{record.number} is behind {newest}")
        newest = max(newest, record.number)
    return _limited(lines)


def skipped(partition: Partition, seen: bytes | bytearray, log: Log, who: str) -> list[str]:
    """Find records of the log that a reader of all has not seen. ``seen``: a byte for each offset, 0: no."""
    return _limited(
        [
            f"{_name(partition)}: {who} skipped offset {record.offset}"
            for record in log
            if record.offset >= len(seen) or not seen[record.offset]
        ]
    )


class Commit(NamedTuple):
    """A committed offset of a group that was acknowledged. ``end``: when the answer came, in seconds."""

    group: str
    partition: Partition
    offset: int
    end: float


class CommittedRead(NamedTuple):
    """A group's committed offset as it was read. ``begin``: when it was asked for, in seconds."""

    group: str
    partition: Partition
    offset: int
    begin: float


def offsets_that_went_back(commits: Sequence[Commit], reads: Sequence[CommittedRead]) -> list[str]:
    """Find reads of a group's offset below one that was acknowledged before the read began.

    Members commit what they have processed from the committed offset on, and one that is no member any more
    is refused: so offsets only grow.
    """
    lines = []
    by_place: defaultdict[tuple[str, Partition], list[Commit]] = defaultdict(list)
    for commit in commits:
        by_place[commit.group, commit.partition].append(commit)
    for found in by_place.values():
        found.sort(key=lambda one: one.end)
    newest: dict[tuple[str, Partition], tuple[int, int]] = {}
    for read in sorted(reads, key=lambda one: one.begin):
        place = read.group, read.partition
        index, highest = newest.get(place, (0, -1))
        known = by_place[place]
        while index < len(known) and known[index].end < read.begin:
            highest = max(highest, known[index].offset)
            index += 1
        if read.offset < highest:
            lines.append(
                f"group {read.group}, {_name(read.partition)}: committed offset {read.offset} after {highest}"
            )
        newest[place] = index, max(highest, read.offset)
    return _limited(lines)


class Monotonic:
    """Remembers the highest of numbers that never go back."""

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}

    def check(self, name: str, value: int) -> list[str]:
        """Return a line where the number has gone back."""
        before = self._highest.get(name, value)
        self._highest[name] = max(before, value)
        return [f"{name} went back from {before} to {value}"] if value < before else []


class Batch(NamedTuple):
    """A batch in a replica's log. ``content``: a hash of all its bytes, the leader epoch included."""

    offset: int
    leader_epoch: int
    content: bytes


def replicas_that_differ(partition: Partition, replicas: Mapping[str, Sequence[Batch]]) -> list[str]:
    """Find replicas, by name, whose batches are not those of the others.

    Segments may begin at other offsets, and replicas may have deleted more or less: what counts are the
    batches from the first offset on that all have.
    """
    if not replicas:
        return [f"{_name(partition)}: no replica has a log"]
    first = max((batches[0].offset for batches in replicas.values() if batches), default=0)
    kept = {name: [one for one in batches if one.offset >= first] for name, batches in replicas.items()}
    (base, expected), *others = kept.items()
    lines = []
    for name, batches in others:
        if batches == expected:
            continue
        place = next(
            (at for at, (one, two) in enumerate(zip(expected, batches, strict=False)) if one != two),
            min(len(expected), len(batches)),
        )
        lines.append(
            f"{_name(partition)}: {base} has {_shown(expected, place)}, {name} has {_shown(batches, place)}"
        )
    return lines


def _shown(batches: Sequence[Batch], place: int) -> str:
    if place >= len(batches):
        return f"no batch {place}"
    one = batches[place]
    return f"batch {place} at {one.offset} of epoch {one.leader_epoch} ({one.content.hex()[:8]})"


def _name(partition: Partition) -> str:
    topic, number = partition
    return f"{topic}-{number}"
