"""Connecting to ZooKeeper, and reading many nodes at once, with kazoo."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.hosts import collect_hosts
from kazoo.protocol.paths import normpath

from ctrlchan.errors import ConfigError, ZooKeeperError
from ctrlchan.text import printable

__all__ = ["NodeReader", "Progress", "Znode", "check_servers", "close", "connect", "connected", "new_client"]

#: Called with what is being read, how many nodes are read, and of how many.
Progress: TypeAlias = Callable[[str, int, int], None]
#: The data and the stat of a node.
Znode: TypeAlias = tuple[bytes, Any]

#: Reads in flight at once; the server answers the requests of one connection in order.
_IN_FLIGHT: Final = 1_000
#: Reads between two calls of ``Progress``.
_PROGRESS_STEP: Final = 1_000


def new_client(servers: str, session_timeout: float) -> KazooClient:
    """Return a client for ``HOST:PORT[,HOST:PORT…][/chroot]`` that has not connected yet.

    ``session_timeout`` in seconds. Raises ConfigError for servers of another form.
    """
    check_servers(servers)
    return KazooClient(hosts=servers, timeout=session_timeout)


def check_servers(servers: str) -> None:
    """Raise ConfigError unless ``servers`` is ``HOST:PORT[,HOST:PORT…][/chroot]``."""
    shown = printable(servers)
    try:
        hosts, _ = collect_hosts(servers)
    except ValueError as error:
        raise ConfigError(
            f"zookeeper: '{shown}' is not HOST:PORT[,HOST:PORT...][/chroot] ({printable(str(error))})"
        ) from None
    for host, _port in hosts:
        if not host.isprintable() or " " in host:
            raise ConfigError(f"zookeeper: '{printable(host)}' in '{shown}' is not a host name")
    try:
        chroot = servers.partition("/")[2]
        if chroot:
            normpath("/" + chroot)
    except ValueError as error:
        raise ConfigError(f"zookeeper: '{shown}': {printable(str(error))}") from None


def connect(client: KazooClient, servers: str, timeout: float) -> None:
    """Connect the client. Raises ZooKeeperError, naming ``servers``, after ``timeout`` seconds."""
    try:
        with warnings.catch_warnings():
            # Readers raise an error of their own where the chroot does not exist.
            warnings.filterwarnings("ignore", "No chroot path exists")
            client.start(timeout=timeout)
    except (KazooTimeoutError, KazooException, OSError, ValueError) as error:
        close(client)
        raise ZooKeeperError(
            f"zookeeper {printable(servers)}: no connection within {timeout:g} s ({error})"
        ) from error
    except BaseException:
        close(client)
        raise


def close(client: KazooClient) -> None:
    """End the session and give the client's threads and sockets back."""
    client.stop()
    client.close()


@contextmanager
def connected(servers: str, timeout: float = 10.0) -> Iterator[KazooClient]:
    """Connect to ``servers`` for the length of a ``with`` block. Raises ConfigError or ZooKeeperError."""
    client = new_client(servers, timeout)
    connect(client, servers, timeout)
    try:
        yield client
    finally:
        close(client)


class NodeReader:
    """Reads nodes through a connected client.

    Every method raises ZooKeeperError, naming the path, for a node that cannot be read and for an answer that
    takes longer than ``timeout`` seconds.
    """

    def __init__(self, client: KazooClient, progress: Progress, timeout: float) -> None:
        self._client = client
        self._progress = progress
        self._timeout = timeout

    def children(self, path: str) -> list[str] | None:
        """Return the names below the path, None where there is no such node."""
        names: list[str] | None = self._answer(path, self._client.get_children_async(path))
        return names

    def read(self, paths: Sequence[str], what: str) -> Iterator[Znode | None]:
        """Yield each node in the order of ``paths``, None where there is none. Reads are pipelined."""
        waiting: deque[tuple[str, Any]] = deque()
        sent = 0
        for done in range(len(paths)):
            while sent < len(paths) and len(waiting) < _IN_FLIGHT:
                waiting.append((paths[sent], self._client.get_async(paths[sent])))
                sent += 1
            if done % _PROGRESS_STEP == 0:
                self._progress(what, done, len(paths))
            yield self._answer(*waiting.popleft())
        self._progress(what, len(paths), len(paths))

    def _answer(self, path: str, request: Any) -> Any:
        try:
            return request.get(timeout=self._timeout)
        except NoNodeError:
            return None
        except KazooTimeoutError as error:
            raise ZooKeeperError(f"{path}: no answer within {self._timeout:g} s") from error
        except KazooException as error:
            raise ZooKeeperError(f"{path}: cannot be read ({type(error).__name__}: {error})") from error
