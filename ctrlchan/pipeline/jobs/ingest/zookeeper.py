"""A dump of ZooKeeper -> entries.

A line is a znode: ``PATH<TAB>DATA``, or ``PATH<TAB>DATA<TAB>VERSION<TAB>CZXID``. PATH is below the chroot,
DATA the znode's text as it is (JSON has no raw tab or line break in it; nothing, or ``null``, for a znode
without data), VERSION its stat's version (``dataVersion``) and CZXID its czxid in decimal. ``ctrlchan
snapshot dump`` writes it. Without VERSION a partition's epoch is 0, without CZXID a broker's epoch is not
known (-1).

Znodes that ``ctrlchan.state.importing.zookeeper`` does not read are ignored. The line of a topic is an entry
for the topic and one for each of its partitions; the line of a partition's state is another entry for the
partition. Both make the partition: if one of them is refused, so is the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from ctrlchan.pipeline.jobs.ingest.entries import (
    About,
    entries_of,
    id_of_text,
    number,
    put,
    quoted,
    reasons_of,
    record,
)
from ctrlchan.pipeline.jobs.ingest.json_rows import json_type, member
from ctrlchan.pipeline.jobs.ingest.texts import text_lines

__all__ = ["KIND", "zookeeper_entries"]

KIND: Final = "zookeeper"
_TOPIC: Final = r"^/brokers/topics/([^/]+)$"
_STATE: Final = r"^/brokers/topics/([^/]+)/partitions/([^/]+)/state$"
_BROKER: Final = r"^/brokers/ids/([0-9]+)$"
_ID: Final = "/cluster/id"
_CONTROLLER: Final = "/controller"
_EPOCH: Final = "/controller_epoch"
_DELETED: Final = r"^/admin/delete_topics/([^/]+)$"
#: LISTENER://host:9092, LISTENER://[::1]:9092
_ENDPOINT: Final = r"^([^:/]+)://(?:\[([^\]]+)\]|([^:\[\]]*)):([0-9]+)$"
_ENDPOINTS: Final = "array<struct<listener: string, security_protocol: string, host: string, port: bigint>>"


def zookeeper_entries(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Entries of these dumps."""
    rows = (
        text_lines(spark, paths)
        .withColumn("fields", sf.split("text", "\t"))
        .select(
            "file",
            "row",
            "text",
            "flaw",
            sf.size("fields").alias("count"),
            sf.col("fields")[0].alias("path"),
            sf.get("fields", sf.lit(1)).alias("data"),
            sf.nullif(sf.get("fields", sf.lit(2)), sf.lit("")).alias("version_text"),
            sf.nullif(sf.get("fields", sf.lit(3)), sf.lit("")).alias("czxid_text"),
        )
        .withColumn("sort", _sort())
        .withColumn("json", sf.try_parse_json("data"))
    )
    # One plan for each sort of znode: the code that Spark makes of a single one is too large for it.
    sorts: dict[str, Callable[[], Column]] = {
        "topic": _topic,
        "state": lambda: sf.array(_state()),
        "broker": lambda: sf.array(_broker()),
    }
    whole = entries_of(rows.filter(sf.col("sort") == "other"), KIND, "line", sf.array(_other()))
    for sort, found in sorts.items():
        whole = whole.unionByName(entries_of(rows.filter(sf.col("sort") == sort), KIND, "line", found()))
    return whole


def _sort() -> Column:
    path = sf.col("path")
    sort = (
        sf.when(path.rlike(_STATE), sf.lit("state"))
        .when(path.rlike(_TOPIC), sf.lit("topic"))
        .when(path.rlike(_BROKER), sf.lit("broker"))
    )
    return sf.coalesce(sf.when(sf.col("count").between(2, 4), sort), sf.lit("other"))


def _other() -> Column:
    """Facts of the cluster, deleted topics; and what is blank, passed over, or no znode at all."""
    path, text, count = sf.col("path"), sf.col("text"), sf.col("count")
    deleted = sf.nullif(sf.regexp_extract("path", _DELETED, 1), sf.lit(""))
    cluster_id, wrong_id = _text("id")
    controller, wrong_controller = _int("brokerid")
    epoch, wrong_epoch = number("controller epoch", sf.col("data"))
    right = count.between(2, 4)
    of_cluster = right & path.isin(_ID, _CONTROLLER, _EPOCH)
    no_fact = sf.when((path == _ID) & wrong_id.isNull() & cluster_id.isNull(), sf.lit("no field id"))
    cluster = sf.struct(
        sf.when(path == _ID, cluster_id).alias("cluster_id"),
        sf.when(path == _CONTROLLER, controller).alias("controller_id"),
        sf.when(path == _EPOCH, epoch).alias("controller_epoch"),
    )
    return record(
        about=sf.when(of_cluster, sf.lit(About.CLUSTER))
        .when(right & deleted.isNotNull(), sf.lit(About.TOPIC))
        .otherwise(sf.lit(About.NOTHING)),
        role=sf.when(of_cluster, sf.lit(KIND)).otherwise(sf.lit("zookeeper deletion")),
        key=sf.when(of_cluster, path),
        text=text,
        topic=sf.when(right, deleted),
        deleting=sf.when(right & deleted.isNotNull(), sf.lit(True)),
        cluster=sf.when(of_cluster, cluster),
        reasons=_reasons(
            sf.when(
                (sf.trim(text) != "") & ~sf.startswith(path, sf.lit("/")),
                put("not a znode (PATH, tab, DATA): ", quoted(text)),
            ),
            sf.when(
                sf.startswith(path, sf.lit("/")) & ~right,
                put("", count.cast("string"), " fields between tabs, not 2 to 4"),
            ),
            sf.when(of_cluster & (path == _ID), sf.coalesce(_not_object(), wrong_id, no_fact)),
            sf.when(of_cluster & (path == _CONTROLLER), sf.coalesce(_not_object(), wrong_controller)),
            sf.when(of_cluster & (path == _EPOCH), wrong_epoch),
        ),
    )


def _topic() -> Column:
    """The topic, and its assignments."""
    topic = sf.regexp_extract("path", _TOPIC, 1)
    value = sf.col("json")
    id_text, wrong_id_type = _text("topic_id", null=True)
    topic_id, wrong_id = id_of_text(id_text)
    maps, wrong_maps = {}, []
    for name in ("partitions", "adding_replicas", "removing_replicas"):
        kind = json_type(member(value, name))
        maps[name] = sf.when(
            sf.startswith(kind, sf.lit("OBJECT<")),
            sf.try_variant_get(value, f"$.{name}", "map<string, variant>"),
        )
        wrong_maps.append(
            sf.when(
                ~sf.startswith(kind, sf.lit("OBJECT<")) & (kind != "VOID"),
                sf.lit(f"{name} is no JSON object"),
            )
        )
    reasons = _reasons(_not_object(), wrong_id_type, wrong_id, *wrong_maps)
    of_topic = record(
        about=About.TOPIC,
        role="zookeeper topic",
        text=sf.col("text"),
        topic=topic,
        topic_id=topic_id,
        reasons=reasons,
    )

    def assignment(entry: Column) -> Column:
        key = entry["key"]
        partition, wrong_partition = number("partition", key)
        replicas, wrong_replicas = _broker_list("replicas", entry["value"])
        lists, wrong = {"replicas": replicas}, [wrong_partition, wrong_replicas]
        for name in ("adding_replicas", "removing_replicas"):
            found = sf.try_element_at(maps[name], key)
            values, reason = _broker_list(name, found)
            lists[name] = sf.when(found.isNull(), sf.array().cast("array<bigint>")).otherwise(values)
            wrong.append(reason)
        return record(
            role="zookeeper assignment",
            text=sf.concat(
                sf.col("path"), sf.lit("\t"), sf.lit('"'), key, sf.lit('":'), sf.to_json(entry["value"])
            ),
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            reasons=reasons_of(*wrong),
            **lists,
        )

    entries = sf.coalesce(
        sf.map_entries(maps["partitions"]), sf.array().cast("array<struct<key: string, value: variant>>")
    )
    return sf.when(sf.size(reasons) > 0, sf.array(of_topic)).otherwise(
        sf.concat(sf.array(of_topic), sf.transform(entries, assignment))
    )


def _state() -> Column:
    partition, wrong_partition = number("partition", sf.regexp_extract("path", _STATE, 2))
    version, wrong_version = number("version", sf.col("version_text"))
    fields, reasons = {}, [_not_object(), wrong_partition, wrong_version]
    for name, column, required in (
        ("leader", "leader", True),
        ("leader_epoch", "leader_epoch", True),
        ("controller_epoch", "controller_epoch", True),
        ("leader_recovery_state", "recovery_state", False),
    ):
        fields[column], wrong = _int(name, required=required)
        reasons.append(wrong)
    isr = member(sf.col("json"), "isr")
    fields["isr"], wrong_isr = _broker_list("isr", isr)
    no_isr = sf.when(sf.col("json").isNotNull() & isr.isNull(), sf.lit("no field isr"))
    return record(
        role="zookeeper state",
        text=sf.col("text"),
        topic=sf.regexp_extract("path", _STATE, 1),
        partition=partition,
        partition_epoch=version,
        reasons=_reasons(*reasons, wrong_isr, no_isr),
        **fields,
    )


def _broker() -> Column:
    """Registrations of version 1 (host and port) to 5 (endpoints by listener)."""
    value = sf.col("json")
    broker_id, wrong_id = number("broker id", sf.regexp_extract("path", _BROKER, 1))
    czxid, wrong_czxid = number("czxid", sf.col("czxid_text"))
    rack, wrong_rack = _text("rack", null=True)
    listed = sf.try_variant_get(value, "$.endpoints", "array<string>")
    protocols = sf.try_variant_get(value, "$.listener_security_protocol_map", "map<string, string>")
    wrong_endpoint = sf.get(
        sf.filter(listed, lambda one: sf.coalesce(~one.rlike(_ENDPOINT), sf.lit(True))), sf.lit(0)
    )

    def endpoint(one: Column) -> Column:
        listener = sf.regexp_extract(one, _ENDPOINT, 1)
        return sf.struct(
            listener.alias("listener"),
            # Before version 4 listeners are named after their protocols.
            sf.upper(sf.coalesce(sf.try_element_at(protocols, listener), listener)).alias(
                "security_protocol"
            ),
            sf.concat(sf.regexp_extract(one, _ENDPOINT, 2), sf.regexp_extract(one, _ENDPOINT, 3)).alias(
                "host"
            ),
            sf.regexp_extract(one, _ENDPOINT, 4).try_cast("bigint").alias("port"),
        )

    old = sf.array(
        sf.struct(
            sf.lit("PLAINTEXT").alias("listener"),
            sf.lit("PLAINTEXT").alias("security_protocol"),
            sf.try_variant_get(value, "$.host", "string").alias("host"),
            sf.try_variant_get(value, "$.port", "bigint").alias("port"),
        )
    )
    has = json_type(member(value, "endpoints"))
    endpoints = sf.when(has.isNull(), old).otherwise(sf.transform(listed, endpoint))
    return record(
        about=About.BROKER,
        role=KIND,
        key=broker_id.cast("string"),
        text=sf.col("text"),
        broker=sf.struct(
            broker_id.alias("id"),
            sf.coalesce(czxid, sf.lit(-1)).alias("epoch"),
            rack.alias("rack"),
            endpoints.cast(_ENDPOINTS).alias("endpoints"),
        ),
        reasons=_reasons(
            _not_object(),
            wrong_id,
            wrong_czxid,
            wrong_rack,
            sf.when(has.isNotNull() & listed.isNull(), sf.lit("endpoints is no list of texts")),
            sf.when(
                has.isNotNull()
                & (sf.exists(listed, lambda one: sf.coalesce(~one.rlike(_ENDPOINT), sf.lit(True)))),
                sf.concat(
                    sf.coalesce(quoted(wrong_endpoint), sf.lit("null")),
                    sf.lit(" is no endpoint (LISTENER://HOST:PORT)"),
                ),
            ),
        ),
    )


# -- values


def _reasons(*reasons: Column) -> Column:
    return sf.when(sf.col("flaw").isNotNull(), sf.array("flaw")).otherwise(reasons_of(*reasons))


def _not_object() -> Column:
    right = sf.startswith(json_type(sf.col("json")), sf.lit("OBJECT<"))
    return sf.when(~sf.coalesce(right, sf.lit(False)), sf.lit("the data is not a JSON object"))


def _int(name: str, *, required: bool = True) -> tuple[Column, Column]:
    value = sf.col("json")
    found, kind = member(value, name), json_type(member(value, name))
    reason = sf.when(
        kind != "BIGINT",
        put(f"{name} is ", quoted(sf.to_json(found)), ", not a whole number that int32 holds"),
    )
    if required:
        reason = sf.when(value.isNotNull() & kind.isNull(), sf.lit(f"no field {name}")).otherwise(reason)
    return sf.when(kind == "BIGINT", sf.try_variant_get(value, f"$.{name}", "bigint")), reason


def _text(name: str, *, null: bool = False) -> tuple[Column, Column]:
    value = sf.col("json")
    found, kind = member(value, name), json_type(member(value, name))
    wrong = (kind != "STRING") & (kind != "VOID") if null else kind != "STRING"
    return (
        sf.when(kind == "STRING", sf.try_variant_get(value, f"$.{name}", "string")),
        sf.when(wrong, put(f"{name} is ", quoted(sf.to_json(found)), ", not a text")),
    )


def _broker_list(name: str, value: Column) -> tuple[Column, Column]:
    kind = json_type(value)
    right = kind.isin("ARRAY<BIGINT>", "ARRAY<VOID>")
    return (
        sf.when(right, sf.try_variant_get(value, "$", "array<bigint>")),
        sf.when(~right, put(f"{name} is ", quoted(sf.to_json(value)), ", not a list of broker ids")),
    )
