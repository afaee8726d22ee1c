"""``ctrlchan pipeline monitor``: a journal that is being written, watched."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ctrlchan.cli.pipeline.common import RunOptions, spark_of
from ctrlchan.cli.pipeline.options import with_options
from ctrlchan.pipeline.settings import Setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

    from ctrlchan.pipeline.jobs.monitor.figures import Figures, RequestFigures
    from ctrlchan.pipeline.jobs.monitor.rules import Alert, Rules

    Show = Callable[[Figures, Sequence[Alert]], None]

__all__ = ["ALERT_STATUS", "monitor"]

#: The exit status when a rule is broken.
ALERT_STATUS: Final = 3
#: A pipe has no width; a line must not be cut there.
_WIDTH: Final = 160


@dataclass(frozen=True, kw_only=True)
class _RunOptions(RunOptions):
    as_json: Annotated[
        bool, Setting("Print each look as one line of JSON on standard output.", names=("--json",))
    ] = False


@with_options
def monitor(
    *,
    journal: Annotated[
        Path, typer.Argument(file_okay=False, help="A journal folder, also one being written.")
    ],
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Keep here what was read, on this machine, and go on from it.",
            show_default="begin with the oldest row",
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Read what there is, say it, and end.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 5.0,
    duration: Annotated[
        float | None, typer.Option("--for", min=0.1, help="End after so many seconds.", show_default="never")
    ] = None,
    window: Annotated[float, typer.Option(min=10, help="Seconds of the rolling figures.")] = 300.0,
    rules: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Alert rules (TOML); options win.", show_default="those below"),
    ] = None,
    stuck: Annotated[
        float | None,
        typer.Option(help="Alert: a request waits for more seconds; 0: never.", show_default="30"),
    ] = None,
    error_rate: Annotated[
        float | None,
        typer.Option(
            help="Alert: a larger share of a broker's requests fails; 1: never.", show_default="0.1"
        ),
    ] = None,
    fenced: Annotated[
        bool | None,
        typer.Option("--fenced/--no-fenced", help="Alert: a broker's last requests were fenced."),
    ] = None,
    snapshot: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Alert: a broker holds other metadata than this snapshot."),
    ] = None,
    diverged: Annotated[
        int | None, typer.Option(min=0, help="... of more partitions than these.", show_default="0")
    ] = None,
    prometheus: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write figures and alerts here, for Prometheus.")
    ] = None,
    fail_on_alert: Annotated[
        bool, typer.Option("--fail-on-alert", help="End at the first alert, with exit status 3.")
    ] = False,
    run: _RunOptions,
) -> None:
    """Watch a journal: rolling figures of each broker and API, and alerts.

    With --once, or at the first alert with --fail-on-alert, the exit status is 3 when there is an alert;
    otherwise it goes on until it is ended. With --checkpoint a monitor that was ended, also by kill -9,
    goes on where it was, and counts nothing twice.

    Examples:

    \b
      ctrlchan pipeline monitor outcomes --checkpoint watched --prometheus metrics/ctrlchan.prom
      ctrlchan pipeline monitor outcomes --once --stuck 10 || page-somebody
      ctrlchan pipeline monitor outcomes --snapshot live --rules alerts.toml --fail-on-alert
    """
    # Progress would run through the table.
    with spark_of("monitor", run, shows_progress=False) as spark:
        chosen = _rules(rules, stuck=stuck, error_rate=error_rate, fenced=fenced, diverged=diverged)
        from ctrlchan.pipeline.jobs.monitor.job import MonitorConfig
        from ctrlchan.pipeline.jobs.monitor.job import monitor as watch

        config = MonitorConfig(
            journal=journal, checkpoint=checkpoint, window=window, interval=interval, snapshot=snapshot
        )
        with watch(spark, config) as monitored, _shown(once=once, as_json=run.as_json) as show:
            deadline = None if duration is None else time.monotonic() + duration
            monitored.catch_up()
            if not once:
                monitored.start()
            while True:
                figures = monitored.look()
                alerts = chosen.alerts(figures)
                show(figures, alerts)
                if prometheus is not None:
                    _write_prometheus(prometheus, figures, alerts)
                if once or (fail_on_alert and alerts):
                    break
                left = interval if deadline is None else min(interval, deadline - time.monotonic())
                if left <= 0:
                    return
                time.sleep(left)
    if alerts:
        raise typer.Exit(ALERT_STATUS)


def _rules(
    path: Path | None,
    *,
    stuck: float | None,
    error_rate: float | None,
    fenced: bool | None,
    diverged: int | None,
) -> Rules:
    """Those of the file, or ours, changed by what options say."""
    from ctrlchan.pipeline.jobs.monitor.rules import Rules

    options: dict[str, Any] = {"fenced": fenced, "diverged": diverged}
    given = {name: value for name, value in options.items() if value is not None}
    if stuck is not None:
        given["stuck"] = stuck or None
    if error_rate is not None:
        given["error_rate"] = None if error_rate == 1 else error_rate
    return replace(Rules() if path is None else Rules.read(path), **given)


def _write_prometheus(path: Path, figures: Figures, alerts: Sequence[Alert]) -> None:
    from ctrlchan.pipeline.jobs.monitor.prometheus import write_textfile

    write_textfile(path, figures, alerts)


@contextmanager
def _shown(*, once: bool, as_json: bool) -> Iterator[Show]:
    """What to do with each look: a line of JSON, a table that changes, or lines when something is new."""
    if as_json:
        yield _print_json
        return
    from rich.console import Console
    from rich.live import Live

    if once:
        yield lambda figures, alerts: _print_once(
            Console(width=None if sys.stdout.isatty() else _WIDTH), figures, alerts
        )
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines()
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda figures, alerts: live.update(_table(figures, alerts), refresh=True)


def _print_json(figures: Figures, alerts: Sequence[Alert]) -> None:
    print(json.dumps(asdict(figures) | {"alerts": [asdict(alert) for alert in alerts]}), flush=True)


def _print_once(console: Any, figures: Figures, alerts: Sequence[Alert]) -> None:
    console.print(_table(figures, ()))
    for alert in alerts:
        print(_alert_line(alert))


class _Lines:
    """One line when there is something new, and one for each alert that begins or is over."""

    def __init__(self) -> None:
        self._rows = -1
        self._alerts: set[tuple[str, int]] = set()

    def __call__(self, figures: Figures, alerts: Sequence[Alert]) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(figures.now))
        if figures.rows != self._rows:
            recent = sum(one.recent for one in figures.requests)
            failed = sum(one.recent_failed for one in figures.requests)
            waiting = sum(wait.unfinished for wait in figures.waits)
            print(
                f"{at} {figures.rows} requests of {len(figures.brokers)} brokers; in {figures.window:g} s "
                f"{recent}, {failed} went wrong; {waiting} wait",
                flush=True,
            )
            self._rows = figures.rows
        broken = {(alert.rule, alert.broker) for alert in alerts}
        for alert in alerts:
            if (alert.rule, alert.broker) not in self._alerts:
                print(f"{at} {_alert_line(alert)}", flush=True)
        for rule, broker in sorted(self._alerts - broken):
            print(f"{at} over: {rule}: broker {broker}", flush=True)
        self._alerts = broken


def _alert_line(alert: Alert) -> str:
    return f"alert: {alert.rule}: broker {alert.broker}: {alert.says}"


def _table(figures: Figures, alerts: Sequence[Alert]) -> Table:
    """One line for each broker and API; alerts below."""
    from rich.table import Table

    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(figures.now))
    table = Table(title=f"{figures.rows:,} requests; {at}, last {figures.window:g} s", title_justify="left")
    headings = (
        "broker",
        "api",
        "in all",
        "went wrong",
        "recent",
        "wrong",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "waiting",
    )
    for heading in (*headings, "oldest s"):
        table.add_column(heading, justify="left" if heading == "api" else "right")
    waits = {wait.broker: wait for wait in figures.waits}
    for one in figures.requests:
        wait = waits.pop(one.broker, None)
        age = None if wait is None else figures.age(wait)
        table.add_row(
            *(str(one.broker), one.api, f"{one.requests:,}", f"{_wrong(one):,}"),
            *(f"{one.recent:,}", f"{one.recent_failed:,}"),
            *(_milliseconds(share) for share in (one.recent_p50, one.recent_p95, one.recent_p99)),
            *("" if wait is None else str(wait.unfinished), "" if age is None else f"{age:.1f}"),
        )
    # Brokers that have never answered.
    for wait in waits.values():
        age = figures.age(wait)
        table.add_row(str(wait.broker), *[""] * 8, str(wait.unfinished), "" if age is None else f"{age:.1f}")
    if alerts:
        table.caption = "\n".join(map(_alert_line, alerts))
        table.caption_justify = "left"
        table.caption_style = "bold red"
    return table


def _wrong(one: RequestFigures) -> int:
    from ctrlchan.pipeline.jobs.monitor.figures import NO_FAULT

    return sum(count for outcome, count in one.outcomes.items() if outcome not in NO_FAULT)


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:.1f}"
