"""Runs suites, each in its own process, and writes their figures, the page and the tables of ``RESULTS.md``.

Command: ``python -m bench [SUITE ...]`` (``make bench`` runs all suites). ``python -m bench scale`` is
``python -m bench.scale``, which has options of its own and asks until a side gives up.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from bench import report
from bench.peers.process import ROOT

_HERE: Final = Path(__file__).parent
_RAW: Final = ROOT / "build" / "bench"
#: Shortest first.
_SUITES: Final = (
    "codec",
    "start",
    "small",
    "features",
    "clusters",
    "push",
    "plan",
    "broker",
    "transactions",
    "security",
    "tls",
    "spark",
    "spark_stores",
    "controller",
    "links",
)
#: No suite of tests.
_SCALE: Final = "scale"
#: Which only their names run: they need what most machines do not give.
_OPTIONAL: Final = ("links",)
#: Seconds that one benchmark may take.
_TIMEOUT: Final = 600
#: Ignores pytest-benchmark's warning for a suite that could not be imported: the import error is enough.
_NO_WARNING: Final = "-Wignore:Not saving anything"


def main() -> None:
    if sys.argv[1:2] == [_SCALE]:
        sys.exit(subprocess.run([sys.executable, "-m", "bench.scale", *sys.argv[2:]], check=False).returncode)
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure, and write results.json, the page and RESULTS.md."
    )
    parser.add_argument(
        "suite", nargs="*", help=f"of {', '.join(_SUITES)} (all but {_OPTIONAL[0]}); or {_SCALE}"
    )
    parser.add_argument("-k", dest="keyword", help="only benchmarks whose name fits, as for pytest")
    parser.add_argument("--no-kafka", action="store_true", help="leave Kafka's side out")
    parser.add_argument(
        "--quick", action="store_true", help="few rounds; prints the figures and writes nothing"
    )
    options = parser.parse_args()
    for suite in options.suite:
        if suite not in _SUITES:
            parser.error(f"no suite {suite!r}; there are {', '.join(_SUITES)}")
    given = []
    if options.keyword:
        given += ["-k", options.keyword]
    if options.no_kafka:
        given.append("--no-kafka")
    if options.quick:
        given.append("--quick")
    command = shlex.join(["python", "-m", "bench", *sys.argv[1:]])
    results = []
    for suite in options.suite or [one for one in _SUITES if one not in _OPTIONAL]:
        load = round(os.getloadavg()[0], 1)
        results += report.results_of(_run(suite, given), command, load)
    if options.quick or options.keyword:
        print(report.texts_of(results))
    else:
        report.write(results)


def _run(suite: str, given: list[str]) -> dict[str, Any]:
    """Run one suite in its own pytest and return what pytest-benchmark has written."""
    _RAW.mkdir(parents=True, exist_ok=True)
    raw = _RAW / f"{suite}.json"
    test = str(_HERE / f"test_{suite}.py")
    command = [sys.executable, "-m", "pytest", test, "-q", f"--timeout={_TIMEOUT}", f"--benchmark-json={raw}"]
    status = subprocess.run(
        [*command, "--benchmark-columns=median", _NO_WARNING, *given], cwd=ROOT, check=False
    ).returncode
    if status:
        sys.exit(status)
    written: dict[str, Any] = json.loads(raw.read_text())
    return written


if __name__ == "__main__":
    main()
