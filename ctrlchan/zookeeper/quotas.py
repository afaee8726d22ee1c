"""Quotas of users, client ids and IP addresses: configurations below ``/config``.

Source: ``AdminZkClient`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from ctrlchan.errors import MalformedError, NodeError, ResultCode
from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.configs import ConfigNodes
from ctrlchan.zookeeper.operations import Create, Delete

__all__ = ["QuotaEntity", "QuotaNodes", "changed_entity", "node_of"]

#: ``(("user", "alice"), ("client-id", None))``: pairs of a type and a name, None for the default of the type.
#: The types are user, client-id, both in this order, or ip.
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]

_KINDS = {"user": "users", "client-id": "clients", "ip": "ips"}


class QuotaNodes(ConfigNodes):
    """Reads and writes the configurations of entities with quotas. SCRAM credentials stand beside quotas."""

    def read_quotas(self, types: Iterable[str]) -> dict[QuotaEntity, dict[str, str]]:
        """Return the configuration of every entity whose first type is among ``types``."""
        paths_of = self._quota_paths(types)
        configs = self._read(list(paths_of.values()))
        return {entity: config or {} for entity, config in zip(paths_of, configs, strict=True)}

    def read_intact_quotas(
        self, types: Iterable[str] = tuple(_KINDS)
    ) -> tuple[dict[QuotaEntity, dict[str, str]], dict[QuotaEntity, str]]:
        """Return the same, and why the node of an entity cannot be read, with its path."""
        return self._read_intact(self._quota_paths(types))

    def read_intact_quota(self, entity: QuotaEntity) -> tuple[dict[str, str] | None, str]:
        """Return the configuration of an entity, empty without a node; None and why if it is malformed."""
        configs, malformed = self._read_intact({entity: paths.config(*_place(entity))})
        return configs.get(entity, None if entity in malformed else {}), malformed.get(entity, "")

    def _read_intact(
        self, paths_of: Mapping[QuotaEntity, str]
    ) -> tuple[dict[QuotaEntity, dict[str, str]], dict[QuotaEntity, str]]:
        configs: dict[QuotaEntity, dict[str, str]] = {}
        malformed: dict[QuotaEntity, str] = {}
        found = self.session.get_many(list(paths_of.values()))
        for (entity, path), node in zip(paths_of.items(), found, strict=True):
            try:
                configs[entity] = {} if node is None else nodes.parse_config(node.data)
            except MalformedError as error:
                malformed[entity] = f"{path}: {error}"
        return configs, malformed

    def _quota_paths(self, types: Iterable[str]) -> dict[QuotaEntity, str]:
        paths_of: dict[QuotaEntity, str] = {}
        for kind in types:
            parent = f"{paths.CONFIGS}/{_KINDS[kind]}"
            names = sorted(self.session.children(parent) or [])
            paths_of |= {((kind, _name(name)),): f"{parent}/{name}" for name in names}
            if kind != "user":
                continue
            of_users = self.session.children_of_each([f"{parent}/{user}/clients" for user in names])
            for user, clients in zip(names, of_users, strict=True):
                for client in sorted(clients or []):
                    entity = ((kind, _name(user)), ("client-id", _name(client)))
                    paths_of[entity] = f"{parent}/{user}/clients/{client}"
        return paths_of

    def read_quota(self, entity: QuotaEntity) -> dict[str, str]:
        """Return the configuration of one entity, an empty one where there is no node."""
        return self._read([paths.config(*_place(entity))])[0] or {}

    def write_quota(self, entity: QuotaEntity, config: Mapping[str, str]) -> None:
        """Set, create or delete an entity's configuration and report the change. Raises ControllerMovedError.

        An empty configuration is no node, unless there are nodes below it.
        """
        kind, name = _place(entity)
        if config or not self._delete_unused(kind, name):
            self._write(kind, name, config)

    def write_user_config(self, user: str, config: Mapping[str, str]) -> None:
        """Do the same for a user: SCRAM credentials and quotas."""
        self.write_quota((("user", user),), config)

    def _delete_unused(self, kind: str, name: str) -> bool:
        """Delete a node and those above it that are then of no use; return False when nodes are below it."""
        path = paths.config(kind, name)
        self.create_missing([paths.CONFIG_CHANGES])
        report = Create(paths.config_change(), nodes.encode_config_change(kind, name), sequential=True)
        while not self.session.children(path):
            try:
                self.write([*map(Delete, self._unused(path, "/" in name)), report])
            except NodeError as error:
                if error.code not in (ResultCode.NO_NODE, ResultCode.NOT_EMPTY):
                    raise
                # Another has changed a node meanwhile, or this was applied and its answer lost.
                continue
            return True
        return False

    def _unused(self, path: str, below_a_user: bool) -> list[str]:
        """Return the paths of a node without children, and of those above it that have nothing else."""
        if self.session.get(path) is None:
            return []
        clients = paths.parent(path)
        user = paths.parent(clients)
        if not below_a_user or len(self.session.children(clients) or []) > 1:
            return [path]
        if self._read([user])[0] or len(self.session.children(user) or []) > 1:
            return [path, clients]
        return [path, clients, user]


def changed_entity(kind: str, name: str) -> QuotaEntity | None:
    """Return the entity that a notification of ``/config/changes`` names; None for one that has no quotas."""
    if kind not in _KINDS.values():
        return None
    first = next(entity for entity, one in _KINDS.items() if one == kind)
    user, _, client = name.partition("/clients/")
    if client and kind == "users":
        return ((first, _name(user)), ("client-id", _name(client)))
    return ((first, _name(name)),)


def node_of(entity: QuotaEntity) -> str:
    """Return the path of an entity's node."""
    return paths.config(*_place(entity))


def _place(entity: QuotaEntity) -> tuple[str, str]:
    """Return (kind, name) of an entity: ("users", "alice/clients/app")."""
    (kind, name), *more = entity
    place = "/".join([_sanitized(name), *(f"clients/{_sanitized(client)}" for _, client in more)])
    return _KINDS[kind], place


def _sanitized(name: str | None) -> str:
    return paths.DEFAULT_ENTITY if name is None else paths.sanitized(name)


def _name(sanitized: str) -> str | None:
    return None if sanitized == paths.DEFAULT_ENTITY else paths.unsanitized(sanitized)
