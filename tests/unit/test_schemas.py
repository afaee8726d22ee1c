"""Columns that readers accept, and their errors for others."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ctrlchan.errors import PipelineError
from ctrlchan.state.storage.schemas import (
    BROKERS,
    CHANNELS,
    FRAMES,
    JOURNAL,
    JOURNAL_LATER,
    PARTITIONS,
    PARTITIONS_LATER,
    TIMESTAMPS,
    check,
    check_version,
)

ALL = {
    "partitions": PARTITIONS,
    "brokers": BROKERS,
    "frames": FRAMES,
    "journal": JOURNAL,
    "channels": CHANNELS,
}


def changed(schema: pa.Schema, name: str, kind: Any) -> pa.Schema:
    return schema.set(schema.get_field_index(name), pa.field(name, kind))


@pytest.mark.parametrize("schema", ALL.values(), ids=ALL)
def test_each_takes_itself_and_what_it_does_not_know(schema: pa.Schema) -> None:
    check(schema, schema, "f")
    check(schema.append(pa.field("owner", pa.string())), schema, "f")
    check(pa.schema([field.with_nullable(True) for field in reversed(list(schema))]), schema, "f")


@pytest.mark.parametrize("schema", ALL.values(), ids=ALL)
def test_each_column_that_is_missing_or_of_another_type_is_named(schema: pa.Schema) -> None:
    for name in schema.names:
        with pytest.raises(PipelineError, match=rf"^some file: no column {name} \(columns: "):
            check(schema.remove(schema.get_field_index(name)), schema, "some file")
        with pytest.raises(
            PipelineError, match=rf"^some file: column {name} has type duration\[s\], expected "
        ):
            check(changed(schema, name, pa.duration("s")), schema, "some file")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("topic", pa.large_string()),
        ("topic_id", pa.binary()),
        ("isr", pa.large_list(pa.int32())),
    ],
    ids=str,
)
def test_types_that_hold_the_same(name: str, kind: pa.DataType) -> None:
    check(changed(PARTITIONS, name, kind), PARTITIONS, "f")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("topic", pa.binary()),
        ("topic", pa.dictionary(pa.int32(), pa.int32())),
        ("topic_id", pa.binary(8)),
        ("topic_id", pa.string()),
        ("leader", pa.int64()),
        ("leader", pa.uint32()),
        ("isr", pa.list_(pa.int64())),
        ("isr", pa.int32()),
    ],
    ids=str,
)
def test_types_that_do_not(name: str, kind: pa.DataType) -> None:
    with pytest.raises(PipelineError, match=f"column {name} has type"):
        check(changed(PARTITIONS, name, kind), PARTITIONS, "f")


def test_structs_are_looked_into() -> None:
    endpoint = list(BROKERS.field("endpoints").type.value_type)
    more = pa.list_(pa.struct([*endpoint, pa.field("zone", pa.string())]))
    check(changed(BROKERS, "endpoints", more), BROKERS, "f")
    for wrong in (endpoint[:-1], [*endpoint[:-1], pa.field("port", pa.string())]):
        with pytest.raises(PipelineError, match="column endpoints has type list"):
            check(changed(BROKERS, "endpoints", pa.list_(pa.struct(wrong))), BROKERS, "f")
    with pytest.raises(PipelineError, match="column endpoints has type list"):
        check(changed(BROKERS, "endpoints", pa.list_(pa.string())), BROKERS, "f")


def test_an_optional_column_must_have_its_type() -> None:
    later = PARTITIONS_LATER
    check(PARTITIONS, later, "f", optional=later.names)
    check(pa.schema([*PARTITIONS, *later]), later, "f", optional=later.names)
    with pytest.raises(PipelineError, match="column row_version has type string, expected int64"):
        check(PARTITIONS.append(pa.field("row_version", pa.string())), later, "f", optional=later.names)


@pytest.mark.parametrize("found", [None, "1", 1.0, True, 0, -3])
def test_what_is_no_version(found: object) -> None:
    with pytest.raises(PipelineError, match=r"^here: .* is no version of a thing"):
        check_version(found, 3, "a thing", "here")


def test_newer_versions_are_refused_and_older_ones_taken() -> None:
    for found in (1, 2, 3):
        check_version(found, 3, "a thing", "here")
    with pytest.raises(
        PipelineError, match=r"^here: a thing version 4 is of a newer ctrlchan; this one reads up to 3$"
    ):
        check_version(4, 3, "a thing", "here")


def test_columns_that_are_missing_in_older_journals_may_be_null() -> None:
    assert set(JOURNAL.names) >= JOURNAL_LATER
    assert all(JOURNAL.field(name).nullable for name in JOURNAL_LATER)


def test_every_timestamp_has_both_clocks() -> None:
    for name in TIMESTAMPS:
        assert JOURNAL.field(f"{name}_ns").type == pa.int64()
        assert JOURNAL.field(f"{name}_at").type == pa.timestamp("us", tz="UTC")
