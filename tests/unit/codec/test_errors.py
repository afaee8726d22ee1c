"""Tests of the protocol's errors: their message, their fields, and pickling."""

from __future__ import annotations

import pickle

import pytest

from ctrlchan import errors
from ctrlchan._codec import UPDATE_METADATA, decode_request


def test_the_tree() -> None:
    for kind in (errors.DecodeError, errors.EncodeError, errors.UnsupportedVersionError):
        assert issubclass(kind, errors.ProtocolError)
    assert issubclass(errors.ProtocolError, errors.CtrlchanError)
    assert issubclass(errors.ProtocolError, ValueError)
    assert {errors.DecodeError.__module__, errors.CtrlchanError.__module__} == {"ctrlchan.errors"}


def test_the_message_has_api_version_field_and_offset() -> None:
    with pytest.raises(errors.DecodeError) as caught:
        decode_request(UPDATE_METADATA, 8, b"\0\0\0\1\1\0\0")
    error = caught.value
    assert (error.api, error.version, error.field, error.offset) == (
        "UpdateMetadataRequest", 8, "controllerEpoch", 5,
    )  # fmt: skip
    assert (
        str(error)
        == "UpdateMetadataRequest v8, field controllerEpoch, byte 5: the data ends within this field"
    )


def test_it_can_be_pickled() -> None:
    for kind in (
        errors.ProtocolError,
        errors.DecodeError,
        errors.EncodeError,
        errors.UnsupportedVersionError,
    ):
        for error in (kind("why", api="A", version=3, field="f", offset=9), kind("why")):
            again = pickle.loads(pickle.dumps(error))
            assert type(again) is kind
            assert (str(again), vars(again)) == (str(error), vars(error))
