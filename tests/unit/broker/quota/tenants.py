"""Tenants: a quota callback for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ctrlchan.broker.quota._client_quotas import QuotaType
from ctrlchan.broker.quota.callback import ClientQuotaCallback, ClusterMetadata, Tags
from ctrlchan.security.principals import Principal


class Tenants(ClientQuotaCallback):
    """A client belongs to the tenant that its id begins with: ``blue-1`` and ``blue-2`` are of ``blue``."""

    def __init__(self) -> None:
        self.limits: dict[str, float] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.is_changed = False
        self.fails = False
        self.topics: dict[str, list[int]] = {}
        self.is_closed = False

    def configure(self, configs: Mapping[str, str]) -> None:
        for part in configs.get("tenant.limits", "").split():
            tenant, _, limit = part.partition("=")
            self.limits[tenant] = float(limit)

    def tags(self, quota_type: QuotaType, principal: Principal, client_id: str) -> Tags:
        if self.fails:
            raise OSError("the tenants' database is away")
        self.calls.append((quota_type, principal, client_id))
        return {"tenant": client_id.partition("-")[0], "user-type": principal.type}

    def limit(self, quota_type: QuotaType, tags: Tags) -> float | None:
        # Only these types: requests of tests are charged for their time, too.
        counts = quota_type in (QuotaType.PRODUCE, QuotaType.CONTROLLER_MUTATION)
        return self.limits.get(tags.get("tenant", "")) if counts else None

    def update_quota(
        self, quota_type: QuotaType, user: str | None, client_id: str | None, value: float
    ) -> None:
        self.calls.append((quota_type, user, client_id, value))
        if client_id:
            self.limits[client_id] = value

    def remove_quota(self, quota_type: QuotaType, user: str | None, client_id: str | None) -> None:
        self.calls.append((quota_type, user, client_id))
        self.limits.pop(client_id or "", None)

    def update_cluster(self, metadata: ClusterMetadata) -> bool:
        self.topics = {name: metadata.partitions_of(name).tolist() for name in metadata.topic_names()}
        return False

    def is_reset_required(self, quota_type: QuotaType) -> bool:
        if quota_type is QuotaType.PRODUCE and self.is_changed:
            self.is_changed = False
            return True
        return False

    def close(self) -> None:
        self.is_closed = True
