"""``ctrlchan bench restarts``: brokers of an embedded cluster restart in turn while clients produce."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from ctrlchan.cli.bench.options import ClientOptions, LoadOptions, OutputOptions, SparkOptions, TargetOptions
from ctrlchan.cli.pipeline.options import with_options
from ctrlchan.config.table import CONTROLLED_SHUTDOWN_ENABLE
from ctrlchan.pipeline.settings import Setting

if TYPE_CHECKING:
    from ctrlchan.cli.bench.session import Session
    from ctrlchan.loads.result import Operation

__all__ = ["restarts"]

#: The load ends with the last restart.
_DAY: Final = 86_400.0
#: A broker hands its leaders over before it ends.
_CONFIGS: Final = {CONTROLLED_SHUTDOWN_ENABLE.name: "true"}


@dataclass(frozen=True, kw_only=True)
class RestartOptions:
    """The restarts, and the load meanwhile."""

    rounds: Annotated[int, Setting("How often each broker restarts.", minimum=1)] = 1
    pause: Annotated[float, Setting("Time between two restarts.", value="SECONDS", minimum=0)] = 2.0
    rate: Annotated[
        float, Setting("Records each second, of all clients; 0: as fast as possible.", minimum=0)
    ] = 1_000.0
    warmup: Annotated[
        float, Setting("How long the clients produce before the first restart.", value="SECONDS", minimum=0)
    ] = 5.0
    clients: Annotated[int, Setting("Clients, each in a process of its own.", minimum=1)] = 1


@with_options
def restarts(
    *,
    target: TargetOptions,
    shape: RestartOptions,
    client: ClientOptions,
    output: OutputOptions,
) -> None:
    """Restart the brokers of an embedded cluster one after another, while clients produce.

    A restart lasts from the order to stop until the broker serves again; "in sync" from there until all
    replicas of the load's topic are in sync, before which the next broker does not stop. The latencies of the
    records show what clients notice. Only brokers that this command has started are restarted: --embedded.

    Examples:

    \b
      ctrlchan bench restarts --embedded 3
      ctrlchan bench restarts --embedded 5 --rounds 2 --partitions 1000 --rate 5000
    """
    from ctrlchan.cli.bench.output import show_result
    from ctrlchan.cli.bench.session import open_session
    from ctrlchan.errors import ConfigError
    from ctrlchan.loads.kinds.produce import ProduceLoad
    from ctrlchan.loads.result import Operation

    if target.embedded is None or target.embedded < 2:
        raise ConfigError("only brokers of this command are restarted: give --embedded 2, or more")
    paced = LoadOptions(rate=shape.rate, seconds=_DAY, warmup=shape.warmup, clients=shape.clients)
    restarted, in_sync = Operation(), Operation()
    with open_session(target, _CONFIGS) as session:
        load = ProduceLoad(**session.shape(paced, client.settings()), size=client.size)

        def bounce(is_stopped: Callable[[], bool]) -> None:
            _sleep(shape.warmup + shape.pause, is_stopped)
            for _ in range(shape.rounds):
                _bounce(session, load.topic, shape.pause, is_stopped, restarted, in_sync)

        result = session.work(load, SparkOptions(), bounce)
        result.operations |= {"restart": restarted, "in sync": in_sync}
        first, last = session.own.offsets(load.topic)
        show_result(session, load, result, output.json, records_in_topic=last - first)


def _bounce(
    session: Session,
    topic: str,
    pause: float,
    is_stopped: Callable[[], bool],
    restarted: Operation,
    in_sync: Operation,
) -> None:
    """Restart each broker once."""
    assert session.embedded is not None
    begun = time.monotonic()
    for broker in session.embedded.brokers:
        if is_stopped():
            return
        at = time.monotonic()
        session.embedded.start_broker(broker.id)
        restarted.add_one(time.monotonic() - at, time.monotonic() - begun)
        at = time.monotonic()
        session.own.wait_until_in_sync(topic)
        in_sync.add_one(time.monotonic() - at, time.monotonic() - begun)
        _sleep(pause, is_stopped)


def _sleep(seconds: float, is_stopped: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not is_stopped():
        time.sleep(min(0.1, seconds))
