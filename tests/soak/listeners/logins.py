"""Hostile peers of SASL: frames of real logins that are changed, replayed and exchanged, in each state.

Half of the peers are strangers: they know no password. Whatever is done to their frames, also with pieces of
other users' SCRAM exchanges, they must not be served. The others are users: what nobody has changed must let
them in, and renew their session; another user must not take over their connection.
"""

from __future__ import annotations

import random
from collections import deque
from contextlib import suppress
from typing import Final

from ctrlchan.security.scram_client import ScramError
from tests.soak.listeners.targets import (
    Credentials,
    Login,
    Refused,
    Stream,
    Target,
    api_versions,
    frames_of_login,
    handshake_frame,
    is_served,
    open_stream,
    probe,
    receive_frame,
    sized,
)
from tests.soak.mutations import NUMBERS, mutate, signed

__all__ = ["LoginAttacks"]

#: Seconds for which a hostile peer waits for an answer; and who does nothing wrong.
PATIENCE: Final = 0.25
LONG: Final = 30.0
KEPT: Final = 200
VERSIONS: Final = (None, 0, 1, 2, 2)
#: The largest frame of a peer that is not authenticated: sasl.server.max.receive.size
LARGEST: Final = 524_288
ATTACKS: Final = (
    "changed bytes", "changed bytes", "changed bytes", "a wrong size", "an empty frame", "a huge token",
    "too large a frame", "twice", "left out", "a frame of another login", "another request", "half a frame",
    "single bytes", "another mechanism", "garbage",
)  # fmt: skip


class LoginAttacks:
    """Each call of ``attack`` is one connection; any thread may call it."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        #: Frames of strangers, and of users' SCRAM exchanges: of no use to anybody else.
        self._harmless: deque[bytes] = deque(maxlen=KEPT)

    def attack(self, target: Target, chance: random.Random) -> str:
        """Connect once. Return what was done. Raises OSError, and AssertionError for a broken guarantee."""
        mechanism = chance.choice(target.mechanisms)
        version = chance.choice(VERSIONS)
        is_stranger = chance.random() < 0.5
        people = (
            self._credentials.strangers(mechanism) if is_stranger else self._credentials.logins(mechanism)
        )
        login = chance.choice(people)
        attack = chance.choice(ATTACKS) if chance.random() < 0.8 else ""
        context = chance.choice(target.contexts) if target.contexts else None
        with open_stream(target, context, PATIENCE if attack else LONG) as stream:
            if chance.random() < 0.2:
                stream.sendall(sized(api_versions()))
                with suppress(TimeoutError):
                    receive_frame(stream)
            self._log_in(stream, login, version, attack, chance)
            name = f"{mechanism}, {attack or 'nothing'} changed" if not attack else f"{mechanism}, {attack}"
            served = is_served(stream)
            if is_stranger:
                assert not served, f"a stranger is served: {login!r}, version {version}, {attack}"
                return f"{name}: a stranger"
            if not attack:
                assert served, f"a user is refused: {mechanism}, version {version}"
            if not served:
                return f"{name}: refused"
            if version is None or chance.random() < 0.5:
                return f"{name}: served"
            return f"{name}: served, then {self._renew(stream, login, version, chance)}"

    def _renew(self, stream: Stream, login: Login, version: int, chance: random.Random) -> str:
        """Renew a session, which nobody else and no other mechanism can."""
        kind = chance.choice(("renewed", "renewed by another", "renewed by a stranger", *ATTACKS))
        stream.settimeout(LONG if kind == "renewed" else PATIENCE)
        if kind == "renewed":
            self._log_in(stream, login, version, "", chance)
            assert is_served(stream), f"a session is not renewed: {login.mechanism}, version {version}"
        elif kind.startswith("renewed"):
            others = (
                self._credentials.strangers(login.mechanism)
                if kind.endswith("stranger")
                else [one for one in self._credentials.logins(login.mechanism) if one.user != login.user]
            )
            # A delegation token may be of the same user.
            others = [one for one in others if not (one.is_known and (one.by_token or login.by_token))]
            if others:
                self._log_in(stream, chance.choice(others), version, "", chance)
                assert not is_served(stream), f"{kind}: {login.mechanism}, version {version}"
        else:
            self._log_in(stream, login, version, kind, chance)
            is_served(stream)
        return kind

    def _log_in(
        self, stream: Stream, login: Login, version: int | None, attack: str, chance: random.Random
    ) -> None:
        """Send the frames of a login, one of them changed, until the server or the exchange ends."""
        frames = frames_of_login(login, version, self._credentials.bearer_token)
        changed = chance.randrange(3) if login.mechanism.startswith("SCRAM") else chance.randrange(2)
        frame, step = next(frames), 0
        with suppress(Refused, ScramError, StopIteration, TimeoutError):
            while True:
                if not login.is_known or login.mechanism.startswith("SCRAM"):
                    self._harmless.append(frame)
                for data in (
                    self._changed(frame, login, attack, chance) if step == changed else (sized(frame),)
                ):
                    stream.sendall(data)
                answer = receive_frame(stream)
                frame, step = frames.send(answer), step + 1

    def _changed(self, frame: bytes, login: Login, attack: str, chance: random.Random) -> list[bytes]:
        """Return what is sent in place of a frame."""
        match attack:
            case "changed bytes":
                made = bytearray(frame)
                # A user's password must not get into a place where a log may show it.
                others = list(self._harmless) if not login.is_known else ()
                for _ in range(chance.choice((1, 1, 2, 4))):
                    mutate(made, chance, others)
                return [sized(bytes(made))]
            case "a wrong size":
                size = chance.choice((*NUMBERS, len(frame) - 1, len(frame) + 1))
                return [signed(size).to_bytes(4, signed=True) + frame]
            case "an empty frame":
                return [sized(b"")]
            case "a huge token":
                size = chance.choice((1_000, 100_000, LARGEST - len(frame)))
                return [sized(frame + chance.randbytes(size))]
            case "too large a frame":
                return [(LARGEST + 1).to_bytes(4) + bytes(1000)]
            case "twice":
                return [sized(frame) * 2]
            case "left out":
                return [sized(probe())]
            case "a frame of another login":
                return [sized(chance.choice(self._harmless))] if self._harmless else [sized(frame)]
            case "another request":
                return [
                    sized(chance.choice((probe(), api_versions(), handshake_frame(1, "PLAIN")))),
                    sized(frame),
                ]
            case "half a frame":
                data = sized(frame)
                return [data[: chance.randrange(len(data))]]
            case "single bytes":
                return [bytes([one]) for one in sized(frame)]
            case "another mechanism":
                name = chance.choice(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "", "x" * 1000))
                return [sized(handshake_frame(1, name)), sized(frame)]
            case "garbage":
                return [chance.randbytes(chance.choice((1, 4, 8, 100, 10_000)))]
            case _:
                return [sized(frame)]
