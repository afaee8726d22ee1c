"""Values of inter.broker.protocol.version that differ in the requests a controller sends."""

from __future__ import annotations

from typing import Final

#: Newest first; the fewest that hold every version of the three requests.
INTER_BROKER_PROTOCOLS: Final = (
    "3.9",
    "3.2",
    "2.8",
    "2.4-IV1",
    "2.4-IV0",
    "2.2",
    "1.0",
    "0.11.0",
    "0.10.1",
    "0.9.0",
    "0.8.2",
)
