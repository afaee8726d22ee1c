"""Hostile peers of TLS: records of real handshakes that are changed, and forged records after a handshake.

A peer does a handshake with OpenSSL in memory. What it would send is taken apart into records, and one
flight is changed: bytes, lengths, the order, pieces of other connections, plaintext, alerts, tiny and empty
records. In TLS 1.2 the messages of a client are readable until its Finished, in TLS 1.3 the ClientHello
alone; so other peers finish the handshake and encrypt messages that no client would send.
"""

from __future__ import annotations

import random
import ssl
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.soak.listeners.targets import Stream, Target, api_versions, open_stream, sized
from tests.soak.mutations import mutate
from tests.unit.server.forged_records import ALERT, CLIENT_HELLO, DATA, HANDSHAKE, KEY_UPDATE, ForgingClient

__all__ = ["HandshakeAttacks"]

#: Kinds of records beside those of ``forged_records``
CHANGE_CIPHER_SPEC, HEARTBEAT = 20, 24
VERSIONS: Final = ("TLSv1_2", "TLSv1_3")
#: Seconds for which a peer waits for an answer.
PATIENCE: Final = 0.1
#: Records of other connections that are kept.
KEPT: Final = 200
#: The largest record of TLS 1.2, with its overhead.
LARGEST: Final = 16384 + 2048
#: Kinds of handshake messages
KINDS: Final = (0, 1, 2, 4, 5, 8, 11, 12, 13, 14, 15, 16, 20, 22, 24, 254, 255)

#: A record without its head: kind, version, content
Record = tuple[int, int, bytes]


class HandshakeAttacks:
    """Each call of ``attack`` is one connection; any thread may call it."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque(maxlen=KEPT)

    def attack(self, target: Target, chance: random.Random, folder: Path) -> str:
        """Connect once, and do something wrong. Return what. Raises OSError.

        ``folder``: for the secrets of a connection.
        """
        with open_stream(target, None, PATIENCE) as stream:
            if not target.contexts:
                stream.sendall(_hello(chance))
                _wait_for_end(stream)
                return "TLS to a plaintext listener"
            if chance.random() < 0.3:
                return self._forge(stream, chance, folder)
            return self._mangle(stream, target, chance)

    # -- changed handshakes

    def _mangle(self, stream: Stream, target: Target, chance: random.Random) -> str:
        """Change one flight of a handshake, or the first bytes after it."""
        name, change = chance.choice(CHANGES)
        changed = chance.choice((0, 0, 1, 1, 2))
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = chance.choice(target.contexts).wrap_bio(incoming, outgoing, server_hostname="localhost")
        flight, is_done = 0, False
        while True:
            with suppress(ssl.SSLWantReadError):
                try:
                    if is_done:
                        tls.read(1)
                    tls.do_handshake()
                    if not is_done:
                        tls.write(sized(api_versions()))
                    is_done = True
                except ssl.SSLWantReadError:
                    raise
                except ssl.SSLError:
                    return f"{name}: refused"
            data = outgoing.read()
            if data:
                records = _records_of(data)
                self._records.extend(records)
                kept = list(self._records)
                stream.sendall(change(records, chance, kept) if flight == changed else data)
                flight += 1
            try:
                part = stream.recv(1 << 16)
            except TimeoutError:
                return f"{name}: no answer"
            if not part:
                return f"{name}: closed"
            if is_done and flight > changed:
                return f"{name}: answered"
            incoming.write(part)

    # -- forged records

    def _forge(self, stream: Stream, chance: random.Random, folder: Path) -> str:
        """Do a handshake, then encrypt what no client sends."""
        version = chance.choice(VERSIONS)
        stream.settimeout(10)
        try:
            client = ForgingClient(stream, version, folder)
        except ssl.SSLError:
            # The listener has another version.
            return f"forged {version}: no handshake"
        stream.settimeout(PATIENCE)
        for _ in range(chance.choice((1, 1, 2, 5, 40))):
            kind, content = _forged(chance)
            if chance.random() < 0.3:
                changed = bytearray(content)
                mutate(changed, chance, [one[2] for one in list(self._records)])
                content = bytes(changed[:16000])
            record = client.record(kind, content)
            if chance.random() < 0.05:
                # Neither key nor number fit any more.
                record = client.record(kind, content)
            for piece in _pieces(record, chance):
                stream.sendall(piece)
        return f"forged {version}: {'answered' if _wait_for_end(stream) else 'closed'}"


def _hello(chance: random.Random) -> bytes:
    """Return the first bytes of TLS, or of something like it."""
    return b"\x16\x03\x01\x02\0" + chance.randbytes(chance.choice((0, 3, 512)))


def _wait_for_end(stream: Stream) -> bool:
    """Read until the server closes the connection or says no more; return whether it has said anything."""
    answered = False
    with suppress(TimeoutError):
        while stream.recv(1 << 16):
            answered = True
    return answered


def _pieces(data: bytes, chance: random.Random) -> list[bytes]:
    """Return the whole, or two halves."""
    cut = chance.randrange(len(data) + 1) if chance.random() < 0.1 else 0
    return [data[:cut], data[cut:]] if cut else [data]


def _forged(chance: random.Random) -> tuple[int, bytes]:
    """Return kind and content of a record."""
    return chance.choice(
        (
            (DATA, sized(api_versions())),
            (DATA, b""),
            (HANDSHAKE, KEY_UPDATE),
            # It wants no new keys of the server.
            (HANDSHAKE, KEY_UPDATE[:-1] + b"\0"),
            (HANDSHAKE, KEY_UPDATE * 3),
            (HANDSHAKE, CLIENT_HELLO),
            (HANDSHAKE, bytes([chance.choice(KINDS)]) + b"\0\0\x20" + chance.randbytes(32)),
            # A message whose end never comes.
            (HANDSHAKE, bytes([chance.choice(KINDS)]) + b"\xff\xff\xff" + bytes(100)),
            (HANDSHAKE, b""),
            (ALERT, bytes([chance.choice((0, 1, 2, 255)), chance.randrange(256)])),
            (ALERT, b"\2"),
            (ALERT, b""),
            (CHANGE_CIPHER_SPEC, b"\1"),
            (HEARTBEAT, b"\1\xff\xff"),
            (chance.randrange(256), chance.randbytes(chance.choice((0, 1, 100, 16000)))),
            (0, bytes(100)),
        )
    )


# -- records


def _records_of(data: bytes) -> list[Record]:
    found = []
    while data:
        kind, version, size = struct.unpack_from(">BHH", data)
        found.append((kind, version, data[5 : 5 + size]))
        data = data[5 + size :]
    return found


def _bytes_of(records: list[Record]) -> bytes:
    return b"".join(
        struct.pack(">BHH", kind, version, len(content)) + content for kind, version, content in records
    )


Change = Callable[[list[Record], random.Random, Sequence[Record]], bytes]


def _any_bytes(records: list[Record], chance: random.Random, kept: Sequence[Record]) -> bytes:
    data = bytearray(_bytes_of(records))
    for _ in range(chance.choice((1, 1, 2, 5))):
        mutate(data, chance, [one[2] for one in kept])
    return bytes(data)


def _message(records: list[Record], chance: random.Random, kept: Sequence[Record]) -> bytes:
    """Change the inside of a message; the lengths around it are right."""
    at = chance.randrange(len(records))
    kind, version, content = records[at]
    body = bytearray(content[4:] if kind == HANDSHAKE else content)
    for _ in range(chance.choice((1, 1, 2, 3))):
        mutate(body, chance, [one[2][4:] for one in kept if one[0] == kind])
    del body[16000:]
    if kind == HANDSHAKE:
        body[:0] = content[:1] + len(body).to_bytes(3)
    return _bytes_of([*records[:at], (kind, version, bytes(body)), *records[at + 1 :]])


def _head(records: list[Record], chance: random.Random, kept: Sequence[Record]) -> bytes:
    """Change kind, version or length of a record."""
    data = bytearray(_bytes_of(records))
    at = chance.choice((0, 1, 2, 3, 4))
    data[at] = chance.choice((0, 1, 3, 20, 21, 22, 23, 24, 0x40, 0x7F, 0x80, 0xFF))
    return bytes(data)


def _cut(records: list[Record], chance: random.Random, kept: Sequence[Record]) -> bytes:
    data = _bytes_of(records)
    return data[: chance.randrange(len(data))]


def _reordered(records: list[Record], chance: random.Random, kept: Sequence[Record]) -> bytes:
    made = [*records, *chance.sample(records, chance.randrange(len(records) + 1))]
    chance.shuffle(made)
    return _bytes_of(made)


def _spliced(records: list[Record], chance: random.Random, kept: Sequence[Record]) -> bytes:
    """Put records of other connections between these, or in place of one."""
    made = list(records)
    for _ in range(chance.choice((1, 1, 3))):
        at = chance.randrange(len(made) + 1)
        made[at : at + chance.randrange(2)] = [chance.choice(kept)]
    return _bytes_of(made)


def _plaintext(records: list[Record], chance: random.Random, kept: Sequence[Record]) -> bytes:
    data = _bytes_of(records)
    at = chance.choice((0, len(data), chance.randrange(len(data) + 1)))
    text = chance.choice((sized(api_versions()), b"GET / HTTP/1.1\r\n\r\n", b"\0" * 5))
    return data[:at] + text + data[at:]


def _alerts(records: list[Record], chance: random.Random, kept: Sequence[Record]) -> bytes:
    made = list(records)
    for _ in range(chance.choice((1, 2, 50))):
        alert = bytes([chance.choice((1, 1, 2)), chance.choice((0, 10, 40, 90, 100, 255))])
        made.insert(chance.randrange(len(made) + 1), (ALERT, 0x0303, alert))
    return _bytes_of(made)


def _tiny(records: list[Record], chance: random.Random, kept: Sequence[Record]) -> bytes:
    """Send the same messages in records of one byte, or of a few."""
    size = chance.choice((1, 1, 2, 7))
    made = [
        (kind, version, content[at : at + size])
        for kind, version, content in records
        for at in range(0, len(content), size)
    ]
    return _bytes_of(made)


def _empty(records: list[Record], chance: random.Random, kept: Sequence[Record]) -> bytes:
    made = list(records)
    for _ in range(chance.choice((1, 40, 200))):
        kind = chance.choice((HANDSHAKE, DATA, CHANGE_CIPHER_SPEC, ALERT))
        made.insert(chance.randrange(len(made) + 1), (kind, 0x0303, b""))
    return _bytes_of(made)


def _large(records: list[Record], chance: random.Random, kept: Sequence[Record]) -> bytes:
    size = chance.choice((16384, 16385, LARGEST, LARGEST + 1, 0xFFFF))
    return _bytes_of([*records, (chance.choice((HANDSHAKE, DATA)), 0x0303, bytes(size))])


def _cipher_specs(records: list[Record], chance: random.Random, kept: Sequence[Record]) -> bytes:
    made = list(records)
    for _ in range(chance.choice((1, 2, 50))):
        at = chance.randrange(len(made) + 1)
        made.insert(at, (CHANGE_CIPHER_SPEC, 0x0303, chance.choice((b"\1", b"\2", b"\1\1"))))
    return _bytes_of(made)


def _another_hello(records: list[Record], chance: random.Random, kept: Sequence[Record]) -> bytes:
    return _bytes_of([*records, (HANDSHAKE, 0x0303, CLIENT_HELLO), *records])


def _nothing(records: list[Record], chance: random.Random, kept: Sequence[Record]) -> bytes:
    return _bytes_of(records)


CHANGES: Final[tuple[tuple[str, Change], ...]] = (
    ("any bytes", _any_bytes),
    ("any bytes", _any_bytes),
    ("a message", _message),
    ("a message", _message),
    ("a message", _message),
    ("the head of a record", _head),
    ("cut", _cut),
    ("reordered records", _reordered),
    ("records of others", _spliced),
    ("plaintext between", _plaintext),
    ("alerts", _alerts),
    ("tiny records", _tiny),
    ("empty records", _empty),
    ("a large record", _large),
    ("ChangeCipherSpec", _cipher_specs),
    ("another ClientHello", _another_hello),
    ("unchanged", _nothing),
)
