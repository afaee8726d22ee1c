"""The server of a controller that a broker of the same process passes requests to: it has no listener."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from ctrlchan.authorizer.interface import Authorizer
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event_loop import EventLoop
from ctrlchan.controller.server.apis.table import served_apis
from ctrlchan.controller.server.core import ProducerIds, ServerCore
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.server.api import Buffers
from ctrlchan.server.request_context import RequestContext
from ctrlchan.server.request_handler import RequestHandler
from ctrlchan.state import Endpoint

__all__ = ["LocalServer"]


class LocalServer:
    """Answers frames that came to a broker's listeners, until ``close``.

    ``endpoint``: the broker's listener for brokers. ``loop`` runs what changes the cluster. ``current``
    returns the core of this term, or None while this is not the controller. ``read_cluster_id`` returns the
    id of the cluster. ``authorizer``: the broker's; None allows everything. All methods are thread-safe.
    """

    def __init__(
        self,
        config: ControllerConfig,
        endpoint: Endpoint,
        loop: EventLoop[ControllerCore],
        current: Callable[[], ControllerCore | None],
        *,
        read_cluster_id: Callable[[], str],
        authorizer: Authorizer | None,
    ) -> None:
        # Its own thread, so that leaders do not wait for clients.
        self._replies = ThreadPoolExecutor(1, thread_name_prefix="controller-replies")
        core = ServerCore(config, endpoint, loop, current, read_cluster_id, ProducerIds(), self._replies)
        apis = served_apis()
        self._handler = RequestHandler(core, apis, authorizer=authorizer)
        core.serve = self._handler.serve
        self._own_handler = RequestHandler(core, apis)
        self._own_context = RequestContext(endpoint.listener, endpoint.security_protocol, endpoint.host, 0, 0)

    @property
    def is_active(self) -> bool:
        """Whether this is the controller."""
        return self._handler.core.is_active

    def serve(self, frame: bytes | memoryview, context: RequestContext) -> Buffers | Future[Buffers]:
        """Answer a frame as a listener does. Raises ProtocolError where that closes the connection."""
        return self._handler.serve(frame, context)

    def serve_own(self, frame: bytes) -> Buffers | Future[Buffers]:
        """Answer a request of the broker itself. As in Kafka it needs no permission of its own process."""
        return self._own_handler.serve(frame, self._own_context)

    def close(self) -> None:
        """End the thread that makes answers, after the controller was closed."""
        self._replies.shutdown()
