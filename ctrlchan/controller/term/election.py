"""The election of this controller, the begin and the end of its terms.

Source: ``KafkaController.elect``, ``maybeResign``, ``triggerControllerMove``, ``processExpire`` (Kafka 3.9).
Different on purpose: ``/controller`` and ``/controller_epoch`` change in one transaction; a term also ends
when ZooKeeper does not answer, because the result of a write is then unknown; after a failed term the next
election waits a little.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic, time
from typing import Final

from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import Event
from ctrlchan.controller.events.event_loop import EventLoop
from ctrlchan.controller.events.notifications import NotificationKind
from ctrlchan.controller.term.failover import fail_over
from ctrlchan.errors import (
    ChannelError,
    ControllerMovedError,
    CtrlchanError,
    IllegalStateError,
    MigrationError,
    SessionExpiredError,
    ZooKeeperError,
)
from ctrlchan.log_context import ContextLogger
from ctrlchan.zookeeper import paths
from ctrlchan.zookeeper.cluster import ClusterNodes
from ctrlchan.zookeeper.session import ZooKeeperSession
from ctrlchan.zookeeper.values import ControllerNode, Elected, ElectionRead

__all__ = ["Elector"]

_LOG: Final = logging.getLogger("ctrlchan.controller")

#: After these the state or the channel may be wrong: reading everything again mends both.
_ENDS_THE_TERM: Final = (IllegalStateError, ZooKeeperError, ChannelError)
#: Seconds until the next election after a term that failed: the first pause, doubled up to the longest.
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 10.0
#: Seconds that the end of the channel's processes may take when a term ends.
_CHANNEL_TIMEOUT: Final = 5.0


class Elector:
    """Takes part in elections and owns the core of the current term. Used on the loop's thread.

    ``begin_term``: makes the core of a won election. Any thread may read ``core``, ``active_since``,
    ``active_controller_id`` and ``refusal``.
    """

    def __init__(
        self,
        controller_id: int,
        session: ZooKeeperSession,
        nodes: ClusterNodes,
        begin_term: Callable[[Elected], ControllerCore],
    ) -> None:
        self._log = ContextLogger(_LOG, f"[Controller id={controller_id}] ")
        self._id = controller_id
        self._session = session
        self._nodes = nodes
        self._begin_term = begin_term
        self._pause = _FIRST_PAUSE
        # Monotonic time before which this controller leaves the election to others.
        self._not_before = 0.0
        #: What the handlers share; None while this is not the controller.
        self.core: ControllerCore | None = None
        #: Unix time of the won election; None while this is not the controller.
        self.active_since: float | None = None
        #: The id in ``/controller`` when it was last read, or None if nobody was the controller.
        self.active_controller_id: int | None = None
        #: Why this controller may not be elected (a migration to KRaft).
        self.refusal: MigrationError | None = None
        self._loop: EventLoop[ControllerCore] | None = None
        self._is_watched = False

    def attach(self, loop: EventLoop[ControllerCore]) -> None:
        """Put events into this loop."""
        self._loop = loop

    # -- events

    def startup(self) -> None:
        """Watch ``/controller`` and take part in the election."""
        self._elect(self._read())

    def take_over(self) -> None:
        """Become the controller, in place of another one too."""
        self._elect(self._read(), replace=True)

    def controller_changed(self) -> None:
        """Resign when ``/controller`` is another's; take part in an election when it is nobody's."""
        read = self._read()
        if self._resign_unless_controller(read):
            # The end of the term may have taken seconds.
            read = self._read()
        self._elect(read)

    def expired(self) -> None:
        """End the term: the session is gone, and ``/controller`` with it."""
        self.end_term("the session with ZooKeeper has expired")
        self.active_controller_id = None
        self._is_watched = False
        self._session.renew()

    def silent(self) -> None:
        """End the term: ZooKeeper has been silent for a session timeout, and the session may have expired."""
        self.end_term("ZooKeeper has been silent for a session timeout")

    def connected(self, new_session: bool) -> None:
        """Look whose ``/controller`` is: a term may have ended while ZooKeeper was silent."""
        if new_session:
            self._is_watched = False
        self.controller_changed()

    def fenced(self, core: ControllerCore) -> None:
        """Elect again, with a higher epoch: a broker knows a higher controller epoch than this term's.

        Where another controller stands in ZooKeeper, resign.
        """
        self._resign_unless_controller(self._read())
        if self.core is core:
            self._log.warning(
                "A broker knows a controller epoch above %d, but ZooKeeper names no other controller: "
                "electing again",
                core.epoch,
            )
            self.give_up("a broker knows a higher controller epoch")

    def failed(self, event: Event, error: BaseException) -> None:
        """Act on an exception of an event: end the term where the state may be wrong, else log it."""
        moved = isinstance(error, ControllerMovedError) or isinstance(error.__cause__, ControllerMovedError)
        if moved:
            self._log.info("Controller moved to another broker when processing %s: %s", event, error)
            self._after_moved()
        elif isinstance(error, SessionExpiredError):
            # The event of the expired session follows, or was just processed.
            self._log.warning("The session expired when processing %s", event)
            self.end_term("the session with ZooKeeper has expired")
        elif isinstance(error, _ENDS_THE_TERM) and self.core is not None:
            self._log.error(
                "Error processing event %s; forcing the controller to resign", event, exc_info=error
            )
            self.give_up(f"{event}: {error}")
        else:
            self._log.error("Error processing event %s", event, exc_info=error)

    # -- the end of a term

    def end_term(self, reason: str) -> None:
        """Stop sending, drop the term's events, and forget the cluster.

        Source: ``onControllerResignation``.
        """
        core = self.core
        if core is None:
            return
        self._log.info("Resigning: %s", reason)
        core.fence()
        self.core = None
        self.active_since = None
        core.batch.clear()
        core.channel.shutdown(_CHANNEL_TIMEOUT)
        core.notify(NotificationKind.RESIGNED, reason=reason)
        self._log.info("Resigned")

    def give_up(self, reason: str) -> None:
        """End the term and delete ``/controller``, so that there is another election.

        Source: ``triggerControllerMove``.
        """
        core = self.core
        if core is None:
            return
        self.end_term(reason)
        try:
            self._nodes.resign(core.context.epoch_zk_version)
        except ControllerMovedError:
            self._log.warning("Controller has already moved when trying to trigger controller movement")
        except ZooKeeperError as error:
            # The node goes with the session, or with the next election of this controller.
            self._log.error("/controller could not be deleted: %s", error)
        self._elect_later()

    # -- inside

    def _read(self) -> ElectionRead:
        """Read what an election depends on, and watch ``/controller``."""
        if self._is_watched:
            return self._nodes.read_election()
        # Set before: the callback may come before this returns.
        self._is_watched = True
        try:
            return self._nodes.read_election(self._controller_fired)
        except BaseException:
            self._is_watched = False
            raise

    def _controller_fired(self, _path: str) -> None:
        """Called on a thread of the ZooKeeper client."""
        assert self._loop is not None

        def process() -> None:
            self._is_watched = False
            self.controller_changed()

        self._loop.put(Event.of_election("ControllerChange", process))

    def _resign_unless_controller(self, read: ElectionRead) -> bool:
        """Return whether a term has ended. Source: ``maybeResign``."""
        node = read.controller
        self.active_controller_id = None if node is None else node.broker_id
        if self.core is not None and (node is None or not self._is_ours(node)):
            other = "nobody" if node is None else node.broker_id
            self.end_term(f"/controller names {other}")
            return True
        return False

    def _is_ours(self, node: ControllerNode) -> bool:
        return node.ephemeral_owner == self._session.session_id

    def _after_moved(self) -> None:
        try:
            self._resign_unless_controller(self._read())
        except ZooKeeperError as error:
            self._log.warning("/controller cannot be read: %s", error)
        self.end_term("another controller may have been elected")
        self._elect_later()

    def _elect(self, read: ElectionRead, *, replace: bool = False) -> None:
        if self.core is not None:
            return
        if monotonic() < self._not_before and not replace:
            # ``_elect_later`` has set a timer.
            return
        try:
            node = read.controller
            # One of this session is left of a term that could not delete it.
            if node is not None and not replace and not self._is_ours(node):
                self.active_controller_id = node.broker_id
                self._log.debug(
                    "Broker %d has been elected as the controller, so stopping the election process.",
                    node.broker_id,
                )
                self._check_migration(node.kraft_epoch)
                return
            now_ms = int(time() * 1_000)
            elected = self._nodes.become_controller(self._id, now_ms, replace=replace, read=read)
        except ControllerMovedError as error:
            self._log.info("Another controller was elected: %s", error)
            self.active_controller_id = None
            return
        except MigrationError as error:
            self._refuse(error)
            return
        except SessionExpiredError:
            raise
        except ZooKeeperError as error:
            self._log.error("The election failed: %s", error)
            self._elect_later()
            return
        self.refusal = None
        self.active_controller_id = self._id
        self._log.info(
            "%d successfully elected as the controller. Epoch incremented to %d and epoch zk version is now "
            "%d",
            self._id,
            elected.epoch,
            elected.epoch_zk_version,
        )
        self._serve(elected)

    def _serve(self, elected: Elected) -> None:
        core = self._begin_term(elected)
        self.core = core
        self.active_since = time()
        try:
            fail_over(core)
        except (ControllerMovedError, SessionExpiredError):
            raise
        except (CtrlchanError, Exception) as error:
            if isinstance(error.__cause__, ControllerMovedError) or self._session.is_closed:
                raise
            self._log.error(
                "Error while becoming controller; forcing the controller to resign", exc_info=error
            )
            self.give_up(f"the failover failed: {error}")
        else:
            self._pause = _FIRST_PAUSE

    def _check_migration(self, kraft_epoch: int) -> None:
        if kraft_epoch >= 0:
            self._refuse(MigrationError(f"{paths.CONTROLLER}: kraftControllerEpoch is {kraft_epoch}"))
        else:
            self.refusal = None

    def _refuse(self, error: MigrationError) -> None:
        if self.refusal is None:
            self._log.error(
                "This controller may not be elected: the cluster is migrating to KRaft (%s)", error
            )
        self.refusal = error

    def _elect_later(self) -> None:
        """Take part in an election after a pause, which grows until a failover succeeds."""
        assert self._loop is not None
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        self._not_before = monotonic() + pause
        self._loop.schedule(
            Event.of_election("Reelect", self.controller_changed),
            pause,
        )
