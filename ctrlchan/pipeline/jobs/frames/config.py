"""Settings of ``frames``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from ctrlchan.pipeline.settings import Setting, check_settings

if TYPE_CHECKING:
    from ctrlchan.channel import ChannelConfig

__all__ = ["FramesConfig"]

_APIS = ("LeaderAndIsr", "UpdateMetadata")


def _broker_protocol(text: str) -> tuple[int, str]:
    broker, _, ibp = text.partition("=")
    if not (broker.isdecimal() and ibp):
        raise ValueError(f"{text!r} is not BROKER=IBP")
    return int(broker), ibp


@dataclass(frozen=True, kw_only=True)
class FramesConfig:
    """Settings of ``frames``. Raises ConfigError for a value that cannot work.

    ``security_protocol``: names the listener where ``listener`` is None. The default of
    ``max_request_bytes`` is far below what brokers accept (100 MiB): a frame is a cell of a table, which
    Spark holds several times in memory.
    """

    apis: Annotated[
        Sequence[str],
        Setting(
            "Requests to make of a snapshot (may be repeated): LeaderAndIsr, to the replicas; "
            "UpdateMetadata, to all. A difference always gives all its requests.",
            value="API",
            names=("--api",),
            default="both",
        ),
    ] = _APIS
    controller_id: Annotated[
        int | None, Setting("Controller id in the requests.", value="ID", default="the snapshot's")
    ] = None
    controller_epoch: Annotated[
        int | None, Setting("Controller epoch in the requests.", value="EPOCH", default="the snapshot's")
    ] = None
    client_id: Annotated[str | None, Setting("Client id of the requests.", default="the controller's id")] = (
        None
    )
    inter_broker_protocol: Annotated[
        str,
        Setting(
            "inter.broker.protocol.version, which fixes the request versions.",
            value="IBP",
            names=("--inter-broker-protocol", "--ibp"),
        ),
    ] = "3.9"
    broker_protocols: Annotated[
        Mapping[int, str],
        Setting(
            "The inter-broker protocol of one broker (may be repeated).",
            value="BROKER=IBP",
            names=("--broker-protocol",),
            parse=_broker_protocol,
        ),
    ] = field(default_factory=dict)
    listener: Annotated[
        str | None,
        Setting("The brokers' inter-broker listener.", value="NAME", default="that named PLAINTEXT"),
    ] = None
    security_protocol: str = "PLAINTEXT"
    max_request_bytes: Annotated[
        int, Setting("No frame is larger; a larger request is split.", value="BYTES", minimum=1)
    ] = 4 * 2**20
    tasks: Annotated[int | None, Setting("Tasks that make frames.", minimum=1, default="4 a core")] = None

    def __post_init__(self) -> None:
        from ctrlchan.errors import ConfigError
        from ctrlchan.protocol import request_versions

        unknown = [api for api in self.apis if api not in _APIS]
        if unknown or not self.apis:
            raise ConfigError(f"apis: {', '.join(unknown) or 'none'}; there are {' and '.join(_APIS)}")
        check_settings(self)
        for ibp in self.broker_protocols.values():
            request_versions(ibp)
        self.channel(0)

    def channel(self, controller_id: int) -> ChannelConfig:
        """Return the settings of a channel that show in the bytes of its frames."""
        from ctrlchan.channel import ChannelConfig

        return ChannelConfig(
            controller_id=controller_id if self.controller_id is None else self.controller_id,
            client_id=self.client_id,
            inter_broker_protocol=self.inter_broker_protocol,
            inter_broker_listener=self.listener or self.security_protocol,
            max_request_bytes=self.max_request_bytes,
        )
