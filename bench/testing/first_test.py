"""The first test of a pytest session with the fixture ``kafka_cluster``: how long until it begins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from bench.peers.process import ROOT

__all__ = ["Begun", "begin_first_test"]

_CONFTEST: Final = """
import json
import os
from pathlib import Path
from time import perf_counter, process_time


def pytest_collection_finish(session):
    global collected
    collected = perf_counter(), process_time()


def pytest_pyfunc_call(pyfuncitem):
    ms = (perf_counter() - collected[0]) * 1e3
    # Imported after the measured time, which contains the import by others.
    from bench.memory import cpu_seconds

    processor = cpu_seconds(os.getpid()) - collected[1]
    Path(__file__).with_name("begun").write_text(json.dumps({"ms": ms, "processor": processor}))
"""
_HIDDEN: Final = "import sys; sys.modules['hypothesis'] = None\n"
_SECONDS: Final = 120.0


class Begun(NamedTuple):
    """From the end of pytest's collection to the beginning of the first test: milliseconds of the clock, and
    seconds of processor time, of the cluster's processes too.
    """

    ms: float
    processor: float


def begin_first_test(arguments: str, *options: str, hypothesis: bool = True) -> Begun:
    """Run pytest with one test in a new process and a new folder. Raises CalledProcessError.

    ``arguments``: fixtures that the test asks for. ``options``: of pytest. ``hypothesis``: whether Hypothesis
    can be imported, which kio does where it is installed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "conftest.py").write_text(_CONFTEST if hypothesis else _HIDDEN + _CONFTEST)
        (folder / "test_first.py").write_text(f"def test_first({arguments}):\n    pass\n")
        environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
        plugin = ("-p", "ctrlchan.testing.plugin", "-p", "no:cacheprovider")
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *plugin, *options],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=True,
        )
        return Begun(**json.loads((folder / "begun").read_text()))
