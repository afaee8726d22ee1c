"""Tests with annotated bytes: written, read whole, cut at every byte, and with bytes after the end."""

from __future__ import annotations

import pytest

from ctrlchan.errors import DecodeError
from ctrlchan.messages.json_form import decode_to_json, encode_from_json
from ctrlchan.messages.schema import MESSAGES
from tests.conformance import reference
from tests.conformance.golden import GOLDEN, Golden
from tests.conformance.oracle import Oracle

each_golden = pytest.mark.parametrize("golden", GOLDEN, ids=str)


def test_every_lowest_highest_and_first_flexible_version_has_a_file() -> None:
    wanted = {
        (name, version)
        for name, table in MESSAGES.items()
        for version in (table.versions[0], table.flexible.lowest, table.versions[-1])
    }
    assert wanted <= {(golden.name, golden.version) for golden in GOLDEN}


@each_golden
def test_they_are_kafkas_bytes(golden: Golden, oracle: Oracle) -> None:
    assert oracle.write(golden.name, golden.version, golden.json) == golden.data
    assert oracle.read(golden.name, golden.version, golden.data) == (golden.json, 0)


@each_golden
def test_write(golden: Golden) -> None:
    assert encode_from_json(golden.name, golden.version, golden.json).hex(" ") == golden.data.hex(" ")
    assert reference.encode(golden.name, golden.version, golden.json) == golden.data


@each_golden
def test_read(golden: Golden) -> None:
    assert decode_to_json(golden.name, golden.version, golden.data) == (golden.json, 0)
    assert reference.decode(golden.name, golden.version, golden.data).value == golden.json


@each_golden
def test_every_cut_is_reported_with_field_and_offset(golden: Golden) -> None:
    for length in range(len(golden.data)):
        with pytest.raises(DecodeError) as caught:
            decode_to_json(golden.name, golden.version, golden.data[:length])
        error = caught.value
        assert (error.api, error.version) == (golden.name, golden.version)
        # The wrong field is the one that is cut, or an array or a string whose count is larger than the
        # rest of the data.
        assert error.offset is not None
        assert error.offset <= length
        assert golden.fields.get(error.offset) == error.field, f"cut after {length} bytes: {error}"


@each_golden
@pytest.mark.parametrize("more", [b"\0", b"\xff", b"\0" * 64], ids=repr)
def test_bytes_after_the_end_are_refused(golden: Golden, more: bytes) -> None:
    with pytest.raises(DecodeError, match="unread bytes") as caught:
        decode_to_json(golden.name, golden.version, golden.data + more)
    error = caught.value
    assert (error.api, error.version, error.offset) == (golden.name, golden.version, len(golden.data))
