"""Why a connection to a broker failed."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = ["ConnectionFailed", "Failure"]


class Failure(IntEnum):
    """Why an attempt failed."""

    NONE = 0
    RESOLVE = 1
    CONNECT = 2
    CONNECT_TIMEOUT = 3
    CLOSED = 4
    IO = 5
    REQUEST_TIMEOUT = 6
    CORRELATION = 7
    RESPONSE_SIZE = 8
    SURPLUS = 9
    GARBAGE = 10
    SENDER_DIED = 11
    CREDENTIALS = 12
    TLS = 13
    CERTIFICATE = 14
    MECHANISM = 15
    AUTHENTICATION = 16
    HANDSHAKE = 17
    HANDSHAKE_TIMEOUT = 18
    INTERNAL = 19

    @property
    def text(self) -> str:
        return _TEXT[self]


_TEXT: Final = {
    Failure.NONE: "",
    Failure.RESOLVE: "the host name could not be resolved",
    Failure.CONNECT: "connecting failed",
    Failure.CONNECT_TIMEOUT: "connecting took longer than the connection setup timeout",
    Failure.CLOSED: "the broker closed the connection",
    Failure.IO: "the connection failed",
    Failure.REQUEST_TIMEOUT: "no whole response within the request timeout",
    Failure.CORRELATION: "the response has another correlation id",
    Failure.RESPONSE_SIZE: "the response's size is below its header's or above max_response_bytes",
    Failure.SURPLUS: "the broker sent bytes nobody asked for",
    Failure.GARBAGE: "the response is not one of this API and version",
    Failure.SENDER_DIED: "the sender process ended",
    Failure.CREDENTIALS: "our own TLS files cannot be used",
    Failure.TLS: "TLS failed",
    Failure.CERTIFICATE: "the broker's certificate is refused",
    Failure.MECHANISM: "the broker does not have our SASL mechanism",
    Failure.AUTHENTICATION: "authentication failed",
    Failure.HANDSHAKE: "the handshake failed",
    Failure.HANDSHAKE_TIMEOUT: "the connection was not ready within the socket timeout",
    Failure.INTERNAL: "an error in the sender process",
}


class ConnectionFailed(Exception):
    """The broker did something after which the connection must be closed. ``detail`` is for people, or ""."""

    def __init__(self, failure: Failure, detail: str = "") -> None:
        super().__init__(f"{failure.text}: {detail}" if detail else failure.text)
        self.failure = failure
        self.detail = detail
