"""Decides whether a request of a browser or a program may be answered.

A web site that a user visits can send requests to this machine. It must neither change nor read anything:

- It can let its own name lead to 127.0.0.1 (DNS rebinding): names in ``Host`` other than this server's are
  refused.
- It can send forms and simple requests: a request that a browser marks as another site's is refused
  (``Sec-Fetch-Site``, ``Origin``), and a change must be JSON, which such requests cannot be.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from ctrlchan.page.problems import PageError

__all__ = ["MAX_BODY", "check_change", "check_host", "check_site"]

#: Bytes of a request's body: a message of Kafka's largest default size, written in hex.
MAX_BODY: Final = 2**22
#: ``Sec-Fetch-Site`` of this page's own requests, and of those that the user makes without a page.
_OWN_SITES: Final = ("same-origin", "none")


def check_host(environment: Mapping[str, Any], own: str) -> None:
    """Raise PageError unless ``Host`` is an IP address, localhost, or ``own``.

    No other site can have such a name, so a browser shows the answer to this page alone.
    """
    host = environment.get("HTTP_HOST", "")
    try:
        parts = urlsplit(f"//{host}")
        name, _ = parts.hostname, parts.port
        is_plain = parts.netloc == host and not parts.username and "@" not in host
    except ValueError:
        name, is_plain = None, False
    if not (is_plain and name and (name in ("localhost", own.lower()) or _is_address(name))):
        raise PageError(
            HTTPStatus.FORBIDDEN, "this name is not the page's: open it by its IP address or as localhost"
        )


def check_site(environment: Mapping[str, Any]) -> None:
    """Raise PageError for a request that a browser sends for the page of another site."""
    origin = environment.get("HTTP_ORIGIN")
    foreign_origin = origin is not None and origin.lower() != f"http://{environment['HTTP_HOST']}".lower()
    if foreign_origin or environment.get("HTTP_SEC_FETCH_SITE", "none") not in _OWN_SITES:
        raise PageError(HTTPStatus.FORBIDDEN, "a page of another site may not use this one")


def check_change(environment: Mapping[str, Any]) -> int:
    """Return the number of bytes of a change's body. Raises PageError unless it is JSON of a bounded size."""
    kind = environment.get("CONTENT_TYPE", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise PageError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a change has the header Content-Type: application/json"
        )
    length = environment.get("CONTENT_LENGTH") or ""
    if "HTTP_TRANSFER_ENCODING" in environment or not (length.isascii() and length.isdigit()):
        raise PageError(HTTPStatus.LENGTH_REQUIRED, "a change has the header Content-Length")
    if len(length) > 10 or int(length) > MAX_BODY:
        raise PageError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a change has at most {MAX_BODY:,} bytes of JSON"
        )
    return int(length)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
