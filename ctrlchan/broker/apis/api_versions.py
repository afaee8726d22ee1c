"""ApiVersions (18): which requests this broker serves. ``KafkaApis.handleApiVersionsRequest``, KIP-511."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ctrlchan.broker.apis.client_messages import (
    NOT_THROTTLED,
    KioError,
    only_known_fields,
    read_body,
    write_body,
)
from ctrlchan.broker.network.request import Api, Reply, Request

if TYPE_CHECKING:
    from ctrlchan.broker.core import BrokerCore

__all__ = ["API"]

# ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def _handle(core: BrokerCore, request: Request) -> Reply:
    if not API.lowest <= request.version <= API.highest:
        # Any client can read v0, and it finds there which version to ask in.
        return _reply(0, KioError.unsupported_version, [API])
    message = read_body(_schema(request.version, "request").ApiVersionsRequest, request)
    if request.version >= 3 and not (
        _SOFTWARE.fullmatch(message.client_software_name)
        and _SOFTWARE.fullmatch(message.client_software_version)
    ):
        return _reply(request.version, KioError.invalid_request, [])
    return _reply(request.version, KioError.none, list(core.apis.values()))


API = Api(
    key=18,
    name="ApiVersions",
    lowest=0,
    highest=4,
    flexible_from=3,
    handle=_handle,
    flexible_response_header=False,
)


def _reply(version: int, error: KioError, apis: list[Api]) -> Reply:
    schema = _schema(version, "response")
    fields: dict[str, Any] = {
        "error_code": error,
        "api_keys": tuple(
            schema.ApiVersion(api_key=api.key, min_version=api.lowest, max_version=api.highest)
            for api in sorted(apis, key=lambda api: api.key)
        ),
        "throttle_time": NOT_THROTTLED,
    }
    body = schema.ApiVersionsResponse(**only_known_fields(schema.ApiVersionsResponse, fields))
    return Reply(write_body(body), error_code=error.value)


@cache
def _schema(version: int, direction: str) -> Any:
    return import_module(f"kio.schema.api_versions.v{version}.{direction}")
