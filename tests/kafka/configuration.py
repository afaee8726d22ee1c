"""The files that ZooKeeper and the brokers of a rig are configured by.

Small and quick, and nothing that happens by itself: topics exist when a controller makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

SESSION_TIMEOUT = 6.0  # s; how long ZooKeeper keeps a killed broker registered

_LAYOUT = """\
log4j.appender.{name}.layout=org.apache.log4j.PatternLayout
log4j.appender.{name}.layout.ConversionPattern=[%d] %p %m (%c)%n
"""

_ZOOKEEPER_LOG4J = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
""" + _LAYOUT.format(name="console")

_BROKER_LOG4J = """\
log4j.rootLogger=INFO, server
log4j.logger.state.change.logger=TRACE, stateChange
log4j.additivity.state.change.logger=false
log4j.logger.kafka.controller=TRACE, controller
log4j.additivity.kafka.controller=false
"""
_BROKER_LOGS = {"server": "server.log", "stateChange": "state-change.log", "controller": "controller.log"}


def write_zookeeper_configuration(folder: Path, port: int) -> None:
    """zoo.cfg and log4j.properties; the log goes to standard output."""
    (folder / "zoo.cfg").write_text(
        f"dataDir={folder / 'data'}\n"
        f"clientPort={port}\n"
        "clientPortAddress=127.0.0.1\n"
        "tickTime=1000\n"
        "maxClientCnxns=0\n"
        "admin.enableServer=false\n"
        "4lw.commands.whitelist=conf\n"
    )
    (folder / "log4j.properties").write_text(_ZOOKEEPER_LOG4J)


def broker_properties(
    broker_id: int,
    *,
    zookeeper: str,
    data: Path,
    ports: Mapping[str, int],
    protocols: Mapping[str, str],
    inter_broker_listener: str,
    brokers: int,
) -> dict[str, str]:
    """The rig's server.properties of one broker. ``ports``, ``protocols``: one for each listener; port 0 is a
    free one."""
    return {
        "broker.id": str(broker_id),
        "zookeeper.connect": zookeeper,
        "zookeeper.session.timeout.ms": str(int(SESSION_TIMEOUT * 1000)),
        "log.dirs": str(data),
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocols[name]}" for name in ports),
        "inter.broker.listener.name": inter_broker_listener,
        # A follower asks again at once after its first question came before the leader was made.
        "replica.fetch.backoff.ms": "50",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        "auto.create.topics.enable": "false",
        "controlled.shutdown.enable": "false",
        "log.cleaner.enable": "false",
        "log.index.size.max.bytes": "1048576",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": str(brokers),
        "transaction.state.log.num.partitions": "1",
    }


def write_broker_configuration(folder: Path, properties: Mapping[str, str]) -> None:
    """server.properties and log4j.properties: three logs, the state-change log with every TRACE line."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "server.properties").write_text("".join(f"{k}={v}\n" for k, v in properties.items()))
    log4j = [_BROKER_LOG4J]
    for name, file in _BROKER_LOGS.items():
        log4j.append(f"log4j.appender.{name}=org.apache.log4j.FileAppender\n")
        log4j.append(f"log4j.appender.{name}.File={folder / file}\n")
        log4j.append(_LAYOUT.format(name=name))
    (folder / "log4j.properties").write_text("".join(log4j))
