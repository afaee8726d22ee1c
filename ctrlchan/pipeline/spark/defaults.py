"""Settings of Spark that sessions of ours have where the user has not set others."""

from __future__ import annotations

from typing import Final

from ctrlchan.pipeline.spark.input_size import SMALL_INPUTS

__all__ = ["DEFAULTS", "SMALL_QUERIES"]

#: Rows of one Arrow batch between the JVM and Python: a few MiB, and the cost of a batch does not show.
_BATCH_ROWS: Final = 65_536
DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(_BATCH_ROWS),
    "spark.sql.parquet.compression.codec": "zstd",
}
#: For small inputs. What Spark plans, checks and compiles for speed would cost more than the work: classes
#: for expressions, a job for each table that is broadcast, texts of plans for its web page.
SMALL_QUERIES: Final = {
    SMALL_INPUTS: "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.maxPlanStringLength": "1000",
    "spark.sql.optimizer.disableHints": "true",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.ui.explainMode": "simple",
}
