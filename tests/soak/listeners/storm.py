"""Threads of hostile peers: each connects, does something wrong, and connects again."""

from __future__ import annotations

import random
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.soak.listeners.handshakes import HandshakeAttacks
from tests.soak.listeners.logins import LoginAttacks
from tests.soak.listeners.targets import Credentials, Target

__all__ = ["Storm"]

#: A storm ends when so many guarantees were broken.
MOST_FAILURES: Final = 10


class Storm:
    """Attacks listeners from ``peers`` threads until ``stop``. ``seed``: decides what is tried.

    ``tried`` counts by what was done. ``failures``: guarantees that were broken.
    """

    def __init__(
        self, targets: Sequence[Target], credentials: Credentials, seed: int, peers: int = 6
    ) -> None:
        self.tried: Counter[str] = Counter()
        self.failures: list[str] = []
        self._stopped = threading.Event()
        self._counting = threading.Lock()
        self._handshakes = HandshakeAttacks()
        self._logins = LoginAttacks(credentials)
        self._threads = [
            threading.Thread(target=self._run, args=[number, list(targets), seed], name=f"hostile-{number}")
            for number in range(peers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def connections(self) -> int:
        """How often somebody has connected."""
        with self._counting:
            return sum(self.tried.values())

    def stop(self) -> None:
        """Let the peers end, and wait for that. Raises AssertionError for what was broken."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        assert not self.failures, "\n".join(self.failures)

    def _run(self, number: int, targets: list[Target], seed: int) -> None:
        chance = random.Random(f"{seed} {number}")
        with tempfile.TemporaryDirectory(prefix="ctrlchan-hostile-") as folder:
            while not self._stopped.is_set() and len(self.failures) < MOST_FAILURES:
                target = chance.choice(targets)
                try:
                    kind = self._attack(target, chance, Path(folder))
                except OSError:
                    # The server has closed the connection, and may.
                    kind = "closed while something was sent"
                except AssertionError as broken:
                    kind = "broken"
                    self.failures.append(f"{target.name}: {broken}")
                except Exception:  # noqa: BLE001  (an error of a peer must not end the storm unseen)
                    kind = "broken"
                    self.failures.append(f"{target.name}: a peer has failed: {traceback.format_exc()}")
                with self._counting:
                    self.tried[kind] += 1

    def _attack(self, target: Target, chance: random.Random, folder: Path) -> str:
        if target.mechanisms and (not target.contexts or chance.random() < 0.7):
            return self._logins.attack(target, chance)
        return self._handshakes.attack(target, chance, folder)
