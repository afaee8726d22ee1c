"""A transactional producer and a consumer in C, ``transact.c``, which cost little and measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.peers.native import build
from bench.peers.process import PeerProcess

__all__ = ["Fetched", "Ran", "Transactor"]

_ALL: Final = 2**31 - 1


@dataclass(frozen=True)
class Ran:
    """Transactions that were committed.

    ``concurrent``: answers CONCURRENT_TRANSACTIONS to AddPartitionsToTxn. ``commits``: microseconds from
    each EndTxn to its answer; ``visible``: to the answer of a read_committed Fetch that waited for it.
    """

    seconds: float
    concurrent: int
    commits: list[float]
    visible: list[float]


@dataclass(frozen=True)
class Fetched:
    """What Fetch requests have brought. ``aborted``: the aborted transactions that they named."""

    requests: int
    bytes: int
    offset: int
    aborted: int


class Transactor(PeerProcess):
    """One transactional id on a broker of its own; topics have one partition."""

    def __init__(self, port: int) -> None:
        super().__init__([str(build("transact")), str(port)])

    def begin(self, transactional_id: str) -> None:
        """Find the coordinator and become the id's producer, again and again until that is possible."""
        self.ask(f"begin {transactional_id}")

    def run(
        self,
        topic: str,
        transactions: int,
        *,
        requests: int = 1,
        records: int = 1,
        rate: float = 0,
        watches: bool = False,
    ) -> Ran:
        """Commit transactions of ``requests`` Produce requests, each with one batch of ``records`` records.

        ``rate``: transactions each second, 0: one after the other. ``watches``: measure, too, when each
        becomes visible.
        """
        answer = self.ask(f"run {topic} {transactions} {requests} {records} {rate} {int(watches)}").split()
        figures = [float(each) for each in answer[2:]]
        return Ran(
            float(answer[0]),
            int(answer[1]),
            figures[::2] if watches else figures,
            figures[1::2] if watches else [],
        )

    def fetch(self, topic: str, *, committed: bool, max_bytes: int) -> Fetched:
        """Read a topic from its beginning to its end."""
        return self._fetch(f"{topic} {int(committed)} {max_bytes} 0 {_ALL} 1")

    def fetch_again(self, topic: str, *, committed: bool, offset: int, times: int) -> Fetched:
        """Read the batch at an offset many times."""
        return self._fetch(f"{topic} {int(committed)} 1 {offset} {times} 0")

    def _fetch(self, arguments: str) -> Fetched:
        return Fetched(*map(int, self.ask(f"fetch {arguments}").split()))
