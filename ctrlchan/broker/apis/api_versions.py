"""ApiVersions (18): which requests this broker serves. ``KafkaApis.handleApiVersionsRequest``, KIP-511."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ctrlchan.broker.apis.api import Api, Reply, Request
from ctrlchan.broker.apis.client_messages import (
    NOT_THROTTLED,
    KioError,
    build,
    read_body,
    response_schema,
    write_body,
)
from ctrlchan.broker.core import BrokerCore

__all__ = ["api_versions"]

_LOWEST, _HIGHEST = 0, 4
_SOFTWARE_NAME_SINCE = 3
# ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def api_versions(others: Iterable[Api]) -> Api:
    """Return the API that announces `others` and itself."""

    def handle(core: BrokerCore, request: Request) -> Reply:
        if not _LOWEST <= request.version <= _HIGHEST:
            # Every client can decode v0, and finds there the versions that are served.
            return _reply(0, KioError.unsupported_version, [own])
        message = read_body("api_versions", request)
        if request.version >= _SOFTWARE_NAME_SINCE and not (
            _SOFTWARE.fullmatch(message.client_software_name)
            and _SOFTWARE.fullmatch(message.client_software_version)
        ):
            return _reply(request.version, KioError.invalid_request, [])
        return _reply(request.version, KioError.none, announced)

    own = Api(
        key=18,
        name="ApiVersions",
        lowest=_LOWEST,
        highest=_HIGHEST,
        flexible_from=3,
        handle=handle,
        flexible_response_header=False,
        answers_any_version=True,
    )
    announced = sorted([*others, own], key=lambda api: api.key)
    return own


def _reply(version: int, error: KioError, apis: list[Api]) -> Reply:
    schema = response_schema("api_versions", version)
    body = build(
        schema.ApiVersionsResponse,
        error_code=error,
        api_keys=tuple(
            schema.ApiVersion(api_key=api.key, min_version=api.lowest, max_version=api.highest)
            for api in apis
        ),
        throttle_time=NOT_THROTTLED,
    )
    return Reply(write_body(body), error_code=error.value)
