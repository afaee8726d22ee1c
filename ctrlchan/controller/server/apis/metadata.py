"""Metadata (3): the cluster as the controller knows it.

Clients ask any node, and may take the controller for one. Topics that are to be created are created by a
broker that is asked, with its own settings, if they allow it: a client that tries again may ask the
controller again and again. A controller that is not the active one closes the connection, and clients ask
another broker.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

from ctrlchan.controller.server.asking import ask_aside, ask_one, nodes_to_ask
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis import metadata
from ctrlchan.server.apis._metadata import decode_metadata
from ctrlchan.topic_names import why_invalid

__all__ = ["API"]

#: The request to a broker: version 4 has the names, and whether they may be created.
_TO_BROKER: Final = 4
_COUNT: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">h")
_ALLOWED: Final = b"\1"
#: Of one request to a broker.
_MOST_TOPICS: Final = 1_000


def _handle(core: ServerCore, request: Request) -> Reply | Future[Reply]:
    cluster = core.cluster()
    body = decode_metadata(request.frame, request.offset, request.version)
    described = metadata.described(cluster, request, body)
    with cluster.metadata.state.lock:
        missing = metadata.missing_topics(cluster.metadata, request.version, body)
        nodes = nodes_to_ask(core, cluster.metadata, request.context.listener) if missing else ()
    missing = [name for name in missing if name in described and why_invalid(name) is None]
    creatable = metadata.creatable(request.access, missing) if missing else ()
    names = [name for name in missing if name in creatable][:_MOST_TOPICS]
    if names:
        brokers = [node for node in nodes if node.id != core.id]
        # One thread for all topics: clients ask again for those that it does not ask for.
        ask_aside(
            core, "topics", partial(ask_one, core, brokers, metadata.API.key, _TO_BROKER, _encode(names))
        )
    # Whether brokers create topics at all is not known here: who may not create one sees that there is none.
    return metadata.answer(cluster, request, body, described)


def _encode(names: Sequence[str]) -> bytes:
    encoded = [name.encode() for name in names]
    return b"".join(
        [_COUNT.pack(len(encoded)), *(_LENGTH.pack(len(name)) + name for name in encoded), _ALLOWED]
    )


API: Api[ServerCore] = cast(
    "Api[ServerCore]",
    replace(cast("Api[Any]", metadata.API), handle=_handle, needs=metadata.CREATING_NEEDS),
)
