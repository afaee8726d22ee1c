from collections.abc import Callable
from enum import IntEnum

class Subject(IntEnum):
    TOPIC_NAME = 0
    TOPIC_ID = 1
    TRANSACTIONAL_ID = 2
    CLUSTER = 3

class Allowed(IntEnum):
    MAY_READ = 1
    MAY_WRITE = 2
    MAY_ACT = 4
    IS_UNKNOWN = 8

class Decisions:
    session_topics: Callable[[int], tuple[list[bytes], bool]]
    def __init__(self, *, most: int = 1_000_000, most_identities: int = 100_000) -> None: ...
    def __len__(self) -> int: ...
    @property
    def version(self) -> int: ...
    def identity_of(self, principal: str, host: str) -> int: ...
    def forget(self) -> None: ...
    def grant(self, identity: int, version: int, decisions: list[tuple[int, bytes, int]]) -> bool: ...
