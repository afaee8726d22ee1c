from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any

from ctrlchan._c.clock_functions import Clock
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.server._openssl import TlsContext
from ctrlchan.server.request_context import Principal, RequestContext

class EventKind(IntEnum):
    WRONG_SIZE = 0
    TOO_MANY_OF_IP = 1
    ACCEPT_FAILED = 2
    NO_MEMORY = 3
    ANSWER_FAILED = 4
    FILE_TOO_SHORT = 5
    NOT_AUTHENTICATED = 6
    UNAUTHENTICATED_MEMORY = 7
    NOT_TLS = 8
    HANDSHAKE_FAILED = 9
    HANDSHAKE_TOO_SLOW = 10
    TOO_MANY_HANDSHAKES = 11
    TLS_FAILED = 12

Part = bytes | bytearray | memoryview | tuple[int, int, int]

class HotHandler: ...
class Poller: ...

class TakenRequest:
    @property
    def frame(self) -> bytes: ...
    @property
    def context(self) -> RequestContext: ...
    @property
    def authenticator(self) -> Any: ...
    def answer(self, parts: bytes | bytearray | memoryview | Iterable[Part], mute_ms: int = 0) -> None: ...
    def authenticated(
        self,
        parts: bytes | bytearray | memoryview | Iterable[Part],
        context: RequestContext,
        session_ms: int | None = None,
        can_renew: bool = True,
    ) -> None: ...
    def refuse(self, parts: bytes | bytearray | memoryview | Sequence[Part]) -> None: ...
    def skip(self, mute_ms: int = 0) -> None: ...
    def go_on(self, answer: int, identity: int) -> None: ...
    def close(self) -> None: ...

class NetworkThreads:
    identify: Callable[[RequestContext], int] | None
    number_user: Callable[[RequestContext], int] | None
    @property
    def listener_names(self) -> tuple[str, ...]: ...
    def __init__(
        self,
        listeners: list[tuple[str, int]],
        hot: HotHandler | None = None,
        *,
        processors: int,
        max_request_bytes: int,
        queue_capacity: int,
        idle_ns: int,
        max_connections: int,
        max_per_ip: int,
        per_ip_overrides: list[tuple[bytes, int]],
        send_buffer: int,
        security_protocols: Sequence[SecurityProtocol] = (),
        contexts: Sequence[TlsContext | None] = (),
        namers: Sequence[Callable[[bytes, str, int], Principal | None] | None] = (),
        authenticators: Sequence[Callable[[RequestContext], object] | None] = (),
        max_unauthenticated_bytes: int = 524_288,
        authentication_ms: int = 30_000,
        refusal_ms: int = 100,
        clock: Clock | None = None,
        poller: Poller | None = None,
    ) -> None: ...
    def start(self) -> None: ...
    def stop(self, timeout: float) -> bool: ...
    def use_context(self, listener: int, context: TlsContext) -> None: ...
    def turn(self, index: int) -> int | None: ...
    def accept(self, index: int) -> int | None: ...
    def take(self, timeout: float) -> TakenRequest | None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def queue_size(self) -> int: ...
    @property
    def held_requests(self) -> int: ...
    def counters(self) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]: ...
    def take_event(self) -> tuple[int, int, tuple[str, int], int, str | None] | None: ...

class PlainTimingWheel:
    def __init__(self, now: int) -> None: ...
    def start(self, deadline: int) -> int: ...
    def stop(self, number: int) -> bool: ...
    def next_at(self) -> int: ...
    def advance(self, now: int) -> list[int]: ...
