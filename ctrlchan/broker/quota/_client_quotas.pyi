from collections.abc import Callable, Sequence
from enum import IntEnum

from ctrlchan._c.clock_functions import Clock

class QuotaType(IntEnum):
    PRODUCE = 0
    FETCH = 1
    REQUEST = 2
    CONTROLLER_MUTATION = 3

class ClientQuotas:
    def __init__(
        self,
        *,
        samples: int = 11,
        window_seconds: int = 1,
        mutation_samples: int = 11,
        mutation_window_seconds: int = 1,
        metrics_samples: int = 2,
        metrics_window_ms: int = 30_000,
        most_bytes: int = 67_108_864,
        clock: Clock | None = None,
    ) -> None: ...
    @property
    def are_enabled(self) -> bool: ...
    @property
    def exempt_percent(self) -> float: ...
    def user_number(self, name: str) -> int: ...
    def set_limits(self, entities: list[tuple[str | None, str | None, Sequence[float | None]]]) -> None: ...
    def charge_request(
        self,
        user: int,
        client_id: bytes,
        spent_ns: int,
        *,
        is_exempt: bool = False,
        quota_type: int = -1,
        size: int = 0,
    ) -> int: ...
    def fetch_limit(self, user: int, client_id: bytes) -> int: ...
    def mutate(self, user: int, client_id: bytes, mutations: float, *, is_strict: bool) -> int: ...
    def note_throttling(self, quota_type: int, user: int, client_id: bytes, ms: int) -> None: ...
    def ask_python(self, assign: Callable[[int, bytes, int], object], wake_fd: int) -> None: ...
    def take_unknown(self) -> list[tuple[int, bytes, int]]: ...
    def assign(
        self, user: int, client_id: bytes, quota_type: int, name: str, bound: float | None
    ) -> None: ...
    def set_bounds(self, bounds: dict[tuple[int, str], float | None]) -> None: ...
    def ask_again(self) -> None: ...
    def sensors_now(self) -> list[tuple[int, str, str, float, float, float]]: ...
