"""The server of a controller without ZooKeeper, for tests of its listeners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ctrlchan.authorizer.interface import Authorizer
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState, Event
from ctrlchan.controller.events.event_loop import EventLoop
from ctrlchan.controller.server.service import ControllerServer
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.state import Broker, ClusterState, Endpoint, SecurityProtocol
from tests.unit.controller.local_controller import context_of
from tests.unit.state.helpers import small_state

__all__ = ["ID", "LocalServer", "local_server", "plaintext"]

ID = 1000


def plaintext(name: str = "PLAINTEXT", port: int = 0) -> Endpoint:
    return Endpoint(name, SecurityProtocol.PLAINTEXT, "127.0.0.1", port)


@dataclass
class LocalServer:
    """``core``: None makes it a server of a controller that is not the active one."""

    config: ControllerConfig
    core: ControllerCore | None
    users: dict[str, dict[str, str]] = field(default_factory=dict)
    authorizer: Authorizer | None = None

    def __post_init__(self) -> None:
        self.failures: list[BaseException] = []
        self.loop: EventLoop[ControllerCore] = EventLoop(
            "test", lambda: self.core, lambda _, error: self.failures.append(error)
        )
        self.server = ControllerServer(
            self.config,
            self.loop,
            lambda: self.core,
            read_cluster_id=lambda: "test-cluster",
            read_user_config=self._read_user_config,
            authorizer=self.authorizer,
        )

    def address(self, listener: str = "PLAINTEXT") -> str:
        endpoint = next(one for one in self.server.endpoints if one.listener == listener)
        return f"{endpoint.host}:{endpoint.port}"

    def port(self, listener: str = "PLAINTEXT") -> int:
        return next(one.port for one in self.server.endpoints if one.listener == listener)

    def _read_user_config(self, user: str) -> Mapping[str, str] | None:
        return self.users.get(user)


@contextmanager
def local_server(
    *listeners: Endpoint,
    active: bool = True,
    state: ClusterState | None = None,
    authorizer: Authorizer | None = None,
    **settings: Any,
) -> Iterator[LocalServer]:
    """Yield a server that listens; its controller announces itself, and knows the brokers 1, 2 and 3."""
    config = ControllerConfig(
        controller_id=ID,
        zookeeper="localhost:2181/kafka",
        listeners=listeners or (plaintext(),),
        **settings,
    )
    local = LocalServer(config, None, authorizer=authorizer)
    endpoints = local.server.start()
    try:
        if active:
            state = state or small_state()
            state.set_brokers([_broker(broker_id, endpoints) for broker_id in (1, 2, 3)])
            state.set_announced([Broker(ID, endpoints=endpoints)])
            state.controller_id = ID
            without: Any = None
            local.core = ControllerCore(
                config=config,
                loop=local.loop,
                session=without,
                nodes=without,
                context=context_of(state),
                channel=without,
                batch=without,
                topic_configs=without,
                notifier=lambda _: None,
                is_loaded=True,
            )
        local.loop.start()
        yield local
    finally:
        local.server.close()
        local.loop.close(Event(ControllerState.IDLE, "Close", lambda: None))
    assert local.failures == []


def _broker(broker_id: int, endpoints: tuple[Endpoint, ...]) -> Broker:
    """A broker at the address of the controller: clients may ask any of them."""
    return Broker(broker_id, 100 + broker_id, endpoints)
