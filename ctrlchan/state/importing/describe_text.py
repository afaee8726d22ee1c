"""The text of ``kafka-topics --describe`` -> a state.

Lines that ``describe_lines`` cannot parse are refused, and so is a topic with fewer partitions than its line
counts: the text was cut.

The text has no epochs and no endpoints: epochs are 0, and the live brokers are those that the caller names
or, without endpoints, those that lead or are in an ISR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ctrlchan.errors import InvalidStateError, MalformedError, SnapshotError
from ctrlchan.protocol import NO_LEADER
from ctrlchan.state.brokers import Broker
from ctrlchan.state.cluster_state import ClusterState
from ctrlchan.state.importing.describe_lines import PartitionLine, TopicLine, parse_line
from ctrlchan.state.importing.row_builder import RowBuilder
from ctrlchan.text import quoted
from ctrlchan.topic_names import why_invalid

__all__ = ["Progress", "import_describe"]

#: Called with how many lines are read.
Progress = Callable[[int], None]

#: Lines between two calls of ``Progress``.
_PROGRESS_STEP: Final = 10_000
#: Bad lines that an error names.
_LISTED: Final = 5


def import_describe(
    lines: Iterable[str],
    brokers: Iterable[Broker] | None = None,
    *,
    source: str = "describe",
    cluster_id: str = "",
    controller_id: int = -1,
    controller_epoch: int = 0,
    progress: Progress = lambda done: None,
) -> ClusterState:
    """Return the state that the lines describe; without ``brokers``, those that lead or are in sync are live.

    Raises SnapshotError that names ``source``, the first bad lines by number (from 1) with their reasons, and
    how many there are.
    """
    reader = _Reader(controller_epoch)
    bad: list[str] = []
    bad_lines = number = 0
    for number, line in enumerate(lines, 1):
        try:
            reader.read(line, number)
        except (MalformedError, InvalidStateError) as error:
            bad_lines += 1
            if len(bad) < _LISTED:
                bad.append(f"line {number}: {error}")
        if number % _PROGRESS_STEP == 0:
            progress(number)
    progress(number)
    if bad:
        more = f"; and {bad_lines - len(bad):,} more bad lines" if bad_lines > len(bad) else ""
        raise SnapshotError(f"{source}: {'; '.join(bad)}{more}")
    if not reader.lines_of:
        raise SnapshotError(f"{source}: no partition in {number:,} lines")
    reader.check_counts(source)
    live = [Broker(broker_id) for broker_id in sorted(reader.in_sync)] if brokers is None else brokers
    parts = reader.rows.parts(
        reader.topic_ids,
        live,
        deleting=reader.deleting,
        cluster_id=cluster_id,
        controller_id=controller_id,
        controller_epoch=controller_epoch,
    )
    return ClusterState.from_parts(parts)


class _Reader:
    """The fields of all lines so far."""

    def __init__(self, controller_epoch: int) -> None:
        self.rows = RowBuilder()
        self.topic_ids: dict[str, bytes] = {}
        self.deleting: set[str] = set()
        self.in_sync: set[int] = set()
        #: topic -> partition -> the number of its line
        self.lines_of: dict[str, dict[int, int]] = {}
        #: topic -> (PartitionCount, the number of its line)
        self._counts: dict[str, tuple[int, int]] = {}
        self._controller_epoch = controller_epoch

    def read(self, text: str, number: int) -> None:
        """Add line ``number``. Raises MalformedError or InvalidStateError with the reason against it."""
        line = parse_line(text)
        if line is None:
            return
        wrong = why_invalid(line.topic)
        if wrong is not None:
            raise InvalidStateError(f"{wrong} ({quoted(line.topic)})")
        if line.reasons:
            raise MalformedError(*line.reasons)
        if line.marked_for_deletion:
            self.deleting.add(line.topic)
        if isinstance(line, TopicLine):
            self._counts[line.topic] = (line.partition_count, number)
            if line.topic_id is not None:
                self.topic_ids[line.topic] = line.topic_id
        else:
            self._add(line, number)

    def check_counts(self, source: str) -> None:
        """Raise SnapshotError for the first topic whose line counts other partitions than were read."""
        for topic, (count, number) in self._counts.items():
            found = len(self.lines_of.get(topic, ()))
            if found != count:
                raise SnapshotError(
                    f"{source}: line {number}: topic {topic} has PartitionCount {count}, "
                    f"but there are {found} of its partitions"
                )

    def _add(self, line: PartitionLine, number: int) -> None:
        numbers = self.lines_of.setdefault(line.topic, {})
        if line.partition in numbers:
            raise InvalidStateError(
                f"partition {line.topic}-{line.partition} is on line {numbers[line.partition]} already"
            )
        if not line.replicas:
            raise InvalidStateError("Replicas is empty")
        self.rows.add(
            line.topic,
            line.partition,
            line.replicas,
            leader=line.leader,
            isr=line.isr,
            leader_epoch=0,
            partition_epoch=0,
            controller_epoch=self._controller_epoch,
            adding=line.adding,
            removing=line.removing,
        )
        numbers[line.partition] = number
        self.in_sync.update(line.isr if line.leader == NO_LEADER else (line.leader, *line.isr))
