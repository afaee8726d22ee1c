"""The records in the pipes between the parent and a sender process.

Records have a fixed size and the machine's own byte order; some are followed by as many bytes as they say.
Each pipe has one writer and one reader; a reader takes what has arrived and keeps what is not yet whole.

Command (parent -> sender), 48 bytes::

    kind u8 | expect_size u8 | epoch_at u16 | slot u32 | sequence u64 |
    offset u64 | size u32 | prefix_size u32 | controller_epoch i32 | expect 8s | following u32

    SEND    send the frame at shared memory ``offset``, ``size`` bytes, of which ``prefix_size`` come before
            the shared body. Bytes 8:12 become the correlation id, 8 bytes at ``epoch_at`` the broker epoch
            (0: this version has none). ``expect``: the response that needs no validation
    ADD     serve a broker: ``following`` bytes of JSON (host, port, epoch)
    REMOVE  close its connection and drop its requests; answered by REMOVED
    GO      the response to ``sequence`` is valid: the next request may follow
    AGAIN   the response to ``sequence`` is garbage: reconnect and send the request again
    CREDENTIALS  how connections begin from here on, for all brokers of this sender: ``following`` bytes of
            JSON (``Credentials``). Without this command they begin with nothing
    RESUME  drop the queued requests; those that follow are made for the versions reported with ``sequence``
    PING    answered by READY

Report (sender -> parent), 96 bytes::

    kind u8 | failure u8 | inline_size u16 | slot u32 | sequence u64 | attempts u32 | correlation_id i32 |
    first_byte_ns u64 | last_byte_ns u64 | response_ns u64 | errno i32 | following u32 | inline 40s

    EXPECTED   the request ended with the response it expected (``inline``)
    RESPONSE   the request has another response: ``inline``, or the PIECEs before this report if it is longer
    PIECE      ``following`` bytes of a response
    STALE      the request was not sent: its controller epoch is fenced
    CONNECTED  the connection is ready
    VERSIONS   the broker's versions are not those that its requests are made for, or were asked for the first
               time: ``following`` bytes of JSON, {api key: [lowest, highest]}, with the number ``sequence``.
               Nothing is sent before RESUME
    FAILED     an attempt failed (``failure``, ``errno``, ``attempts``); the sender tries again after the
               back-off. ``following`` bytes of UTF-8 are details; lines after the first are a traceback
    IDLE       a connection that no request waited for is lost
    REMOVED    the sender does not read this slot's frames in shared memory any more
    READY      the process runs and reads commands; ``sequence`` is its pid

Between parent and fork server::

    start   number i32 | broker id i32 (-1: it serves many), with two file descriptors: the read end of the
            sender's commands and the write end of its reports
    exit    number i32 | pid i32 | exit code i32 (negative: killed by that signal)
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

__all__ = ["COMMAND", "INLINE", "PIECE_BYTES", "REPORT", "Command", "Report"]

COMMAND: Final = Struct("=BBHIQQIIi8sI")
REPORT: Final = Struct("=BBHIQIiQQQiI40s")

#: The first 16 bytes of a command; the rest of a SEND command is the same for every broker.
COMMAND_HEAD: Final = Struct("=BBHIQ")
COMMAND_REST: Final = Struct("=QIIi8sI")
NO_REST: Final = bytes(COMMAND_REST.size)

START: Final = Struct("=ii")
EXIT: Final = Struct("=iii")


class Command(NamedTuple):
    """The fields of a command, in the order of ``COMMAND``."""

    kind: int
    expect_size: int
    epoch_at: int
    slot: int
    sequence: int
    offset: int
    size: int
    prefix_size: int
    controller_epoch: int
    expect: bytes
    following: int


class Report(NamedTuple):
    """The fields of a report, in the order of ``REPORT``."""

    kind: int
    failure: int
    inline_size: int
    slot: int
    sequence: int
    attempts: int
    correlation_id: int
    first_byte_ns: int
    last_byte_ns: int
    response_ns: int
    errno: int
    following: int
    inline: bytes


SEND: Final = 1
ADD: Final = 2
REMOVE: Final = 3
GO: Final = 4
AGAIN: Final = 5
CREDENTIALS: Final = 6
RESUME: Final = 7
PING: Final = 8

RESPONSE: Final = 1
PIECE: Final = 2
STALE: Final = 3
CONNECTED: Final = 4
FAILED: Final = 5
REMOVED: Final = 6
READY: Final = 7
IDLE: Final = 8
EXPECTED: Final = 9
VERSIONS: Final = 10
#: Written by the fork server, before the process itself can write; ``sequence`` is the pid.
STARTED: Final = 11

#: A response up to this size travels inside its report.
INLINE: Final = 40
#: A longer one is cut, so that other brokers' reports get through between.
PIECE_BYTES: Final = 32 * 1024
