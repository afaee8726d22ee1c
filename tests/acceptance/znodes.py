"""What a controller writes to ZooKeeper: its seat, topics, and partition states.

After the take-over every write is a multi that checks /controller_epoch, so a controller that lost its seat
cannot write. Source: Kafka's KafkaZkClient and ZkData (3.9).
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError


@dataclass(frozen=True)
class TakeOver:
    """A won election: who sat there (None: nobody), the epoch before, and the epoch since."""

    former_controller: int | None
    former_epoch: int
    epoch: int


@dataclass(frozen=True)
class PartitionState:
    """The ``state`` znode; ``version`` is its zkVersion, which is the partition epoch on the wire."""

    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: tuple[int, ...]
    version: int = 0


class ControllerZnodes:
    """ZooKeeper as seen by the controller ``controller_id``, which need not be a broker's id."""

    def __init__(self, client: KazooClient, controller_id: int) -> None:
        self._client = client
        self.controller_id = controller_id
        self._epoch_version = -1
        self.controller_epoch = 0

    def take_over(self) -> TakeOver:
        """Become the controller in one multi; tried again while another one is faster."""
        while True:
            epoch_data, epoch_stat = self._client.get("/controller_epoch")
            epoch = int(epoch_data)
            former, former_version = self._seat()
            multi = self._client.transaction()
            multi.set_data("/controller_epoch", b"%d" % (epoch + 1), epoch_stat.version)
            if former is not None:
                multi.delete("/controller", former_version)
            seat = {
                "version": 2,
                "brokerid": self.controller_id,
                "timestamp": str(time.time_ns() // 1_000_000),
                "kraftControllerEpoch": -1,
            }
            multi.create("/controller", _json(seat), ephemeral=True)
            try:
                results = _commit(multi)
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue
            self._epoch_version = results[0].version
            self.controller_epoch = epoch + 1
            return TakeOver(former, epoch, epoch + 1)

    def create_topic(
        self, name: str, assignment: Mapping[int, Sequence[int]], topic_id: bytes
    ) -> dict[int, PartitionState]:
        """Create the topic; every first replica leads with all replicas in sync. Returns the states."""
        root = f"/brokers/topics/{name}"
        multi = self._multi()
        for path in (f"/config/topics/{name}", root):
            parent = path.rpartition("/")[0]
            self._client.ensure_path(parent)
        multi.create(f"/config/topics/{name}", _json({"version": 1, "config": {}}))
        multi.create(
            root,
            _json(
                {
                    "version": 3,
                    "partitions": {str(p): list(replicas) for p, replicas in assignment.items()},
                    "adding_replicas": {},
                    "removing_replicas": {},
                    "topic_id": base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode(),
                }
            ),
        )
        multi.create(f"{root}/partitions", b"null")
        states = {}
        for partition, replicas in assignment.items():
            state = PartitionState(replicas[0], 0, self.controller_epoch, tuple(replicas))
            multi.create(f"{root}/partitions/{partition}", b"null")
            multi.create(f"{root}/partitions/{partition}/state", _state_json(state))
            states[partition] = state
        _commit(multi)
        return states

    def partition_state(self, topic: str, partition: int) -> PartitionState:
        data, stat = self._client.get(_state_path(topic, partition))
        fields = json.loads(data)
        return PartitionState(
            fields["leader"],
            fields["leader_epoch"],
            fields["controller_epoch"],
            tuple(fields["isr"]),
            stat.version,
        )

    def set_partition_state(self, topic: str, partition: int, state: PartitionState) -> PartitionState:
        """Write ``state`` at its version; returns it with the new one. Raises BadVersionError."""
        state = replace(state, controller_epoch=self.controller_epoch)
        multi = self._multi()
        multi.set_data(_state_path(topic, partition), _state_json(state), state.version)
        return replace(state, version=_commit(multi)[1].version)

    def delete_topic(self, name: str) -> None:
        """Remove the topic's znodes, as the controller does once every replica is deleted."""
        root = f"/brokers/topics/{name}"
        multi = self._multi()
        for partition in self._client.get_children(f"{root}/partitions"):
            multi.delete(f"{root}/partitions/{partition}/state")
            multi.delete(f"{root}/partitions/{partition}")
        multi.delete(f"{root}/partitions")
        multi.delete(root)
        multi.delete(f"/config/topics/{name}")
        _commit(multi)

    def _seat(self) -> tuple[int | None, int]:
        try:
            data, stat = self._client.get("/controller")
        except NoNodeError:
            return None, -1
        return int(json.loads(data)["brokerid"]), stat.version

    def _multi(self) -> TransactionRequest:
        multi = self._client.transaction()
        multi.check("/controller_epoch", self._epoch_version)
        return multi


def _state_path(topic: str, partition: int) -> str:
    return f"/brokers/topics/{topic}/partitions/{partition}/state"


def _state_json(state: PartitionState) -> bytes:
    return _json(
        {
            "version": 1,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "controller_epoch": state.controller_epoch,
            "isr": list(state.isr),
        }
    )


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _commit(multi: TransactionRequest) -> list[Any]:
    """The results of a multi. Raises the error of the operation that was to blame, not of its neighbours."""
    results = multi.commit()
    errors = [result for result in results if isinstance(result, KazooException)]
    if errors:
        # Neighbours of the one to blame carry RuntimeInconsistency or RolledBackError.
        named = [e for e in errors if isinstance(e, (BadVersionError, NodeExistsError, NoNodeError))]
        raise (named or errors)[0]
    return list(results)
