"""The options that all commands of ``ctrlchan bench`` share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from ctrlchan.pipeline.settings import Setting, name_and_value

__all__ = ["ClientOptions", "ClusterOptions", "LoadOptions", "OutputOptions", "SparkOptions", "TargetOptions"]


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Which cluster is meant. There is no default."""

    bootstrap_server: Annotated[
        str | None,
        Setting("The cluster that is meant.", value="HOST:PORT,...", names=("--bootstrap-server", "-b")),
    ] = None
    cluster_id: Annotated[
        str | None,
        Setting("Its cluster id, in place of the question whether it is the right one.", value="ID"),
    ] = None
    config: Annotated[
        Path | None,
        Setting(
            "Settings of the clients under librdkafka's names, such as security.protocol; -c wins.",
            value="FILE",
            exists=True,
        ),
    ] = None
    setting: Annotated[
        Mapping[str, str],
        Setting(
            "A setting of the clients (may be repeated).",
            value="NAME=VALUE",
            names=("--setting", "-c"),
            parse=name_and_value,
        ),
    ] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TargetOptions(ClusterOptions):
    """Which cluster is loaded, and the topics that the load makes on it."""

    embedded: Annotated[
        int | None,
        Setting("Load a cluster of so many brokers that this command starts.", minimum=1),
    ] = None
    replication: Annotated[
        int,
        Setting("Replicas of each partition; -1: the cluster's default.", minimum=-1),
    ] = -1
    partitions: Annotated[int, Setting("Partitions of the load's topic.", minimum=1)] = 12
    keep: Annotated[bool, Setting("Leave topics and groups of the run at the end.")] = False


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How large the load is, and for how long."""

    rate: Annotated[
        float,
        Setting("Operations each second, of all clients together; 0: as fast as possible.", minimum=0),
    ] = 0.0
    seconds: Annotated[
        float, Setting("How long is measured, after the warm-up.", value="SECONDS", minimum=0.1)
    ] = 30.0
    warmup: Annotated[
        float, Setting("How long the load runs before it is measured.", value="SECONDS", minimum=0)
    ] = 5.0
    clients: Annotated[int, Setting("Clients, each in a process of its own.", minimum=1)] = 1


def _acks(text: str) -> str:
    if text not in ("0", "1", "all", "-1"):
        raise ValueError(f"{text!r} is not 0, 1 or all")
    return "all" if text == "-1" else text


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """Options of producers."""

    size: Annotated[int, Setting("Bytes of a record's value.", minimum=0)] = 100
    acks: Annotated[str, Setting("Which replicas acknowledge: 0, 1 or all.", value="ACKS", parse=_acks)] = (
        "all"
    )
    compression: Annotated[
        str, Setting("Of record batches: none, gzip, snappy, lz4 or zstd.", value="CODEC")
    ] = "none"
    linger: Annotated[
        float, Setting("How long a batch waits for more records.", value="MILLISECONDS", minimum=0)
    ] = 5.0

    def settings(self) -> dict[str, Any]:
        """Return them under librdkafka's names."""
        return {
            "acks": self.acks,
            # With fewer acknowledgements records may be lost anyway.
            "enable.idempotence": str(self.acks == "all").lower(),
            "compression.type": self.compression,
            "linger.ms": f"{self.linger:g}",
        }


@dataclass(frozen=True, kw_only=True)
class SparkOptions:
    """Where the clients run, if not on this machine."""

    master: Annotated[
        str | None,
        Setting("Run the clients as tasks of this Spark: spark://host:7077, yarn, ...", value="URL"),
    ] = None
    remote: Annotated[
        str | None, Setting("Run them at this Spark Connect server, sc://host:15002.", value="URL")
    ] = None
    conf: Annotated[
        Mapping[str, str],
        Setting("A setting of Spark (may be repeated).", value="NAME=VALUE", parse=name_and_value),
    ] = field(default_factory=dict)
    package: Annotated[
        Path | None,
        Setting("An archive by `ctrlchan pipeline package`, for executors without ctrlchan.", value="FILE"),
    ] = None

    @property
    def is_given(self) -> bool:
        return self.master is not None or self.remote is not None


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Where the results go."""

    json: Annotated[
        str | None,
        Setting("Write the results here, too; -: print them, and no table.", value="FILE"),
    ] = None

    def __post_init__(self) -> None:
        # Not when the load is over, and its results are lost.
        if self.json not in (None, "-") and not Path(str(self.json)).absolute().parent.is_dir():
            from ctrlchan.errors import ConfigError

            raise ConfigError(f"--json {self.json}: no such folder")
