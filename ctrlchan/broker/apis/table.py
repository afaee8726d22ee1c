"""The tables of the APIs that an embedded broker serves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from ctrlchan.broker.apis import (
    describe_cluster,
    describe_configs,
    find_coordinator,
    leader_and_isr,
    metadata,
    refused,
    stop_replica,
    update_metadata,
)
from ctrlchan.broker.apis.api import Api
from ctrlchan.broker.apis.api_versions import api_versions
from ctrlchan.broker.core import BrokerCore
from ctrlchan.broker.storing_core import StoringCore

__all__ = ["served_apis", "storing_apis"]

C = TypeVar("C", bound=BrokerCore)


def served_apis() -> Mapping[int, Api[BrokerCore]]:
    """Return every API of a broker that stores no records, by key. ApiVersions announces exactly these."""
    return _table((*_ALWAYS, refused.PRODUCE, refused.FETCH, find_coordinator.API))


def storing_apis(core: StoringCore) -> Mapping[int, Api[StoringCore]]:
    """Return every API of a broker that stores records, by key. ``core`` has its services already."""
    # Imported here: a broker without a log directory needs none of them.
    from ctrlchan.broker.apis import (
        acls,
        admin,
        delete_records,
        describe_log_dirs,
        fetch,
        groups,
        init_producer_id,
        list_offsets,
        offset_for_leader_epoch,
        produce,
    )

    own = (
        produce.API,
        fetch.API,
        list_offsets.API,
        offset_for_leader_epoch.API,
        delete_records.API,
        describe_log_dirs.API,
        init_producer_id.API,
    )
    # Those of ``admin`` replace Metadata and DescribeConfigs.
    return _table((*_ALWAYS, *own, *groups.APIS, *acls.APIS, *admin.apis(core)))


_ALWAYS: tuple[Api[BrokerCore], ...] = (
    metadata.API,
    leader_and_isr.API,
    stop_replica.API,
    update_metadata.API,
    describe_configs.API,
    describe_cluster.API,
)


def _table(apis: Iterable[Api[C]]) -> Mapping[int, Api[C]]:
    table = {api.key: api for api in apis}
    own = api_versions(table.values())
    return table | {own.key: own}
