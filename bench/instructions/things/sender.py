"""A push through the loop of a sender process: commands in, frames to 30 brokers, responses, reports out.

The brokers are sinks of this thread, which read and answer between two turns of the loop.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Final

from bench import workload
from bench.instructions.marks import counted
from bench.instructions.measured import Measured
from ctrlchan._codec import UPDATE_METADATA, encode_frame_prefix, encode_head, update_metadata_body
from ctrlchan.channel.senders.sender import Sender
from ctrlchan.channel.wire.records import ADD, COMMAND, EXPECTED, REPORT, SEND
from ctrlchan.channel.wire.settings import ConnectionSettings

__all__ = ["opened"]

_SINKS: Final = 30
#: Partitions of a frame that is one piece with its head, and of one whose body the kernel takes from shared
#: memory. How often the kernel takes a part of a larger one differs from run to run.
_FRAMES: Final = {"2 KB": 0, "20 KB": 400}
_VERSION: Final = 8
_CONTROLLER_EPOCH: Final = 3
_BROKER_EPOCH: Final = 1001
_FIRST_FRAME: Final = 64
_RESPONSE: Final = bytes(4)
_MINUTE_NS: Final = 60_000_000_000
_SETTINGS: Final = ConnectionSettings(
    connection_setup_timeout=_MINUTE_NS,
    connection_setup_timeout_max=_MINUTE_NS,
    socket_timeout=10 * _MINUTE_NS,
    request_timeout=10 * _MINUTE_NS,
    retry_backoff=_MINUTE_NS,
    max_response_bytes=1 << 20,
)


class _Frame:
    """A frame of UpdateMetadata in shared memory, and its command."""

    def __init__(self, partitions: int, offset: int) -> None:
        body = update_metadata_body(
            _VERSION,
            workload.topics_of(partitions // 100),
            workload.partitions_of(partitions // 100, _SINKS),
            workload.brokers_of(_SINKS),
        )
        head = encode_head(UPDATE_METADATA, _VERSION, 0, _CONTROLLER_EPOCH, _BROKER_EPOCH)
        prefix = encode_frame_prefix(UPDATE_METADATA, _VERSION, 0, b"0", head, body.size)
        self.data = prefix + body.to_bytes()
        self._offset = offset
        self._prefix = len(prefix)
        self._epoch_at = prefix.index(struct.pack(">q", _BROKER_EPOCH))

    def command(self, slot: int, sequence: int) -> bytes:
        return COMMAND.pack(
            SEND,
            len(_RESPONSE),
            self._epoch_at,
            slot,
            sequence,
            self._offset,
            len(self.data),
            self._prefix,
            _CONTROLLER_EPOCH,
            _RESPONSE,
            0,
        )


class _Sink:
    """A broker that answers each frame with success."""

    def __init__(self, stack: ExitStack) -> None:
        self._server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._server.setblocking(False)
        self._stack = stack
        self._connection: socket.socket | None = None
        self._unanswered = bytearray()

    @property
    def port(self) -> int:
        return int(self._server.getsockname()[1])

    def turn(self) -> None:
        """Read what has come, and answer the whole frames."""
        try:
            if self._connection is None:
                self._connection = self._stack.enter_context(self._server.accept()[0])
                self._connection.setblocking(False)
            while data := self._connection.recv(1 << 20):
                self._unanswered += data
        except BlockingIOError:
            pass
        while len(self._unanswered) >= 12:
            end = 4 + int.from_bytes(self._unanswered[:4], "big")
            if len(self._unanswered) < end:
                break
            assert self._connection is not None
            self._connection.sendall(
                struct.pack(">i", 4 + len(_RESPONSE)) + self._unanswered[8:12] + _RESPONSE
            )
            del self._unanswered[:end]


class _Push:
    """A sender, its pipes, and its brokers."""

    def __init__(self, frames: dict[str, int], stack: ExitStack) -> None:
        self.frames: dict[str, _Frame] = {}
        memory = bytearray(_FIRST_FRAME)
        for name, partitions in frames.items():
            self.frames[name] = frame = _Frame(partitions, len(memory))
            memory += frame.data
        commands, self._commands = _pipe(stack)
        self._reports, reports = _pipe(stack)
        view = memoryview(memory)
        self._sender = Sender(commands, reports, view, view[:8].cast("q"), _SETTINGS)
        stack.enter_context(closing(self._sender.resolver))
        self._sinks = [_Sink(stack) for _ in range(_SINKS)]
        self._sequence = 0
        self._sender.start()
        for slot, sink in enumerate(self._sinks):
            target = b'{"host": "127.0.0.1", "port": %d, "epoch": %d}' % (sink.port, _BROKER_EPOCH)
            add = COMMAND.pack(ADD, 0, 0, slot, 0, 0, 0, 0, 0, b"", len(target))
            os.write(self._commands, add + target)

    def run(self, name: str, times: int) -> None:
        for _ in range(times):
            self._sequence += 1
            frame = self.frames[name]
            sends = (frame.command(slot, self._sequence) for slot in range(_SINKS))
            os.write(self._commands, b"".join(sends))
            ended = 0
            while ended < _SINKS:
                if not counted(self._sender.turn):
                    raise RuntimeError("the sender has ended")
                for sink in self._sinks:
                    sink.turn()
                ended += self._ended()

    def _ended(self) -> int:
        """Return how many requests have ended since the last call."""
        try:
            data = os.read(self._reports, 1 << 16)
        except BlockingIOError:
            return 0
        kinds = [report[0] for report in REPORT.iter_unpack(data)]
        return kinds.count(EXPECTED)


def _pipe(stack: ExitStack) -> tuple[int, int]:
    """Return both ends of a pipe that never blocks."""
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
        stack.callback(os.close, end)
    return ends


@contextmanager
def opened() -> Iterator[dict[str, Measured]]:
    """Start a sender's loop, and connect it to its brokers."""
    frames = {f"push of {what} to {_SINKS} sinks": partitions for what, partitions in _FRAMES.items()}
    with ExitStack() as stack:
        push = _Push(frames, stack)
        yield {name: Measured(partial(push.run, name), 20) for name in frames}
