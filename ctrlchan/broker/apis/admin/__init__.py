"""Administration of the cluster through a storing broker: one file for each API, or for APIs that are alike.

What only the controller can do is forwarded to it. Configs are read from ZooKeeper and written there.
"""

from __future__ import annotations

from ctrlchan.broker.apis.admin import (
    alter_configs,
    describe_configs,
    describe_producers,
    forwarded,
    metadata,
)
from ctrlchan.broker.apis.api import Api
from ctrlchan.broker.storing_core import StoringCore

__all__ = ["apis"]


def apis(core: StoringCore) -> list[Api[StoringCore]]:
    """Return the APIs of administration that a broker serves."""
    served: list[Api[StoringCore]] = [metadata.API, describe_configs.API, describe_producers.API]
    if core.controller is not None:
        served += forwarded.APIS
    if core.config_store is not None:
        served += (alter_configs.ALTER, alter_configs.INCREMENTAL_ALTER)
    return served
