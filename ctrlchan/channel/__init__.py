"""The channel from one controller to every broker: queues, sender processes, outcomes.

In: encoded-once requests (``ControlRequest``) for broker ids. Out: exactly one ``Outcome`` for each of them.
It knows frames, connections and error codes; it must not know what a partition is, nor where the cluster's
state comes from.

The parent process decides everything and owns all memory. The processes of ``senders`` move bytes; of this
folder they import ``wire`` alone, which is why the public names below are looked up only when they are used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ctrlchan.channel.config import ChannelConfig
    from ctrlchan.channel.manager import ControllerChannelManager
    from ctrlchan.channel.outcome import Outcome, OutcomeKind, Sent
    from ctrlchan.channel.queues.full_state import FullState, FullStateSource
    from ctrlchan.channel.request import ControlRequest
    from ctrlchan.channel.wire.security import SaslSettings, TlsSettings

__all__ = [
    "ChannelConfig",
    "ControlRequest",
    "ControllerChannelManager",
    "FullState",
    "FullStateSource",
    "Outcome",
    "OutcomeKind",
    "SaslSettings",
    "Sent",
    "TlsSettings",
]

_MODULE_OF: Final = {
    "ChannelConfig": "config",
    "ControlRequest": "request",
    "ControllerChannelManager": "manager",
    "FullState": "queues.full_state",
    "FullStateSource": "queues.full_state",
    "Outcome": "outcome",
    "OutcomeKind": "outcome",
    "SaslSettings": "wire.security",
    "Sent": "outcome",
    "TlsSettings": "wire.security",
}


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
