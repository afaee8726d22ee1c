"""The control plane of a ZooKeeper-mode Apache Kafka cluster.

``ClusterState`` holds a cluster as columns, ``ControllerChannelManager`` talks to every broker,
``ControllerBrokerRequestBatch`` decides which rows go to whom, ``KafkaController`` runs a cluster with them,
``EmbeddedCluster`` is something to talk to.
See README.md for an example and DESIGN.md for the rooms.

Names are loaded when they are first asked for: a sender process imports this package too, and must not
carry NumPy and Arrow for it.
"""

from __future__ import annotations

import importlib
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, Final

if PathFinder.find_spec(f"{__name__}._codec", __path__) is None:
    raise ImportError(
        "this source checkout of ctrlchan is not compiled: `python -m pip install -e .` does it with a C "
        "compiler, `make run` does all set-up in .venv"
    )

if TYPE_CHECKING:
    from ctrlchan.batch import ControllerBrokerRequestBatch
    from ctrlchan.channel import (
        ChannelConfig,
        ControllerChannelManager,
        ControlRequest,
        Outcome,
        OutcomeKind,
        SaslSettings,
        Sent,
        TlsSettings,
    )
    from ctrlchan.channel.observability.metrics import ChannelMetrics
    from ctrlchan.controller.events.notifications import LeaderChanges, Notification, NotificationKind
    from ctrlchan.controller.kafka_controller import KafkaController
    from ctrlchan.controller.settings.config import ControllerConfig
    from ctrlchan.controller.status.metrics import ControllerMetrics
    from ctrlchan.embedded import ClusterBroker, EmbeddedCluster
    from ctrlchan.embedded.acls import Acl
    from ctrlchan.embedded.groups import ConsumerGroup
    from ctrlchan.embedded.records import TopicRecord
    from ctrlchan.embedded.transactions import Transaction
    from ctrlchan.errors import CtrlchanError, OutcomesTimeoutError, ProtocolError
    from ctrlchan.journal import (
        Journal,
        compact_journal,
        journal_dataset,
        read_channels,
        read_journal,
    )
    from ctrlchan.launch.descriptions import BrokerDescription
    from ctrlchan.launch.embedded import EmbeddedBroker
    from ctrlchan.launch.log_dirs import TEMPORARY
    from ctrlchan.security.listener_security import ListenerSecurity
    from ctrlchan.state import Broker, ClusterState, Endpoint, SecurityProtocol, StateDifference

    __version__: str

__all__ = [
    "TEMPORARY",
    "Acl",
    "Broker",
    "BrokerDescription",
    "ChannelConfig",
    "ChannelMetrics",
    "ClusterBroker",
    "ClusterState",
    "ConsumerGroup",
    "ControlRequest",
    "ControllerBrokerRequestBatch",
    "ControllerChannelManager",
    "ControllerConfig",
    "ControllerMetrics",
    "CtrlchanError",
    "EmbeddedBroker",
    "EmbeddedCluster",
    "Endpoint",
    "Journal",
    "KafkaController",
    "LeaderChanges",
    "ListenerSecurity",
    "Notification",
    "NotificationKind",
    "Outcome",
    "OutcomeKind",
    "OutcomesTimeoutError",
    "ProtocolError",
    "SaslSettings",
    "SecurityProtocol",
    "Sent",
    "StateDifference",
    "TlsSettings",
    "TopicRecord",
    "Transaction",
    "__version__",
    "compact_journal",
    "journal_dataset",
    "read_channels",
    "read_journal",
]

_HOMES: Final = {
    "TEMPORARY": "launch.log_dirs",
    "Acl": "embedded.acls",
    "Broker": "state",
    "BrokerDescription": "launch.descriptions",
    "ChannelConfig": "channel",
    "ChannelMetrics": "channel.observability.metrics",
    "ClusterBroker": "embedded",
    "ClusterState": "state",
    "ConsumerGroup": "embedded.groups",
    "ControlRequest": "channel",
    "ControllerBrokerRequestBatch": "batch",
    "ControllerChannelManager": "channel",
    "ControllerConfig": "controller.settings.config",
    "ControllerMetrics": "controller.status.metrics",
    "CtrlchanError": "errors",
    "EmbeddedBroker": "launch.embedded",
    "EmbeddedCluster": "embedded",
    "Endpoint": "state",
    "Journal": "journal",
    "KafkaController": "controller.kafka_controller",
    "LeaderChanges": "controller.events.notifications",
    "ListenerSecurity": "security.listener_security",
    "Notification": "controller.events.notifications",
    "NotificationKind": "controller.events.notifications",
    "Outcome": "channel",
    "OutcomeKind": "channel",
    "OutcomesTimeoutError": "errors",
    "ProtocolError": "errors",
    "SaslSettings": "channel",
    "SecurityProtocol": "state",
    "Sent": "channel",
    "StateDifference": "state",
    "TlsSettings": "channel",
    "TopicRecord": "embedded.records",
    "Transaction": "embedded.transactions",
    "compact_journal": "journal",
    "journal_dataset": "journal",
    "read_channels": "journal",
    "read_journal": "journal",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from ctrlchan.own_version import own_version

        return own_version()
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
