"""Election of a controller: ``/controller`` and ``/controller_epoch``."""

from __future__ import annotations

from ctrlchan.errors import ControllerMovedError, MigrationError, NodeError, ResultCode, ZooKeeperError
from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.guarded import GuardedNodes
from ctrlchan.zookeeper.operations import Create, Delete, SetData
from ctrlchan.zookeeper.values import ControllerEpoch, ControllerNode, Elected

__all__ = ["ElectionNodes"]

#: Of a cluster that never had a controller: the first one makes it 1. Source: ``KafkaController``.
_INITIAL_EPOCH = 0
#: An int32 in every request to a broker.
_MAX_EPOCH = 2**31 - 1


class ElectionNodes(GuardedNodes):
    """Reads and changes who the controller is."""

    def read_controller(self) -> ControllerNode | None:
        """Return ``/controller``, None where nobody is elected. Raises ZooKeeperError when malformed."""
        found = self.read_one(paths.CONTROLLER, nodes.parse_controller_node)
        if found is None:
            return None
        node, (broker_id, kraft_epoch) = found
        return ControllerNode(broker_id, kraft_epoch, node.version, node.ephemeral_owner, node.czxid)

    def read_controller_epoch(self) -> ControllerEpoch | None:
        """Return ``/controller_epoch``, None where there never was a controller."""
        found = self.read_one(paths.CONTROLLER_EPOCH, nodes.parse_controller_epoch)
        return None if found is None else ControllerEpoch(found[1], found[0].version)

    def become_controller(self, broker_id: int, timestamp_ms: int, *, replace: bool = False) -> Elected:
        """Win the election while nobody is the controller, and guard later writes with the new epoch.

        ``replace``: in place of another controller too, which resigns when it sees the node changed.
        ``/controller`` is created and ``/controller_epoch`` incremented by one multi, whose lost answer is
        read back. Raises ControllerMovedError when another controller is elected, MigrationError when the
        cluster migrates to KRaft. Source: ``registerControllerAndIncrementControllerEpoch``.
        """
        controller = self.read_controller()
        self._refuse_migration(controller)
        if controller is not None and not replace and controller.ephemeral_owner != self.session.session_id:
            raise ControllerMovedError(f"broker {controller.broker_id} is the controller")
        before = self.read_controller_epoch() or self._create_epoch()
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
