"""The text of ``kafka-topics --describe`` -> entries.

A line is an entry. A topic's line has the id, PartitionCount and MarkedForDeletion of the topic; a
partition's line has replicas, leader and ISR, but no epochs.
``ctrlchan.state.importing.describe_lines`` parses the lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from ctrlchan.errors import MalformedError
from ctrlchan.pipeline.jobs.ingest.entries import About
from ctrlchan.pipeline.jobs.ingest.parsed import Parsed, parsed_entries
from ctrlchan.pipeline.jobs.ingest.texts import text_lines
from ctrlchan.state.importing.describe_lines import TopicLine, parse_line

__all__ = ["describe_entries"]

KIND: Final = "describe"


def describe_entries(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the entries of these text files."""
    return parsed_entries(text_lines(spark, paths), KIND, _entries)


def _entries(text: str) -> Iterator[Parsed]:
    try:
        line = parse_line(text)
    except MalformedError as error:
        yield Parsed(About.NOTHING, f"{KIND} {About.NOTHING}", text, reasons=error.reasons)
        return
    if line is None:
        yield Parsed(About.NOTHING, f"{KIND} {About.NOTHING}", text)
    elif isinstance(line, TopicLine):
        yield Parsed(
            About.TOPIC,
            f"{KIND} {About.TOPIC}",
            text,
            topic=line.topic,
            topic_id=line.topic_id,
            partition_count=line.partition_count,
            deleting=line.marked_for_deletion,
            reasons=line.reasons,
        )
    else:
        # Fields that a line does not have are null: another input may have them.
        yield Parsed(
            About.PARTITION,
            f"{KIND} {About.PARTITION}",
            text,
            topic=line.topic,
            partition=None if line.partition < 0 else line.partition,
            deleting=line.marked_for_deletion,
            leader=line.leader,
            isr=line.isr,
            replicas=line.replicas,
            adding_replicas=line.adding or None,
            removing_replicas=line.removing or None,
            reasons=line.reasons,
        )
