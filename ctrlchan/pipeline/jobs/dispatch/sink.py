"""``df.write.format("ctrlchan")``: sends a DataFrame of frames to their brokers, as ``dispatch`` does.

====================  ===================================================================================
``save(path)``        the folder of the frames: it has the brokers and the name of the dataset
option ``journal``    folder of the outcomes, which is the checkpoint (needed)
other options         ``config`` (a server.properties), ``listener``, ``timeout``, ``lease``,
                      ``flush_interval``: as those of ``ctrlchan pipeline dispatch``
====================  ===================================================================================

All frames of a broker must be in one partition, in order (``ctrlchan.pipeline.by_broker``). A task that finds
a gap fails; nothing is sent out of order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.jobs.dispatch.config import DispatchConfig
from ctrlchan.pipeline.jobs.dispatch.job import sending_of
from ctrlchan.pipeline.jobs.dispatch.run import Run
from ctrlchan.pipeline.jobs.dispatch.sender import BrokerResult, send_frames
from ctrlchan.pipeline.spark.tables import parts_of, require_frames
from ctrlchan.state.storage.schemas import FRAMES, check
from ctrlchan.state.storage.snapshot import BROKERS_FILE
from ctrlchan.storage import path_of
from ctrlchan.storage.parquet import arrow_source

__all__ = ["FramesWriter"]

_NUMBERS: Final = ("timeout", "lease", "flush_interval")
#: How many brokers an error names.
_NAMED: Final = 10


@dataclass
class _Ended(WriterCommitMessage):
    results: list[BrokerResult]


class FramesWriter(DataSourceArrowWriter):
    """Made on the driver, ``write`` runs in tasks, ``commit`` and ``abort`` on the driver again."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise PipelineError('what was sent cannot be replaced: frames are written with mode("append")')
        path, journal = options.get("path"), options.get("journal")
        if not path:
            raise PipelineError("no path: save(PATH) names the folder that the frames are of")
        if not journal:
            raise PipelineError("option journal is needed: the folder of the outcomes and of the checkpoint")
        check(to_arrow_schema(schema, timezone="UTC"), FRAMES, "the frames", optional=("from_version",))
        folder, about = require_frames(path_of(path))
        parts = parts_of(folder / BROKERS_FILE)
        brokers = pa.concat_tables([pq.read_table(arrow_source(part)) for part in parts])
        config = DispatchConfig(
            journal=journal,
            properties=options.get("config"),
            listener=options.get("listener"),
            **_numbers(options),
        )
        self._sending = sending_of(about, brokers, config)
        Run(journal, self._sending.run).begin()

    # PySpark's own hints say rows for every writer; an Arrow writer is given batches.
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        """Send the frames of a task's brokers; return their results."""
        return _Ended(list(send_frames(iterator, self._sending)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Raise PipelineError, naming the brokers, if some have not acknowledged everything."""
        self._end()
        results = [one for message in messages if isinstance(message, _Ended) for one in message.results]
        refused = [one for one in results if one.outcome != "acknowledged"]
        if refused:
            named = "; ".join(
                f"broker {one.broker}: {one.outcome}: {one.error}" for one in sorted(refused)[:_NAMED]
            )
            more = f" and {len(refused) - _NAMED} more" if len(refused) > _NAMED else ""
            raise PipelineError(f"not everything was acknowledged: {named}{more}")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """End the run after a failed task (its message is None). Writing again continues from the journal."""
        self._end()

    def _end(self) -> None:
        Run(self._sending.journal, self._sending.run).end()


def _numbers(options: Mapping[str, str]) -> dict[str, Any]:
    try:
        return {name: float(options[name]) for name in _NUMBERS if name in options}
    except ValueError as problem:
        raise PipelineError(f"an option is no number: {problem}") from None
