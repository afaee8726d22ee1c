"""Dynamic configurations below ``/config``, finalized features, and blocks of producer ids."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from ctrlchan.errors import MalformedError, NodeError, ResultCode
from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.guarded import GuardedNodes
from ctrlchan.zookeeper.operations import Create, SetData
from ctrlchan.zookeeper.values import FeatureNode, ProducerIdBlock

__all__ = ["ConfigNodes"]

_LOG = logging.getLogger("ctrlchan.zookeeper")


class ConfigNodes(GuardedNodes):
    """Reads and writes configurations. A malformed one is logged, and is read as empty, as Kafka does."""

    def read_topic_configs(self, names: Sequence[str]) -> list[dict[str, str] | None]:
        """Return the configuration of each topic, None where it has no node."""
        return self._read([paths.topic_config(name) for name in names])

    def read_topic_config(self, name: str) -> dict[str, str] | None:
        """Return the configuration of a topic, None where it has no node."""
        return self.read_topic_configs([name])[0]

    def read_broker_config(self, broker_id: int | None = None) -> dict[str, str]:
        """Return the dynamic configuration of a broker, or of all brokers (``/config/brokers/<default>``)."""
        path = paths.broker_config() if broker_id is None else paths.broker_config(broker_id)
        return self._read([path])[0] or {}

    def read_user_configs(self, users: Sequence[str]) -> list[dict[str, str] | None]:
        """Return the configuration of each user, with the SCRAM credentials; None where there is no node."""
        return self._read([paths.user_config(user) for user in users])

    def read_user_config(self, user: str) -> dict[str, str] | None:
        """Return the configuration of a user, with the SCRAM credentials; None where there is no node."""
        return self.read_user_configs([user])[0]

    def user_names(self) -> list[str]:
        """Return the names of the users with a configuration."""
        return sorted(map(paths.unsanitized, self.session.children(paths.USER_CONFIGS) or []))

    def write_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        """Set or create a topic's configuration and report the change. Raises ControllerMovedError."""
        self._write("topics", name, config)

    def write_broker_config(self, broker_id: int | None, config: Mapping[str, str]) -> None:
        """Set or create the dynamic configuration of a broker, or that of all brokers (None), and report it.

        Raises ControllerMovedError.
        """
        self._write("brokers", paths.DEFAULT_ENTITY if broker_id is None else str(broker_id), config)

    def read_feature(self, changed: Callable[[str], object] | None = None) -> FeatureNode | None:
        """Return the finalized features, None without the node. Raises ZooKeeperError when malformed."""
        if changed is not None:
            self.session.watch_node(paths.FEATURE, changed)
        found = self.read_one(paths.FEATURE, nodes.parse_feature)
        if found is None:
            return None
        node, (format_version, enabled, features) = found
        return FeatureNode(format_version, enabled, features, node.version)

    def write_feature(
        self, format_version: int, enabled: bool, features: Mapping[str, int], version: int | None
    ) -> int:
        """Replace the node of this version, None to create it; return the new one.

        Raises ControllerMovedError, NodeError (BAD_VERSION, NODE_EXISTS, NO_NODE).
        """
        data = nodes.encode_feature(format_version, enabled, features)
        if version is None:
            return self.write([Create(paths.FEATURE, data)])[0]
        return self.write([SetData(paths.FEATURE, data, version)])[0]

    def read_producer_id_block(self) -> ProducerIdBlock | None:
        """Return the last block of producer ids; None without a node, or with an empty one.

        Raises ZooKeeperError for a malformed node.
        """
        node = self.session.get(paths.PRODUCER_ID_BLOCK)
        if node is None:
            return None
        if not node.data:
            # Kafka creates it without data.
            return ProducerIdBlock(-1, 0, -1, node.version)
        found = self.read_one(paths.PRODUCER_ID_BLOCK, nodes.parse_producer_id_block)
        return None if found is None else ProducerIdBlock(*found[1], found[0].version)

    def write_producer_id_block(self, broker_id: int, first: int, last: int, version: int | None) -> bool:
        """Replace the block of this version, None to create it; return False when another was faster.

        Raises ControllerMovedError.
        """
        data = nodes.encode_producer_id_block(broker_id, first, last)
        path = paths.PRODUCER_ID_BLOCK
        try:
            self.write([Create(path, data) if version is None else SetData(path, data, version)])
        except NodeError as error:
            if error.code in (ResultCode.BAD_VERSION, ResultCode.NODE_EXISTS, ResultCode.NO_NODE):
                return False
            raise
        return True

    def _read(self, node_paths: Sequence[str]) -> list[dict[str, str] | None]:
        configs: list[dict[str, str] | None] = []
        for path, node in zip(node_paths, self.session.get_many(node_paths), strict=True):
            config = None
            if node is not None:
                try:
                    config = nodes.parse_config(node.data)
                except MalformedError as error:
                    _LOG.error("%s: %s: the configuration is ignored", path, error)
                    config = {}
            configs.append(config)
        return configs

    def _write(self, kind: str, name: str, config: Mapping[str, str]) -> None:
        path, data = paths.config(kind, name), nodes.encode_config(config)
        report = Create(paths.config_change(), nodes.encode_config_change(kind, name), sequential=True)
        try:
            self.write([SetData(path, data), report])
        except NodeError as error:
            if error.code != ResultCode.NO_NODE:
                raise
            self.create_missing([paths.CONFIG_CHANGES, paths.parent(path)])
            try:
                self.write([Create(path, data), report])
            except NodeError as again:
                if again.code != ResultCode.NODE_EXISTS:
                    raise
                self.write([SetData(path, data), report])
