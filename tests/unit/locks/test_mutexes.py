"""Mutexes of ``ctrlchan/_c``: a wait gives the GIL back; debug builds end a process that breaks a rule."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ctrlchan._c import locks

ROOT = Path(__file__).parents[3]

SETUP = """
from setuptools import Extension, setup
from Cython.Build import cythonize

setup(
    name="checked",
    ext_modules=cythonize(
        [
            Extension(
                name, [path], include_dirs=["ctrlchan"], define_macros=MACROS, extra_compile_args=["-O0"]
            )
            for name, path in (
                ("ctrlchan._c.locks", "ctrlchan/_c/locks.pyx"), ("checked_mutex", "checked_mutex.pyx")
            )
        ],
        compiler_directives={"language_level": 3},
    ),
)
"""


def _build(folder: Path, macros: list[tuple[str, str]]) -> Path:
    """Compile the room and a mutex for tests into a folder of their own."""
    (folder / "ctrlchan").mkdir()
    (folder / "ctrlchan" / "__init__.py").touch()
    shutil.copytree(
        ROOT / "ctrlchan" / "_c", folder / "ctrlchan" / "_c", ignore=shutil.ignore_patterns("*.so")
    )
    shutil.copy(Path(__file__).with_name("checked_mutex.pyx"), folder)
    (folder / "setup.py").write_text(f"MACROS = {macros}\n{SETUP}")
    built = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(tmp_path_factory.mktemp("release"), [])


@pytest.fixture(scope="module")
def debug(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(tmp_path_factory.mktemp("debug"), [("CTRLCHAN_CHECKS_LOCKS", "1")])


def _run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code that has ``CheckedMutex``, ``Thread`` and ``Event``. A process that freezes is an error."""
    imports = "from threading import Event, Thread\nfrom checked_mutex import CheckedMutex"
    return subprocess.run(
        [sys.executable, "-c", f"{imports}\n{code}"],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_tests_of_make_debug_have_a_checked_build() -> None:
    """``make debug`` sets the variable. Processes that tests start import the same build."""
    code = "from ctrlchan._c import locks; print(locks.CHECKS_LOCKS)"
    child = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    is_expected = os.environ.get("CTRLCHAN_CHECKED") == "1"
    assert is_expected == locks.CHECKS_LOCKS
    assert child.stdout == f"{is_expected}\n"


def test_who_waits_with_the_gil_gives_it_back(release: Path) -> None:
    """The owner of the mutex needs the GIL before it unlocks: both went on waiting for ever."""
    ran = _run(
        release,
        """
mutex, locked, waits = CheckedMutex(5), Event(), Event()

def own():
    mutex.lock()
    locked.set()
    waits.wait()
    # The other thread waits for the mutex, or is about to: this needs the GIL again and again.
    for _ in range(100_000):
        pass
    mutex.unlock()

owner = Thread(target=own)
owner.start()
locked.wait()
waits.set()
mutex.lock_with_gil()
mutex.unlock()
owner.join()
print("done")
""",
    )
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr


def test_mutexes_in_their_order(debug: Path) -> None:
    ran = _run(
        debug,
        """
partition, log = CheckedMutex(5), CheckedMutex(6)
for _ in range(3):
    partition.lock()
    log.lock()
    log.require()
    partition.unlock()
    log.unlock()
threads = [Thread(target=lambda: [(log.lock(), log.unlock()) for _ in range(1000)]) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print("done")
""",
    )
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("CheckedMutex(5).lock_with_gil()", "locked by a thread that holds the GIL: mutex of rank PARTITION"),
        (
            "log, partition = CheckedMutex(6), CheckedMutex(5)\nlog.lock()\npartition.lock()",
            "locked in the wrong order: mutex of rank PARTITION; this thread holds LOG",
        ),
        (
            "one, other = CheckedMutex(5), CheckedMutex(5)\none.lock()\nother.lock()",
            "locked in the wrong order: mutex of rank PARTITION; this thread holds PARTITION",
        ),
        ("one = CheckedMutex(6)\none.lock()\none.lock()", "locked twice by one thread: mutex of rank LOG"),
        ("CheckedMutex(6).require()", "required by a thread that has not locked it: mutex of rank LOG"),
        (
            "one = CheckedMutex(6)\na = Thread(target=one.lock)\na.start()\na.join()\none.require()",
            "required by a thread that has not locked it: mutex of rank LOG",
        ),
        ("CheckedMutex(6).unlock()", "unlocked by a thread that has not locked it: mutex of rank LOG"),
    ],
)
def test_a_debug_build_ends_a_process_that_breaks_a_rule(debug: Path, code: str, message: str) -> None:
    ran = _run(debug, code)
    assert ran.returncode < 0
    assert f"ctrlchan: {message}" in ran.stderr
