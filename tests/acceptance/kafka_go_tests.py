"""Runs kafka-go's tests at the addresses that they name: a secured cluster at localhost:9092 and 9093.

    unshare --net python -m tests.acceptance.kafka_go_tests FOLDER OPTION …

The options are those of a compiled package of tests: ``-test.run=PATTERN``. The network namespace makes these
ports free. The brokers have the settings of kafka-go's own CI.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ctrlchan
from tests.acceptance.secured_listeners import ScramUser, add_scram_users, listener_configs

_SASL = "SASL_PLAINTEXT"
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_CONFIGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "true",
    "message.max.bytes": "200000000",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
_USERS = (
    ScramUser("adminscram", "admin-secret-256", "SCRAM-SHA-256"),
    ScramUser("adminscram", "admin-secret-512", "SCRAM-SHA-512"),
)
#: The tests of SASL need it.
_TOPIC = "test-writer-0"


def main(folder: Path, options: list[str]) -> int:
    """Run the compiled packages of tests; return 0 if all of them pass."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    listener = {"SASL_PLAINTEXT": "localhost:9093"}
    configs = _CONFIGS | listener_configs(
        dict.fromkeys(listener, "SASL_PLAINTEXT"), {"adminplain": "admin-secret"}, _MECHANISMS
    )
    with ctrlchan.EmbeddedCluster(
        1,
        host="localhost",
        port=9092,
        more_listeners={_SASL: "localhost:9093"},
        configs=configs,
    ) as cluster:
        add_scram_users(cluster, _USERS, _SASL)
        cluster.create_topic(_TOPIC, partitions=1)
        environment = os.environ | {"KAFKA_VERSION": "3.9.1", "KAFKA_SKIP_NETTEST": "1"}
        status = 0
        for package in sorted(folder.glob("*.test")):
            command = [str(package), "-test.v", "-test.timeout=900s", *options]
            status = subprocess.run(command, cwd=folder, env=environment, check=False).returncode or status
        return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
