"""Computes what the current process of each broker has acknowledged of one state.

What an earlier process of a broker acknowledged does not count. A channel counts the generations of its
brokers, of which only the last counts, and a broker's epoch grows with each start: of all channels only the
highest broker epoch counts, and none that the broker itself has refused (STALE_BROKER_EPOCH). A broker of
unknown epoch may restart between two channels unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.errors import ErrorCode

__all__ = ["NOTHING", "Acknowledged", "JournalTables", "Keep", "acknowledged_of", "waiting_of"]

#: Caches a small table that is used several times; the report releases it.
Keep: TypeAlias = Callable[[DataFrame], DataFrame]

#: A version before all others.
NOTHING: Final = -1
_REQUEST: Final = ("channel", "broker", "enqueue_ns")


@dataclass(frozen=True, slots=True)
class JournalTables:
    """The tables of a journal.

    ``outcomes``: its rows. ``connections``: one row for each channel and broker, from the channel files.
    ``waiting``: see ``waiting_of``; ``channels``: see ``figures.channels_of``.
    """

    outcomes: DataFrame
    connections: DataFrame
    waiting: DataFrame
    channels: DataFrame


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The UpdateMetadata requests of one state, and what each broker has acknowledged.

    ``requests``: all that have ended; ``acknowledged``: those that current processes have acknowledged;
    ``ranges``: (broker, from_version, to_version] of acknowledged ranges; ``waiting``: not ended yet.

    ``brokers``, one row each:

    broker_epoch, generation   of the current process
    acknowledged_at            time and version of the last acknowledgement of the current process
    acknowledged_version
    earlier_version            newest version that an earlier process acknowledged
    fenced_at                  the broker has obeyed another controller since then
    recorded_version           newest version of a request that has ended or waits
    unlisted_version           newest acknowledged version of a request without a list of its contents
    complete, lossy            all channels have closed; some outcomes are lost
    unfinished, oldest_at, ... state of the connection as last written by the channel
    """

    requests: DataFrame
    acknowledged: DataFrame
    ranges: DataFrame
    waiting: DataFrame
    brokers: DataFrame


def waiting_of(outcomes: DataFrame, connections: DataFrame) -> DataFrame:
    """Return the requests of the channel files that have not ended according to the journal."""
    columns = (
        "channel",
        "broker",
        "broker_epoch",
        "generation",
        "state",
        "attempts",
        "last_error",
        "seen_at",
    )
    listed = F.posexplode("requests").alias("place", "request")
    requests = connections.select(*columns, listed).select("*", "request.*").drop("request")
    # Attempts and last error are those of the first request of the queue.
    first = F.col("place") == 0
    requests = requests.withColumns(
        {
            "attempts": F.when(first, F.col("attempts")).otherwise(0),
            "last_error": F.when(first, F.col("last_error")).otherwise(""),
        }
    )
    keys = F.broadcast(requests.select(*_REQUEST))
    ended = outcomes.select(*_REQUEST).join(keys, list(_REQUEST), "left_semi")
    return requests.join(ended, list(_REQUEST), "left_anti")


def acknowledged_of(tables: JournalTables, state_id: str, live: DataFrame | None, keep: Keep) -> Acknowledged:
    """Return what brokers have acknowledged of the state ``state_id``.

    ``live``: the brokers of a snapshot, which alone get a row; None: all brokers of the journal.
    """
    of_state = (F.col("api") == UPDATE_METADATA) & (F.col("state_id") == state_id)
    requests = tables.outcomes.where(of_state).select(
        *_REQUEST,
        *("broker_epoch", "generation", "from_version", "state_version", "partitions"),
        *("outcome", "error_code", "detail", "attempts", "enqueue_at", "end_at"),
    )
    generations, epochs = map(keep, _processes(tables, live, keep))
    answered = _with_current(requests.where(F.col("outcome") == "acknowledged"), generations, epochs)
    acknowledged = answered.where("current").select(*requests.columns)
    ranges = keep(
        acknowledged.where(F.col("from_version").isNotNull())
        .groupBy("broker", "from_version")
        .agg(F.max("state_version").alias("to_version"))
    )
    waiting = tables.waiting.where(of_state)
    if live is not None:
        brokers = live.select(F.col("id").alias("broker"))
    else:
        brokers = epochs.select("broker").unionByName(requests.select("broker")).distinct()
    for facts in (
        _ended(requests),
        _versions(answered),
        waiting.groupBy("broker").agg(F.max("state_version").alias("waiting_version")),
        _completeness(generations, tables.channels),
        _connections(tables.connections),
        epochs.select("broker", F.col("epoch").alias("broker_epoch")),
    ):
        brokers = brokers.join(facts, "broker", "left")
    return Acknowledged(requests, acknowledged, ranges, waiting, keep(_selected(brokers)))


def _processes(tables: JournalTables, live: DataFrame | None, keep: Keep) -> tuple[DataFrame, DataFrame]:
    """Return the last generation by channel and broker, and the newest epoch by broker.

    ``epoch_at``: when the epoch was first seen; ``refused``: the highest epoch that the broker called stale.
    """
    stale = F.col("error_code") == ErrorCode.STALE_BROKER_EPOCH.value
    keys = ("channel", "broker", "broker_epoch", "generation")
    unrefused = F.lit(False).alias("refused")
    seen = keep(
        tables.outcomes.where(F.col("generation").isNotNull())
        .groupBy(*keys)
        .agg(F.min("end_at").alias("first_at"), F.max(stale).alias("refused"))
        .unionByName(tables.connections.select(*keys, F.col("since_at").alias("first_at"), unrefused))
    )
    generations = seen.groupBy("channel", "broker").agg(F.max("generation").alias("last_generation"))
    known = seen.select("broker", "broker_epoch", "first_at", "refused")
    if live is not None:
        epoch = F.when(F.col("epoch") >= 0, F.col("epoch")).alias("broker_epoch")
        first_at = F.lit(None).cast("timestamp").alias("first_at")
        known = known.unionByName(live.select(F.col("id").alias("broker"), epoch, first_at, unrefused))
    by_epoch = known.groupBy("broker", "broker_epoch").agg(
        F.min("first_at").alias("first_at"), F.bool_or("refused").alias("refused")
    )
    epochs = by_epoch.groupBy("broker").agg(
        F.max("broker_epoch").alias("epoch"),
        F.max_by("first_at", "broker_epoch").alias("epoch_at"),
        F.max(F.when(F.col("refused"), F.col("broker_epoch"))).alias("refused"),
    )
    return generations, epochs


def _with_current(requests: DataFrame, generations: DataFrame, epochs: DataFrame) -> DataFrame:
    """Add the column ``current``: whether the current process of the broker answered the request."""
    epoch, last = F.col("broker_epoch"), F.col("epoch")
    unknown = epoch.isNull() & (
        last.isNull() | F.coalesce(F.col("end_at") >= F.col("epoch_at"), F.lit(False))
    )
    current = (
        (F.col("generation") == F.col("last_generation"))
        & (F.coalesce(epoch == last, F.lit(False)) | unknown)
        & (F.col("refused").isNull() | F.coalesce(epoch > F.col("refused"), F.lit(False)))
    )
    return (
        requests.join(F.broadcast(generations), ["channel", "broker"])
        .join(F.broadcast(epochs), "broker")
        .withColumn("current", current)
    )


# -- facts about brokers, one row each


def _ended(requests: DataFrame) -> DataFrame:
    fenced = F.col("error_code") == ErrorCode.STALE_CONTROLLER_EPOCH.value
    return requests.groupBy("broker").agg(
        F.max("state_version").alias("ended_version"),
        F.max(F.when(fenced, F.col("end_at"))).alias("last_fenced_at"),
    )


def _versions(answered: DataFrame) -> DataFrame:
    unlisted = F.col("from_version").isNull() & F.col("partitions").isNull()
    current, version = F.col("current"), F.col("state_version")
    return answered.groupBy("broker").agg(
        F.max(F.when(current, F.col("end_at"))).alias("acknowledged_at"),
        F.max(F.when(current, version)).alias("acknowledged_version"),
        F.max(F.when(current & unlisted, version)).alias("unlisted_version"),
        F.max(F.when(~current, version)).alias("earlier_version"),
    )


def _completeness(generations: DataFrame, channels: DataFrame) -> DataFrame:
    of_broker = generations.join(channels.select("channel", "closed", "lost"), "channel", "left")
    return of_broker.groupBy("broker").agg(
        F.bool_and(F.coalesce("closed", F.lit(False))).alias("complete"),
        F.bool_or(F.coalesce("lost", F.lit(0)) > 0).alias("lossy"),
    )


def _connections(connections: DataFrame) -> DataFrame:
    newest_open = F.struct(~F.col("closed"), "since_at")
    columns = ("generation", "state", "attempts", "last_error", "needs_resync", "seen_at")
    return connections.groupBy("broker").agg(
        F.sum("unfinished").alias("unfinished"),
        F.sum("unfinished_bytes").alias("unfinished_bytes"),
        *(F.max_by(name, newest_open).alias(name) for name in columns),
        F.max_by(F.array_min("requests.enqueue_at"), "since_at").alias("oldest_at"),
    )


def _selected(brokers: DataFrame) -> DataFrame:
    """Return the columns of ``Acknowledged.brokers``."""

    def or_else(default: object, *names: str) -> list[Column]:
        return [F.coalesce(name, F.lit(default)).alias(name) for name in names]

    fenced = F.col("last_fenced_at") > F.coalesce("acknowledged_at", F.lit(0).cast("timestamp"))
    return brokers.select(
        *("broker", "broker_epoch", "generation"),
        *("acknowledged_at", "acknowledged_version", "earlier_version"),
        F.when(fenced, F.col("last_fenced_at")).alias("fenced_at"),
        F.greatest("ended_version", "waiting_version").alias("recorded_version"),
        "unlisted_version",
        *or_else(False, "complete", "lossy"),
        *or_else(0, "unfinished", "unfinished_bytes"),
        *("oldest_at", "state", "attempts", "last_error"),
        *or_else(False, "needs_resync"),
        "seen_at",
    )
