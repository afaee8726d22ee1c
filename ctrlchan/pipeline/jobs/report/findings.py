"""Writes sentences about stale and slow brokers and their reasons, from the rows of small tables.

Plain Python, without Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any, Final, Literal

from ctrlchan.errors import ErrorCode
from ctrlchan.pipeline.words import counted, form, of_brokers, with_article

__all__ = ["Finding", "duration", "findings_of", "notes_of", "result_of"]

Row = Mapping[str, Any]

#: A broker is slow when its p95 is at least this many times the median of the others, and this many
#: milliseconds above the median.
_SLOW_TIMES: Final = 3.0
_SLOW_MS: Final = 10.0
#: Share of a broker's requests from which errors are part of the result of all brokers.
_FAILING_SHARE: Final = 0.01
#: Share of requests without a response that a p95 of all requests is of.
_P95_SHARE: Final = 0.05
#: Part of the total time -> why the broker is slow.
_CAUSES: Final = {
    "remote": "it takes long to answer",
    "send": "it reads requests slowly, or the network is slow",
    "queue": "its requests wait in the queue, behind slower ones or for a connection",
}
_REASONS: Final = {
    "another controller": "it obeys a newer controller, whose requests are not in this journal",
    "not listed": "it acknowledged requests whose contents the journal does not list",
    "restarted": "it has restarted, and was not sent them again",
    "no request": "the journal has no request of this state to it",
    "not sent": "no request that contains them was sent to it",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence about one broker.

    ``kind``: stale, waiting, unanswered, slow, failing, seldom (few errors) or uncertain.
    """

    level: Literal["bad", "warn"]
    kind: str
    broker: int
    title: str
    text: str


def findings_of(
    brokers: Sequence[Row], figures: Sequence[Row], errors: Sequence[Row], partitions: int | None
) -> list[Finding]:
    """Return the findings, the worst first. ``partitions``: of the snapshot, or None if not known."""
    unanswered = _unanswered(figures, errors)
    found = [*_stale(brokers, partitions), *unanswered, *_slow(figures, unanswered)]
    found += _failing(brokers, figures, errors, unanswered)
    mentioned = {one.broker for one in found}
    found += _waiting(broker for broker in brokers if broker["broker"] not in mentioned)
    order = ("stale", "waiting", "unanswered", "slow", "failing", "uncertain", "seldom")
    weight = {row["broker"]: row["stale"] or row["uncertain"] for row in brokers}
    return sorted(found, key=lambda one: (order.index(one.kind), -weight.get(one.broker, 0), one.broker))


def result_of(found: Sequence[Finding], brokers: int, compared: bool) -> str:
    """Return one sentence about all brokers."""
    parts = []
    for kind, one, many in (
        ("stale", "is stale", "are stale"),
        ("waiting", "does not answer", "do not answer"),
        ("unanswered", "did not answer", "did not answer"),
        ("slow", "is slow", "are slow"),
        ("failing", "answers with errors", "answer with errors"),
        ("uncertain", "may be stale", "may be stale"),
    ):
        of_kind = sorted({finding.broker for finding in found if finding.kind == kind})
        if len(of_kind) == 1:
            parts.append(f"broker {of_kind[0]} {one}")
        elif of_kind:
            parts.append(f"{counted(len(of_kind), 'broker')} {many}")
    if parts:
        text = ", ".join(parts[:-1]) + (" and " if parts[:-1] else "") + parts[-1]
        return f"{text[0].upper()}{text[1:]}."
    if not brokers:
        return "The journal is empty."
    who = f"All {brokers} brokers answer" if brokers > 1 else "The broker answers"
    if not compared:
        return f"{who} in time. Their metadata was not compared with a snapshot."
    return f"{who} in time, and {'have' if brokers > 1 else 'has'} current metadata."


def notes_of(about: Row, channels: Sequence[Row], brokers: Sequence[Row]) -> list[str]:
    """Return the limits of this report: what could not be read or compared."""
    notes = []
    if about["not_compared"]:
        notes.append(f"Nothing was compared: {about['not_compared']}.")
    elif about["snapshot"] is None:
        notes.append("Without a snapshot only the partitions of failed and waiting requests are known.")
    elif about["newest_version"] > about["state_version"]:
        notes.append(
            f"The journal continues to version {about['newest_version']:,}, the snapshot is of version "
            f"{about['state_version']:,}: later changes are not compared."
        )
    lost = sum(max(0, row["lost"] or 0) for row in channels)
    if lost:
        notes.append(
            f"{counted(lost, 'outcome')} {form(lost, 'is', 'are')} not in the journal (a crash, or a full "
            "disk): results for their brokers are uncertain."
        )
    without_file = [row for row in channels if row["closed"] is None]
    if without_file:
        notes.append(
            f"The journal has no state of {_channels(len(without_file))}: an older ctrlchan wrote it."
        )
    still_open = [row for row in channels if row["closed"] is False]
    if still_open:
        last = max(filter(None, (time for row in still_open for time in (row["last_at"], row["seen_at"]))))
        who = _channels(len(still_open)).capitalize()
        notes.append(
            f"{who} {'has' if len(still_open) == 1 else 'have'} not closed: still running, or killed. The "
            f"journal ends at {_clock(last)}."
        )
    old_lists = [row["broker"] for row in brokers if row["live_brokers_stale"] and not row["stale"]]
    if old_lists:
        notes.append(
            f"{of_brokers(old_lists)} {form(len(old_lists), 'has', 'have')} an older list of live brokers."
        )
    return notes


# -- one kind each


def _stale(brokers: Iterable[Row], partitions: int | None) -> list[Finding]:
    found = []
    for row in brokers:
        count = row["stale"] or row["uncertain"]
        if not count:
            continue
        certain = bool(row["stale"])
        of = f" of {partitions:,}" if partitions else ""
        error = _error(row["error_code"], row["detail"])
        reason = row["reason"]
        if reason == "waiting":
            attempts = f", {counted(row['attempts'], 'failed attempt')}" if row["attempts"] else ""
            error = f": {row['last_error']}" if row["last_error"] else ""
            why = f"the request with them waits{_since(row['since'])}{attempts}{error}"
        elif reason in _REASONS:
            why = _REASONS[reason]
        else:
            why = f"the request with them ended as “{reason}”{error}"
        more = f" Another {row['uncertain']:,} may be stale." if certain and row["uncertain"] else ""
        what = "partition" if count == 1 and not of else "partitions"
        since = "" if reason == "waiting" else _since(row["since"])
        found.append(
            Finding(
                "bad" if certain else "warn",
                "stale" if certain else "uncertain",
                row["broker"],
                f"Broker {row['broker']} {'is' if certain else 'may be'} stale",
                f"{count:,}{of} {what}{since}: {why}.{more}",
            )
        )
    return found


def _unanswered(figures: Iterable[Row], errors: Sequence[Row]) -> list[Finding]:
    """Find brokers whose times are those of requests without a response, each by its worst API."""
    worst: dict[int, Row] = {}
    for row in figures:
        own = row["total_p95_ms"]
        if own is None or row["without_response"] < row["requests"] * _P95_SHARE:
            continue
        if own < _SLOW_MS or max(row[f"{name}_p95_ms"] or 0.0 for name in _CAUSES) > own / 2:
            continue
        if row["broker"] not in worst or worst[row["broker"]]["total_p95_ms"] < own:
            worst[row["broker"]] = row
    return [
        Finding(
            "warn",
            "unanswered",
            broker,
            f"Broker {broker} did not answer",
            f"{row['api_name']}: {row['without_response']:,} of {counted(row['requests'], 'request')} had no "
            f"answer; p95 {duration(row['unanswered_p95_ms'])} until they were given up"
            f"{_last_of(broker, row['api'], errors)}.",
        )
        for broker, row in worst.items()
    ]


def _last_of(broker: int, api: int, errors: Iterable[Row]) -> str:
    """Return how the last failed request of a broker and API has ended."""
    mine = [
        row
        for row in errors
        if (row["broker"], row["api"]) == (broker, api) and row["outcome"] != "acknowledged"
    ]
    if not mine:
        return ""
    last = max(mine, key=lambda row: row["last_at"])
    return f". The last ended as “{last['outcome']}”{_error(last['error_code'], last['detail'])}"


def _slow(figures: Sequence[Row], unanswered: Iterable[Finding]) -> list[Finding]:
    """Find brokers whose p95 is far above that of the others, each by its slowest API."""
    silent = {one.broker for one in unanswered}
    worst: dict[int, tuple[float, Finding]] = {}
    for api in sorted({row["api"] for row in figures}):
        rows = [row for row in figures if row["api"] == api and row["total_p95_ms"] is not None]
        for row in rows:
            if row["broker"] in silent:
                continue
            others = [one["total_p95_ms"] for one in rows if one is not row]
            if not others:
                continue
            usual, own = median(others), row["total_p95_ms"]
            if own < usual * _SLOW_TIMES or own < usual + _SLOW_MS:
                continue
            parts = {name: row[f"{name}_p95_ms"] or 0.0 for name in _CAUSES}
            # Slow brokers make the queues of others long, so the queue is named only if nothing else is slow.
            part = max(parts, key=lambda name: parts[name])
            for name in ("remote", "send"):
                normal = median([one[f"{name}_p95_ms"] or 0.0 for one in rows if one is not row])
                if parts[name] >= normal * _SLOW_TIMES and parts[name] >= normal + _SLOW_MS:
                    part = name
                    break
            text = (
                f"{row['api_name']}: p95 {duration(own)}, the others’ median {duration(usual)} "
                f"({own / usual if usual else 0:,.0f} times). {_CAUSES[part].capitalize()}: p95 "
                f"{duration(parts[part])} of {_PART_NAMES[part]}."
            )
            ratio = own / usual if usual else own
            finding = Finding("warn", "slow", row["broker"], f"Broker {row['broker']} is slow", text)
            if row["broker"] not in worst or worst[row["broker"]][0] < ratio:
                worst[row["broker"]] = (ratio, finding)
    return [finding for _, finding in worst.values()]


_PART_NAMES: Final = {
    "remote": "waiting for the response",
    "send": "sending",
    "queue": "being queued",
}


def _failing(
    brokers: Iterable[Row], figures: Iterable[Row], errors: Iterable[Row], others: Iterable[Finding]
) -> list[Finding]:
    """Find brokers that answer with errors; a stale broker's errors are in its other finding.

    ``others``: brokers with one of these findings are left out, too.
    """
    stale = {row["broker"] for row in brokers if row["stale"] or row["uncertain"]}
    stale |= {one.broker for one in others}
    ended: dict[int, int] = {}
    for row in figures:
        ended[row["broker"]] = ended.get(row["broker"], 0) + row["requests"]
    by_broker: dict[int, list[Row]] = {}
    for row in errors:
        if row["outcome"] not in ("acknowledged", "cancelled") and row["broker"] not in stale:
            by_broker.setdefault(row["broker"], []).append(row)
    found = []
    for broker, rows in by_broker.items():
        last = max(rows, key=lambda row: row["last_at"])
        count = sum(row["requests"] for row in rows)
        total = ended.get(broker, count)
        which = "it" if count == 1 else "the last"
        text = (
            f"{count:,} of {counted(total, 'request')} {form(count, 'was', 'were')} not acknowledged; "
            f"{which}, at {_clock(last['last_at'])}, was {with_article(last['api_name'])} that ended as "
            f"“{last['outcome']}”{_error(last['error_code'], last['detail'])}."
        )
        if count < total * _FAILING_SHARE:
            found.append(Finding("warn", "seldom", broker, f"Broker {broker} had few errors", text))
        else:
            found.append(Finding("warn", "failing", broker, f"Broker {broker} answers with errors", text))
    return found


def _waiting(brokers: Iterable[Row]) -> list[Finding]:
    found = []
    for row in brokers:
        if row["oldest_at"] is None:
            continue
        error = f", last error: {row['last_error']}" if row["last_error"] else ""
        found.append(
            Finding(
                "bad",
                "waiting",
                row["broker"],
                f"Broker {row['broker']} does not answer",
                f"{counted(row['unfinished'], 'request')} {form(row['unfinished'], 'waits', 'wait')}, the "
                f"oldest since {_clock(row['oldest_at'])}{error}.",
            )
        )
    return found


# -- texts


def duration(milliseconds: float | None) -> str:
    """Return a time as text, such as ``1.25 s`` or ``340 µs``; a dash for None."""
    if milliseconds is None:
        return "–"
    for unit, size in (("min", 60_000.0), ("s", 1_000.0), ("ms", 1.0)):
        if milliseconds >= size:
            return f"{milliseconds / size:.3g} {unit}"
    return f"{milliseconds * 1e3:.3g} µs"


def _error(code: int | None, detail: str | None) -> str:
    name = ErrorCode.name_of(code) if code else ""
    text = ", ".join(filter(None, (name, detail)))
    return f" ({text})" if text else ""


def _since(time: datetime | None) -> str:
    return "" if time is None else f" since {_clock(time)}"


def _clock(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}"


def _channels(count: int) -> str:
    return "one channel" if count == 1 else f"{count} channels"
