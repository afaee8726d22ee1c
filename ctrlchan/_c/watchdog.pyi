STILL_SECONDS: int
ORPHAN_SECONDS: int

def start(*, parent: int | None = None, tick_seconds: float = 1.0) -> None: ...
