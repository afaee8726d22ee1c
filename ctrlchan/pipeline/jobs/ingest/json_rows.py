"""JSON -> entries: rows of a snapshot in JSON lines, and the document of ``kafka-reassign-partitions``.

**JSON lines.** A line with ``topic`` is a partition: the snapshot's columns by name, ``topic_id`` as Kafka
writes it (base64url). ``topic``, ``partition`` and ``replicas`` must exist; leadership is not known
without ``leader``. A line with ``id`` is a broker: ``id``, ``epoch``, ``rack``, and ``endpoints``, a list of
objects of ``listener``, ``security_protocol``, ``host``, ``port``. Other fields are ignored.

**Reassignment.** A file is one document, as the tool takes it and prints it ("Current partition replica
assignment"): ``{"version": 1, "partitions": [{"topic": …, "partition": …, "replicas": […]}, …]}``. Each
element is an entry, its row the place in the list (from 0). It has assignments only. One task reads a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from ctrlchan.pipeline.jobs.ingest.entries import (
    INTS,
    LISTS,
    About,
    entries_of,
    id_of_text,
    put,
    quoted,
    reasons_of,
    record,
)
from ctrlchan.pipeline.jobs.ingest.texts import text_lines, whole_texts

__all__ = ["endpoints_of", "json_entries", "json_type", "member", "reassignment_entries"]

KIND: Final = "json"
REASSIGNMENT: Final = "reassignment"
_ENDPOINTS: Final = "array<struct<listener: string, security_protocol: string, host: string, port: bigint>>"


def json_entries(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the entries of these files of JSON lines."""
    rows = text_lines(spark, paths).withColumn("json", sf.try_parse_json("text"))
    text, value = sf.col("text"), sf.col("json")
    blank = sf.trim(text) == ""
    found = (
        sf.when(sf.col("flaw").isNotNull(), record(about=About.NOTHING, text=text, reasons=sf.array("flaw")))
        .when(blank, record(about=About.NOTHING, text=text))
        .when(~sf.startswith(json_type(value), sf.lit("OBJECT<")), _not_json(text, "not a JSON object"))
        .when(json_type(member(value, "topic")).isNotNull(), _partition(value, text, KIND, (*INTS, *LISTS)))
        .when(json_type(member(value, "id")).isNotNull(), _broker(value, text))
        .when(value.isNull(), _not_json(text, "not JSON, or a field twice"))
        .otherwise(_not_json(text, "neither a partition (no topic) nor a broker (no id)"))
    )
    return entries_of(rows, KIND, "line", sf.array(found))


def reassignment_entries(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the entries of these documents."""
    documents = whole_texts(spark, paths).withColumn(
        "partitions", sf.from_json("text", "partitions array<variant>")["partitions"]
    )
    flaw = sf.coalesce("flaw", sf.lit("not JSON of kafka-reassign-partitions (no list of partitions)"))
    refused = sf.array(
        sf.struct(
            sf.lit(0).cast("bigint").alias("row"),
            sf.lit(None).cast("variant").alias("json"),
            flaw.alias("flaw"),
        )
    )
    places = sf.sequence(sf.lit(0).cast("bigint"), sf.size("partitions").cast("bigint") - 1)
    elements = sf.zip_with(
        sf.when(sf.size("partitions") > 0, places).otherwise(sf.array().cast("array<bigint>")),
        "partitions",
        lambda place, json: sf.struct(
            place.alias("row"), json.alias("json"), sf.lit(None).cast("string").alias("flaw")
        ),
    )
    wrong = sf.col("flaw").isNotNull() | sf.col("partitions").isNull()
    rows = documents.select(
        "file",
        sf.col("text").alias("document"),
        sf.explode(sf.when(wrong, refused).otherwise(elements)).alias("element"),
    ).select("file", "document", "element.*")
    value = sf.col("json")
    text = sf.to_json(value)
    found = (
        sf.when(
            sf.col("flaw").isNotNull(),
            record(about=About.NOTHING, text=sf.col("document"), reasons=sf.array("flaw")),
        )
        .when(~sf.startswith(json_type(value), sf.lit("OBJECT<")), _not_json(text, "not a JSON object"))
        .otherwise(_partition(value, text, REASSIGNMENT, ("replicas",)))
    )
    return entries_of(rows, REASSIGNMENT, "partition", sf.array(found))


def _not_json(text: Column, reason: str) -> Column:
    return record(about=About.NOTHING, text=text, reasons=sf.array(sf.lit(reason)))


def _partition(value: Column, text: Column, role: str, names: Sequence[str]) -> Column:
    topic, wrong_topic = _text(value, "topic")
    id_text, wrong_id_type = _text(value, "topic_id")
    topic_id, wrong_id = id_of_text(id_text)
    partition, wrong_partition = _int(value, "partition")
    columns, reasons = {}, [wrong_topic, wrong_id_type, wrong_id, wrong_partition]
    for name in names:
        columns[name], reason = _int(value, name) if name in INTS else _list(value, name)
        reasons.append(reason)
    missing = [
        sf.when(json_type(member(value, name)).isNull(), sf.lit(f"no field {name}"))
        for name in ("partition", "replicas")
    ]
    return record(
        role=role,
        text=text,
        topic=topic,
        topic_id=topic_id if "leader" in names else sf.lit(None),
        partition=partition,
        reasons=reasons_of(*reasons, *missing),
        **columns,
    )


def _broker(value: Column, text: Column) -> Column:
    broker_id, wrong_id = _int(value, "id")
    epoch, wrong_epoch = _int(value, "epoch")
    rack, wrong_rack = _text(value, "rack", null=True)
    endpoints, wrong_endpoints = endpoints_of(member(value, "endpoints"))
    return record(
        about=About.BROKER,
        role=KIND,
        key=broker_id.cast("string"),
        text=text,
        broker=sf.struct(
            broker_id.alias("id"),
            sf.coalesce(epoch, sf.lit(-1)).alias("epoch"),
            rack.alias("rack"),
            endpoints.alias("endpoints"),
        ),
        reasons=reasons_of(wrong_id, wrong_epoch, wrong_rack, wrong_endpoints),
    )


# -- values of a JSON object


def member(value: Column, name: str) -> Column:
    """Return a member as a variant; null if it does not exist."""
    return sf.try_variant_get(value, f"$.{name}", "variant")


def json_type(value: Column) -> Column:
    """Return BIGINT, STRING, VOID (JSON's null), ARRAY<BIGINT>, …; null if there is no value."""
    return sf.schema_of_variant(value)


def endpoints_of(value: Column) -> tuple[Column, Column]:
    """Return (a broker's endpoints, empty if there are none; the reason)."""
    absent = json_type(value).isNull()
    empty = json_type(value) == "ARRAY<VOID>"
    right = sf.startswith(json_type(value), sf.lit("ARRAY<OBJECT<"))
    found = sf.try_variant_get(value, "$", _ENDPOINTS)
    null_in_it = sf.exists(
        found,
        lambda one: (
            sf.coalesce(one["listener"], sf.lit("")).eqNullSafe("")
            | one["security_protocol"].isNull()
            | one["host"].isNull()
            | one["port"].isNull()
        ),
    )
    values = sf.when(absent | empty, sf.array().cast(_ENDPOINTS)).when(
        right,
        sf.transform(
            found,
            lambda one: sf.struct(
                one["listener"].alias("listener"),
                sf.upper(one["security_protocol"]).alias("security_protocol"),
                one["host"].alias("host"),
                one["port"].alias("port"),
            ),
        ),
    )
    return values, sf.when(
        ~absent & ~empty & (~right | null_in_it),
        sf.lit("endpoints is not a list of listener, security_protocol, host and port"),
    )


def _int(value: Column, name: str) -> tuple[Column, Column]:
    found, kind = member(value, name), json_type(member(value, name))
    return (
        sf.when(kind == "BIGINT", sf.try_variant_get(value, f"$.{name}", "bigint")),
        sf.when(
            kind != "BIGINT",
            put(f"{name} is ", quoted(sf.to_json(found)), ", not a whole number that int32 holds"),
        ),
    )


def _text(value: Column, name: str, *, null: bool = False) -> tuple[Column, Column]:
    found, kind = member(value, name), json_type(member(value, name))
    wrong = (kind != "STRING") & (kind != "VOID") if null else kind != "STRING"
    return (
        sf.when(kind == "STRING", sf.try_variant_get(value, f"$.{name}", "string")),
        sf.when(wrong, put(f"{name} is ", quoted(sf.to_json(found)), ", not a text")),
    )


def _list(value: Column, name: str) -> tuple[Column, Column]:
    found, kind = member(value, name), json_type(member(value, name))
    right = kind.isin("ARRAY<BIGINT>", "ARRAY<VOID>")
    return (
        sf.when(right, sf.try_variant_get(value, f"$.{name}", "array<bigint>")),
        sf.when(~right, put(f"{name} is ", quoted(sf.to_json(found)), ", not a list of whole numbers")),
    )
