"""IBP names and ApiVersions ranges -> request versions; the tables are written out, not computed."""

from __future__ import annotations

import pytest

from ctrlchan import _codec, protocol
from ctrlchan._codec import HIGHEST_VERSION, LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from ctrlchan.errors import ConfigError, UnsupportedVersionError
from ctrlchan.protocol import IBP_NAMES, RequestVersions, request_versions

# IBP: LeaderAndIsr, UpdateMetadata, StopReplica.
EXPECTED = {
    "0.8.0": (0, 0, 0),
    "0.8.1": (0, 0, 0),
    "0.8.2": (0, 0, 0),
    "0.9.0": (0, 1, 0),
    "0.10.0-IV0": (0, 1, 0),
    "0.10.0-IV1": (0, 2, 0),
    "0.10.1-IV0": (0, 2, 0),
    "0.10.1-IV1": (0, 2, 0),
    "0.10.1-IV2": (0, 2, 0),
    "0.10.2-IV0": (0, 3, 0),
    "0.11.0-IV0": (0, 3, 0),
    "0.11.0-IV1": (0, 3, 0),
    "0.11.0-IV2": (0, 3, 0),
    "1.0-IV0": (1, 4, 0),
    "1.1-IV0": (1, 4, 0),
    "2.0-IV0": (1, 4, 0),
    "2.0-IV1": (1, 4, 0),
    "2.1-IV0": (1, 4, 0),
    "2.1-IV1": (1, 4, 0),
    "2.1-IV2": (1, 4, 0),
    "2.2-IV0": (2, 5, 1),
    "2.2-IV1": (2, 5, 1),
    "2.3-IV0": (2, 5, 1),
    "2.3-IV1": (2, 5, 1),
    "2.4-IV0": (3, 5, 1),
    "2.4-IV1": (4, 6, 2),
    "2.5-IV0": (4, 6, 2),
    "2.6-IV0": (4, 6, 3),
    "2.7-IV0": (4, 6, 3),
    "2.7-IV1": (4, 6, 3),
    "2.7-IV2": (4, 6, 3),
    "2.8-IV0": (4, 6, 3),
    "2.8-IV1": (5, 7, 3),
    "3.0-IV0": (5, 7, 3),
    "3.0-IV1": (5, 7, 3),
    "3.1-IV0": (5, 7, 3),
    "3.2-IV0": (6, 7, 3),
    "3.3-IV0": (6, 7, 3),
    "3.3-IV1": (6, 7, 3),
    "3.3-IV2": (6, 7, 3),
    "3.3-IV3": (6, 7, 3),
    "3.4-IV0": (7, 8, 4),
    "3.5-IV0": (7, 8, 4),
    "3.5-IV1": (7, 8, 4),
    "3.5-IV2": (7, 8, 4),
    "3.6-IV0": (7, 8, 4),
    "3.6-IV1": (7, 8, 4),
    "3.6-IV2": (7, 8, 4),
    "3.7-IV0": (7, 8, 4),
    "3.7-IV1": (7, 8, 4),
    "3.7-IV2": (7, 8, 4),
    "3.7-IV3": (7, 8, 4),
    "3.7-IV4": (7, 8, 4),
    "3.8-IV0": (7, 8, 4),
    "3.9-IV0": (7, 8, 4),
}


def as_tuple(versions: RequestVersions) -> tuple[int, int, int]:
    return versions.leader_and_isr, versions.update_metadata, versions.stop_replica


def test_every_name_is_known_in_order() -> None:
    assert list(IBP_NAMES) == list(EXPECTED)


@pytest.mark.parametrize("ibp", EXPECTED)
def test_versions_of_every_name(ibp: str) -> None:
    assert as_tuple(request_versions(ibp)) == EXPECTED[ibp]


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("0.9.0", "0.9.0"),
        ("0.9.0.1", "0.9.0"),
        ("0.10.0", "0.10.0-IV1"),
        ("0.10.2", "0.10.2-IV0"),
        ("0.10.2.1", "0.10.2-IV0"),
        ("1.0", "1.0-IV0"),
        ("1.0.1", "1.0-IV0"),
        ("2.4", "2.4-IV1"),
        ("2.4.1", "2.4-IV1"),
        ("2.8", "2.8-IV1"),
        ("2.8.2", "2.8-IV1"),
        ("3.3", "3.3-IV3"),
        ("3.9", "3.9-IV0"),
        ("3.9.1", "3.9-IV0"),
    ],
)
def test_short_and_long_forms(short: str, full: str) -> None:
    assert as_tuple(request_versions(short)) == EXPECTED[full]


@pytest.mark.parametrize(
    "ibp", ["", "3", "2.8-IV9", "0.10", "0.10.2-IV7", "4.0", "4.0-IV0", "3.9-iv0", " 3.9"]
)
def test_unknown_names_are_refused(ibp: str) -> None:
    with pytest.raises(ConfigError, match="inter_broker_protocol"):
        request_versions(ibp)


def test_the_error_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"2\.8-IV1"):
        request_versions("2.8-IV9")
    with pytest.raises(ConfigError, match=r"0\.8\.0 to 3\.9-IV0"):
        request_versions("kraft")


def test_newest_is_what_the_codec_has() -> None:
    newest = request_versions("3.9")
    for api_key in (LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA):
        assert newest.for_api(api_key) == HIGHEST_VERSION[api_key]


def test_for_api() -> None:
    versions = RequestVersions(leader_and_isr=5, update_metadata=7, stop_replica=3)
    assert versions.for_api(LEADER_AND_ISR) == 5
    assert versions.for_api(UPDATE_METADATA) == 7
    assert versions.for_api(STOP_REPLICA) == 3
    with pytest.raises(KeyError):
        versions.for_api(18)


def test_highest_common_version_capped_by_ibp() -> None:
    cap = request_versions("2.8")
    assert cap.within({4: (0, 7), 5: (0, 4), 6: (0, 8)}) == cap
    assert as_tuple(cap.within({4: (0, 2), 5: (0, 1), 6: (0, 5), 18: (0, 3)})) == (2, 5, 1)
    assert as_tuple(cap.within({4: (5, 9), 5: (3, 3), 6: (7, 8)})) == (5, 7, 3)


@pytest.mark.parametrize(
    ("ranges", "api"),
    [
        ({5: (0, 4), 6: (0, 8)}, "LeaderAndIsr"),
        ({4: (6, 7), 5: (0, 4), 6: (0, 8)}, "LeaderAndIsr"),
        ({4: (0, 7), 5: (4, 4), 6: (0, 8)}, "StopReplica"),
        ({4: (0, 7), 5: (0, 4), 6: (8, 8)}, "UpdateMetadata"),
    ],
)
def test_no_common_version(ranges: dict[int, tuple[int, int]], api: str) -> None:
    with pytest.raises(UnsupportedVersionError) as caught:
        request_versions("2.8").within(ranges)
    assert caught.value.api == api


def test_the_codec_has_the_same_api_keys() -> None:
    keys = (protocol.LEADER_AND_ISR, protocol.STOP_REPLICA, protocol.UPDATE_METADATA)
    assert keys == (_codec.LEADER_AND_ISR, _codec.STOP_REPLICA, _codec.UPDATE_METADATA)
    assert set(protocol.API_NAMES) == set(_codec.HIGHEST_VERSION)
