from collections.abc import Collection, Sequence

from ctrlchan.broker.coordinator.transaction.transaction import Transaction

def take_idle(
    ids: dict[str, Transaction | bytes], records: Sequence[tuple[bytes | None, bytes | None]], first: int
) -> int: ...
def updated_ms(each: Transaction | bytes) -> int: ...
def are_in_order(ids: dict[str, Transaction | bytes]) -> bool: ...
def state_number(value: bytes) -> int: ...
def encode_value(
    producer_id: int,
    epoch: int,
    timeout_ms: int,
    state: int,
    partitions: Collection[tuple[str, int]],
    update_ms: int,
    start_ms: int,
) -> bytes: ...
