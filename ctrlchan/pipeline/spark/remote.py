"""What a session of Spark Connect does in another way than one with a JVM in this process.

It has no ``sparkContext``, no RDDs and no objects of the JVM, so no job uses them: jobs ask here.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it
from pyspark.storagelevel import StorageLevel

__all__ = ["frozen", "is_remote", "parallelism"]

#: Rows of a range that has a row in each of its partitions.
_MANY: Final = 1 << 16


def is_remote(spark: SparkSession) -> bool:
    """Return whether this is a session of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def parallelism(spark: SparkSession) -> int:
    """Return Spark's default number of tasks: that of its cores, or what the user has set."""
    if not is_remote(spark):
        return spark.sparkContext.defaultParallelism
    # A server tells nobody its cores, but it divides a range by them.
    numbers = spark.range(_MANY).select(F.spark_partition_id().alias("number"))
    last = numbers.agg(F.max("number")).first()
    return 1 + int(last[0]) if last is not None else 1


def frozen(table: DataFrame) -> DataFrame:
    """Return the same rows with a plan of one step and a fixed division into tasks.

    Spark divides files into tasks by the number of executors, again for each use of a DataFrame. While a
    cluster still grows, counting and numbering would see different pieces. Rows keep Spark's internal form:
    ``DataFrame.rdd`` would convert each of them twice. A server of Spark Connect keeps the rows on the disks
    of its executors instead, until the DataFrame is garbage: if it loses an executor, the job fails.
    """
    spark = table.sparkSession
    if is_remote(spark):
        return table.localCheckpoint(eager=False, storageLevel=StorageLevel.DISK_ONLY)
    # Of classes of PySpark that a client of Spark Connect does not have.
    classic: Any = table
    rows = classic._jdf.queryExecution().toRdd()
    session: Any = spark
    jvm_table = session._jsparkSession.internalCreateDataFrame(rows, classic._jdf.schema(), False)
    return DataFrame(jvm_table, spark)
