"""Kafka's Java clients from 0.11 to 4.1 on an EmbeddedCluster that stores records, and on real Kafka."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.either_cluster import EitherCluster
from tests.kafka.jars import BUILD, SHORT_LIVED, compile_java, fetched_jars, report_on_stderr

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

SOURCE = Path(__file__).with_name("java_clients") / "Client.java"
VERSIONS = ("0.11.0.3", "1.0.2", "1.1.1", "2.0.1", "2.4.1", "2.8.2", "3.3.2", "3.7.2", "4.0.0", "4.1.0")
POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>ctrlchan</groupId>
  <artifactId>java-client</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
    </dependency>
{more}  </dependencies>
</project>
"""
#: What Kafka 0.11 takes from Java, which has it no more since 11, for SCRAM.
JAXB = """\
    <dependency>
      <groupId>javax.xml.bind</groupId>
      <artifactId>jaxb-api</artifactId>
      <version>2.3.1</version>
    </dependency>
"""


def jars(version: str, artifact: str = "kafka-clients") -> Path:
    """Return the folder of this version's jars, which Maven fetches once."""
    name = version if artifact == "kafka-clients" else f"{artifact}-{version}"
    pom = BUILD / "java-clients" / f"{name}.pom.xml"
    pom.parent.mkdir(parents=True, exist_ok=True)
    more = JAXB if version.startswith("0.") else ""
    pom.write_text(POM.format(artifact=artifact, version=version, more=more))
    return fetched_jars(pom, "java-clients", f"{artifact} {version} (25 MB)", report_on_stderr)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_java_client(version: str, either: EitherCluster) -> None:
    """It creates a topic, produces, reads in a group, commits, has transactions, adds partitions, deletes."""
    path = f"{compile_java(SOURCE)}{os.pathsep}{jars(version)}{os.sep}*"
    command = ["java", *SHORT_LIVED, "-cp", path, "Client", either.bootstrap, f"java-{version}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stdout[-1000:] + ran.stderr[-3000:]
