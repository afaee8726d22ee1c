"""The text of ``kafka-topics --describe`` -> entries.

A line is an entry. A topic's line has the id, PartitionCount and MarkedForDeletion of the topic; a
partition's line has replicas, leader and ISR, but no epochs. ``ctrlchan.state.importing.describe_text``
describes the format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from ctrlchan.pipeline.jobs.ingest.entries import (
    About,
    entries_of,
    id_of_text,
    number,
    numbers,
    put,
    quoted,
    reasons_of,
    record,
)
from ctrlchan.pipeline.jobs.ingest.texts import text_lines
from ctrlchan.state.importing.describe_lines import BETWEEN_FIELDS
from ctrlchan.state.new_rows import NO_LEADER

__all__ = ["describe_entries"]

KIND: Final = "describe"
_LISTS: Final = {
    "Replicas": "replicas",
    "Isr": "isr",
    "Adding Replicas": "adding_replicas",
    "Removing Replicas": "removing_replicas",
}
_FIELDS: Final = ("Topic", "PartitionCount", "TopicId", "MarkedForDeletion", "Partition", "Leader", *_LISTS)
_BLANKS: Final = " \t\f\v"


def describe_entries(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the entries of these text files."""
    line = sf.btrim("text", sf.lit(_BLANKS))
    rows = text_lines(spark, paths).select(
        "file", "row", "text", "flaw", sf.split(line, BETWEEN_FIELDS.pattern).alias("fields")
    )
    rows = rows.select("file", "row", "text", "flaw", *(_field(name).alias(name) for name in _FIELDS))
    return entries_of(rows, KIND, "line", sf.array(_item()))


def _item() -> Column:
    text, topic = sf.col("text"), sf.col("Topic")
    stranger = sf.when(
        topic.isNull(),
        put("not a line of kafka-topics --describe: ", quoted(sf.btrim(text, sf.lit(_BLANKS)))),
    ).otherwise(sf.lit("neither a topic's line (no PartitionCount) nor a partition's (no Partition)"))
    of_topic = sf.col("PartitionCount").isNotNull()
    count, wrong_count = number("PartitionCount", sf.col("PartitionCount"))
    topic_id, wrong_id = id_of_text(sf.col("TopicId"))
    partition, wrong_partition = number("Partition", sf.col("Partition"))
    none = sf.col("Leader").isin("none", "-1")
    leader, wrong_leader = number("Leader", sf.col("Leader"))
    lists, wrong_lists = {}, []
    for name, column in _LISTS.items():
        lists[column], wrong = numbers(name, sf.col(name))
        wrong_lists.append(wrong)
    missing = [
        sf.when(sf.col(name).isNull(), sf.lit(f"no field {name}")) for name in ("Leader", "Replicas", "Isr")
    ]
    blank = sf.btrim(text, sf.lit(_BLANKS)) == ""
    about = (
        sf.when(blank | topic.isNull(), sf.lit(About.NOTHING))
        .when(of_topic, sf.lit(About.TOPIC))
        .when(sf.col("Partition").isNotNull(), sf.lit(About.PARTITION))
        .otherwise(sf.lit(About.NOTHING))
    )
    reasons = (
        sf.when(sf.col("flaw").isNotNull(), sf.array("flaw"))
        .when(blank, sf.array())
        .when(about == About.NOTHING, sf.array(stranger))
        .when(about == About.TOPIC, reasons_of(wrong_count, wrong_id))
        .otherwise(reasons_of(wrong_partition, sf.when(~none, wrong_leader), *wrong_lists, *missing))
    )
    return record(
        about=about,
        role=sf.concat(sf.lit("describe "), about),
        text=text,
        topic=sf.when(about != About.NOTHING, topic),
        partition_count=count,
        topic_id=topic_id,
        deleting=sf.col("MarkedForDeletion") == "true",
        partition=sf.when(~of_topic, partition),
        leader=sf.when(none, sf.lit(NO_LEADER)).otherwise(leader),
        reasons=reasons,
        **lists,
    )


def _field(name: str) -> Column:
    """Return the last field of this name, or null."""
    start = f"{name}:"
    found = sf.filter("fields", lambda field: sf.startswith(field, sf.lit(start)))
    value = sf.try_element_at(found, sf.lit(-1))
    return sf.btrim(sf.substr(value, sf.lit(len(start) + 1)), sf.lit(_BLANKS))
