"""What an import brings along: the codec nothing of ours, a sender process nothing heavy."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ctrlchan
from ctrlchan.cli import commands, pipeline
from ctrlchan.cli.lazy import LazyCommand


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", code], input="", capture_output=True, text=True, timeout=60, check=True
    )
    return set(json.loads(ran.stdout.splitlines()[-1]))


def test_the_codec_imports_nothing_of_ours() -> None:
    ours = {name for name in modules_after("import ctrlchan._codec") if name.split(".")[0] == "ctrlchan"}
    assert ours == {"ctrlchan", "ctrlchan._codec"}


@pytest.mark.parametrize("heavy", ["numpy", "pyarrow", "rich", "typer", "kio", "kazoo", "psutil"])
def test_a_sender_is_small(heavy: str) -> None:
    assert heavy not in modules_after("import ctrlchan.channel.senders.sender")


def test_the_facts_of_the_protocol_need_no_numpy() -> None:
    assert "numpy" not in modules_after("import ctrlchan.protocol")


def test_a_sender_imports_of_ours_only_what_it_shares_with_the_parent() -> None:
    senders, wire, security = "ctrlchan.channel.senders", "ctrlchan.channel.wire", "ctrlchan.security"
    statement = f"import {senders}.fork_server, {senders}.tls, {security}.keystore"
    ours = {name for name in modules_after(statement) if name.split(".")[0] == "ctrlchan"}
    shared = {name for name in ours if name.startswith((senders, wire, security))}
    small = {"ctrlchan.field_reader", "ctrlchan.varints"}
    assert ours - shared == {"ctrlchan", "ctrlchan.channel"} | small


def test_the_main_job_needs_only_the_extensions_that_are_compiled_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``make run`` on a fresh machine compiles no others."""
    setup = str(Path(ctrlchan.__file__).parents[1] / "setup.py")
    compiled = {}
    for channel_only in ("", "1"):
        monkeypatch.setenv("CTRLCHAN_CHANNEL_ONLY", channel_only)
        compiled[channel_only] = {one.name for one in runpy.run_path(setup)["extensions"]}
    others = compiled[""] - compiled["1"]
    assert len(others) > 10
    modules = modules_after(
        "import ctrlchan.cli.demo\nctrlchan.EmbeddedCluster\nimport ctrlchan.launch.child"
    )
    assert not modules & others


def test_a_broker_without_records_imports_nothing_that_stores_them() -> None:
    modules = modules_after("import ctrlchan\nctrlchan.EmbeddedCluster\nimport ctrlchan.launch.child")
    rooms = ("coordinator", "log", "metrics", "replica")
    broker = Path(ctrlchan.__file__).parent / "broker"
    assert [room for room in rooms if not (broker / room / "__init__.py").exists()] == []
    others = ("server", "storing_core", "controller_client")
    unwanted = tuple(f"ctrlchan.broker.{name}" for name in (*rooms, *others))
    assert not [name for name in modules if name.startswith(unwanted)]


def test_the_command_does_not_import_hypothesis() -> None:
    code = "import sys; sys.argv[1:] = ['--version']\nfrom ctrlchan.cli import main\n"
    code += "try: main()\nexcept SystemExit: import kio.static.primitive"
    assert "kio.static.primitive" in (modules := modules_after(code))
    assert "hypothesis.strategies" not in modules


@pytest.mark.parametrize("words", [[], ["--help"], ["push", "--help"], ["pipeline", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    heavy = {
        "numpy",
        "pyarrow",
        "kio",
        "kazoo",
        "pyspark",
        "pandas",
        "psutil",
        "prometheus_client",
    }
    statement = f"from ctrlchan.cli import main\ntry: main({words})\nexcept SystemExit: pass"
    assert modules_after(statement) & heavy == set()


def test_decode_of_one_line_imports_no_parser_of_options() -> None:
    statement = "from ctrlchan.cli import main\ntry: main(['decode'])\nexcept SystemExit: pass"
    assert modules_after(statement) & {"typer", "pydantic", "rich", "pyarrow", "kio"} == set()


@pytest.mark.parametrize(
    ("name", "command"),
    [*commands.COMMANDS.items(), *pipeline.COMMANDS.items()],
    ids=[*commands.COMMANDS, *(f"pipeline-{name}" for name in pipeline.COMMANDS)],
)
def test_the_list_of_commands_says_what_each_says_of_itself(name: str, command: LazyCommand) -> None:
    said = (command.load(name).help or "").split("\n\n")[0]
    assert " ".join(said.split()) == command.summary


def test_every_public_name_loads() -> None:
    import ctrlchan

    for name in ctrlchan.__all__:
        assert getattr(ctrlchan, name) is not None
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = ctrlchan.nothing_like_this


#: The modules with the functions that tasks of the pipeline run.
TASKS = {
    "pipeline.jobs": [
        "dispatch.sender",
        "frames.tasks",
        "ingest.describe",
        "ingest.zookeeper",
        "merge_logs.grouping",
    ],
    "pipeline": ["source", "spark.footers"],
}


def test_tasks_of_the_pipeline_import_neither_the_page_nor_the_command() -> None:
    pytest.importorskip("pyspark")
    modules = ", ".join(f"ctrlchan.{room}.{name}" for room, names in TASKS.items() for name in names)
    packages = {name.split(".")[0] for name in modules_after(f"import {modules}")}
    libraries = {
        "bokeh",
        "jinja2",
        "markupsafe",
        "typer",
        "rich",
        "kio",
        "kazoo",
        "prometheus_client",
        "psutil",
    }
    assert packages & libraries == set()


def test_functions_for_notebooks_do_not_import_the_page() -> None:
    pytest.importorskip("pyspark")
    statement = (
        "import ctrlchan.pipeline\n[getattr(ctrlchan.pipeline, name) for name in ctrlchan.pipeline.__all__]"
    )
    packages = {name.split(".")[0] for name in modules_after(statement)}
    assert "pyspark" in packages
    assert packages & {"bokeh", "jinja2", "typer", "rich"} == set()


def test_a_reader_of_the_data_source_does_not_import_the_channel() -> None:
    pytest.importorskip("pyspark")
    assert "ctrlchan.channel.manager" not in modules_after("import ctrlchan.pipeline.source")


def test_the_main_job_needs_no_extension_that_is_built_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """``make run`` builds with CTRLCHAN_CHANNEL_ONLY; here all extensions are built."""
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    monkeypatch.setenv("CTRLCHAN_CHANNEL_ONLY", "1")
    built = {one.name for one in runpy.run_path(str(root / "setup.py"))["extensions"]}
    monkeypatch.delenv("CTRLCHAN_CHANNEL_ONLY")
    all_names = {one.name for one in runpy.run_path(str(root / "setup.py"))["extensions"]}
    assert built < all_names
    code = (
        f"import sys\nsys.modules.update(dict.fromkeys({sorted(all_names - built)!r}))\n"
        "import ctrlchan.launch.child, ctrlchan.cli.demo\n"
        "from ctrlchan.launch.processes import BrokerProcesses\n"
        "from ctrlchan.broker.config.broker_config import BrokerConfig\n"
        "with BrokerProcesses([BrokerConfig(id=1)]) as brokers:\n    print(len(brokers.describe()))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "1\n"), ran.stderr


def without_pyarrow(code: str) -> subprocess.CompletedProcess[str]:
    """Run Python code where pyarrow is not installed."""
    hidden = f"import sys; sys.modules['pyarrow'] = None\n{code}"
    return subprocess.run(
        [sys.executable, "-c", hidden], input="", capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "code",
    [
        "from ctrlchan import Journal",
        "from ctrlchan.journal import read_journal",
        "from ctrlchan.state.storage.snapshot import read_snapshot",
        "import ctrlchan; ctrlchan.ClusterState.empty(controller_id=0, controller_epoch=1).to_arrow()",
        "import sys; sys.argv[1:] = ['snapshot', 'show', '.']; from ctrlchan.cli import main; main()",
    ],
)
def test_what_needs_pyarrow_says_what_to_install(code: str) -> None:
    ran = without_pyarrow(code)
    assert ran.returncode
    assert "need pyarrow: pip install 'ctrlchan[parquet]'" in ran.stderr


def test_a_cluster_with_records_needs_no_pyarrow(tmp_path: Path) -> None:
    ran = without_pyarrow(
        "import ctrlchan\n"
        f"with ctrlchan.EmbeddedCluster(count=1, log_dir={str(tmp_path)!r}) as cluster:\n"
        "    print(cluster.bootstrap_servers)\n"
        "import ctrlchan.cli.cluster, ctrlchan.cli.broker, ctrlchan.cli.controller, ctrlchan.testing.plugin"
    )
    assert ran.returncode == 0, ran.stderr
    assert "127.0.0.1:" in ran.stdout


def test_a_checkout_without_a_build_says_what_to_do(tmp_path: Path) -> None:
    package = Path(ctrlchan.__file__).parent
    shutil.copytree(package, tmp_path / "ctrlchan", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    ran = subprocess.run(
        [sys.executable, "-c", "import ctrlchan"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode
    assert "this source checkout of ctrlchan is not compiled: `python -m pip install -e .`" in ran.stderr
