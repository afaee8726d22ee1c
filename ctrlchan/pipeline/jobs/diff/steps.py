"""Order of a broker's requests, and which UpdateMetadata a broker gets, in a diff."""

from __future__ import annotations

from typing import Final

__all__ = ["MetadataScope", "Step"]


class Step:
    """Order of a broker's requests."""

    STOP_FORMER: Final = 0
    LEADER_AND_ISR: Final = 1
    UPDATE_METADATA: Final = 2
    STOP_REPLICA: Final = 3


class MetadataScope:
    """Rows that a broker gets by UpdateMetadata: column ``update_metadata`` of ``DIFF_BROKERS``."""

    #: All rows: the broker is new, or a new generation.
    ALL: Final = "all"
    #: The changed rows, perhaps none: the live brokers have changed, so there is a request in any case.
    BROKERS: Final = "brokers"
    #: The changed rows; no request if there are none.
    ROWS: Final = "rows"
