from typing import Any

from ctrlchan.journal.rows import Rows

class Gatherer:
    capacity: int
    count: int
    def __init__(self, capacity: int, epochs: dict[int, int]) -> None: ...
    def take(self) -> tuple[Rows, list[str]]: ...
    def extend(self, ended: list[Any], position: int, called: list[int] | None) -> int: ...
