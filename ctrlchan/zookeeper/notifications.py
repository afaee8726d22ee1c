"""Sequential nodes by which brokers report changed ISRs, failed log directories, changed configurations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.bulk import delete_nodes
from ctrlchan.zookeeper.guarded import GuardedNodes
from ctrlchan.zookeeper.values import PartitionsNamed

__all__ = ["NotificationNodes"]


class NotificationNodes(GuardedNodes):
    """Reads and deletes notifications. Names are those of the nodes: ``isr_change_0000000007``.

    ``changed(path)``, where given, is called once when there are more notifications or fewer.
    """

    def isr_change_notifications(self, changed: Callable[[str], object] | None = None) -> list[str]:
        """Return the names of the notifications of changed ISRs, in their order."""
        return self._names(paths.ISR_CHANGE_NOTIFICATIONS, changed)

    def read_isr_change_notifications(self, names: Sequence[str]) -> PartitionsNamed:
        """Return the partitions whose state nodes brokers have changed."""
        node_paths = [paths.isr_change_notification(name) for name in names]
        found, malformed = self.read_each(node_paths, nodes.parse_partitions)
        partitions = dict.fromkeys(one for _, _, named in found for one in named)
        return PartitionsNamed(list(partitions), malformed)

    def delete_isr_change_notifications(self, names: Iterable[str] | None = None) -> None:
        """Delete these notifications, None for all. Raises ControllerMovedError."""
        if names is None:
            names = self.isr_change_notifications()
        delete_nodes(self, (paths.isr_change_notification(name) for name in names))

    def log_dir_event_notifications(self, changed: Callable[[str], object] | None = None) -> list[str]:
        """Return the names of the notifications of failed log directories, in their order."""
        return self._names(paths.LOG_DIR_EVENT_NOTIFICATIONS, changed)

    def read_log_dir_event_notifications(self, names: Sequence[str]) -> tuple[list[int], dict[str, str]]:
        """Return (ids of the brokers with a failed log directory, path -> reason of malformed nodes)."""
        node_paths = [paths.log_dir_event_notification(name) for name in names]
        found, malformed = self.read_each(node_paths, nodes.parse_log_dir_event)
        return list(dict.fromkeys(broker_id for _, _, broker_id in found)), malformed

    def delete_log_dir_event_notifications(self, names: Iterable[str] | None = None) -> None:
        """Delete these notifications, None for all. Raises ControllerMovedError."""
        if names is None:
            names = self.log_dir_event_notifications()
        delete_nodes(self, (paths.log_dir_event_notification(name) for name in names))

    def config_changes(self, changed: Callable[[str], object] | None = None) -> list[str]:
        """Return the names of the notifications of changed configurations, in their order."""
        return self._names(paths.CONFIG_CHANGES, changed)

    def read_config_changes(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """Return the (kind, name) of each changed entity: ("topics", "t"). Malformed nodes are left out."""
        found, _ = self.read_each([paths.config_change(name) for name in names], nodes.parse_config_change)
        return list(dict.fromkeys(entity for _, _, entity in found))

    def _names(self, path: str, changed: Callable[[str], object] | None) -> list[str]:
        if changed is None:
            return sorted(self.session.children(path) or [])
        return sorted(self.session.watch_children(path, changed) or [])
