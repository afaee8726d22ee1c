"""Between a SaslServer and the connection whose frames a handler thread has taken."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ctrlchan.errors import ProtocolError
from ctrlchan.server._processor import TakenRequest
from ctrlchan.server.security.mechanism import AuthenticationFailed
from ctrlchan.server.security.sasl_server import SaslServer
from ctrlchan.text import printable

__all__ = ["authenticate"]

#: So much of a reason goes into a log line: parts of it are the peer's.
_MOST_REASON = 300


def authenticate(request: TakenRequest, log: Callable[[str], None]) -> bool:
    """Answer a frame of a peer that is not authenticated; return False if it is an ordinary request.

    A peer that is refused is logged with ``log``.
    """
    sasl: SaslServer = request.authenticator
    if sasl.done:
        sasl.renew()
    try:
        answer = sasl.receive(memoryview(request.frame))
    except ProtocolError as failed:
        reason = printable(str(failed)[:_MOST_REASON])
        log(f"failed {'re-' if sasl.renews else ''}authentication with {_peer(request)}: {reason}")
        request.refuse(failed.response if isinstance(failed, AuthenticationFailed) else ())
        return True
    if answer is None:
        return False
    if sasl.done:
        context = dataclasses.replace(request.context, principal=sasl.principal, by_token=sasl.by_token)
        request.authenticated(answer, context, sasl.session_ms, sasl.can_renew)
    else:
        request.answer(answer)
    return True


def _peer(request: TakenRequest) -> str:
    return f"{request.context} at listener {request.context.listener}"
