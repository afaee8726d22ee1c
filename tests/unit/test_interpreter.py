"""Children run with the parent's module path, without the working directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ctrlchan.interpreter import child_command

ROOT = Path(__file__).parents[2]


def test_a_child_has_the_parents_module_path_and_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "it's a folder"
    packages.mkdir()
    (packages / "some_module.py").write_text("import sys\ndef main(): print(*sys.argv[1:])\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
    output = subprocess.check_output(child_command("some_module", "a", "b c"), text=True)
    assert output == "a b c\n"


@pytest.mark.parametrize("entry", ["", ".", "absolute", "link"])
def test_the_working_directory_is_not_searched(
    entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    (folder / "only_here.py").write_text("def main(): print('imported')\n")
    monkeypatch.chdir(folder)
    entry = {"absolute": str(folder), "link": str(tmp_path / "link")}.get(entry, entry)
    monkeypatch.setattr(sys, "path", [entry, *sys.path])
    child = subprocess.run(child_command("only_here"), capture_output=True, text=True, check=False)
    assert child.stdout == ""
    assert "No module named 'only_here'" in child.stderr


#: What a parent writes to a process without brokers.
NO_BROKERS = json.dumps(
    {"parent": os.getpid(), "temporary": None, "brokers": [], "zookeeper": None, "session_timeout": None}
)


def test_the_package_is_found_when_its_folder_is_the_working_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    command = child_command("ctrlchan.launch.child")
    child = subprocess.run(command, capture_output=True, text=True, check=False, input=f"{NO_BROKERS}\n")
    assert (child.returncode, child.stdout) == (0, '{"ok": []}\n'), child.stderr


def test_a_child_does_not_import_hypothesis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import sys, kio.static.primitive\ndef main(): print(sys.modules['hypothesis'])\n"
    (tmp_path / "with_kio.py").write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert subprocess.check_output(child_command("with_kio"), text=True) == "None\n"


@pytest.mark.parametrize(("before", "expected"), [("", "None"), ("import hypothesis", "hypothesis")])
def test_kio_is_imported_without_hypothesis_unless_the_process_has_it(before: str, expected: str) -> None:
    text = f"""
{before}
from ctrlchan.interpreter import import_kio
import_kio()
import kio.static._phantom as phantom
print(phantom.hypothesis and phantom.hypothesis.__name__)
import hypothesis
"""
    assert subprocess.check_output([sys.executable, "-c", text], cwd=ROOT, text=True) == f"{expected}\n"


@pytest.mark.parametrize(("given", "expected"), [(None, "1"), ("2", "2")])
def test_openblas_starts_no_threads_unless_the_user_says_so(
    given: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", given)
    text = "import os\nat_import = os.environ['OPENBLAS_NUM_THREADS']\ndef main(): print(at_import)\n"
    (tmp_path / "with_numpy.py").write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert subprocess.check_output(child_command("with_numpy"), text=True) == f"{expected}\n"


def test_a_broker_process_has_no_threads_of_openblas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the main thread: one that starts and stops brokers, and two of the watchdog."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with subprocess.Popen(
        child_command("ctrlchan.launch.child"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(f"{NO_BROKERS}\n")
        child.stdin.flush()
        assert child.stdout.readline() == '{"ok": []}\n'
        assert psutil.Process(child.pid).num_threads() == 2 + 2


def test_the_soft_limit_of_open_files_becomes_the_hard_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
from resource import RLIMIT_NOFILE, getrlimit, setrlimit
from ctrlchan.interpreter import raise_descriptor_limit

def main():
    hard = getrlimit(RLIMIT_NOFILE)[1]
    setrlimit(RLIMIT_NOFILE, (100, hard))
    raise_descriptor_limit()
    print(getrlimit(RLIMIT_NOFILE) == (hard, hard))
"""
    (tmp_path / "limited.py").write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert subprocess.check_output(child_command("limited"), text=True) == "True\n"
