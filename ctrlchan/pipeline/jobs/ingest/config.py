"""Settings of ``ingest``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from ctrlchan.pipeline.settings import Setting, check_settings

if TYPE_CHECKING:
    from ctrlchan.state import Broker
else:
    # Importing it would load NumPy for a help text.
    Broker = Any

__all__ = ["IngestConfig"]


@dataclass(frozen=True, kw_only=True)
class IngestConfig:
    """Settings of ``ingest``. Raises ConfigError for a value that cannot work.

    Texts are files, folders or Hadoop's patterns; each file is plain or compressed, as its name shows.
    ``brokers``: the live brokers; None: those of the inputs, else those that lead or are in sync.
    ``whole_topics``: refuse all partitions of a topic that misses some. A broker that has only some
    partitions of a topic makes producers put records into wrong partitions.
    """

    describe: Annotated[
        Sequence[str], Setting("Text of kafka-topics --describe (may be repeated).", value="FILES")
    ] = ()
    zookeeper: Annotated[
        Sequence[str], Setting("Dumps of `ctrlchan snapshot dump` (may be repeated).", value="FILES")
    ] = ()
    rows: Annotated[
        Sequence[str], Setting("JSON lines with the snapshot's columns (may be repeated).", value="FILES")
    ] = ()
    reassignments: Annotated[
        Sequence[str],
        Setting(
            "JSON of kafka-reassign-partitions (may be repeated).", value="FILES", names=("--reassignment",)
        ),
    ] = ()
    snapshots: Annotated[
        Sequence[str], Setting("Snapshots (may be repeated).", value="FOLDER", names=("--snapshot",))
    ] = ()
    whole_topics: bool = True
    brokers: Sequence[Broker] | None = None
    cluster_id: Annotated[str | None, Setting("The cluster's id.", value="ID", default="the inputs' own")] = (
        None
    )
    controller_id: Annotated[
        int | None, Setting("The controller's id.", value="ID", default="the inputs' own")
    ] = None
    controller_epoch: Annotated[
        int | None,
        Setting("The controller's epoch.", value="EPOCH", minimum=0, default="the inputs' own"),
    ] = None

    def __post_init__(self) -> None:
        check_settings(self)
