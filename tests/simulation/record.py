"""What a history has promised: no later answer and no log may contradict it."""

from __future__ import annotations

from collections.abc import Iterable

from tests.simulation.link import ViolationError
from tests.simulation.wire import Batch


class Record:
    """Records that were acknowledged with acks=-1 or read by a consumer, by partition and offset."""

    def __init__(self) -> None:
        self._committed: dict[tuple[int, int], bytes] = {}
        #: Values that were sent once and never again.
        self._once: set[bytes] = set()
        #: Values of each idempotent producer and partition that were acknowledged, in the order of sending.
        self._in_order: dict[tuple[int, int], list[bytes]] = {}

    def commit(self, who: str, index: int, offset: int, values: Iterable[bytes]) -> None:
        """Note records that nothing may change any more. Raises ViolationError where others are known."""
        for place, value in enumerate(values, offset):
            known = self._committed.setdefault((index, place), value)
            if known != value:
                raise ViolationError(
                    f"{who}: partition {index} has {value[:12].hex()} at offset {place}, where "
                    f"{known[:12].hex()} was committed"
                )

    def acknowledge(self, producer: int, index: int, values: list[bytes]) -> None:
        """Note values of an idempotent producer that were acknowledged: once, and in this order."""
        self._in_order.setdefault((producer, index), []).extend(values)

    def send_once(self, values: Iterable[bytes]) -> None:
        """Note values that are sent in one request and never again."""
        self._once.update(values)

    def check_log(self, who: str, index: int, batches: list[Batch], high_watermark: int) -> None:
        """Check the whole log of a partition in the end."""
        offset = 0
        places: dict[bytes, int] = {}
        for batch in batches:
            if batch.base_offset != offset:
                raise ViolationError(f"{who}: offset {batch.base_offset} follows {offset}")
            for value in batch.values:
                if places.setdefault(value, offset) != offset and (
                    batch.producer_id >= 0 or value in self._once
                ):
                    raise ViolationError(
                        f"{who}: {value[:12].hex()} is at the offsets {places[value]} and {offset}"
                    )
                known = self._committed.get((index, offset))
                if known is not None and known != value:
                    raise ViolationError(
                        f"{who}: {value[:12].hex()} at offset {offset}, where {known[:12].hex()} "
                        "was committed"
                    )
                offset += 1
        lost = [place for (one, place) in self._committed if one == index and place >= high_watermark]
        if lost:
            raise ViolationError(f"{who}: committed offsets {lost[:5]} are lost; it ends at {high_watermark}")
        for (producer, one), values in self._in_order.items():
            if one != index:
                continue
            missing = [value for value in values if value not in places]
            if missing:
                raise ViolationError(
                    f"{who}: {len(missing)} acknowledged records are lost: {missing[0][:12].hex()}"
                )
            found = [places[value] for value in values]
            if found != sorted(found):
                raise ViolationError(f"{who}: producer {producer}'s records are not in their order: {found}")
