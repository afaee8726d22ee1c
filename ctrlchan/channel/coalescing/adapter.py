"""Finds, for a broker that was asked for its versions, the one that a request goes at.

Every method is called with the channel's lock held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from ctrlchan.channel.coalescing.rewriter import Transcoder
from ctrlchan.channel.outcome import OutcomeKind, Sent, Verdict
from ctrlchan.errors import ProtocolError
from ctrlchan.protocol import request_versions

if TYPE_CHECKING:
    from ctrlchan.channel.config import ChannelConfig
    from ctrlchan.channel.queues.shared_memory import SharedMemory
    from ctrlchan.channel.request import ControlRequest

__all__ = ["Adapter"]

Refuse: TypeAlias = Callable[[Sent, Verdict], None]


class Adapter:
    """``refuse`` is told of a request that no version of the broker can carry; it ends there."""

    def __init__(self, config: ChannelConfig, memory: SharedMemory, refuse: Refuse) -> None:
        self._transcoder = Transcoder(config, memory)
        self._versions = request_versions(config.inter_broker_protocol)
        self._refuse = refuse

    def adapt(self, sent: Sent, ranges: Mapping[int, tuple[int, int]]) -> ControlRequest | None:
        """The request at the highest version that both sides have and the IBP allows; it has no users yet.

        ``ranges``: api key -> (lowest, highest), what the broker has. None: there is none, it was refused.
        """
        try:
            version = self._versions.common(sent.request.api_key, ranges)
            return self._transcoder.at_version(sent.request, version)
        except ProtocolError as error:
            self._refuse(sent, Verdict(OutcomeKind.REFUSED, detail=str(error)))
            return None
