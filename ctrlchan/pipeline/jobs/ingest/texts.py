"""Lines of text files with valid UTF-8, and the flaw of lines that cannot be parsed."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from ctrlchan.pipeline.spark.tables import literally
from ctrlchan.pipeline.spark.text_lines import files, lines, plain_path

__all__ = ["text_lines", "whole_texts"]


def text_lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return file, row (int64, from 1), text (UTF-8) and ``flaw``: why the line cannot be read, or null."""
    return lines(spark, paths).select(
        "file",
        sf.col("line").alias("row"),
        sf.rtrim(sf.make_valid_utf8("text"), sf.lit("\r")).alias("text"),
        _flaw().alias("flaw"),
    )


def whole_texts(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return file, text (UTF-8) and ``flaw``, one row for each file."""
    found = [literally(path) for path in files(spark, paths)]
    whole = spark.read.text(found, wholetext=True).select(
        plain_path(sf.col("_metadata.file_path")).alias("file"), sf.col("value").alias("text")
    )
    return whole.select("file", sf.make_valid_utf8("text").alias("text"), _flaw().alias("flaw"))


def _flaw() -> Column:
    text = sf.col("text")
    return sf.when(~sf.is_valid_utf8(text), sf.lit("not UTF-8")).when(
        sf.contains(text, sf.lit("\0")), sf.lit("a NUL byte in it")
    )
