"""Sessions with ZooKeeper that expire before their time."""

from __future__ import annotations

from kazoo.client import KazooClient

from ctrlchan.zookeeper.session import ZooKeeperSession

__all__ = ["expire"]


def expire(session: ZooKeeperSession) -> None:
    """End a session at the server: a second connection with the same session id closes it."""
    # Without the chroot, for which kazoo asks: the session's own client may have the connection back by then.
    servers = session.servers.partition("/")[0]
    client = KazooClient(hosts=servers, client_id=session._client.client_id, timeout=30)
    client.start()
    client.stop()
    client.close()
