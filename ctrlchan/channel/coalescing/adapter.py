"""Transcodes requests for brokers that were asked for their versions.

Every method is called with the channel's lock held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from ctrlchan.channel.coalescing.rewriter import Transcoder
from ctrlchan.channel.outcome import OutcomeKind, RequestResult, Sent
from ctrlchan.errors import ProtocolError
from ctrlchan.protocol import request_versions

if TYPE_CHECKING:
    from ctrlchan.channel.config import ChannelConfig
    from ctrlchan.channel.queues.shared_memory import SharedMemory
    from ctrlchan.channel.request import ControlRequest

__all__ = ["Adapter"]

Refuse: TypeAlias = Callable[[Sent, RequestResult], None]


class Adapter:
    """Brings requests to a version of the broker. ``refuse`` ends a request for which there is no version."""

    def __init__(self, config: ChannelConfig, memory: SharedMemory, refuse: Refuse) -> None:
        self._transcoder = Transcoder(config, memory)
        self._versions = request_versions(config.inter_broker_protocol)
        self._refuse = refuse

    def adapt(self, sent: Sent, ranges: Mapping[int, tuple[int, int]]) -> ControlRequest | None:
        """Return the request at the highest version that both sides have and the IBP allows.

        ``ranges``: API key -> (lowest, highest) version of the broker. The frames of the returned request
        have no users yet. Returns None if there is no such version and the request was refused.
        """
        try:
            version = self._versions.common(sent.request.api_key, ranges)
            return self._transcoder.at_version(sent.request, version)
        except ProtocolError as error:
            self._refuse(sent, RequestResult(OutcomeKind.REFUSED, detail=str(error)))
            return None
