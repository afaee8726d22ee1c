"""Brokers that start, stop, restart, or change their endpoints.

Source: ``KafkaController.processBrokerChange``, ``processBrokerModification``, ``onBrokerStartup``,
``onBrokerFailure``, ``onReplicasBecomeOffline`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.notifications import NotificationKind
from ctrlchan.controller.handlers import features, reassignment
from ctrlchan.controller.machines.log_texts import Listed
from ctrlchan.controller.machines.states import PartitionState, ReplicaState
from ctrlchan.errors import InvalidStateError, UnknownBrokerError
from ctrlchan.state import Broker, Endpoint, SecurityProtocol
from ctrlchan.zookeeper import paths
from ctrlchan.zookeeper.values import RegisteredBroker

__all__ = [
    "add_again",
    "announce",
    "on_replicas_become_offline",
    "process_broker_change",
    "process_broker_modification",
    "read_live_brokers",
    "watch_brokers",
]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


def process_broker_change(core: ControllerCore) -> None:
    """Compare the registrations with the live brokers, and act on those that came, went or restarted."""
    core.watches.children(paths.BROKER_IDS)
    registered = {broker.id: broker for broker in read_live_brokers(core)}
    brokers = core.state.brokers
    known = dict(zip(brokers.ids.tolist(), brokers.epochs.tolist(), strict=True))
    new = [registered[broker_id] for broker_id in sorted(registered.keys() - known.keys())]
    dead = sorted(known.keys() - registered.keys())
    bounced = [
        registered[broker_id]
        for broker_id in sorted(registered.keys() & known.keys())
        if registered[broker_id].epoch != known[broker_id]
    ]
    core.log.info(
        "Newly added brokers: %s, deleted brokers: %s, bounced brokers: %s, all live brokers: %s",
        _ids(new),
        dead,
        _ids(bounced),
        sorted(registered),
    )
    # As in Kafka, connections change first: no request of a later step goes to an old registration.
    core.channel.startup([*new, *bounced])
    for broker_id in dead:
        _remove_from_channel(core, broker_id)
    if new:
        core.state.add_brokers(new)
        _on_broker_startup(core, _ids(new))
        core.notify(NotificationKind.BROKER_UP, brokers=_ids(new))
    if bounced:
        core.state.remove_brokers(_ids(bounced))
        _on_broker_failure(core, _ids(bounced))
        core.state.add_brokers(bounced)
        _on_broker_startup(core, _ids(bounced))
        core.notify(NotificationKind.BROKER_RESTARTED, brokers=_ids(bounced))
    if dead:
        stopped = sorted(core.state.shutting_down.intersection(dead))
        core.state.remove_brokers(dead)
        _on_broker_failure(core, dead)
        if stopped:
            core.log.info("Removed %s from list of shutting down brokers.", Listed(stopped))
        core.notify(NotificationKind.BROKER_DOWN, brokers=dead)
    if new or bounced or dead:
        epochs = core.state.brokers.ids.tolist(), core.state.brokers.epochs.tolist()
        core.log.info("Updated broker epochs cache: %s", dict(zip(*epochs, strict=True)))


def process_broker_modification(core: ControllerCore, changed: Sequence[str]) -> None:
    """Take over changed endpoints and features of registrations at these paths.

    A registration that is new or of another epoch is left to the event of the broker's children.
    """
    core.broker_watches.watch(changed)
    updated = []
    for path in changed:
        registered = core.nodes.read_broker(int(paths.place_of(path).number))
        if registered is None:
            continue
        try:
            broker, known = _broker(registered), core.state.broker(registered.id)
        except InvalidStateError as error:
            core.log.error("%s: %s", path, error)
            continue
        except KeyError:
            continue
        if broker.epoch == known.epoch and broker != known:
            core.log.info("Updated broker metadata: %s -> %s", known, broker)
            updated.append(broker)
    if not updated:
        return
    core.state.add_brokers(updated)
    core.log.info("Broker info update callback for %s", Listed(_ids(updated)))
    announce(core)
    # Another endpoint is another connection: what waited for the former one has ended with it.
    core.channel.startup(updated)
    _send_again(core, _ids(updated))
    core.notify(NotificationKind.BROKER_CHANGED, brokers=_ids(updated))


def read_live_brokers(
    core: ControllerCore, names: Sequence[str] | None = None, finalized: Mapping[str, int] | None = None
) -> list[Broker]:
    """Return the registered brokers that are well-formed and whose features fit.

    The others are logged and left out, as if they were not registered. ``names``: the children of
    ``/brokers/ids``; ``finalized``: the finalized features; None reads them.
    """
    read = core.nodes.read_brokers(names=names)
    malformed = dict(read.malformed)
    brokers = []
    for registered in features.compatible_brokers(core, read.brokers, finalized):
        try:
            brokers.append(_broker(registered))
        except InvalidStateError as error:
            malformed[paths.broker(registered.id)] = str(error)
    core.note_malformed(paths.BROKER_IDS, malformed)
    return brokers


def announce(core: ControllerCore) -> None:
    """Announce the controller's own entry, with a rack where the brokers have racks.

    Brokers look up the controller among the live brokers. They refuse to create topics when some live brokers
    have a rack and some have none.
    """
    endpoints = core.own_endpoints
    if not endpoints:
        core.state.set_announced(())
        return
    racks = [rack for rack in core.state.brokers.racks.to_list() if rack is not None]
    rack = (core.config.rack or min(racks)) if racks else None
    core.state.set_announced([Broker(core.config.controller_id, -1, endpoints, rack)])


def watch_brokers(core: ControllerCore, broker_ids: Collection[int]) -> None:
    """Watch the registrations of these brokers."""
    core.log.debug("Register BrokerModifications handler for %s", Listed(tuple(broker_ids)))
    core.broker_watches.watch(paths.broker(broker_id) for broker_id in broker_ids)


def add_again(core: ControllerCore, broker_id: int) -> None:
    """Send a broker its full state through a new connection, if the channel has given it up.

    Its registration lives, so no event of ZooKeeper will bring it back.
    """
    try:
        broker = core.state.broker(broker_id)
    except KeyError:
        return
    if broker_id in core.channel.left_out:
        # It has no endpoint for the listener: adding it again would change nothing.
        return
    try:
        core.channel.needs_resync(broker_id)
    except UnknownBrokerError:
        core.log.warning(
            "The channel has given up broker %d, which is registered: adding it again", broker_id
        )
        core.channel.startup([broker])
        _send_again(core, [broker_id])


def on_replicas_become_offline(core: ControllerCore, rows: Int64, brokers: Int32) -> None:
    """Elect leaders for partitions that lose theirs, and take these replicas offline.

    ``rows``, ``brokers``: int64 row and int32 broker id of each replica.
    """
    context = core.context
    to_delete = context.is_to_delete(rows)
    core.partition_states.handle_state_changes(context.rows_with_offline_leader(), PartitionState.OFFLINE)
    elections = core.partition_states.trigger_online()
    core.replica_states.handle_state_changes(rows[~to_delete], brokers[~to_delete], ReplicaState.OFFLINE)
    if to_delete.any():
        # A replica that cannot answer must not stay in ReplicaDeletionStarted: its topic would never be
        # tried again.
        core.deletion.fail(rows[to_delete], brokers[to_delete])
    if to_delete.all() and not (elections.error == 0).any():
        # No state machine has sent UpdateMetadata, and brokers must hear who is gone.
        core.send_update_metadata(None, ())


def _on_broker_startup(core: ControllerCore, broker_ids: Sequence[int]) -> None:
    core.log.info("New broker startup callback for %s", broker_ids)
    announce(core)
    rows = _send_full_state(core, broker_ids)
    # Ids, because rows move when a reassignment ends.
    partition_ids = core.context.partition_ids[rows]
    core.partition_states.trigger_online()
    reassignment.resume_on_brokers(core, broker_ids)
    rows = core.context.rows_of_ids(partition_ids)
    _resume_deletions(core, rows[rows >= 0])
    watch_brokers(core, broker_ids)


def _send_again(core: ControllerCore, broker_ids: Sequence[int]) -> None:
    """Send brokers their full state through new connections; requests have ended with the former ones.

    Their registrations are the same, so their replicas keep their states: new replicas of a reassignment are
    sent by the reassignment, and replicas that were being deleted are tried again.
    """
    for broker_id in broker_ids:
        core.deletion.fail_on_broker(broker_id)
    rows = _send_full_state(core, broker_ids)
    partition_ids = core.context.partition_ids[rows]
    reassignment.resume_on_brokers(core, broker_ids)
    rows = core.context.rows_of_ids(partition_ids)
    _resume_deletions(core, rows[rows >= 0])


def _resume_deletions(core: ControllerCore, rows: Int64) -> None:
    """Resume the deletion of the topics of these rows that are queued for deletion."""
    queued, _ = core.context.names_of(rows[core.context.is_to_delete(rows)])
    if queued:
        core.deletion.resume_for({name.decode() for name in queued})


def _send_full_state(core: ControllerCore, broker_ids: Sequence[int]) -> Int64:
    """Send metadata and LeaderAndIsr of all their replicas to these brokers; return the rows."""
    others = np.setdiff1d(core.state.broker_ids, np.array(broker_ids, dtype=np.int32))
    core.send_update_metadata(others.tolist(), ())
    core.send_update_metadata(broker_ids, "all")
    rows, brokers = core.context.replicas_on(broker_ids)
    core.replica_states.handle_state_changes(rows, brokers, ReplicaState.ONLINE)
    return rows


def _on_broker_failure(core: ControllerCore, broker_ids: Sequence[int]) -> None:
    core.log.info("Broker failure callback for %s", broker_ids)
    announce(core)
    on_replicas_become_offline(core, *core.context.replicas_on(broker_ids))
    core.log.debug("Unregister BrokerModifications handler for %s", Listed(broker_ids))
    core.broker_watches.forget(paths.broker(broker_id) for broker_id in broker_ids)


def _remove_from_channel(core: ControllerCore, broker_id: int) -> None:
    try:
        core.channel.remove_broker(broker_id)
    except UnknownBrokerError:
        # It has no usable endpoint, or the channel has given it up.
        core.log.debug("The channel has no broker %d", broker_id)


def _broker(registered: RegisteredBroker) -> Broker:
    """Raises InvalidStateError for a security protocol that Kafka does not have."""
    endpoints = (
        Endpoint(one.name, SecurityProtocol.of(one.security_protocol), one.host, one.port)
        for one in registered.listeners
    )
    return Broker(registered.id, registered.epoch, tuple(endpoints), registered.rack)


def _ids(brokers: Sequence[Broker]) -> tuple[int, ...]:
    return tuple(broker.id for broker in brokers)
