"""Entries: the smallest parts of an input that are taken or refused, in one form for all kinds of input.

An entry is a line of a text, a row of Parquet, or one partition of a line or document that lists several.
Values that an entry does not have are null, so that several entries can describe one partition together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from ctrlchan.state.brokers import SecurityProtocol
from ctrlchan.state.values import HIGHEST, LOWEST
from ctrlchan.topic_names import MAX_NAME_LENGTH, ZERO_ID

__all__ = [
    "COLUMNS",
    "INTS",
    "LISTS",
    "About",
    "array_of",
    "check_values",
    "entries_of",
    "id_of_text",
    "placed",
    "put",
    "quoted",
    "reasons_of",
    "record",
]

MAX_INT32: Final = 2**31 - 1
#: Characters of a row's text that are kept for the rejects.
_KEPT_TEXT: Final = 10_000
#: Characters of a value that a reason repeats.
_QUOTED: Final = 60

INTS: Final = tuple(name for name in LOWEST if name != "partition")
LISTS: Final = ("isr", "replicas", "adding_replicas", "removing_replicas", "offline_replicas")


class About:
    """Subjects of an entry. ``NOTHING``: the entry is blank, or has no meaning for a snapshot."""

    PARTITION: Final = "partition"
    TOPIC: Final = "topic"
    BROKER: Final = "broker"
    CLUSTER: Final = "cluster"
    NOTHING: Final = "nothing"


#: ``role``: kind of input, and which part of its subject the entry describes. Two entries of one role and one
#: subject are one too many. ``key``: names a broker or a fact of the cluster. ``place``: "FILE line ROW".
COLUMNS: Final[Mapping[str, str]] = {
    "kind": "string",
    "file": "string",
    "row": "bigint",
    "place": "string",
    "about": "string",
    "role": "string",
    "key": "string",
    "text": "string",
    "topic": "string",
    "partition": "bigint",
    "topic_id": "binary",
    "partition_count": "bigint",
    "deleting": "boolean",
    **dict.fromkeys(INTS, "bigint"),
    **dict.fromkeys(LISTS, "array<bigint>"),
    "broker": "struct<id: bigint, epoch: bigint, rack: string, endpoints: array<struct<listener: string, "
    "security_protocol: string, host: string, port: bigint>>>",
    "cluster": "struct<cluster_id: string, controller_id: bigint, controller_epoch: bigint>",
    "reasons": "array<string>",
}
_OF_THE_ROW: Final = ("kind", "file", "row", "place")


def record(**values: Column | str) -> Column:
    """Return a struct of all columns of an entry except its place; a column without a value is null."""
    unknown = values.keys() - COLUMNS.keys()
    assert not unknown, unknown
    given: dict[str, Column] = {
        name: sf.lit(value) if isinstance(value, str) else value for name, value in values.items()
    }
    given.setdefault("reasons", sf.array())
    given.setdefault("about", sf.lit(About.PARTITION))
    return sf.struct(
        *(
            given.get(name, sf.lit(None)).cast(kind).alias(name)
            for name, kind in COLUMNS.items()
            if name not in _OF_THE_ROW
        )
    )


def entries_of(rows: DataFrame, kind: str, unit: str, found: Column) -> DataFrame:
    """Return the entries of ``rows`` (file, row): ``found`` is an array of records for each row."""
    return placed(rows.select("file", "row", sf.explode(found).alias("entry")), kind, unit, "entry.")


def placed(entries: DataFrame, kind: str, unit: str, prefix: str = "") -> DataFrame:
    """Add kind and place to entries that have file and row, and shorten their texts.

    ``unit``: word for a row, for ``place``. ``prefix``: where the columns of a record stand.
    """
    text = sf.col(f"{prefix}text")
    kept = sf.when(
        sf.length(text) > _KEPT_TEXT,
        sf.concat(sf.left(text, sf.lit(_KEPT_TEXT)), sf.lit("… ("), sf.length(text), sf.lit(" characters)")),
    ).otherwise(text)
    columns = {
        "kind": sf.lit(kind),
        "file": sf.col("file"),
        "row": sf.col("row").cast("bigint"),
        "place": sf.concat("file", sf.lit(f" {unit} "), "row"),
        "text": kept,
    }
    return entries.select(*(columns.get(name, sf.col(f"{prefix}{name}")).alias(name) for name in COLUMNS))


def put(name: str, *parts: Column | str) -> Column:
    """Return a text of these parts; null if a part is null."""
    return sf.concat(sf.lit(name), *(sf.lit(part) if isinstance(part, str) else part for part in parts))


def quoted(value: Column) -> Column:
    """Return the value as it is quoted in a reason."""
    short = sf.when(
        sf.length(value) > _QUOTED, sf.concat(sf.left(value, sf.lit(_QUOTED)), sf.lit("…"))
    ).otherwise(value)
    return sf.concat(sf.lit("'"), short, sf.lit("'"))


def reasons_of(*reasons: Column) -> Column:
    """Return an array of the reasons that are not null."""
    return sf.array_compact(sf.array(*reasons))


def array_of(kind: str = "bigint") -> Column:
    """Return an empty array of this element type."""
    return sf.array().cast(f"array<{kind}>")


# -- texts


def id_of_text(text: Column) -> tuple[Column, Column]:
    """Return (the 16 bytes of a topic id as Kafka's ``Uuid`` writes it; the reason)."""
    # 22 characters are 132 bits: the last four have to be zero.
    right = text.rlike("^[A-Za-z0-9_-]{21}[AQgw]$")
    value = sf.when(right, sf.unbase64(sf.concat(sf.translate(text, "-_", "+/"), sf.lit("=="))))
    return value, sf.when(~right, put("", quoted(text), " is not a topic id (22 base64url characters)"))


# -- checks of all kinds of entries


def check_values(entries: DataFrame) -> DataFrame:
    """Add reasons for values that no partition, topic or broker can have; make a zero topic id null."""
    broker = sf.col("broker")
    of_topics = sf.col("about").isin(About.PARTITION, About.TOPIC)
    endpoints = broker["endpoints"]
    more = (
        sf.when(of_topics, _wrong_name(sf.col("topic"))),
        sf.when(
            (sf.col("about") == About.PARTITION)
            & (sf.col("topic_id").isNotNull() & (sf.length("topic_id") != 16)),
            put("topic_id has ", sf.length("topic_id").cast("string"), " bytes, not 16"),
        ),
        *(_outside(name, sf.col(name)) for name in ("partition", *INTS)),
        *(_wrong_list(name) for name in LISTS),
        sf.when(sf.size("replicas") == 0, sf.lit("replicas is empty")),
        _outside("broker id", broker["id"]),
        sf.when(broker["epoch"] < -1, put("broker epoch ", broker["epoch"].cast("string"), " is below -1")),
        sf.when(
            sf.exists(endpoints, lambda one: sf.coalesce(~one["port"].between(0, 65_535), sf.lit(True))),
            sf.lit("an endpoint has no port in 0 .. 65535"),
        ),
        sf.when(
            sf.exists(
                endpoints,
                lambda one: sf.coalesce(
                    ~one["security_protocol"].isin([one.name for one in SecurityProtocol]),
                    sf.lit(True),
                ),
            ),
            sf.lit("an endpoint has no security protocol of Kafka's"),
        ),
        sf.when(
            sf.exists(
                endpoints,
                lambda one: sf.coalesce((one["host"] == "") | (one["listener"] == ""), sf.lit(True)),
            ),
            sf.lit("an endpoint has no listener or no host"),
        ),
    )
    # An entry that could not be read has its reasons already.
    found = sf.when(sf.size("reasons") > 0, sf.col("reasons")).otherwise(reasons_of(*more))
    return entries.withColumn("reasons", found).withColumn(
        "topic_id", sf.when(sf.col("topic_id") != sf.lit(ZERO_ID), sf.col("topic_id"))
    )


def _wrong_name(name: Column) -> Column:
    """``ctrlchan.topic_names.why_invalid``, in SQL."""
    return (
        sf.when(name == "", sf.lit("the topic name is empty"))
        .when(name.isin(".", ".."), sf.lit("the topic name is '.' or '..'"))
        .when(
            sf.octet_length(name) > MAX_NAME_LENGTH,
            put(
                "the topic name has ",
                sf.octet_length(name).cast("string"),
                f" bytes, more than {MAX_NAME_LENGTH}",
            ),
        )
        .when(
            ~name.rlike(r"^[a-zA-Z0-9._-]*\z"),
            sf.lit("the topic name has a character other than ASCII letters, digits, '.', '_' and '-'"),
        )
    )


def _outside(name: str, value: Column) -> Column:
    lowest, highest = LOWEST.get(name, 0), HIGHEST.get(name, MAX_INT32)
    return sf.when(
        ~value.between(lowest, highest),
        put(f"{name} ", value.cast("string"), f" is not in {lowest} .. {highest}"),
    )


def _wrong_list(name: str) -> Column:
    values = sf.col(name)
    outside = sf.get(sf.filter(values, lambda one: ~one.between(0, MAX_INT32)), sf.lit(0))
    return (
        sf.when(sf.exists(values, lambda one: one.isNull()), sf.lit(f"{name} has a null in it"))
        .when(outside.isNotNull(), put(f"{name} has ", outside.cast("string"), ", which is no broker id"))
        .when(sf.size(sf.array_distinct(values)) < sf.size(values), sf.lit(f"a broker is twice among {name}"))
    )
