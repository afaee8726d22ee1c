"""``ctrlchan push``: full metadata of a snapshot to every broker of it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ctrlchan.cli.limits import MAX_INT32, MAX_PORT, MAX_SECONDS
from ctrlchan.text import printable

if TYPE_CHECKING:
    from rich.table import Table

    from ctrlchan.channel import ChannelConfig, ControllerChannelManager, Sent
    from ctrlchan.channel.observability.metrics import ChannelMetrics
    from ctrlchan.journal import Journal
    from ctrlchan.state import ClusterState

__all__ = [
    "BrokerResult",
    "PushResult",
    "push",
    "push_state",
    "require_acknowledged",
    "show_result",
]

#: How often the live picture is drawn again.
_REDRAW_SECONDS: Final = 0.1
#: The live picture shows this many unfinished brokers, the oldest request first.
_SHOWN_BROKERS: Final = 20
#: In place of an outcome that did not come within the time limit.
_PENDING: Final = "pending"
_MAX_ROUNDS: Final = 1_000_000
#: Brokers that an error or warnings name.
_NAMED_BROKERS: Final = 10
_HARM: Final = (
    "nothing was sent. A push replaces what the controller has sent to all brokers: topics that were deleted "
    "after the snapshot come back for clients, newer ones disappear. --take-over pushes nevertheless"
)
_NO_EPOCHS: Final = (
    "warning: the snapshot has no epochs (kafka-topics --describe prints none): clients ignore metadata "
    "with older leader epochs than they have, and brokers cannot recognise a late request"
)


@dataclass(frozen=True, slots=True)
class BrokerResult:
    """The pushes to one broker: the first round that was not acknowledged, else the last."""

    broker: int
    outcome: str
    error_code: int
    error: str
    #: Size of the frame; 0 when there was no answer in time.
    bytes: int
    #: Milliseconds from ``send`` to the outcome, median over the rounds; None without an outcome.
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
    snapshot: Annotated[
        str,
        typer.Argument(metavar="SNAPSHOT", help="A snapshot folder (see `ctrlchan snapshot --help`)."),
    ],
    rounds: Annotated[
        int,
        typer.Option(
            min=1, max=_MAX_ROUNDS, metavar="NUMBER", help="Push this many times, one after another."
        ),
    ] = 1,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="A broker's server.properties: IBP, listeners, TLS, SASL, time limits; options win.",
        ),
    ] = None,
    controller_id: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_INT32,
            metavar="ID",
            help="Id of the controller in the requests.",
            show_default="the broker.id of --config, the snapshot's",
        ),
    ] = None,
    controller_epoch: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_INT32,
            metavar="EPOCH",
            help="Controller epoch in the requests.",
            show_default="the snapshot's",
        ),
    ] = None,
    inter_broker_protocol: Annotated[
        str | None,
        typer.Option(
            "--inter-broker-protocol",
            "--ibp",
            metavar="VERSION",
            help="Fixes the request versions.",
            show_default="that of --config, 3.9",
        ),
    ] = None,
    negotiate: Annotated[
        bool,
        typer.Option(
            "--negotiate",
            help="Ask each broker for its versions, and send the highest that both sides have.",
        ),
    ] = False,
    listener: Annotated[
        str | None, typer.Option(metavar="NAME", help="Connect to the brokers' listener of this name.")
    ] = None,
    senders: Annotated[
        str,
        typer.Option(
            metavar="NUMBER", help="Sender processes: per-broker, auto, or a number shared by the brokers."
        ),
    ] = "auto",
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Push also to a cluster whose controller is alive: the snapshot replaces its state.",
        ),
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(min=0.001, max=MAX_SECONDS, metavar="SECONDS", help="How long to wait for one round."),
    ] = 60.0,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_PORT,
            metavar="PORT",
            help="Serve Prometheus metrics on this port of 127.0.0.1 while it runs; 0: a free one (printed).",
        ),
    ] = None,
    journal: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Write every outcome to this journal folder (Parquet files), or to a URL.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Push a snapshot's full metadata to every broker of it.

    WARNING: this speaks as the cluster's controller. What the brokers know is replaced: a topic that was
    deleted after the snapshot comes back for all clients, a newer one disappears. So brokers are asked first,
    and while their controller is alive nothing is sent without --take-over.

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

    if listener == "":
        raise typer.BadParameter("a listener has a name", param_hint="--listener")
    given = {
        "controller_id": controller_id,
        "inter_broker_protocol": inter_broker_protocol,
        "listener_name": listener,
        "negotiate": negotiate or None,
        "senders": int(senders) if senders.isascii() and senders.isdecimal() else senders,
    }
    settings: dict[str, Any] = {}
    if config is not None:
        from ctrlchan.channel.properties import settings_of

        settings = settings_of(config, listener)
    settings |= {name: value for name, value in given.items() if value is not None}
    channel_config = ChannelConfig(**settings)
    with ExitStack() as stack:
        metrics = None if metrics_port is None else stack.enter_context(_served_metrics(metrics_port))
        writer = None if journal is None else stack.enter_context(Journal(journal))
        with step(f"reading {snapshot}"):
            state = ClusterState.read(snapshot)
        if "controller_id" not in settings:
            channel_config = replace(channel_config, controller_id=state.controller_id)
        if _has_no_epochs(state):
            typer.echo(_NO_EPOCHS, err=True)
        if not take_over:
            _require_no_controller(state, channel_config)
        result = push_state(
            state,
            channel_config,
            state.controller_epoch if controller_epoch is None else controller_epoch,
            rounds=rounds,
            timeout=timeout,
            journal=writer,
            metrics=metrics,
        )
    if writer is not None and (lost := writer.describe()["lost_rows"]):
        typer.echo(f"warning: {lost} outcomes could not be written to {printable(str(journal))}", err=True)
    if as_json:
        typer.echo(json.dumps(asdict(result)))
    else:
        show_result(result)
    require_acknowledged(result)


def _require_no_controller(state: ClusterState, config: ChannelConfig) -> None:
    """Raise ConfigError while the cluster has another controller that is alive, or does not say."""
    from ctrlchan.cli.active_controller import UnaskedError, find_active_controller
    from ctrlchan.cli.progress import step
    from ctrlchan.errors import ConfigError
    from ctrlchan.state.brokers import brokers_list, format_host_port

    try:
        with step("asking brokers for their controller"):
            active = find_active_controller(brokers_list(state.brokers), config.controller_id)
    except UnaskedError:
        raise ConfigError(
            f"brokers can be asked for their controller over PLAINTEXT alone: {_HARM}"
        ) from None
    if active is not None:
        where = "" if active.address is None else f" at {format_host_port(*active.address)}"
        raise ConfigError(f"broker {active.named_by} has controller {active.id}{where}: {_HARM}")


def _has_no_epochs(state: ClusterState) -> bool:
    """Whether every epoch is 0 or unknown, as after an import of describe text."""
    return bool(
        len(state.partitions)
        and (state.brokers.epochs == -1).all()
        and (state.partitions.leader_epoch <= 0).all()
        and (state.partitions.partition_epoch <= 0).all()
    )


@contextmanager
def _served_metrics(port: int) -> Iterator[ChannelMetrics]:
    """Serve metrics until the end of the block. Raises ConfigError when the port cannot be used."""
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
    """Push ``state`` to all its brokers ``rounds`` times.

    Raises ConfigError when it has no broker, ChannelError when none of them can be connected to.
    """
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
        _warn_of_left_out(channel.left_out, len(broker_ids))
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
        # Before the channel ends: its end gives every request without an answer an outcome.
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


def _warn_of_left_out(left_out: dict[int, str], brokers: int) -> None:
    """Print a warning for each broker that cannot be connected to. Raises ChannelError for all of them."""
    from ctrlchan.errors import ChannelError

    reasons = list(left_out.values())
    if len(reasons) == brokers:
        raise ChannelError(f"none of {brokers} brokers can be connected to: {reasons[0]}")
    for reason in reasons[:_NAMED_BROKERS]:
        typer.echo(f"warning: {printable(reason)}", err=True)
    if len(reasons) > _NAMED_BROKERS:
        typer.echo(f"warning: {len(reasons) - _NAMED_BROKERS} more brokers cannot be connected to", err=True)


def _watch(channel: ControllerChannelManager, sent: Sequence[Sent], title: str, timeout: float) -> bool:
    """Wait for the outcomes, with a live picture on a terminal. Return False when the time ran out."""
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
    """Return a table with one line for each broker that has not answered."""
    from rich.table import Table
    from rich.text import Text

    unfinished = {one.broker_id for one in sent if not one.done}
    table = Table(
        title=f"{title}: {len(sent) - len(unfinished)} of {len(sent)} brokers answered", title_justify="left"
    )
    for heading in ("broker", "state", "attempts", "waiting", "last error"):
        table.add_column(heading)
    brokers = channel.describe()["brokers"]
    shown = sorted(unfinished & brokers.keys(), key=lambda broker_id: -brokers[broker_id]["oldest_age"])
    for broker_id in shown[:_SHOWN_BROKERS]:
        broker = brokers[broker_id]
        table.add_row(
            str(broker_id),
            str(broker["state"]),
            str(broker["attempts"]),
            f"{broker['oldest_age']:.1f} s",
            Text(printable(str(broker["last_error"] or ""))),
        )
    if len(shown) > _SHOWN_BROKERS:
        table.caption = f"and {len(shown) - _SHOWN_BROKERS} more"
    return table


def _broker_result(sent: list[Sent], brokers: dict[int, dict[str, Any]]) -> BrokerResult:
    """Return the result of one broker from its requests, one for each round.

    ``brokers``: the channel's description of all brokers.
    """
    from ctrlchan.errors import ErrorCode

    times = [(o.completed_ns - o.enqueued_ns) / 1e6 for one in sent if (o := one.outcome) is not None]
    shown = next(
        (one for one in sent if one.outcome is None or one.outcome.kind.value != "acknowledged"), sent[-1]
    )
    outcome = shown.outcome
    if outcome is None:
        broker = brokers.get(shown.broker_id, {})
        error = broker.get("last_error") or "no answer within the time limit"
        return BrokerResult(shown.broker_id, _PENDING, 0, error, 0, None, broker.get("attempts", 0))
    error = ErrorCode.name_of(outcome.error_code) if outcome.error_code else outcome.detail
    return BrokerResult(
        broker=shown.broker_id,
        outcome=outcome.kind.value,
        error_code=outcome.error_code,
        error=error,
        bytes=outcome.bytes,
        ms=round(median(times), 3) if times else None,
        attempts=outcome.attempts,
    )


def require_acknowledged(result: PushResult) -> None:
    """Raise ChannelError when a broker did not acknowledge."""
    from ctrlchan.errors import ChannelError

    failed = [one.broker for one in result.outcomes if one.outcome != "acknowledged"]
    if failed:
        more = ", ..." if len(failed) > _NAMED_BROKERS else ""
        named = ", ".join(map(str, failed[:_NAMED_BROKERS]))
        raise ChannelError(f"{len(failed)} of {result.brokers} brokers did not acknowledge: {named}{more}")


def show_result(result: PushResult) -> None:
    """Print a table with a line for each broker, and a summary below."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for heading, justify in (("broker", "right"), ("outcome", "left"), ("bytes", "right"), ("ms", "right")):
        table.add_column(heading, justify="right" if justify == "right" else "left")
    for one in result.outcomes:
        outcome = f"{one.outcome}: {one.error}" if one.error else one.outcome
        table.add_row(
            str(one.broker),
            Text(printable(outcome)),
            f"{one.bytes:,}",
            "" if one.ms is None else f"{one.ms:.1f}",
        )
    # A pipe has no width; a line must not be cut there.
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    slowest, best = max(result.rounds_ms), min(result.rounds_ms)
    typer.echo(
        f"{result.partitions:,} partitions to {result.acknowledged} of {result.brokers} brokers, "
        f"{result.bytes / 1e6:,.1f} MB in {len(result.rounds_ms)} round(s): "
        f"best {best:.1f} ms, median {median(result.rounds_ms):.1f} ms, slowest {slowest:.1f} ms; "
        f"{result.pss_mib:.0f} MiB in all processes"
    )
