"""The table of the APIs that a controller serves."""

from __future__ import annotations

from collections.abc import Mapping

from ctrlchan.controller.server.apis import (
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    client_quotas,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_user_scram_credentials,
    elect_leaders,
    envelope,
    find_coordinator,
    init_producer_id,
    list_groups,
    list_partition_reassignments,
    list_transactions,
    metadata,
    update_features,
)
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.server.api import Api
from ctrlchan.server.apis import acls, delegation_tokens, sasl
from ctrlchan.server.apis.api_versions import with_api_versions

__all__ = ["served_apis"]


def served_apis() -> Mapping[int, Api[ServerCore]]:
    """Return every API of a controller, by key. ApiVersions announces exactly these."""
    apis: list[Api[ServerCore]] = [
        metadata.API,
        find_coordinator.API,
        list_groups.API,
        init_producer_id.API,
        sasl.HANDSHAKE,
        create_topics.API,
        delete_topics.API,
        describe_configs.API,
        alter_configs.ALTER,
        describe_log_dirs.API,
        sasl.AUTHENTICATE,
        create_partitions.API,
        alter_configs.INCREMENTAL_ALTER,
        client_quotas.DESCRIBE,
        client_quotas.ALTER,
        describe_user_scram_credentials.API,
        alter_user_scram_credentials.API,
        allocate_producer_ids.API,
        alter_partition_reassignments.API,
        controlled_shutdown.API,
        elect_leaders.API,
        list_partition_reassignments.API,
        update_features.API,
        envelope.API,
        alter_partition.API,
        describe_cluster.API,
        list_transactions.API,
        *acls.APIS,
        *delegation_tokens.APIS,
    ]
    return with_api_versions(apis, ServerCore.features)
