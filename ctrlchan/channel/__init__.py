"""The channel from one controller to every broker: queues, sender processes, outcomes.

In: requests (``ControlRequest``) for broker ids, each encoded once. Out: one ``Outcome`` for each request and
broker. The channel handles frames, connections and error codes. It must not depend on the origin of the
cluster's state.

The parent process makes all decisions and owns all memory. The sender processes move bytes. Of this folder
they import only ``wire``; for this reason the public names below are imported when they are first used.
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
    from ctrlchan.security.settings import SaslSettings, TlsSettings

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
    "ChannelConfig": "ctrlchan.channel.config",
    "ControlRequest": "ctrlchan.channel.request",
    "ControllerChannelManager": "ctrlchan.channel.manager",
    "FullState": "ctrlchan.channel.queues.full_state",
    "FullStateSource": "ctrlchan.channel.queues.full_state",
    "Outcome": "ctrlchan.channel.outcome",
    "OutcomeKind": "ctrlchan.channel.outcome",
    "SaslSettings": "ctrlchan.security.settings",
    "Sent": "ctrlchan.channel.outcome",
    "TlsSettings": "ctrlchan.security.settings",
}


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
