"""The table of the APIs that an embedded broker serves."""

from __future__ import annotations

from collections.abc import Mapping

from ctrlchan.broker.apis import (
    describe_cluster,
    describe_configs,
    fetch,
    find_coordinator,
    leader_and_isr,
    metadata,
    produce,
    stop_replica,
    update_metadata,
)
from ctrlchan.broker.apis.api import Api
from ctrlchan.broker.apis.api_versions import api_versions
from ctrlchan.broker.core import BrokerCore

__all__ = ["served_apis"]


def served_apis() -> Mapping[int, Api[BrokerCore]]:
    """Return every API of an embedded broker, by key. ApiVersions announces exactly these."""
    modules = (
        produce,
        fetch,
        metadata,
        leader_and_isr,
        stop_replica,
        update_metadata,
        find_coordinator,
        describe_configs,
        describe_cluster,
    )
    apis = [module.API for module in modules]
    apis.append(api_versions(apis))
    return {api.key: api for api in apis}
