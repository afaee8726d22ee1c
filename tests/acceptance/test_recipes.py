"""The recipes: each test that they show runs, with a program that the clients of its language come from."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.documented import ROOT, Reader, shown_by
from tests.kafka.jars import BUILD, KafkaUnavailableError, fetched_jars, report_on_stderr
from tests.kafka.requirement import miss

RECIPES = {shown.name: shown for shown in shown_by(ROOT / "docs" / "recipes.md") if shown.name}
GO_CLIENT = "github.com/twmb/franz-go/pkg/kgo@v1.22.2"
NODE_CLIENT = "kafkajs@2.2.4"
POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>ctrlchan</groupId>
  <artifactId>recipe</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-clients</artifactId>
      <version>3.9.1</version>
    </dependency>
    <dependency>
      <groupId>org.junit.platform</groupId>
      <artifactId>junit-platform-console-standalone</artifactId>
      <version>1.11.4</version>
    </dependency>
  </dependencies>
</project>
"""


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


def run(reader: Reader, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the reader's folder; all that it prints is in its output."""
    return subprocess.run(
        words,
        cwd=reader.folder,
        env=reader.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=550,
        check=False,
    )


def output_of(reader: Reader, *words: str) -> str:
    """Run a command that succeeds; return what it has printed."""
    ran = run(reader, *words)
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


def installed(reader: Reader, what: str, *commands: tuple[str, ...]) -> None:
    """Install a client library. Skips the test where its program or its registry is missing; fails in CI."""
    try:
        for words in commands:
            ran = run(reader, *words)
            if ran.returncode:
                raise OSError(f"{' '.join(words)}: {ran.stdout}")
    except OSError as error:
        miss(what, error)


def test_java(reader: Reader) -> None:
    reader.write(RECIPES["OrdersTest.java"])
    pom = BUILD / "java-recipe" / "pom.xml"
    pom.parent.mkdir(parents=True, exist_ok=True)
    pom.write_text(POM)
    try:
        jars = fetched_jars(pom, "java-recipe", "kafka-clients and JUnit (30 MB)", report_on_stderr)
    except KafkaUnavailableError as error:
        miss("the recipe for Java", error)
    path = f"{jars}{os.sep}*{os.pathsep}."
    output_of(reader, "javac", "-proc:none", "-cp", path, "OrdersTest.java")
    launcher = ("org.junit.platform.console.ConsoleLauncher", "execute", "--select-class", "OrdersTest")
    assert "1 tests successful" in output_of(reader, "java", "-cp", path, *launcher)


@pytest.mark.skipif(shutil.which("go") is None, reason="there is no Go")
def test_go(reader: Reader) -> None:
    reader.write(RECIPES["orders_test.go"])
    # All is compiled anew, as the home is empty: without what needs a C compiler, lints and optimisations.
    reader.environment["CGO_ENABLED"] = "0"
    installed(reader, "the recipe for Go", ("go", "mod", "init", "orders"), ("go", "get", GO_CLIENT))
    assert "--- PASS: TestAnOrder" in output_of(reader, "go", "test", "-v", "-vet=off", "-gcflags=all=-N -l")


def test_node(reader: Reader) -> None:
    reader.write(RECIPES["orders.test.mjs"])
    installed(reader, "the recipe for Node", ("npm", "install", "--no-audit", "--no-fund", NODE_CLIENT))
    assert "# pass 1" in output_of(reader, "node", "--test", "--test-reporter=tap")


def test_each_recipe_is_tested() -> None:
    assert RECIPES.keys() == {"OrdersTest.java", "orders_test.go", "orders.test.mjs"}
