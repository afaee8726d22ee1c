"""One run of ``ctrlchan bench``: which cluster, whether it may be loaded, its topics, the load, their end."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from ctrlchan.cli.bench.options import LoadOptions, TargetOptions
from ctrlchan.cli.progress import step
from ctrlchan.cli.signals import StopSignals

if TYPE_CHECKING:
    from ctrlchan.embedded import EmbeddedCluster
    from ctrlchan.loads.guard import OwnNames, Target
    from ctrlchan.loads.load import Load
    from ctrlchan.loads.result import Result

__all__ = ["Session", "open_session", "require_clients"]


@dataclass
class Session:
    """A cluster that may be loaded, and the name of this run on it."""

    target: Target
    client: dict[str, str]
    run: str
    own: OwnNames
    signals: StopSignals
    embedded: EmbeddedCluster | None
    options: TargetOptions
    groups: list[str] = field(default_factory=list)

    def shape(self, options: LoadOptions, client: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the fields that all kinds of loads have. ``client``: defaults that the user's settings win
        over."""
        return {
            "run": self.run,
            "cluster_id": self.target.cluster_id,
            "client": {**(client or {}), **self.client},
            "clients": options.clients,
            "rate": options.rate,
            "seconds": options.seconds,
            "warmup": options.warmup,
            "partitions": self.options.partitions,
            "replication": self.options.replication,
        }

    def prepare(self, load: Load) -> None:
        """Create the topic of the load."""
        self.groups = load.groups
        if load.needs_topic:
            with self.signals.startup(), step(f"creating topic {load.topic}"):
                self.own.create_topic(load.topic, load.partitions, load.replication)

    def work(self, load: Load, meanwhile: Callable[[Callable[[], bool]], object] | None = None) -> Result:
        """Run the load to its end, or until Ctrl-C; return what all workers have done. Raises CtrlchanError.

        ``meanwhile``: is called on this thread while the workers work, with a function that says whether to
        stop. The load ends when it returns.
        """
        self.prepare(load)
        from ctrlchan.cli.bench.live import showing
        from ctrlchan.loads.processes import WorkerProcesses

        with WorkerProcesses(load) as workers:
            with step(f"starting {load.clients} client{'s' * (load.clients > 1)}"):
                workers.start(is_stopped=self._is_stopped)
            with showing(load) as show:
                if meanwhile is not None:
                    meanwhile(self._is_stopped)
                    workers.stop()
                return workers.follow(show, is_stopped=self._is_stopped)

    def _is_stopped(self) -> bool:
        return self.signals.wait(0)


@contextmanager
def open_session(options: TargetOptions, configs: Mapping[str, str] | None = None) -> Iterator[Session]:
    """Find the cluster and ask whether it may be loaded; at the end delete all that the run has made.

    ``configs``: settings of an embedded cluster's brokers. Raises ConfigError, CtrlchanError; and, when the
    run was stopped, Exit with the status of Ctrl-C.
    """
    require_clients()
    from ctrlchan.errors import ConfigError
    from ctrlchan.loads.guard import OwnNames, find_cluster, new_run

    if (options.bootstrap_server is None) == (options.embedded is None):
        raise ConfigError("which cluster? Either --bootstrap-server HOST:PORT, or --embedded NUMBER")
    with StopSignals() as signals, ExitStack() as stack:
        with signals.startup():
            client, embedded = _client(options), None
            if options.embedded is not None:
                embedded = _embedded(stack, options.embedded, configs or {})
                client["bootstrap.servers"] = embedded.bootstrap_servers
            target = find_cluster(client)
            if embedded is None:
                _allow(target, options)
            run = new_run()
            session = Session(target, client, run, OwnNames(client, run), signals, embedded, options)
            typer.echo(f"loading cluster {target.cluster_id}; all that is made begins with {run}", err=True)
        try:
            yield session
        finally:
            if options.keep:
                typer.echo(f"{run}… is kept", err=True)
            elif embedded is None:
                _delete(session)
        if signals.wait(0):
            raise typer.Exit(130)


def require_clients() -> None:
    """Raise ConfigError, with what to install, where a package is missing."""
    from ctrlchan.errors import ConfigError

    for module, package in {"confluent_kafka": "confluent-kafka", "hdrh": "hdrhistogram"}.items():
        if importlib.util.find_spec(module) is None:
            raise ConfigError(f"loads need {package}: pip install 'ctrlchan[bench]'")


def _client(options: TargetOptions) -> dict[str, str]:
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


def _embedded(stack: ExitStack, brokers: int, configs: Mapping[str, str]) -> EmbeddedCluster:
    from ctrlchan.embedded import EmbeddedCluster
    from ctrlchan.launch.log_dirs import TEMPORARY

    with step(f"starting {brokers} broker{'s' * (brokers > 1)}"):
        return stack.enter_context(EmbeddedCluster(brokers, log_dir=TEMPORARY, configs=dict(configs)))


def _allow(target: Target, options: TargetOptions) -> None:
    """Ask whether the cluster may be loaded, unless --cluster-id says so. Raises ConfigError, Abort."""
    from ctrlchan.errors import ConfigError

    brokers = ", ".join(list(target.brokers.values())[:5]) + ", …" * (len(target.brokers) > 5)
    what = f"cluster {target.cluster_id} ({len(target.brokers)} brokers: {brokers}; {target.topics} topics)"
    if options.cluster_id is not None:
        if options.cluster_id != target.cluster_id:
            raise ConfigError(f"this is {what}, not {options.cluster_id}: nothing is done")
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"this is {what}; to load it without a question, give --cluster-id")
    if not typer.confirm(f"Load {what}?", err=True):
        raise typer.Abort


def _delete(session: Session) -> None:
    """Delete what the run has made; say what stays if that fails."""
    from ctrlchan.errors import CtrlchanError

    try:
        with step("deleting what the run has made"):
            session.own.delete(session.groups)
    except CtrlchanError as problem:
        typer.echo(f"error: not deleted: {problem}", err=True)
        left: list[str] = []
        with suppress(CtrlchanError):
            left = session.own.topics()
        raise CtrlchanError(f"topics of this run that stay: {', '.join(left) or 'none'}") from None
