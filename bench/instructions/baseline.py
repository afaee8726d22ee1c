"""The file ``baseline.json``: the counts of each kind of machine (``environment.kind_of``)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bench.instructions.counts import Count, Measurement

__all__ = ["FILE", "Baseline"]

FILE: Final = Path(__file__).with_name("baseline.json")


class Baseline:
    """The contents of the file; without a file there are none."""

    def __init__(self, file: Path = FILE) -> None:
        self._file = file
        self._kinds: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}

    @property
    def kinds(self) -> list[str]:
        """The kinds of machines that have counts."""
        return list(self._kinds)

    def environment(self, kind: str) -> dict[str, str]:
        """Return the environment in which the counts of a kind were made."""
        return dict(self._kinds[kind]["environment"])

    def counts(self, kind: str, thing: str) -> dict[str, Count]:
        """Return the counts of a thing by name; none where the thing is new."""
        found: Mapping[str, Any] = self._kinds[kind]["things"].get(thing, {})
        return {name: Count(**count) for name, count in found.items()}

    def write(self, kind: str, measured: Mapping[str, Measurement]) -> None:
        """Replace the counts of these things, and the environment of the kind."""
        own = self._kinds.setdefault(kind, {"environment": {}, "things": {}})
        for thing, measurement in measured.items():
            own["environment"] = measurement.environment
            own["things"][thing] = {name: asdict(count) for name, count in measurement.counts.items()}
        self._file.write_text(json.dumps(self._kinds, indent=1) + "\n")
