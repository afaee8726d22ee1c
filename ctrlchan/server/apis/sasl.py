"""SaslHandshake (17) and SaslAuthenticate (36), when nobody has to authenticate any more.

Authentication itself is done before requests reach the APIs (``server.security``). They are announced
because clients look for them in ApiVersions. ``KafkaApis.handleSaslHandshakeRequest`` and
``handleSaslAuthenticateRequest``.
"""

from __future__ import annotations

from typing import Any, Final

from ctrlchan.server.access import NOTHING
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["AUTHENTICATE", "HANDSHAKE"]


def _handshake(_: object, request: Request) -> Reply:
    messages = ClientMessages("sasl_handshake", request.version)
    messages.decode(request)  # a malformed request closes the connection
    return Reply(messages.response(error_code=KioError.illegal_sasl_state, mechanisms=()))


def _authenticate(_: object, request: Request) -> Reply:
    messages = ClientMessages("sasl_authenticate", request.version)
    messages.decode(request)
    return Reply(
        messages.response(
            error_code=KioError.illegal_sasl_state,
            error_message="SaslAuthenticate request received after successful authentication",
            auth_bytes=b"",
        )
    )


HANDSHAKE: Final[Api[Any]] = Api(
    key=17,
    name="SaslHandshake",
    lowest=0,
    highest=1,
    flexible_from=2,
    handle=_handshake,
    locks_core=False,
    needs=NOTHING,
)
AUTHENTICATE: Final[Api[Any]] = Api(
    key=36,
    name="SaslAuthenticate",
    lowest=0,
    highest=2,
    flexible_from=2,
    handle=_authenticate,
    locks_core=False,
    needs=NOTHING,
)
