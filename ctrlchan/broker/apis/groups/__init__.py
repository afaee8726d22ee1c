"""The APIs of consumer groups, for a broker that stores records. Each file has the APIs of one subject.

They decode requests for ``broker/coordinator``, and encode its results. ``core.groups`` is set, and
``core.lock`` is not held when they are called; they do not take it. An answer that waits is a Future.
"""

from __future__ import annotations

from typing import Final

from ctrlchan.broker.apis.api import Api
from ctrlchan.broker.apis.groups import administration, coordinators, membership, offsets
from ctrlchan.broker.storing_core import StoringCore

__all__ = ["APIS"]

APIS: Final[tuple[Api[StoringCore], ...]] = (
    *membership.APIS,
    *administration.APIS,
    *offsets.APIS,
    coordinators.API,
)
