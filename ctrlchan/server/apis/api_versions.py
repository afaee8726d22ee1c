"""ApiVersions (18): which requests this broker serves. ``KafkaApis.handleApiVersionsRequest``, KIP-511."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ctrlchan.server.access import NOTHING
from ctrlchan.server.api import Api, Core, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["is_software", "with_api_versions"]

_LOWEST, _HIGHEST = 0, 4
_SOFTWARE_NAME_SINCE = 3
# ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def with_api_versions(apis: Iterable[Api[Core]]) -> Mapping[int, Api[Core]]:
    """Return a table of `apis` by key, with ApiVersions, which announces exactly these."""
    table = {api.key: api for api in apis}
    own = _api_versions(table.values())
    return table | {own.key: own}


def is_software(text: str) -> bool:
    """Return whether this can be the name or the version of a client's software."""
    return _SOFTWARE.fullmatch(text) is not None


def _api_versions(others: Iterable[Api[Core]]) -> Api[Core]:
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
        return _reply(messages, KioError.none, announced)

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


def _reply(messages: ClientMessages, error: KioError, apis: Sequence[Api[Core]]) -> Reply:
    entries = tuple(
        messages.part("ApiVersion", api_key=api.key, min_version=api.lowest, max_version=api.highest)
        for api in apis
    )
    return Reply(messages.response(error_code=error, api_keys=entries), error_code=error.value)
