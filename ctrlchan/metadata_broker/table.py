"""The APIs of a broker without records."""

from __future__ import annotations

from collections.abc import Mapping

from ctrlchan.broker.core import BrokerCore
from ctrlchan.broker.handlers.control_table import CONTROL_APIS
from ctrlchan.metadata_broker import find_coordinator, refused
from ctrlchan.server.api import Api
from ctrlchan.server.apis import describe_cluster, describe_configs, metadata
from ctrlchan.server.apis.api_versions import with_api_versions

__all__ = ["served_apis"]


def served_apis() -> Mapping[int, Api[BrokerCore]]:
    """Return every API of a broker that stores no records, by key. ApiVersions announces exactly these."""
    return with_api_versions(
        (
            refused.produce_api(),
            refused.FETCH,
            metadata.API,
            *CONTROL_APIS,
            find_coordinator.API,
            describe_configs.API,
            describe_cluster.API,
        )
    )
