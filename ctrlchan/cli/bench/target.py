"""Which cluster a command of ``ctrlchan bench`` means: its clients' settings, and the user's consent."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

import typer

from ctrlchan.cli.bench.options import ClusterOptions
from ctrlchan.errors import ConfigError

if TYPE_CHECKING:
    from ctrlchan.loads.guard import Target

__all__ = ["client_settings", "require_clients", "require_consent"]


def require_clients() -> None:
    """Raise ConfigError, with what to install, where a package is missing."""
    for module, package in {"confluent_kafka": "confluent-kafka", "hdrh": "hdrhistogram"}.items():
        if importlib.util.find_spec(module) is None:
            raise ConfigError(f"loads need {package}: pip install 'ctrlchan[bench]'")


def client_settings(options: ClusterOptions) -> dict[str, str]:
    """Return the user's settings of clients. Raises ConfigError."""
    from ctrlchan.config.properties_file import read_properties

    client: dict[str, str] = {}
    if options.config is not None:
        found = read_properties(options.config.read_text())
        client = {name: entry.value for name, entry in found.items()}
    client |= options.setting
    if options.bootstrap_server is not None:
        client["bootstrap.servers"] = options.bootstrap_server
    return client


def require_consent(target: Target, options: ClusterOptions, what_to_do: str) -> None:
    """Ask whether to do it to this cluster, unless --cluster-id says so. Raises ConfigError, Abort.

    ``what_to_do``: what the question begins with, such as "Load".
    """
    brokers = ", ".join(list(target.brokers.values())[:5]) + ", …" * (len(target.brokers) > 5)
    what = f"cluster {target.cluster_id} ({len(target.brokers)} brokers: {brokers}; {target.topics} topics)"
    if options.cluster_id is not None:
        if options.cluster_id != target.cluster_id:
            raise ConfigError(f"this is {what}, not {options.cluster_id}: nothing is done")
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"this is {what}; to go on without a question, give --cluster-id")
    if not typer.confirm(f"{what_to_do} {what}?", err=True):
        raise typer.Abort
