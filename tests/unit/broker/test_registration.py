"""A broker's registration in ZooKeeper, while another session still has its node."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from ctrlchan.broker.launch.registration import Registrations
from ctrlchan.zookeeper import paths
from ctrlchan.zookeeper.memory.server import MemoryZooKeeper
from tests.fault.proxy import Proxy
from tests.kafka.waiting import wait_until
from tests.unit.batch.manual_channel import broker
from tests.unit.zookeeper.sessions import away, session


def test_a_registration_waits_for_a_former_one_over_a_lost_connection() -> None:
    epochs: dict[int, int] = {}
    with ExitStack() as cleanup:
        server = cleanup.enter_context(MemoryZooKeeper())
        proxy = cleanup.enter_context(Proxy(server.port))
        former = cleanup.enter_context(session(server.address))
        former.create_path(paths.BROKER_IDS)
        former.create(paths.broker(1), b"former", ephemeral=True)
        registrations = Registrations(f"127.0.0.1:{proxy.port}", epochs.__setitem__, session_timeout=60.0)
        cleanup.callback(registrations.stop)
        registrations.connect()
        waiting = threading.Event()
        watch_node = registrations.session.watch_node

        def watch(path, callback):  # type: ignore[no-untyped-def]
            node = watch_node(path, callback)
            waiting.set()
            return node

        registrations.session.watch_node = watch  # type: ignore[method-assign]
        registering = threading.Thread(target=registrations.register, args=([broker(1, -1)],), daemon=True)
        registering.start()
        assert waiting.wait(20)
        with away(proxy, registrations.session):
            former.delete(paths.broker(1))
        wait_until(lambda: epochs, what="the broker is registered")
        registering.join(20)
        node = former.get(paths.broker(1))
        assert node is not None
        assert epochs == {1: node.czxid}
