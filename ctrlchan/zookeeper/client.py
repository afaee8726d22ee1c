"""Connecting to ZooKeeper, and reading many nodes at once, with kazoo."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final, TypeAlias

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError, UnimplementedError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.hosts import collect_hosts
from kazoo.protocol.paths import normpath

from ctrlchan.errors import ConfigError, ResultCode, ZooKeeperError
from ctrlchan.text import printable
from ctrlchan.zookeeper.operations import MultiRead, Node, decode_reads, encode_reads

__all__ = ["NodeReader", "Progress", "Znode", "check_servers", "close", "connect", "connected", "new_client"]

#: Called with what is being read, how many nodes are read, and of how many.
Progress: TypeAlias = Callable[[str, int, int], None]
#: The data of a node, and an object with its version and czxid.
Znode: TypeAlias = tuple[bytes, Any]

#: Reads between two calls of ``Progress``, which are on their way at once. A thousand paths with names of
#: 249 characters are a third of the longest request.
_PROGRESS_STEP: Final = 1_000
#: Seconds for a connection when little is left of the time limit.
_LEAST_SECONDS: Final = 0.1


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


def _require_reachable(client: KazooClient, servers: str, timeout: float) -> float:
    """Raise ZooKeeperError with the reasons if no server of the client accepts a connection.

    The client itself tries again, and says at its end only that the time is over. Returns the rest of
    ``timeout``. A silent server is left to the client.
    """
    deadline = monotonic() + timeout
    reasons = []
    for host, port in client.hosts:
        left = deadline - monotonic()
        if left <= 0:
            break
        try:
            client.handler.create_connection((host, port), timeout=left).close()
        except client.handler.timeout_exception:
            break
        except OSError as error:
            reasons.append(f"{host}:{port}: {error.strerror or error}")
        else:
            break
    else:
        raise ZooKeeperError(f"zookeeper {printable(servers)}: {printable('; '.join(reasons))}")
    return max(_LEAST_SECONDS, deadline - monotonic())


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
    """Connect to ``servers`` for the length of a ``with`` block.

    Raises ConfigError, and ZooKeeperError: at once if no server can be reached, else after ``timeout``
    seconds.
    """
    client = new_client(servers, timeout)
    try:
        left = _require_reachable(client, servers, timeout)
    except BaseException:
        close(client)
        raise
    connect(client, servers, left)
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
        self._has_multi_read = True

    def children(self, path: str) -> list[str] | None:
        """Return the names below the path, None where there is no such node."""
        names: list[str] | None = self._answer(path, self._client.get_children_async(path))
        return names

    def read(self, paths: Sequence[str], what: str) -> Iterator[Znode | None]:
        """Yield each node in the order of ``paths``, None where there is none.

        Reads go a thousand at a time (multiRead), or one by one and pipelined to servers older than 3.6.
        """
        for begin in range(0, len(paths), _PROGRESS_STEP):
            self._progress(what, begin, len(paths))
            yield from self._read(paths[begin : begin + _PROGRESS_STEP])
        self._progress(what, len(paths), len(paths))

    def _read(self, paths: Sequence[str]) -> list[Znode | None]:
        if self._has_multi_read:
            chroot = self._client.chroot
            request = MultiRead(encode_reads([(chroot + path).encode() for path in paths]))
            result = self._client.handler.async_result()
            self._client._call(request, result)
            try:
                data, offset = self._answer(paths[0], result)
            except UnimplementedError:
                self._has_multi_read = False
            else:
                found = decode_reads(data, offset, len(paths))
                return [self._znode(path, one) for path, one in zip(paths, found, strict=True)]
        requests = [(path, self._client.get_async(path)) for path in paths]
        return [self._answer(*one) for one in requests]

    @staticmethod
    def _znode(path: str, found: Node | int) -> Znode | None:
        if isinstance(found, Node):
            return found.data, found
        if found == ResultCode.NO_NODE:
            return None
        raise ZooKeeperError(f"{path}: cannot be read ({ResultCode.name_of(found)})")

    def _answer(self, path: str, request: Any) -> Any:
        try:
            return request.get(timeout=self._timeout)
        except NoNodeError:
            return None
        except UnimplementedError:
            raise
        except KazooTimeoutError as error:
            raise ZooKeeperError(f"{path}: no answer within {self._timeout:g} s") from error
        except KazooException as error:
            raise ZooKeeperError(f"{path}: cannot be read ({type(error).__name__}: {error})") from error
