"""The threads of a run's clients and watchers."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["make_thread"]


def make_thread(
    name: str, failures: list[str], target: Callable[..., None], *arguments: object
) -> threading.Thread:
    """Return a thread whose errors are added to ``failures``: the run must not go on as if all were well."""

    def run() -> None:
        try:
            target(*arguments)
        except Exception as error:  # noqa: BLE001
            failures.append(f"{name}: {error!r}")

    return threading.Thread(target=run, name=name, daemon=True)
