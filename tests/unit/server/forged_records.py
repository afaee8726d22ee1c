"""A client whose records of TLS are made here after its handshake: it sends what OpenSSL would not.

The keys come from the log of secrets that ``ssl`` writes. Cipher suites: AES-128-GCM with SHA-256, and with
TLS 1.3 AES-256-GCM with SHA-384.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
import struct
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.unit.server.tls_serving import client_context

__all__ = ["ALERT", "CLIENT_HELLO", "DATA", "HANDSHAKE", "KEY_UPDATE", "SUITES", "ForgingClient"]

#: IANA's names of the suites that a listener must have. The third is for Python's ssl, which needs all of
#: TLS 1.3; no client is given it.
SUITES: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_AES_128_GCM_SHA256",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
)
#: Kinds of records
ALERT, HANDSHAKE, DATA = 21, 22, 23
#: A message that asks for new keys of both sides, in TLS 1.3.
KEY_UPDATE: Final = b"\x18\0\0\x01\x01"
#: The least of a message that asks for another handshake, in TLS 1.2.
CLIENT_HELLO: Final = b"\x01\0\0\x29\x03\x03" + bytes(32) + b"\0\0\x02\xc0\x2f\x01\0"
_TAG_BYTES: Final = 16


class ForgingClient:
    """A connection after its handshake. ``version``: TLSv1_2 or TLSv1_3; ``folder``: for the secrets.

    It owns the socket. Raises ssl.SSLError and OSError.
    """

    def __init__(self, connection: socket.socket, version: str, folder: Path) -> None:
        context = client_context(version=version)
        log = folder / "secrets"
        log.unlink(missing_ok=True)
        context.keylog_filename = str(log)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self.socket: Final[socket.socket] = connection
        try:
            received = self._shake_hands()
        except BaseException:
            connection.close()
            raise
        # Behind a comment: name, random number of the client, secret
        lines = [line.split() for line in log.read_text().splitlines() if not line.startswith("#")]
        secrets = {name: bytes.fromhex(secret) for name, _, secret in lines}
        random = bytes.fromhex(lines[0][1])
        self._is_13 = version == "TLSv1_3"
        chosen = self._tls.cipher() or ("",)
        #: Of TLS 1.3: the hash function, and the bytes of a key
        self._hash, self._key_bytes = ("sha384", 32) if chosen[0].endswith("SHA384") else ("sha256", 16)
        if self._is_13:
            self._secret = secrets["CLIENT_TRAFFIC_SECRET_0"]
            self._use_secret()
        else:
            # Behind the head of the record, that of the message, and the version
            server_random = received[5 + 4 + 2 :][:32]
            block = _prf(secrets["CLIENT_RANDOM"], b"key expansion" + server_random + random, 40)
            self._key, self._iv = AESGCM(block[:16]), block[32:36]
            # The message Finished was the first one.
            self._number = 1

    def __enter__(self) -> ForgingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def _shake_hands(self) -> bytes:
        """Do the handshake; return what the server has sent."""
        received = b""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._send_outgoing()
                part = self.socket.recv(65536)
                if not part:
                    raise ConnectionError("the server has ended the handshake") from None
                received += part
                self._incoming.write(part)
            else:
                self._send_outgoing()
                return received

    def _send_outgoing(self) -> None:
        self.socket.sendall(self._outgoing.read())

    def _use_secret(self) -> None:
        self._key = AESGCM(self._expand(b"key", self._key_bytes))
        self._iv = self._expand(b"iv", 12)
        self._number = 0

    def record(self, kind: int, content: bytes) -> bytes:
        """Return the next record of this side."""
        number = struct.pack(">Q", self._number)
        self._number += 1
        if not self._is_13:
            head = struct.pack(">BHH", kind, 0x0303, len(content))
            sealed = self._key.encrypt(self._iv + number, content, number + head)
            return struct.pack(">BHH", kind, 0x0303, 8 + len(sealed)) + number + sealed
        inner = content + bytes([kind])
        head = struct.pack(">BHH", DATA, 0x0303, len(inner) + _TAG_BYTES)
        nonce = bytes(one ^ other for one, other in zip(bytes(4) + number, self._iv, strict=True))
        made = head + self._key.encrypt(nonce, inner, head)
        if kind == HANDSHAKE and content == KEY_UPDATE:
            self._secret = self._expand(b"traffic upd", len(self._secret))
            self._use_secret()
        return made

    def _expand(self, label: bytes, size: int) -> bytes:
        """HKDF-Expand-Label of TLS 1.3, for no more bytes than the hash function gives."""
        label = b"tls13 " + label
        info = struct.pack(">HB", size, len(label)) + label + b"\0"
        return hmac.digest(self._secret, info + b"\1", self._hash)[:size]

    def answer(self) -> bytes:
        """Return the next frame of the server, with its size. Raises ConnectionError when it has gone."""
        found = b""
        while len(found) < 4 or len(found) < 4 + int.from_bytes(found[:4], "big"):
            try:
                found += self._tls.read(65536)
            except ssl.SSLWantReadError:
                part = self.socket.recv(65536)
                if not part:
                    raise ConnectionError("the server has closed the connection") from None
                self._incoming.write(part)
        return found


def _prf(secret: bytes, seed: bytes, size: int) -> bytes:
    """The pseudo-random function of TLS 1.2 with SHA-256."""
    made, link = b"", seed
    while len(made) < size:
        link = hmac.digest(secret, link, hashlib.sha256)
        made += hmac.digest(secret, link + seed, hashlib.sha256)
    return made[:size]
