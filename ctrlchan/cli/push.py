"""``ctrlchan push``: full metadata of a snapshot to every broker of it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from ctrlchan.channel import ChannelConfig, ControllerChannelManager, Sent
    from ctrlchan.channel.observability.metrics import ChannelMetrics
    from ctrlchan.journal import Journal
    from ctrlchan.state import ClusterState

__all__ = ["BrokerResult", "PushResult", "push", "push_state", "show_result"]

#: How often the live picture is drawn again.
_REDRAW_SECONDS: Final = 0.1
#: The live picture shows this many unfinished brokers, the oldest request first.
_SHOWN_BROKERS: Final = 20
#: An outcome that never came within the time limit.
_PENDING: Final = "pending"


@dataclass(frozen=True, slots=True)
class BrokerResult:
    """How the pushes to one broker ended: of the first round that was not acknowledged, else of the last."""

    broker: int
    outcome: str
    error_code: int
    error: str
    #: Size of its frame; 0 when there was no answer in time.
    bytes: int
    #: From ``send`` until the outcome was known, median over the rounds; None: never.
    ms: float | None
    attempts: int


@dataclass(frozen=True, slots=True)
class PushResult:
    """What ``ctrlchan push --json`` prints. ``bytes``: all answered frames of all rounds."""

    partitions: int
    brokers: int
    acknowledged: int
    bytes: int
    rounds_ms: list[float]
    pss_mib: float
    outcomes: list[BrokerResult]

    @property
    def ok(self) -> bool:
        return self.acknowledged == self.brokers


def push(
    snapshot: Annotated[Path, typer.Argument(help="A snapshot folder (see `ctrlchan snapshot --help`).")],
    rounds: Annotated[int, typer.Option(min=1, help="Push this many times, one after another.")] = 1,
    config: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="A broker's server.properties: IBP, listeners, TLS, SASL, time limits; options win.",
        ),
    ] = None,
    controller_id: Annotated[
        int | None,
        typer.Option(
            help="Speak as this controller.", show_default="the broker.id of --config, the snapshot's"
        ),
    ] = None,
    controller_epoch: Annotated[
        int | None, typer.Option(help="Speak in this epoch.", show_default="the snapshot's")
    ] = None,
    inter_broker_protocol: Annotated[
        str | None,
        typer.Option(
            "--inter-broker-protocol",
            "--ibp",
            help="Fixes the request versions.",
            show_default="that of --config, 3.9",
        ),
    ] = None,
    listener: Annotated[
        str | None, typer.Option(help="Connect to the brokers' listener of this name.")
    ] = None,
    senders: Annotated[
        str, typer.Option(help="Sender processes: per-broker, auto, or a number shared by the brokers.")
    ] = "auto",
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds to wait for one round.")] = 60.0,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="Serve Prometheus metrics on this port of 127.0.0.1 while it runs; 0: a free one (printed).",
        ),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Write every outcome to this journal folder (Parquet files)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Push a snapshot's full metadata to every broker of it.

    Connects to each broker, sends one UpdateMetadata with every partition and every live broker, and waits
    for the answers. Exit status 1 when a broker did not acknowledge.

    Examples:

      ctrlchan push big/ --rounds 5

      ctrlchan push big/ --json | jq .rounds_ms

      ctrlchan push big/ --config server.properties --journal outcomes/ --metrics-port 9404
    """
    from ctrlchan.channel import ChannelConfig
    from ctrlchan.cli.progress import step
    from ctrlchan.journal import Journal
    from ctrlchan.state import ClusterState

    with step(f"reading {snapshot}"):
        state = ClusterState.read(snapshot)
    given = {
        "controller_id": controller_id,
        "inter_broker_protocol": inter_broker_protocol,
        "listener_name": listener,
        "senders": int(senders) if senders.isdecimal() else senders,
    }
    settings: dict[str, Any] = {}
    if config is not None:
        from ctrlchan.channel.properties import settings_of

        settings = settings_of(config, listener)
    settings |= {name: value for name, value in given.items() if value is not None}
    settings.setdefault("controller_id", state.controller_id)
    epoch = state.controller_epoch if controller_epoch is None else controller_epoch
    with ExitStack() as stack:
        writer = None if journal is None else stack.enter_context(Journal(journal))
        metrics = None if metrics_port is None else stack.enter_context(_served_metrics(metrics_port))
        result = push_state(
            state,
            ChannelConfig(**settings),
            epoch,
            rounds=rounds,
            timeout=timeout,
            journal=writer,
            metrics=metrics,
        )
    if writer is not None and (lost := writer.describe()["lost_rows"]):
        typer.echo(f"warning: {lost} outcomes could not be written to {journal}", err=True)
    if as_json:
        typer.echo(json.dumps(asdict(result)))
    else:
        show_result(result)
    if not result.ok:
        raise typer.Exit(1)


@contextmanager
def _served_metrics(port: int) -> Iterator[ChannelMetrics]:
    """Metrics that are served until the end of the block; raises ConfigError when the port cannot be had."""
    from ctrlchan.channel.observability.metrics import ChannelMetrics
    from ctrlchan.errors import ConfigError

    metrics = ChannelMetrics()
    try:
        server = metrics.serve(port)
    except OSError as problem:
        raise ConfigError(f"metrics port {port}: {problem.strerror}") from problem
    with server:
        typer.echo(f"metrics: http://127.0.0.1:{server.port}/metrics", err=True)
        yield metrics


def push_state(
    state: ClusterState,
    config: ChannelConfig,
    controller_epoch: int,
    *,
    rounds: int,
    timeout: float,
    journal: Journal | None = None,
    metrics: ChannelMetrics | None = None,
) -> PushResult:
    """Push ``state`` to all its brokers ``rounds`` times; raises ConfigError when it has no broker."""
    from ctrlchan.batch import ControllerBrokerRequestBatch
    from ctrlchan.channel import ControllerChannelManager
    from ctrlchan.errors import ConfigError
    from ctrlchan.memory import pss_mib

    broker_ids = [int(broker_id) for broker_id in state.broker_ids]
    if not broker_ids:
        raise ConfigError("the snapshot has no brokers to push to")
    rounds_ms: list[float] = []
    sent_rounds: list[list[Sent]] = []
    with ControllerChannelManager(config, controller_epoch, journal=journal, metrics=metrics) as channel:
        channel.startup(state.brokers)
        batch = ControllerBrokerRequestBatch(channel, state)
        for turn in range(rounds):
            start = time.perf_counter()
            batch.new_batch()
            batch.add_update_metadata(broker_ids, rows="all")
            sent = batch.send_requests_to_brokers(controller_epoch=controller_epoch)
            sent_rounds.append(sent)
            answered = _watch(channel, sent, f"round {turn + 1} of {rounds}", timeout)
            rounds_ms.append(round((time.perf_counter() - start) * 1e3, 3))
            if not answered:
                break
        # All of this before the channel ends: its end would give the unanswered an outcome.
        memory = round(pss_mib(), 1)
        ended = [one.outcome for sent in sent_rounds for one in sent if one.outcome is not None]
        # Rounds that were merged for a broker share a frame.
        sent_bytes = round(sum(outcome.bytes / outcome.merged for outcome in ended))
        brokers = channel.describe()["brokers"]
        results = [_broker_result(list(of), brokers) for of in zip(*sent_rounds, strict=True)]
    return PushResult(
        partitions=len(state.partitions),
        brokers=len(broker_ids),
        acknowledged=sum(result.outcome == "acknowledged" for result in results),
        bytes=sent_bytes,
        rounds_ms=rounds_ms,
        pss_mib=memory,
        outcomes=sorted(results, key=lambda result: result.broker),
    )


def _watch(channel: ControllerChannelManager, sent: Sequence[Sent], title: str, timeout: float) -> bool:
    """Wait for the outcomes, with a live picture on a terminal; False when the time ran out."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    deadline = time.monotonic() + timeout
    try:
        channel.wait(sent, min(_REDRAW_SECONDS, timeout))
    except TimeoutError:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while (left := deadline - time.monotonic()) > 0:
                if console.is_terminal:
                    live.update(_picture(channel, sent, title), refresh=True)
                try:
                    channel.wait(sent, min(_REDRAW_SECONDS, left))
                except TimeoutError:
                    continue
                return True
        return False
    return True


def _picture(channel: ControllerChannelManager, sent: Sequence[Sent], title: str) -> Table:
    """One line for each broker that has not answered."""
    from rich.table import Table

    owed = {one.broker_id for one in sent if not one.done}
    table = Table(
        title=f"{title}: {len(sent) - len(owed)} of {len(sent)} brokers answered", title_justify="left"
    )
    for heading in ("broker", "state", "attempts", "waiting", "last error"):
        table.add_column(heading)
    brokers = channel.describe()["brokers"]
    shown = sorted(owed & brokers.keys(), key=lambda broker_id: -brokers[broker_id]["oldest_age"])
    for broker_id in shown[:_SHOWN_BROKERS]:
        broker = brokers[broker_id]
        table.add_row(
            str(broker_id),
            str(broker["state"]),
            str(broker["attempts"]),
            f"{broker['oldest_age']:.1f} s",
            str(broker["last_error"] or ""),
        )
    if len(shown) > _SHOWN_BROKERS:
        table.caption = f"and {len(shown) - _SHOWN_BROKERS} more"
    return table


def _broker_result(sent: list[Sent], brokers: dict[int, dict[str, Any]]) -> BrokerResult:
    """Of one broker's requests, one a round; ``brokers`` is the channel's description of all."""
    from ctrlchan.errors import ErrorCode

    times = [(o.completed_ns - o.enqueued_ns) / 1e6 for one in sent if (o := one.outcome) is not None]
    told = next(
        (one for one in sent if one.outcome is None or one.outcome.kind.value != "acknowledged"), sent[-1]
    )
    outcome = told.outcome
    if outcome is None:
        broker = brokers.get(told.broker_id, {})
        error = broker.get("last_error") or "no answer within the time limit"
        return BrokerResult(told.broker_id, _PENDING, 0, error, 0, None, broker.get("attempts", 0))
    error = ErrorCode.name_of(outcome.error_code) if outcome.error_code else outcome.detail
    return BrokerResult(
        broker=told.broker_id,
        outcome=outcome.kind.value,
        error_code=outcome.error_code,
        error=error,
        bytes=outcome.bytes,
        ms=round(median(times), 3) if times else None,
        attempts=outcome.attempts,
    )


def show_result(result: PushResult) -> None:
    """The table for people: a line for each broker, a summary below."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for heading, justify in (("broker", "right"), ("outcome", "left"), ("bytes", "right"), ("ms", "right")):
        table.add_column(heading, justify="right" if justify == "right" else "left")
    for one in result.outcomes:
        outcome = f"{one.outcome}: {one.error}" if one.error else one.outcome
        table.add_row(str(one.broker), outcome, f"{one.bytes:,}", "" if one.ms is None else f"{one.ms:.1f}")
    # A pipe has no width; a line must not be cut there.
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    slowest, best = max(result.rounds_ms), min(result.rounds_ms)
    typer.echo(
        f"{result.partitions:,} partitions to {result.acknowledged} of {result.brokers} brokers, "
        f"{result.bytes / 1e6:,.1f} MB in {len(result.rounds_ms)} round(s): "
        f"best {best:.1f} ms, median {median(result.rounds_ms):.1f} ms, slowest {slowest:.1f} ms; "
        f"{result.pss_mib:.0f} MiB in all processes"
    )
