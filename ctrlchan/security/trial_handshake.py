"""A handshake of TLS in memory: whether a client and a server with these contexts trust each other."""

from __future__ import annotations

import ssl

from ctrlchan.security.tls_errors import broken

__all__ = ["why_no_handshake"]


def why_no_handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> str | None:
    """Return why the two cannot talk to each other, or None if they can.

    ``client``: does not compare the host's name. Source: ``SslFactory.SslEngineValidator``.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = {
        "a client": client.wrap_bio(to_client, to_server),
        "a server": server.wrap_bio(to_server, to_client, server_side=True),
    }
    unfinished = dict(sides)
    while unfinished:
        for name, side in list(unfinished.items()):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as problem:
                return f"as {name}: {broken(problem)}"
            del unfinished[name]
    return None
