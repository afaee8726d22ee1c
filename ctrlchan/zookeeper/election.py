"""Election of a controller: ``/controller`` and ``/controller_epoch``."""

from __future__ import annotations

from collections.abc import Callable

from ctrlchan.errors import (
    ControllerMovedError,
    MigrationError,
    NodeError,
    ResultCode,
    ZooKeeperError,
)
from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.guarded import GuardedNodes, parsed
from ctrlchan.zookeeper.operations import Create, Delete, Node, SetData
from ctrlchan.zookeeper.values import ControllerEpoch, ControllerNode, Elected, ElectionRead

__all__ = ["ElectionNodes"]

#: Of a cluster that never had a controller: the first one makes it 1. Source: ``KafkaController``.
_INITIAL_EPOCH = 0
#: An int32 in every request to a broker.
_MAX_EPOCH = 2**31 - 1


class ElectionNodes(GuardedNodes):
    """Reads and changes who the controller is."""

    def read_controller_epoch(self) -> ControllerEpoch | None:
        """Return ``/controller_epoch``, None where there never was a controller."""
        return _controller_epoch(self.session.get(paths.CONTROLLER_EPOCH))

    def read_election(self, changed: Callable[[str], object] | None = None) -> ElectionRead:
        """Return what an election depends on. ``changed(path)``: called once when ``/controller`` changes.

        Raises ZooKeeperError when ``/controller`` is malformed.
        """
        both = [paths.CONTROLLER, paths.CONTROLLER_EPOCH]
        if changed is None:
            controller, epoch = self.session.get_many(both)
        else:
            controller, epoch = self.session.watch_then_get_many(paths.CONTROLLER, changed, both)
        return ElectionRead(_controller(controller), epoch)

    def become_controller(
        self,
        broker_id: int,
        timestamp_ms: int,
        *,
        replace: bool = False,
        read: ElectionRead | None = None,
    ) -> Elected:
        """Win the election while nobody is the controller, and guard later writes with the new epoch.

        ``replace``: in place of another controller too, which resigns when it sees the node changed.
        ``read``: the nodes as they were a moment ago, None reads them; a change since loses the election.
        ``/controller`` is created and ``/controller_epoch`` incremented by one multi, whose lost answer is
        read back. Raises ControllerMovedError when another controller is elected, MigrationError when the
        cluster migrates to KRaft. Source: ``registerControllerAndIncrementControllerEpoch``.
        """
        controller, epoch_node = self.read_election() if read is None else read
        self._refuse_migration(controller)
        if controller is not None and not replace and controller.ephemeral_owner != self.session.session_id:
            raise ControllerMovedError(f"broker {controller.broker_id} is the controller")
        before = _controller_epoch(epoch_node) or self._create_epoch()
        epoch = before.epoch + 1
        if epoch > _MAX_EPOCH:
            raise ZooKeeperError(
                f"{paths.CONTROLLER_EPOCH} is {before.epoch}: no request holds a higher epoch"
            )
        # Another's, or left by an earlier term of this session, which could not delete it.
        former = [] if controller is None else [Delete(paths.CONTROLLER, controller.version)]
        data = nodes.encode_controller(broker_id, timestamp_ms)
        change = SetData(paths.CONTROLLER_EPOCH, nodes.encode_controller_epoch(epoch), before.zk_version)
        try:
            self.session.multi([*former, Create(paths.CONTROLLER, data, ephemeral=True), change])
        except NodeError as error:
            if error.code in (ResultCode.NODE_EXISTS, ResultCode.BAD_VERSION, ResultCode.NO_NODE):
                raise ControllerMovedError("another controller was elected at the same time") from None
            raise
        self.epoch_zk_version = before.zk_version + 1
        return Elected(epoch, self.epoch_zk_version)

    def resign(self, epoch_zk_version: int | None = None) -> None:
        """Delete ``/controller`` if it is of this epoch; another controller's stays.

        ``epoch_zk_version``: None for that of the last election. Raises ControllerMovedError when another
        controller was elected.
        """
        if epoch_zk_version is not None:
            self.epoch_zk_version = epoch_zk_version
        self.delete_if_there(paths.CONTROLLER)

    def _create_epoch(self) -> ControllerEpoch:
        try:
            self.session.create(paths.CONTROLLER_EPOCH, nodes.encode_controller_epoch(_INITIAL_EPOCH))
        except NodeError as error:
            if error.code != ResultCode.NODE_EXISTS:
                raise
        found = self.read_controller_epoch()
        if found is None:
            raise ControllerMovedError(f"{paths.CONTROLLER_EPOCH} was deleted during an election")
        return found

    @staticmethod
    def _refuse_migration(controller: ControllerNode | None) -> None:
        if controller is not None and controller.kraft_epoch >= 0:
            raise MigrationError(
                f"{paths.CONTROLLER} has a kraftControllerEpoch of {controller.kraft_epoch}: the cluster "
                "is being migrated to KRaft, and its controller is a KRaft quorum"
            )


def _controller(node: Node | None) -> ControllerNode | None:
    if node is None:
        return None
    broker_id, kraft_epoch = parsed(paths.CONTROLLER, node, nodes.parse_controller_node)
    return ControllerNode(broker_id, kraft_epoch, node.version, node.ephemeral_owner, node.czxid)


def _controller_epoch(node: Node | None) -> ControllerEpoch | None:
    if node is None:
        return None
    epoch = parsed(paths.CONTROLLER_EPOCH, node, nodes.parse_controller_epoch)
    return ControllerEpoch(epoch, node.version)
