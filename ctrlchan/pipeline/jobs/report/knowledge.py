"""What each broker has acknowledged of one state, by the process that it is now.

Processes: a broker's epoch grows with each start, and a channel counts the generations of its brokers. What
an earlier process acknowledged is forgotten: of a channel only the last generation counts, of all of them
only the highest broker epoch, none that the broker itself has refused (STALE_BROKER_EPOCH). A broker whose
epoch nobody knows can restart unseen between two channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.errors import ErrorCode

__all__ = ["NOTHING", "Keep", "Knowledge", "knowledge_of", "waiting_of"]

#: Makes a table that is small, and asked for several times, be computed once; its owner lets it go.
Keep: TypeAlias = Callable[[DataFrame], DataFrame]

#: A version before all others.
NOTHING: Final = -1
_REQUEST: Final = ("channel", "broker", "enqueue_ns")


@dataclass(frozen=True, slots=True)
class Knowledge:
    """``requests``: the UpdateMetadata of this state that have ended; ``acknowledged``: those of them that
    the present
    processes have acknowledged; ``ranges`` (broker, from_version, to_version]: what these told as ranges of
    versions;
    ``waiting``: those that have not ended.

    ``brokers``, one row each: broker; broker_epoch, generation of the present process; acknowledged_at,
    told_version:
    the last that it acknowledged; forgotten_version: the newest that an earlier process acknowledged;
    fenced_at: since then it obeys another controller; recorded_version: the newest of which the journal has
    an end, or
    that is seen waiting; unsaid_version: the newest that it acknowledged without the journal saying what it
    was;
    complete: its channels have closed; lossy: outcomes of them are lost; unfinished, unfinished_bytes,
    oldest_at,
    attempts, last_error, needs_resync, state: as its channels were last seen.
    """

    requests: DataFrame
    acknowledged: DataFrame
    ranges: DataFrame
    waiting: DataFrame
    brokers: DataFrame


def waiting_of(journal: DataFrame, views: DataFrame) -> DataFrame:
    """One row for each request that had not ended when its channel was last seen, and has not ended since."""
    requests = views.select(
        "channel",
        "broker",
        "broker_epoch",
        "generation",
        "state",
        "attempts",
        "last_error",
        "seen_at",
        F.posexplode("requests").alias("place", "request"),
    ).select("*", "request.*")
    # Attempts and words are those of the request at the head.
    head = F.col("place") == 0
    requests = (
        requests.drop("request")
        .withColumn("attempts", F.when(head, F.col("attempts")).otherwise(0))
        .withColumn("last_error", F.when(head, F.col("last_error")).otherwise(""))
    )
    keys = F.broadcast(requests.select(*_REQUEST))
    ended = journal.select(*_REQUEST).join(keys, list(_REQUEST), "left_semi")
    return requests.join(ended, list(_REQUEST), "left_anti")


def knowledge_of(
    journal: DataFrame,
    waiting: DataFrame,
    views: DataFrame,
    channels: DataFrame,
    state_id: str,
    live: DataFrame | None,
    keep: Keep,
) -> Knowledge:
    """``live``: the brokers of a snapshot, which alone are asked for; None: those of journal and views."""
    of_state = (F.col("api") == UPDATE_METADATA) & (F.col("state_id") == state_id)
    requests = journal.where(of_state).select(
        *_REQUEST,
        "broker_epoch",
        "generation",
        "from_version",
        "state_version",
        "partitions",
        "outcome",
        "error_code",
        "detail",
        "attempts",
        "enqueue_at",
        "end_at",
    )
    # A row for each broker, asked for again and again.
    generations, epochs = map(keep, _processes(journal, views, live))
    answered = _with_process(requests.where(F.col("outcome") == "acknowledged"), generations, epochs)
    acknowledged = answered.where("present").select(*requests.columns)
    ranges = keep(
        acknowledged.where(F.col("from_version").isNotNull())
        .groupBy("broker", "from_version")
        .agg(F.max("state_version").alias("to_version"))
    )
    waits = waiting.where(of_state)
    brokers = _brokers(requests, answered, waits, views, channels, generations, epochs, live)
    return Knowledge(requests, acknowledged, ranges, waits, keep(brokers))


def _processes(journal: DataFrame, views: DataFrame, live: DataFrame | None) -> tuple[DataFrame, DataFrame]:
    """((channel, broker) -> last_generation; broker -> epoch, epoch_at: when it was first seen, refused: the
    highest
    that the broker called stale)."""
    stale = F.col("error_code") == ErrorCode.STALE_BROKER_EPOCH.value
    seen = (
        journal.where(F.col("generation").isNotNull())
        .groupBy("channel", "broker", "broker_epoch", "generation")
        .agg(F.min("end_at").alias("first_at"), F.max(stale).alias("refused"))
        .unionByName(
            views.select(
                "channel",
                "broker",
                "broker_epoch",
                "generation",
                F.col("since_at").alias("first_at"),
                F.lit(False).alias("refused"),
            )
        )
    )
    generations = seen.groupBy("channel", "broker").agg(F.max("generation").alias("last_generation"))
    known = seen.select("broker", "broker_epoch", "first_at", "refused")
    if live is not None:
        epoch = F.when(F.col("epoch") >= 0, F.col("epoch"))
        nowhere = F.lit(None).cast("timestamp")
        told = live.select(F.col("id").alias("broker"), epoch.alias("broker_epoch"))
        known = known.unionByName(told.withColumn("first_at", nowhere).withColumn("refused", F.lit(False)))
    by_epoch = known.groupBy("broker", "broker_epoch").agg(
        F.min("first_at").alias("first_at"), F.bool_or("refused").alias("refused")
    )
    epochs = by_epoch.groupBy("broker").agg(
        F.max("broker_epoch").alias("epoch"),
        F.max_by("first_at", "broker_epoch").alias("epoch_at"),
        F.max(F.when(F.col("refused"), F.col("broker_epoch"))).alias("refused"),
    )
    return generations, epochs


def _with_process(requests: DataFrame, generations: DataFrame, epochs: DataFrame) -> DataFrame:
    """With ``present``: whether the present process of the broker has answered it."""
    epoch, last = F.col("broker_epoch"), F.col("epoch")
    unknown = epoch.isNull() & (
        last.isNull() | F.coalesce(F.col("end_at") >= F.col("epoch_at"), F.lit(False))
    )
    present = (
        (F.col("generation") == F.col("last_generation"))
        & (F.coalesce(epoch == last, F.lit(False)) | unknown)
        & (F.col("refused").isNull() | F.coalesce(epoch > F.col("refused"), F.lit(False)))
    )
    return (
        requests.join(F.broadcast(generations), ["channel", "broker"])
        .join(F.broadcast(epochs), "broker")
        .withColumn("present", present)
    )


def _brokers(
    requests: DataFrame,
    answered: DataFrame,
    waiting: DataFrame,
    views: DataFrame,
    channels: DataFrame,
    generations: DataFrame,
    epochs: DataFrame,
    live: DataFrame | None,
) -> DataFrame:
    ended = requests.groupBy("broker").agg(
        F.max("state_version").alias("ended_version"),
        F.max(F.when(F.col("error_code") == ErrorCode.STALE_CONTROLLER_EPOCH.value, F.col("end_at"))).alias(
            "last_fenced_at"
        ),
    )
    unsaid = F.col("from_version").isNull() & F.col("partitions").isNull()
    present, version = F.col("present"), F.col("state_version")
    told = answered.groupBy("broker").agg(
        F.max(F.when(present, F.col("end_at"))).alias("acknowledged_at"),
        F.max(F.when(present, version)).alias("told_version"),
        F.max(F.when(present & unsaid, version)).alias("unsaid_version"),
        F.max(F.when(~present, version)).alias("forgotten_version"),
    )
    waits = waiting.groupBy("broker").agg(F.max("state_version").alias("waiting_version"))
    members = generations.join(channels.select("channel", "closed", "lost"), "channel", "left")
    whole = members.groupBy("broker").agg(
        F.bool_and(F.coalesce("closed", F.lit(False))).alias("complete"),
        F.bool_or(F.coalesce("lost", F.lit(0)) > 0).alias("lossy"),
    )
    seen = views.groupBy("broker").agg(
        F.sum("unfinished").alias("unfinished"),
        F.sum("unfinished_bytes").alias("unfinished_bytes"),
        *(
            F.max_by(name, F.struct(~F.col("closed"), "since_at")).alias(name)
            for name in ("generation", "state", "attempts", "last_error", "needs_resync", "seen_at")
        ),
        F.max_by(F.array_min("requests.enqueue_at"), "since_at").alias("oldest_at"),
    )
    if live is not None:
        all_of = live.select(F.col("id").alias("broker"))
    else:
        all_of = epochs.select("broker").unionByName(requests.select("broker")).distinct()
    joined = all_of
    for part in (
        ended,
        told,
        waits,
        whole,
        seen,
        epochs.select("broker", F.col("epoch").alias("broker_epoch")),
    ):
        joined = joined.join(part, "broker", "left")
    fenced = F.col("last_fenced_at") > F.coalesce("acknowledged_at", F.lit(0).cast("timestamp"))
    return joined.select(
        "broker",
        "broker_epoch",
        "generation",
        "acknowledged_at",
        "told_version",
        "forgotten_version",
        F.when(fenced, F.col("last_fenced_at")).alias("fenced_at"),
        F.greatest("ended_version", "waiting_version").alias("recorded_version"),
        "unsaid_version",
        F.coalesce("complete", F.lit(False)).alias("complete"),
        F.coalesce("lossy", F.lit(False)).alias("lossy"),
        *(F.coalesce(name, F.lit(0)).alias(name) for name in ("unfinished", "unfinished_bytes")),
        "oldest_at",
        "state",
        "attempts",
        "last_error",
        F.coalesce("needs_resync", F.lit(False)).alias("needs_resync"),
        "seen_at",
    )
