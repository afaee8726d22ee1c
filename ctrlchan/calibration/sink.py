"""A process that stands for brokers: it discards the body of every control request, and acknowledges it.

``main`` listens on free ports of 127.0.0.1, as many as its argument says, and prints them. Each line of
standard input is answered by a line with three numbers: the time (``time.monotonic_ns``) of the last answer,
0 if there is none; the bytes received; the requests answered. The process ends with its standard input. On
Linux the kernel discards bodies, and no byte of them is copied.
"""

from __future__ import annotations

import socket
import sys
from typing import Final

from ctrlchan._codec import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    ControlResponse,
    encode_response_header,
    response_header_version,
)
from ctrlchan.calibration._sink import serve
from ctrlchan.protocol import IBP_NAMES, request_versions

__all__ = ["main"]

_HOST: Final = "127.0.0.1"
#: A thousand senders may connect at the same time.
_BACKLOG: Final = 4_096
_CORRELATION_ID_BYTES: Final = 4


def _answer(api_key: int, version: int) -> bytes:
    """Return what follows the correlation id of an answer without an error."""
    header = encode_response_header(response_header_version(api_key, version), 0)
    success = ControlResponse(api_key=api_key, version=version, error_code=0).encode()
    return header[_CORRELATION_ID_BYTES:] + success


def _listening() -> socket.socket:
    listening = socket.create_server((_HOST, 0), backlog=_BACKLOG)
    listening.setblocking(False)
    return listening


def main() -> None:
    """Serve the number of ports that is the first argument."""
    from ctrlchan.interpreter import raise_descriptor_limit

    raise_descriptor_limit()
    listeners = [_listening() for _ in range(int(sys.argv[1]))]
    print(*(one.getsockname()[1] for one in listeners), flush=True)
    newest = request_versions(IBP_NAMES[-1])
    answers = {
        (api_key, version): _answer(api_key, version)
        for api_key in (LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA)
        for version in range(newest.for_api(api_key) + 1)
    }
    serve([one.fileno() for one in listeners], sys.stdin.fileno(), sys.stdout.fileno(), answers)
