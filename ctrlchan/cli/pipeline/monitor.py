"""``ctrlchan pipeline monitor``: watch a journal that is being written."""

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

from ctrlchan.cli.limits import not_nan
from ctrlchan.cli.pipeline.common import RunOptions, spark_of
from ctrlchan.cli.pipeline.options import with_options
from ctrlchan.pipeline.jobs.monitor.config import MonitorConfig
from ctrlchan.pipeline.settings import Setting
from ctrlchan.pipeline.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

    from ctrlchan.pipeline.jobs.monitor.figures import Figures, RequestFigures
    from ctrlchan.pipeline.jobs.monitor.rules import Alert, Rules

    Show = Callable[[Figures, Sequence[Alert]], None]

__all__ = ["ALERT_STATUS", "monitor"]

#: The exit status when there is an alert.
ALERT_STATUS: Final = 3
#: Columns of the output if it is not a terminal; wide enough for any line.
_WIDTH: Final = 160


@dataclass(frozen=True, kw_only=True)
class _RunOptions(RunOptions):
    as_json: Annotated[
        bool, Setting("Print each update as one line of JSON on standard output.", names=("--json",))
    ] = False


@with_options
def monitor(
    *,
    config: MonitorConfig,
    once: Annotated[
        bool, typer.Option("--once", help="Read all existing rows, print the figures and end.")
    ] = False,
    duration: Annotated[
        float | None,
        typer.Option(
            "--for",
            metavar="SECONDS",
            min=0.1,
            callback=not_nan,
            help="End after this many seconds.",
            show_default="never",
        ),
    ] = None,
    rules: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="Alert rules (TOML); options override them.",
            show_default="the defaults below",
        ),
    ] = None,
    stuck: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Alert when a request waits for more seconds; 0: off.", show_default="30"
        ),
    ] = None,
    error_rate: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Alert when a larger share of a broker's requests fails; 1: off.",
            show_default="0.1",
        ),
    ] = None,
    fenced: Annotated[
        bool | None,
        typer.Option("--fenced/--no-fenced", help="Alert when a broker's last requests ended as fenced."),
    ] = None,
    diverged: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            min=0,
            help="Stale partitions of a broker that give no alert yet.",
            show_default="0",
        ),
    ] = None,
    prometheus: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="Write figures and alerts to this file, for Prometheus."
        ),
    ] = None,
    fail_on_alert: Annotated[
        bool, typer.Option("--fail-on-alert", help="End at the first alert, with exit status 3.")
    ] = False,
    run: _RunOptions,
) -> None:
    """Watch a journal: rolling figures of each broker and API, and alerts.

    Runs until it is ended, with --once for one update, with --fail-on-alert until the first alert; with these
    two the exit status is 3 when there is an alert. With --checkpoint a monitor that was ended, also by
    kill -9, continues where it stopped and counts each request once.

    Examples:

    \b
      ctrlchan pipeline monitor outcomes --checkpoint monitor --prometheus metrics/ctrlchan.prom
      ctrlchan pipeline monitor outcomes --once --stuck 10 || page-somebody
      ctrlchan pipeline monitor outcomes --snapshot live --rules alerts.toml --fail-on-alert
    """
    # Progress would run through the table.
    reads, writes = [config.journal, config.snapshot], [config.checkpoint, prometheus]
    # A journal grows while it is watched.
    with spark_of("monitor", run, reads=reads, writes=writes, small=False, shows_progress=False) as spark:
        chosen = _rules(rules, stuck=stuck, error_rate=error_rate, fenced=fenced, diverged=diverged)
        from ctrlchan import pipeline

        with pipeline.monitor(spark, config) as running, _shown(once=once, as_json=run.as_json) as show:
            deadline = None if duration is None else time.monotonic() + duration
            running.catch_up()
            if not once:
                running.start()
            while True:
                figures = running.look()
                alerts = chosen.alerts(figures)
                show(figures, alerts)
                if prometheus is not None:
                    _write_prometheus(prometheus, figures, alerts)
                if once or (fail_on_alert and alerts):
                    break
                left = (
                    config.interval if deadline is None else min(config.interval, deadline - time.monotonic())
                )
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
    """Return the rules of the file, or the defaults, with those of the options."""
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
    """Yield a function that shows an update: as a line of JSON, a live table, or lines for changes."""
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
    """Prints one line when rows were read, and one for each alert that begins or ends."""

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
                f"{at} {counted(figures.rows, 'request')} to {counted(len(figures.brokers), 'broker')}; in "
                f"{figures.window:g} s "
                f"{recent}, {failed} failed; {waiting} waiting",
                flush=True,
            )
            self._rows = figures.rows
        active = {(alert.rule, alert.broker) for alert in alerts}
        for alert in alerts:
            if (alert.rule, alert.broker) not in self._alerts:
                print(f"{at} {_alert_line(alert)}", flush=True)
        for rule, broker in sorted(self._alerts - active):
            print(f"{at} ended: {rule}: broker {broker}", flush=True)
        self._alerts = active


def _alert_line(alert: Alert) -> str:
    return f"alert: {alert.rule}: broker {alert.broker}: {alert.text}"


def _table(figures: Figures, alerts: Sequence[Alert]) -> Table:
    """Return a table with a line for each broker and API, and the alerts below."""
    from rich.table import Table

    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(figures.now))
    table = Table(
        title=f"{counted(figures.rows, 'request')}; {at}, last {figures.window:g} s", title_justify="left"
    )
    headings = (
        "broker",
        "api",
        "total",
        "failed",
        "recent",
        "failed",
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
            *(str(one.broker), one.api, f"{one.requests:,}", f"{_failed(one):,}"),
            *(f"{one.recent:,}", f"{one.recent_failed:,}"),
            *(_milliseconds(share) for share in (one.recent_p50, one.recent_p95, one.recent_p99)),
            *("" if wait is None else str(wait.unfinished), "" if age is None else f"{age:.1f}"),
        )
    # Brokers without any request that has ended.
    for wait in waits.values():
        age = figures.age(wait)
        table.add_row(str(wait.broker), *[""] * 8, str(wait.unfinished), "" if age is None else f"{age:.1f}")
    if alerts:
        table.caption = "\n".join(map(_alert_line, alerts))
        table.caption_justify = "left"
        table.caption_style = "bold red"
    return table


def _failed(one: RequestFigures) -> int:
    from ctrlchan.pipeline.jobs.monitor.figures import NOT_FAILED

    return sum(count for outcome, count in one.outcomes.items() if outcome not in NOT_FAILED)


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:.1f}"
