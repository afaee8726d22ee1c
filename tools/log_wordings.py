"""Checks the table of state-change log messages against Kafka: ``python tools/log_wordings.py KAFKA``.

KAFKA is a git checkout of Apache Kafka with the tags of its releases. The script reads the calls of the
state-change logger in the source of each release, keeps the fixed words of the messages and the places of
their values, and compares them with ``ctrlchan/pipeline/jobs/merge_logs/wordings.py``:

- a message of Kafka that no line describes is an error,
- so is a line whose first or last release is another; ``--write`` corrects them in the table.

Exits with 0 when the table is true.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TABLE: Final = Path(__file__).parent.parent / "ctrlchan/pipeline/jobs/merge_logs/wordings.py"
#: The columns before the text.
_COLUMNS: Final = 4
_FOLDER: Final = "core/src/main/scala/kafka"
#: Release candidates count, because a checkout may not have the tag of the last release.
_TAG: Final = re.compile(r"(0\.1\d\.\d|[1-3]\.\d+)\.\d+(?:-rc\d+)?")
_LITERAL: Final = re.compile(
    r's?"""(?P<long>.*?)"""|s?"(?P<short>(?:[^"\\$]|\\.|\$\{(?:[^{}]|\{[^}]*\})*\}|\$)*)"', re.DOTALL
)
_VALUE: Final = re.compile(r"\$\{(?:[^{}]|\{[^}]*\})*\}|\$\w+|%[sd]")
#: What stands in Kafka's source for a placeholder of the table: ``{}``, ``[{}]``, ``[{},{}]``.
_PLACE: Final = r"\[?\{\}(?:[,-]\{\})?\]?"
_PLACES: Final = {
    "any": ".*",
    "error": ".+",
    "word": r"\S+",
    "delete": r"(?:\{\}|true|false)",
}
#: Not part of the message: the separators of lists.
_LIST: Final = re.compile(r'mkString\((?:\s*"[^"]*",?)+\s*\)')
#: Values that are words of the table.
_WORDS: Final = {"Sending {} LeaderAndIsr": ("Sending become-leader", "Sending become-follower")}
#: Messages without fixed words, which name a variable.
_UNREADABLE: Final = {"", "{}"}
#: Files and messages of clusters in KRaft mode, or of a migration to it.
_KRAFT_FILES: Final = re.compile(r"[Rr]aft|/BrokerMetadata|/BrokerLifecycle|/metadata/[^Z]")
_KRAFT: Final = re.compile(
    r"Deleting \{\} partition|Expected partition|Transitioning|Unable to|.*KRaft controller|.*Type=FULL"
    r"|St(arted|opped) fetchers as part of (become-follower for|controlled shutdown)|.*deferred|.*deferring"
    r"|.*Deferring|Metadata batch|Found \{\} on broker"
    r"|Ignoring handlePartitionChanges|.*because this partition is already a local leader"
    r"|Skipped the become-leader state change for \{\} with topic id \{\} due to"
    r"|Skipped the become-follower state change after marking its partition as follower for partition"
)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("kafka", type=Path, help="a git checkout of Apache Kafka")
    arguments.add_argument("--write", action="store_true", help="correct the releases in the table")
    given = arguments.parse_args()
    written: dict[str, set[str]] = {}
    releases = tags_of_releases(given.kafka)
    for release, tags in releases.items():
        written[release] = {text for tag in tags for text in messages(given.kafka, tag)}
        print(f"{release}: {len(written[release])} messages")
    lines = TABLE.read_text().splitlines()
    patterns = {line: _pattern(line) for line in lines if _is_row(line)}
    wrong = False
    for release, texts in written.items():
        for text in sorted(texts):
            if not any(pattern.fullmatch(text) for pattern in patterns.values()):
                wrong = True
                print(f"error: Kafka {release} writes what no line describes: {text}")
    for at, line in enumerate(lines):
        if line not in patterns:
            continue
        own = patterns[line]
        found = [release for release, texts in written.items() if any(map(own.fullmatch, texts))]
        if found and len(found) != list(written).index(found[-1]) - list(written).index(found[0]) + 1:
            wrong = True
            print(f"error: written by {', '.join(found)} and not between: {line}")
        corrected = _with_releases(line, found)
        if corrected != line:
            wrong = wrong or not given.write
            print(f"{'corrected' if given.write else 'error'}: {corrected}")
            lines[at] = corrected
    if given.write:
        TABLE.write_text("".join(f"{line}\n" for line in lines))
    return int(wrong)


def tags_of_releases(kafka: Path) -> dict[str, list[str]]:
    """Return the tags of each release from 0.10.0 to 3.9, oldest release first."""
    found: dict[str, list[str]] = {}
    for tag in _git(kafka, "tag").split():
        if match := _TAG.fullmatch(tag):
            found.setdefault(match[1], []).append(tag)
    ordered = sorted(found, key=lambda release: [int(part) for part in release.split(".")])
    # Candidates of a release that has its own tag say nothing more.
    return {
        release: [tag for tag in found[release] if "-rc" not in tag] or found[release] for release in ordered
    }


def messages(kafka: Path, tag: str) -> set[str]:
    """Return the messages that a version of Kafka writes; ``{}`` stands for a value."""
    files = _git(kafka, "grep", "-lE", "stateChangeLog|StateChangeLogger", tag, "--", _FOLDER).split()
    texts = (
        text
        for file in files
        if not _KRAFT_FILES.search(file.partition(":")[2])
        for text in _messages_of(_git(kafka, "show", file))
    )
    return {text for text in texts if text not in _UNREADABLE and not _KRAFT.match(text)}


def _messages_of(source: str) -> Iterator[str]:
    """Yield the messages of one source file as those of Kafka 1.0, which have no prefix of their own."""
    names = {"stateChangeLogger", *re.findall(r"(\w+): StateChangeLogger\b", source)}
    names.update(re.findall(r"val (\w+) = stateChangeLogger\b", source))
    call = re.compile(
        rf"\b(?:{'|'.join(sorted(names))})(?:\.withControllerEpoch\((?:[^()]|\([^()]*\))*\))?\s*"
        r"\.(?:trace|debug|info|warn|error)\("
    )
    for found in call.finditer(source):
        argument = source[found.end() : _closing(source, found.end())]
        # ``error("Controller 1 epoch 2 " + message)``, ``error(message, exception)``
        name = re.search(r"(?:^|\+)\s*(\w+)\s*(?:,|$)", argument)
        before = source[: found.start()]
        defined = name and before.rfind(f"val {name[1]} =")
        text = _text(argument)
        if defined and defined >= 0:
            text += _text(source[defined : _closing("(" + source[defined:], 1, brace=True) + defined - 1])
        text = re.sub(r"^(Broker \{\} |Controller \{\} epoch \{\} )+", "", text)
        text = text[:1].upper() + text[1:]
        begins = next((begin for begin in _WORDS if text.startswith(begin)), None)
        if begins is None:
            yield text
        else:
            for words in _WORDS[begins]:
                yield f"{words} LeaderAndIsr{text.removeprefix(begins)}"


def _closing(source: str, at: int, *, brace: bool = False) -> int:
    """Return the place of the bracket that closes the one before ``at``, or where the statement ends."""
    depth = 1
    while at < len(source):
        literal = _LITERAL.match(source, at)
        if literal is not None:
            at = literal.end()
            continue
        depth += {"(": 1, ")": -1}.get(source[at], 0)
        if not depth:
            return at
        if brace and depth == 1 and source[at] == "\n" and _ends(source, at):
            return at
        at += 1
    return at


def _ends(source: str, at: int) -> bool:
    """Return whether a statement of Scala ends at this end of a line."""
    line = source[source.rfind("\n", 0, at) + 1 : at].rstrip()
    return not line.endswith(("+", "=")) and not re.match(r"\s*(\.|\+)", source[at + 1 :])


def _text(expression: str) -> str:
    """Return the literals of an expression, joined; ``{}`` stands for a value."""
    literals = _LITERAL.finditer(_LIST.sub("", expression))
    return _VALUE.sub("{}", "".join(one["long"] or one["short"] or "" for one in literals))


def _is_row(line: str) -> bool:
    return re.match(r"\w+ +[A-Z-]\S* +\S+ +\S+ +[A-Z]", line) is not None


def _pattern(line: str) -> re.Pattern[str]:
    """Return a pattern of the fixed words of a line of the table."""
    text = line.split(maxsplit=_COLUMNS)[_COLUMNS]
    parts = re.split(r"\{(\w+)\}", text)
    return re.compile(
        "".join(_PLACES.get(part, _PLACE) if at % 2 else re.escape(part) for at, part in enumerate(parts)),
        re.DOTALL,
    )


def _with_releases(line: str, releases: list[str]) -> str:
    event, api, _, _, text = line.split(maxsplit=_COLUMNS)
    first, last = (releases[0], releases[-1]) if releases else ("never", "never")
    return f"{event:<22} {api:<15} {first:<6} {last:<6} {text}"


def _git(kafka: Path, *arguments: str) -> str:
    command = ["git", "-C", str(kafka), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
