"""One run of ``ctrlchan bench``: which cluster, whether it may be loaded, its topics, the load, their end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import typer

from ctrlchan.cli.bench.options import LoadOptions, SparkOptions, TargetOptions
from ctrlchan.cli.bench.target import client_settings, require_clients, require_consent
from ctrlchan.cli.progress import step
from ctrlchan.cli.signals import StopSignals
from ctrlchan.errors import ConfigError, CtrlchanError

if TYPE_CHECKING:
    from ctrlchan.embedded import EmbeddedCluster
    from ctrlchan.loads.guard import OwnNames, Target
    from ctrlchan.loads.load import Load
    from ctrlchan.loads.result import Result

__all__ = ["Session", "open_session"]

#: Replicas of a partition of an embedded cluster.
_REPLICAS: Final = 3


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

    def work(
        self,
        load: Load,
        spark: SparkOptions,
        meanwhile: Callable[[Callable[[], bool]], object] | None = None,
    ) -> Result:
        """Run the load to its end, or until Ctrl-C; return what all workers have done. Raises CtrlchanError.

        ``meanwhile``: is called on a thread of its own while the workers work, with a function that says
        whether to stop. The load ends when it returns. Not with Spark.
        """
        load.check()
        if spark.is_given and self.embedded is not None:
            raise ConfigError("--embedded: other machines do not reach a cluster on the loopback interface")
        self.groups = load.groups
        if load.needs_topic:
            with self.signals.startup(), step(f"creating topic {load.topic}"):
                self.own.create_topic(load.topic, load.partitions, load.replication)
        if spark.is_given:
            from ctrlchan.cli.bench.on_spark import work_on_spark

            with self.signals.startup():
                return work_on_spark(load, spark)
        return self._work_here(load, meanwhile)

    def _work_here(self, load: Load, meanwhile: Callable[[Callable[[], bool]], object] | None) -> Result:
        from ctrlchan.cli.bench.live import showing
        from ctrlchan.loads.processes import WorkerProcesses

        with WorkerProcesses(load) as workers:
            with step(f"starting {load.clients} client{'s' * (load.clients > 1)}"):
                workers.start(is_stopped=self._is_stopped)
            with showing(load) as show, ThreadPoolExecutor(1) as thread:
                if meanwhile is None:
                    return workers.follow(show, is_stopped=self._is_stopped)
                beside = thread.submit(meanwhile, self._is_stopped)
                result = workers.follow(show, is_stopped=lambda: self._is_stopped() or beside.done())
                beside.result()
                return result

    def _is_stopped(self) -> bool:
        return self.signals.wait(0)


@contextmanager
def open_session(options: TargetOptions, configs: Mapping[str, str] | None = None) -> Iterator[Session]:
    """Find the cluster and ask whether it may be loaded; at the end delete all that the run has made.

    ``configs``: settings of an embedded cluster's brokers. Raises ConfigError, CtrlchanError; and, when the
    run was stopped, Exit with the status of Ctrl-C.
    """
    require_clients()
    from ctrlchan.loads.guard import OwnNames, find_cluster, new_run

    if (options.bootstrap_server is None) == (options.embedded is None):
        raise ConfigError("which cluster? Either --bootstrap-server HOST:PORT, or --embedded NUMBER")
    with StopSignals() as signals, ExitStack() as stack:
        with signals.startup():
            client, embedded = client_settings(options), None
            if options.embedded is not None:
                embedded = _embedded(stack, options.embedded, configs or {})
                client["bootstrap.servers"] = embedded.bootstrap_servers
            target = find_cluster(client)
            if embedded is None:
                require_consent(target, options, "Load")
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


def _embedded(stack: ExitStack, brokers: int, configs: Mapping[str, str]) -> EmbeddedCluster:
    from ctrlchan.config.table import DEFAULT_REPLICATION_FACTOR
    from ctrlchan.embedded import EmbeddedCluster
    from ctrlchan.launch.log_dirs import TEMPORARY

    # As many replicas as clusters have that keep what they are given.
    replicas = {DEFAULT_REPLICATION_FACTOR.name: str(min(_REPLICAS, brokers))}
    with step(f"starting {brokers} broker{'s' * (brokers > 1)}"):
        return stack.enter_context(
            EmbeddedCluster(brokers, log_dir=TEMPORARY, configs={**replicas, **configs})
        )


def _delete(session: Session) -> None:
    """Delete what the run has made; say what stays if that fails."""

    try:
        with step("deleting what the run has made"):
            session.own.delete(session.groups)
    except CtrlchanError as problem:
        typer.echo(f"error: not deleted: {problem}", err=True)
        left: list[str] = []
        with suppress(CtrlchanError):
            left = session.own.topics()
        raise CtrlchanError(f"topics of this run that stay: {', '.join(left) or 'none'}") from None
