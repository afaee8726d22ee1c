"""HDFS's file system, whose name nodes have a limited time to answer.

hdfs-native waits for an answer for as long as the connection stands, and a signal reaches Python only
afterwards. So each request to a name node runs on a thread of its own, and the caller waits for that thread.
A request that was given up may still be carried out later, like one whose answer was lost. Bytes of files
come from data nodes, for which hdfs-native has time limits.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, Final

__all__ = ["hdfs_file_system"]

#: Seconds for an answer. A name service has several name nodes: the first may be a machine that is gone, and
#: hdfs-native's own limit for a connection, a minute, comes before it asks the second.
_ANSWER: Final = 60.0
_ANSWER_AFTER_FAILOVER: Final = 180.0
#: hdfs-native waits minutes for a failover, also where the URL names the only name node. As Hadoop does for a
#: refused connection: ten attempts, a second between them.
_ONLY_ONE: Final = {"dfs.client.failover.max.attempts": "10", "dfs.client.failover.sleep.max.millis": "1000"}


def hdfs_file_system(root: str) -> Any:
    """Return a new file system of fsspec for ``hdfs://host:port`` or ``hdfs://service``.

    A request raises TimeoutError if no name node has answered it in time, OSError if none can be reached.
    """
    import fsspec

    has_port = root.rpartition(":")[2].isdecimal()
    options = _ONLY_ONE if has_port else {}
    made = fsspec.core.url_to_fs(f"{root}/", skip_instance_cache=True, **options)[0]
    made.client = _Client(made.client, _ANSWER if has_port else _ANSWER_AFTER_FAILOVER)
    return made


class _Client:
    """hdfs-native's client, with a time limit for each method."""

    def __init__(self, client: Any, seconds: float) -> None:
        self._client = client
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        return partial(_in_time, self._seconds, getattr(self._client, name))

    def list_status(self, path: str, recursive: bool = False) -> Iterator[Any]:
        # Its requests are made while it is iterated.
        listed: list[Any] = _in_time(self._seconds, lambda: list(self._client.list_status(path, recursive)))
        return iter(listed)


def _in_time(seconds: float, method: Callable[..., Any], *values: Any, **named: Any) -> Any:
    """Return what the method returns. Raises TimeoutError if it does not within ``seconds``."""
    answer: Future[Any] = Future()

    def run() -> None:
        try:
            answer.set_result(method(*values, **named))
        except BaseException as problem:  # noqa: BLE001 - raised in the calling thread
            answer.set_exception(problem)

    # Not of a pool: the interpreter would wait at its end for threads that wait for an answer.
    threading.Thread(target=run, name="ctrlchan-hdfs", daemon=True).start()
    if not wait([answer], seconds).done:
        raise TimeoutError(
            errno.ETIMEDOUT, f"no answer for {seconds:g} s: is this host and port a name node that works?"
        )
    return answer.result()
