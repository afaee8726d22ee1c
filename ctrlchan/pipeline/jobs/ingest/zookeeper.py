"""A dump of ZooKeeper -> entries.

A line is a znode: ``PATH<TAB>DATA``, or ``PATH<TAB>DATA<TAB>VERSION<TAB>CZXID``. PATH is below the chroot,
DATA the znode's text as it is (JSON has no raw tab or line break in it; nothing, or ``null``, for a znode
without data), VERSION its stat's version (``dataVersion``) and CZXID its czxid in decimal. ``ctrlchan
snapshot dump`` writes it. Without VERSION a partition's epoch is 0, without CZXID a broker's epoch is not
known (-1).

Znodes that ``ctrlchan.state.importing.zookeeper`` does not read are ignored; ``ctrlchan.zookeeper.nodes``
parses the others. The line of a topic is an entry for the topic and one for each of its partitions; the line
of a partition's state is another entry for the partition. Both make the partition: if one of them is refused,
so is the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from pyspark.sql import DataFrame, SparkSession

from ctrlchan.errors import MalformedError
from ctrlchan.pipeline.jobs.ingest.entries import About
from ctrlchan.pipeline.jobs.ingest.parsed import Parsed, parsed_entries
from ctrlchan.pipeline.jobs.ingest.texts import text_lines
from ctrlchan.protocol import NO_BROKER_EPOCH
from ctrlchan.text import parse_number, quoted
from ctrlchan.zookeeper import nodes
from ctrlchan.zookeeper.paths import Kind, Place, place_of

__all__ = ["KIND", "zookeeper_entries"]

KIND: Final = "zookeeper"
_OTHER: Final = f"{KIND} other"
_FIELDS: Final = range(2, 5)
_T = TypeVar("_T")


def zookeeper_entries(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the entries of these dumps."""
    return parsed_entries(text_lines(spark, paths), KIND, _entries)


def _entries(text: str) -> Iterator[Parsed]:
    fields = text.split("\t")
    path = fields[0]
    if not path.startswith("/"):
        reasons = [f"not a znode (PATH, tab, DATA): {quoted(text)}"] if text.strip(" ") else []
        yield Parsed(About.NOTHING, _OTHER, text, reasons=reasons)
    elif len(fields) not in _FIELDS:
        reasons = [f"{len(fields)} fields between tabs, not 2 to 4"]
        yield Parsed(About.NOTHING, _OTHER, text, reasons=reasons)
    else:
        place = place_of(path)
        if place.kind is Kind.TOPIC:
            yield from _topic(text, place.topic, path, fields[1])
        else:
            yield _single(text, place, *fields)


def _single(text: str, place: Place, path: str, data: str, version: str = "", czxid: str = "") -> Parsed:
    match place.kind:
        case Kind.PARTITION_STATE:
            return _state(text, place, data, version)
        case Kind.BROKER:
            return _broker(text, place, data, czxid)
        case Kind.CLUSTER_ID:
            return _cluster(text, path, "cluster_id", nodes.parse_cluster_id, data)
        case Kind.CONTROLLER:
            return _cluster(text, path, "controller_id", nodes.parse_controller, data)
        case Kind.CONTROLLER_EPOCH:
            return _cluster(text, path, "controller_epoch", nodes.parse_controller_epoch, data)
        case Kind.DELETED_TOPIC:
            return Parsed(About.TOPIC, f"{KIND} deletion", text, topic=place.topic, deleting=True)
    return Parsed(About.NOTHING, _OTHER, text)


def _cluster(text: str, path: str, name: str, parse: Callable[[str], int | str], data: str) -> Parsed:
    """Return a fact of the cluster."""
    reasons: list[str] = []
    value = _value(reasons, parse, data)
    return Parsed(About.CLUSTER, KIND, text, key=path, cluster={name: value}, reasons=reasons)


def _topic(text: str, topic: str, path: str, data: str) -> Iterator[Parsed]:
    """Yield the topic, and its assignments."""
    role = f"{KIND} topic"
    try:
        parsed = nodes.parse_topic(data)
    except MalformedError as error:
        yield Parsed(About.TOPIC, role, text, topic=topic, reasons=error.reasons)
        return
    yield Parsed(About.TOPIC, role, text, topic=topic, topic_id=parsed.topic_id)
    for one in parsed.assignments:
        lists = (None,) * 3 if one.reasons else (one.replicas, one.adding, one.removing)
        yield Parsed(
            About.PARTITION,
            f"{KIND} assignment",
            f"{path}\t{nodes.json_text(one.key)}:{nodes.json_text(one.value)}",
            topic=topic,
            partition=None if one.partition < 0 else one.partition,
            topic_id=parsed.topic_id,
            replicas=lists[0],
            adding_replicas=lists[1],
            removing_replicas=lists[2],
            reasons=one.reasons,
        )


def _state(text: str, place: Place, data: str, version: str) -> Parsed:
    """Return leader, ISR and epochs of a partition."""
    reasons: list[str] = []
    state = _value(reasons, nodes.parse_partition_state, data)
    partition = _value(reasons, parse_number, "partition", place.number)
    epoch = _value(reasons, parse_number, "version", version) if version else None
    entry = Parsed(
        About.PARTITION,
        f"{KIND} state",
        text,
        topic=place.topic,
        partition=partition,
        partition_epoch=epoch,
        reasons=reasons,
    )
    if state is None:
        return entry
    return entry._replace(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        controller_epoch=state.controller_epoch,
        # Kafka writes it only if it is not 0; another input may have it.
        recovery_state=state.recovery_state or None,
        isr=state.isr,
    )


def _broker(text: str, place: Place, data: str, czxid: str) -> Parsed:
    """Return a live broker."""
    reasons: list[str] = []
    broker_id = _value(reasons, parse_number, "broker id", place.number)
    epoch = _value(reasons, parse_number, "czxid", czxid) if czxid else NO_BROKER_EPOCH
    registration = _value(reasons, nodes.parse_registration, data)
    broker = None
    if not reasons and registration is not None:
        endpoints = [
            {
                "listener": one.name,
                "security_protocol": one.security_protocol,
                "host": one.host,
                "port": one.port,
            }
            for one in registration.listeners
        ]
        broker = {"id": broker_id, "epoch": epoch, "rack": registration.rack, "endpoints": endpoints}
    key = None if broker_id is None else str(broker_id)
    return Parsed(About.BROKER, KIND, text, key=key, broker=broker, reasons=reasons)


def _value(reasons: list[str], parse: Callable[..., _T], *given: Any) -> _T | None:
    """Return the parsed value, or None and add the reasons against it."""
    try:
        return parse(*given)
    except MalformedError as error:
        reasons += error.reasons
        return None
