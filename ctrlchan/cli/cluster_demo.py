"""``ctrlchan cluster --demo``: Kafka clients create topics, produce and consume while a broker is killed."""

from __future__ import annotations

import importlib.util
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

from ctrlchan.cli.cluster_traffic import TOPIC, Traffic
from ctrlchan.cli.progress import step

if TYPE_CHECKING:
    from ctrlchan.cli.local_cluster import LocalCluster

__all__ = ["check_demo", "show_cluster"]

T = TypeVar("T")

_TOPICS: Final = ("orders", "payments", "clicks")
_PARTITIONS: Final = 12
_REPLICATION: Final = 3
#: Seconds for each of the client's requests and for each effect of one.
_TIMEOUT: Final = 30.0
_PAUSE: Final = 0.05

#: Records that are produced and consumed while the broker is dead.
_MORE: Final = 100

#: (topic, partition) -> (leader, ISR), as a client reads it.
_View = Mapping[tuple[str, int], tuple[int, tuple[int, ...]]]


def check_demo(brokers: int) -> None:
    """Raise ConfigError when the demonstration cannot run."""
    from ctrlchan.errors import ConfigError

    if importlib.util.find_spec("confluent_kafka") is None:
        raise ConfigError("the demo's client is confluent-kafka: pip install 'ctrlchan[demo]'")
    if not _REPLICATION <= brokers <= 12:
        raise ConfigError(f"the demo runs with 3 to 12 brokers, not {brokers}")


def show_cluster(cluster: LocalCluster) -> None:
    """Create topics, kill a broker, start it again, delete a topic; print what clients see after each.

    Meanwhile a producer and a consumer work on another topic: no record may be lost or doubled.

    Raises CtrlchanError when a request of the client fails, or when it does not see the effect in time.
    """
    from confluent_kafka import KafkaException

    from ctrlchan.errors import CtrlchanError

    try:
        _show(cluster)
    except KafkaException as problem:
        raise CtrlchanError(f"the client: {problem.args[0].str() if problem.args else problem}") from None


def _show(cluster: LocalCluster) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    # Brokers that are killed are no news here.
    admin = AdminClient(
        {
            "bootstrap.servers": cluster.brokers.bootstrap_servers,
            "client.id": "ctrlchan-demo",
            "log_level": 0,
            "socket.timeout.ms": 10_000,
            "reconnect.backoff.max.ms": 500,
        }
    )
    with step(f"creating {len(_TOPICS)} topics with {_PARTITIONS} partitions each"):
        asked = admin.create_topics([NewTopic(name, _PARTITIONS, _REPLICATION) for name in _TOPICS])
        for future in asked.values():
            future.result(_TIMEOUT)
        view = _seen(admin, "the topics", _is_complete)
    typer.echo(f"a client created {', '.join(_TOPICS)}: {_leaders(view)}")

    with step("starting a producer and a consumer"):
        admin.create_topics([NewTopic(TOPIC, _PARTITIONS, _REPLICATION)])[TOPIC].result(_TIMEOUT)
        traffic = Traffic(cluster.brokers.bootstrap_servers)
        _until("a consumer gets records", lambda: traffic.consumed, traffic.describe)

    victim = max(_led_by(view).items(), key=lambda item: item[1])[0]
    moved = [key for key, (leader, _) in view.items() if leader == victim]
    begun = time.monotonic()
    with step(f"killing broker {victim}, which leads {len(moved)} partitions"):
        cluster.brokers.kill_broker(victim)
        after = _seen(
            admin,
            f"new leaders in the place of broker {victim}",
            lambda seen: all(leader not in (victim, -1) for leader, _ in seen.values()),
        )
    seconds = time.monotonic() - begun
    typer.echo(
        f"broker {victim} was killed; {seconds:.1f} s later others lead its partitions: {_leaders(after)}"
    )
    for key in moved[:3]:
        typer.echo(f"  {key[0]}-{key[1]}: leader {view[key][0]} -> {after[key][0]}, in sync {after[key][1]}")

    seen = traffic.consumed
    _until("the consumer goes on", lambda: traffic.consumed > seen + _MORE, traffic.describe)

    with step(f"starting broker {victim} again"):
        cluster.brokers.start_broker(victim)
        _until(f"broker {victim} is there again", lambda: victim in admin.list_topics(timeout=10).brokers)
    typer.echo(f"broker {victim} was started again")

    with step("waiting for every record"):
        count = traffic.stop()
    typer.echo(f"meanwhile a client produced {count:,} records, and another consumed each of them once")

    with step(f"deleting {_TOPICS[0]}"):
        admin.delete_topics([_TOPICS[0]], operation_timeout=_TIMEOUT)[_TOPICS[0]].result(_TIMEOUT)
        _until("the topic is gone", lambda: _TOPICS[0] not in admin.list_topics(timeout=10).topics)
    typer.echo(f"a client deleted {_TOPICS[0]}; {len(_TOPICS) - 1} topics are left")


def _view(admin: Any) -> _View:
    """Return the partitions of the demo's topics, as the client reads them."""
    topics = admin.list_topics(timeout=10).topics
    return {
        (name, number): (partition.leader, tuple(partition.isrs))
        for name in _TOPICS
        if name in topics
        for number, partition in topics[name].partitions.items()
    }


def _is_complete(view: _View) -> bool:
    return len(view) == len(_TOPICS) * _PARTITIONS and all(
        leader >= 0 and len(isr) == _REPLICATION for leader, isr in view.values()
    )


def _seen(admin: Any, what: str, wanted: Callable[[_View], bool]) -> _View:
    """Return the view as soon as it is as wanted."""

    def look() -> _View | None:
        view = _view(admin)
        return view if view and wanted(view) else None

    return _until(what, look)


def _until(what: str, look: Callable[[], T | None], describe: Callable[[], str] | None = None) -> T:
    """Call ``look`` until it returns something true. Raises CtrlchanError after the time limit.

    ``describe``: returns what the message says of the state then.
    """
    from confluent_kafka import KafkaException

    from ctrlchan.errors import CtrlchanError

    deadline = time.monotonic() + _TIMEOUT
    while True:
        try:
            found = look()
        except KafkaException as problem:
            found, reason = None, f" ({problem})"
        else:
            reason = ""
        if found:
            return found
        if time.monotonic() > deadline:
            state = f"; {describe()}" if describe else ""
            raise CtrlchanError(f"{what}: a client did not see it within {_TIMEOUT:g} s{reason}{state}")
        time.sleep(_PAUSE)


def _led_by(view: _View) -> Counter[int]:
    return Counter(leader for leader, _ in view.values())


def _leaders(view: _View) -> str:
    """Return how many partitions each broker leads."""
    return ", ".join(f"broker {leader} leads {count}" for leader, count in sorted(_led_by(view).items()))
