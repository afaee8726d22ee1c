"""The APIs of a broker that stores records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ctrlchan.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_replica_log_dirs,
    client_quotas,
    consumer_groups,
    delete_records,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_scram_credentials,
    end_txn,
    fetch,
    find_coordinator,
    forwarded,
    group_administration,
    group_membership,
    group_offsets,
    init_producer_id,
    list_offsets,
    metadata,
    of_controllers,
    offset_for_leader_epoch,
    produce,
    transaction_administration,
    txn_offset_commit,
    write_txn_markers,
)
from ctrlchan.broker.handlers.control_table import CONTROL_APIS
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.server.api import Api
from ctrlchan.server.apis import acls, delegation_tokens, describe_cluster, sasl
from ctrlchan.server.apis.api_versions import with_api_versions

__all__ = ["GROUP_APIS", "TRANSACTION_APIS", "storing_apis"]

GROUP_APIS: Final[tuple[Api[StoringCore], ...]] = (
    *group_offsets.APIS,
    txn_offset_commit.API,
    find_coordinator.API,
    *group_membership.APIS,
    *group_administration.APIS,
    *consumer_groups.APIS,
)
TRANSACTION_APIS: Final[tuple[Api[StoringCore], ...]] = (
    init_producer_id.API,
    add_partitions_to_txn.API,
    add_offsets_to_txn.API,
    end_txn.API,
    *transaction_administration.APIS,
)


def storing_apis(*, forwards: bool, alters_configs: bool) -> Mapping[int, Api[StoringCore]]:
    """Return every API of a broker that stores records, by key.

    ``forwards``: there is a controller that requests are forwarded to. ``alters_configs``: there is a
    ZooKeeper to write configs and delegation tokens to.
    """
    apis: list[Api[StoringCore]] = [
        produce.API,
        fetch.API,
        list_offsets.API,
        metadata.API,
        *CONTROL_APIS,
        *GROUP_APIS,
        delete_records.API,
        *TRANSACTION_APIS,
        offset_for_leader_epoch.API,
        *acls.APIS,
        describe_configs.API,
        describe_log_dirs.API,
        alter_replica_log_dirs.API,
        describe_cluster.API,
        describe_producers.API,
        write_txn_markers.API,
        sasl.HANDSHAKE,
        sasl.AUTHENTICATE,
    ]
    if forwards:
        apis += (*forwarded.APIS, *of_controllers.APIS)
    if alters_configs:
        apis += (
            alter_configs.ALTER,
            alter_configs.INCREMENTAL_ALTER,
            *client_quotas.APIS,
            describe_scram_credentials.API,
            *delegation_tokens.APIS,
        )
    return with_api_versions(apis, lambda core: core.metadata.features)
