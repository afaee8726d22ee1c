"""The APIs with which a controller drives a broker."""

from __future__ import annotations

from typing import Final

from ctrlchan.broker.core import BrokerCore
from ctrlchan.broker.handlers import leader_and_isr, stop_replica, update_metadata
from ctrlchan.server.api import Api

__all__ = ["CONTROL_APIS"]

CONTROL_APIS: Final[tuple[Api[BrokerCore], ...]] = (leader_and_isr.API, stop_replica.API, update_metadata.API)
