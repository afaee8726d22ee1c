"""ApiVersions (18): which requests this broker serves, and the finalized features of the cluster.

``KafkaApis.handleApiVersionsRequest`` and ``ApiVersionManager`` of Kafka 3.9; KIP-511, KIP-584. In ZooKeeper
mode a broker supports no feature itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ctrlchan.server.access import NOTHING
from ctrlchan.server.api import Api, Core, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["FinalizedFeatures", "is_software", "with_api_versions"]

_LOWEST, _HIGHEST = 0, 4
_SOFTWARE_NAME_SINCE = _FEATURES_SINCE = 3
# ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class FinalizedFeatures(NamedTuple):
    """The finalized features of a cluster: name -> level. ``epoch``: the version of their node."""

    levels: Mapping[str, int]
    epoch: int


def with_api_versions(
    apis: Iterable[Api[Core]], features_of: Callable[[Core], FinalizedFeatures | None] = lambda _core: None
) -> Mapping[int, Api[Core]]:
    """Return a table of `apis` by key, with ApiVersions, which announces exactly these.

    ``features_of``: returns the finalized features of the cluster, None while they are not known.
    """
    table = {api.key: api for api in apis}
    own = _api_versions(table.values(), features_of)
    return table | {own.key: own}


def is_software(text: str) -> bool:
    """Return whether this can be the name or the version of a client's software."""
    return _SOFTWARE.fullmatch(text) is not None


def _api_versions(
    others: Iterable[Api[Core]], features_of: Callable[[Core], FinalizedFeatures | None]
) -> Api[Core]:
    """Return the API that announces `others` and itself."""

    def handle(core: Core, request: Request) -> Reply:
        if not _LOWEST <= request.version <= _HIGHEST:
            # Every client can decode v0, and finds there the versions that are served.
            return _reply(ClientMessages("api_versions", 0), KioError.unsupported_version, [own])
        messages = ClientMessages("api_versions", request.version)
        body = messages.decode(request)
        if request.version >= _SOFTWARE_NAME_SINCE and not (
            is_software(body.client_software_name) and is_software(body.client_software_version)
        ):
            return _reply(messages, KioError.invalid_request, [])
        return _reply(messages, KioError.none, announced, features_of(core))

    own = Api(
        key=18,
        name="ApiVersions",
        lowest=_LOWEST,
        highest=_HIGHEST,
        flexible_from=3,
        handle=handle,
        flexible_response_header=False,
        answers_any_version=True,
        locks_core=False,
        needs=NOTHING,
    )
    announced = sorted([*others, own], key=lambda api: api.key)
    return own


def _reply(
    messages: ClientMessages,
    error: KioError,
    apis: Sequence[Api[Core]],
    features: FinalizedFeatures | None = None,
) -> Reply:
    entries = tuple(
        messages.part("ApiVersion", api_key=api.key, min_version=api.lowest, max_version=api.highest)
        for api in apis
    )
    # Versions before 3 have none of these fields.
    of_features: dict[str, Any] = {}
    if features is not None and messages.version >= _FEATURES_SINCE:
        of_features = {
            "finalized_features_epoch": features.epoch,
            "finalized_features": tuple(
                messages.part(
                    "FinalizedFeatureKey", name=name, max_version_level=level, min_version_level=level
                )
                for name, level in features.levels.items()
            ),
        }
    body = messages.response(error_code=error, api_keys=entries, **of_features)
    # They are tagged fields, behind the throttle time.
    tags_size = 1
    if of_features:
        tags_size += _size_without_apis(messages, of_features) - _size_without_apis(messages, {})
    return Reply(body, error_code=error.value, tags_size=tags_size)


def _size_without_apis(messages: ClientMessages, of_features: Mapping[str, Any]) -> int:
    return len(messages.response(error_code=KioError.none, api_keys=(), **of_features))
