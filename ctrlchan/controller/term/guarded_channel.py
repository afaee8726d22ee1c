"""A channel that sends nothing once ZooKeeper has been silent for a session timeout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ctrlchan.channel import ChannelConfig, ControllerChannelManager, ControlRequest, Sent
from ctrlchan.channel.outcome import OutcomeCallback
from ctrlchan.channel.queues.acknowledged import AcknowledgedMetadata
from ctrlchan.errors import ControllerMovedError
from ctrlchan.zookeeper.session import ZooKeeperSession

__all__ = ["GuardedChannel"]


class GuardedChannel:
    """The channel of a term, as a batch uses it.

    After a session timeout without an answer of ZooKeeper another controller may have been elected. A process
    that was stopped (SIGSTOP) does not know that its session has expired, so the clock decides.
    """

    def __init__(self, channel: ControllerChannelManager, session: ZooKeeperSession) -> None:
        self._channel = channel
        self._session = session
        self.acknowledged: AcknowledgedMetadata[Any] = channel.acknowledged

    @property
    def config(self) -> ChannelConfig:
        """The settings of the channel."""
        return self._channel.config

    @property
    def has_journal(self) -> bool:
        """Whether outcomes go to a journal."""
        return self._channel.has_journal

    def request_versions(self, broker_ids: Sequence[int], api_key: int) -> dict[int, list[int]]:
        """Group brokers by the version that they are sent."""
        return self._channel.request_versions(broker_ids, api_key)

    def send_requests(
        self, broker_ids: Sequence[int], request: ControlRequest, callback: OutcomeCallback | None = None
    ) -> list[Sent]:
        """Queue the request. Raises ControllerMovedError when ZooKeeper has been silent for too long."""
        silent = self._session.silent_for()
        if silent > self._session.session_timeout:
            raise ControllerMovedError(f"ZooKeeper has been silent for {silent:.1f} s; nothing is sent")
        return self._channel.send_requests(broker_ids, request, callback)
